"""Residual convolutional networks: parameters, work and products as they are published."""

from __future__ import annotations

import numpy as np
import pytest
from builders import named_models
from oracles.differences import gradient_errors

import crosstack
from crosstack.errors import InputError
from crosstack.io import library
from crosstack.workload.architectures import ResidualNetwork
from crosstack.workload.axes import AxisUse, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.functions import Function
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.job import Job
from crosstack.workload.lowering import lowered
from crosstack.workload.passes.backward import training
from crosstack.workload.residual_graph import residual_graph

RESNET = library.image_model("resnet50")
SMALL = ResidualNetwork(blocks=(2, 1), width=2, image=8, colours=1, classes=3)
STEP = Job(model=RESNET, batch=64).workload.graph


# he2016resnet, table 1, with the parameters and the giga-multiplications of torchvision's files
@pytest.mark.parametrize(
    ("name", "parameters", "multiplications"),
    [
        ("resnet50", 25_557_032, 4.089),
        ("resnet101", 44_549_160, 7.801),
        ("resnet152", 60_192_808, 11.514),
    ],
)
def test_parameters_and_work_are_those_published(name, parameters, multiplications):
    model = library.image_model(name)
    graph = residual_graph(model, images=1, train=False)
    products = sum(graph.work(nest) for _, nest in graph.nests() if nest.operation.multiplies)
    assert model.n_parameters == graph.n_parameters == parameters
    assert model.forward_flop == products
    assert products / 2e9 == pytest.approx(multiplications, abs=5e-4)


def test_convolutions_make_as_many_activations_as_is_published():
    # radosavovic2020designing, table 3: 11.1 million of ResNet-50
    made = sum(c.channels * c.places**2 for c in RESNET.convolutions)
    assert made / 1e6 == pytest.approx(11.1, abs=0.05)


def test_a_training_step_is_three_forward_passes_of_products_but_for_the_image():
    forward = STEP.gemm & ~STEP.backward
    first = STEP.work[STEP.index["conv1"]]  # nobody asks for a gradient of the picture
    assert STEP.work[forward].sum() == RESNET.forward_flop
    assert STEP.work[STEP.gemm].sum() == 3 * RESNET.forward_flop - first
    assert int(forward.sum()) == 54  # 53 convolutions and the classifier


# By hand: the first 3 x 3 convolution of the second stage has 128 channels in and out, looks at
# every second of 56 x 56 places, and makes 28 x 28 of them; the weight is 9 x 128 x 128.
@pytest.mark.parametrize(
    ("kernel", "m", "k", "n", "stored"),
    [
        ("conv_2_1", 128, 9 * 128, 28 * 28, (4 / 9, 1, 1)),  # reads 56 x 56 of 9 x 28 x 28
        ("conv_2_1_bwd0", 128, 9 * 128, 28 * 28, (1 / 9, 1, 4)),  # writes 56 x 56
        ("conv_2_1_bwd1", 9 * 128, 28 * 28, 128, (1, 4 / 9, 1)),
        ("skip_2_1", 512, 256, 28 * 28, (1, 1, 1)),  # reads every fourth place of 56 x 56
        ("skip_2_1_bwd0", 256, 512, 28 * 28, (1, 1, 4)),  # and writes zero to the others
        ("conv1", 64, 49 * 3, 112 * 112, (4 / 49, 1, 1)),
        ("conv1_bwd1", 49 * 3, 112 * 112, 64, (1, 4 / 49, 1)),
    ],
)
def test_a_convolution_is_the_product_that_its_windows_imply(kernel, m, k, n, stored):
    i = STEP.index[kernel]
    assert STEP.gemm[i]
    assert STEP.outer[i] == 1
    assert (STEP.m[i], STEP.k[i], STEP.columns[i]) == (m, k, n)
    assert tuple(STEP.stored[i]) == pytest.approx(stored)


def test_products_of_many_channels_read_and_make_their_tensors_once():
    multiplied = np.flatnonzero(STEP.gemm)
    for i in multiplied.tolist():
        made = STEP.m[i] * STEP.columns[i] * STEP.stored[i, 2] * STEP.output_element[i]
        assert made == pytest.approx(STEP.output_size[i])


def one_convolution(channels: int = 64, size: int = 28) -> Graph:
    draft = Draft()
    draft.axis(AxisUse.TOKEN, image=8, y=size, x=size, y_in=size, x_in=size)
    draft.axis(c=channels, f=channels, ty=3, tx=3)
    picture = draft.tensor("picture", "image y_in x_in c")
    weight = draft.weight("W", "ty tx c f")
    slides = (Window(axis=f"{a}_in", at=a, tap=f"t{a}", padding=1) for a in "yx")
    draft.convolve("conv", picture, weight, "image y x f", *slides)
    return draft.graph()


def test_a_convolution_moves_its_picture_and_not_nine_copies_of_it():
    system = crosstack.system("h100-sxm")
    found = crosstack.optimise(workload_of(one_convolution(), items="image"), system).evaluation
    (only,) = found.partitions
    picture, weight = 28 * 28 * 64 * 2, 9 * 64 * 64 * 2  # [B], of one image
    assert 2 * picture < only.memory_traffic <= 2 * picture + weight  # the eight share it


def test_a_batch_norm_reads_what_it_norms_twice_and_writes_it_once():
    # of the first norm: 112 x 112 x 64 elements of 2 bytes
    size = 112 * 112 * 64 * 2
    norm, gradient = STEP.index["norm_conv1"], STEP.index["norm_conv1_bwd0"]
    assert STEP.input_sizes[norm].tolist() == [size, 0]
    assert (STEP.reread[norm], STEP.output_size[norm]) == (size, size)
    assert STEP.reread[gradient] == 2 * size  # what it read, and the gradient


@pytest.mark.parametrize("model", [SMALL, ResidualNetwork(blocks=(1,), width=1, image=4)])
def test_the_derived_gradients_are_those_of_differences(model):
    graph = residual_graph(model, images=2, train=False)
    values = named_models.values_of(graph)
    some = {"W_conv1", "W_conv_1_1", "W_skip_1_1", "scale_expand_1_1", "shift_conv1", "W_head"}
    found = gradient_errors(graph, values)
    assert some <= {*found}
    for name, (derived, differences) in found.items():
        assert derived == pytest.approx(differences, rel=1e-4, abs=1e-6), name


def test_what_skips_a_block_is_added_to_what_it_makes_and_both_have_gradients():
    graph = lowered(training(residual_graph(SMALL, images=1, train=False), "loss"), "part_1")
    assert graph.functions[graph.index["add_1_2"]] == Function.ADD
    read = {graph.names[i] for i in graph.source[graph.target == graph.index["add_1_2"]]}
    assert read == {"norm_expand_1_2", "relu_add_1_1"}
    assert "relu_add_1_1_gradient" in graph.index


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sequence": 8}, "sequence: got 8; allowed: none: ResNet-50 works on images"),
        ({"kind": "prefill"}, "kind: got 'prefill'; allowed: train or forward"),
        ({"dtype": "fp8"}, "dtype: got 'fp8'; allowed: fp64"),
        ({"expert_imbalance": 2.0}, "ResNet-50 has no experts"),
    ],
)
def test_what_images_have_not_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        Job(model=RESNET, **changes)


def test_an_image_is_halved_at_every_stage():
    with pytest.raises(InputError, match="image: got 100; allowed: a multiple of 32"):
        ResidualNetwork(blocks=(1, 1, 1, 1), image=100)


@pytest.mark.parametrize("chips", [1, 2])
def test_chips_that_split_channels_read_their_own_of_them_twice(chips):
    draft = Draft()
    draft.axis(AxisUse.TOKEN, image=4, y=16, x=16)
    draft.axis(c=64)
    x = draft.tensor("x", "image y x c")
    draft.rows("norm", Function.BATCH_NORM, x, over="image y x", parameter=1e-5)
    system = crosstack.system("h100-dgx", chips=chips)
    given = crosstack.Constraints(degrees=crosstack.Degrees(tensor=chips))
    workload = workload_of(draft.graph(), items="image")
    found = crosstack.optimise(workload, system, constraints=given).evaluation
    (only,) = found.partitions
    assert only.memory_traffic == 3 * 16 * 16 * 64 * 2 / chips
