"""U-Nets: parameters, sizes and work as they are published or follow, gradients, what is kept."""

from __future__ import annotations

import pytest
from builders import named_models
from oracles.differences import gradient_errors
from oracles.interpreter import run

import crosstack
from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.native import read_graph, read_task, write_graph
from crosstack.model.memory_account import ROWS
from crosstack.workload.architectures import UNet
from crosstack.workload.axes import AxisUse, Window
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.functions import Function
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.job import Job
from crosstack.workload.operations import Role
from crosstack.workload.passes.backward import kept
from crosstack.workload.unet_graph import unet_graph

UNET = library.image_model("unet")
PADDED = UNet(image=512, padding=1)
TINY = UNet(levels=2, width=2, image=20, classes=3)
TINY_PADDED = UNet(levels=3, width=1, image=8, colours=2, classes=3, padding=1)
STEP = Job(model=UNET, batch=64).workload.graph


def pair(inputs: int, channels: int, places: int) -> int:
    """Multiplications of the two 3 x 3 convolutions of a level, from places that are left. [1]"""
    return 9 * channels * (inputs * places**2 + channels * (places - 2) ** 2)


# ronneberger2015unet, figure 1: channels and places of every arrow
MULTIPLICATIONS = (
    pair(1, 64, 570) + pair(64, 128, 282) + pair(128, 256, 138) + pair(256, 512, 66)
    + pair(512, 1024, 30)
    + 4 * (1024 * 512 * 28**2 + 512 * 256 * 52**2 + 256 * 128 * 100**2 + 128 * 64 * 196**2)
    + pair(1024, 512, 54) + pair(512, 256, 102) + pair(256, 128, 198) + pair(128, 64, 390)
    + 64 * 2 * 388**2
)  # fmt: skip


# chlebus2018profiling; with one class, 64 weights and a bias less
@pytest.mark.parametrize(
    ("model", "parameters"),
    [(UNET, 31_030_658), (UNet(classes=1), 31_030_593), (PADDED, 31_030_658)],
)
def test_parameters_are_those_published(model, parameters):
    graph = unet_graph(model, images=1, train=False)
    assert model.n_parameters == graph.n_parameters == parameters


def test_sizes_are_those_of_figure_1():
    assert len(UNET.convolutions) == 23  # section 2
    sizes = {c.name: (c.size, c.places) for c in UNET.convolutions}
    assert sizes["down_1_1"] == (572, 570)
    assert sizes["down_5_2"] == (30, 28)
    assert [sizes[f"up_{level}"] for level in (4, 3, 2, 1)] == [
        (56, 28), (104, 52), (200, 100), (392, 196)
    ]  # fmt: skip
    assert sizes["head"] == (388, 388)


def test_work_is_the_sum_over_all_arrows_of_figure_1():
    graph = unet_graph(UNET, images=1, train=False)
    products = sum(graph.work(nest) for _, nest in graph.nests() if nest.operation.multiplies)
    assert UNET.forward_flop == products == 2 * MULTIPLICATIONS == 300_856_848_896


def test_a_training_step_is_three_forward_passes_of_products_but_for_the_image():
    forward = STEP.gemm & ~STEP.backward
    first = 9 * 64 * 570**2 * 2  # nobody asks for a gradient of the picture
    assert int(forward.sum()) == 23
    assert STEP.work[forward].sum() == UNET.forward_flop
    assert STEP.work[STEP.gemm].sum() == 3 * UNET.forward_flop - first


# By hand: the lowest up-convolution reads 28 x 28 places of 1,024 channels, each of which adds to 2
# x 2 places of 512 channels; the weight is 4 x 1,024 x 512.
@pytest.mark.parametrize(
    ("kernel", "m", "k", "n", "stored"),
    [
        ("up_4", 512, 4 * 1024, 28 * 28, (1 / 4, 1, 4)),  # writes 56 x 56
        ("up_4_bwd0", 1024, 4 * 512, 28 * 28, (1, 1, 1)),
        ("up_4_bwd1", 1024, 28 * 28, 4 * 512, (1, 1, 1)),
    ],
)
def test_an_up_convolution_is_the_product_that_its_windows_imply(kernel, m, k, n, stored):
    i = STEP.index[kernel]
    assert STEP.gemm[i]
    assert (STEP.m[i], STEP.k[i], STEP.columns[i]) == (m, k, n)
    assert tuple(STEP.stored[i]) == pytest.approx(stored)


@pytest.mark.parametrize("model", [TINY, TINY_PADDED])
def test_the_derived_gradients_are_those_of_differences(model):
    graph = unet_graph(model, images=2, train=False)
    found = gradient_errors(graph, named_models.values_of(graph))
    assert {"W_down_1_1", "b_down_1_2", "W_down_2_2", "W_up_1", "b_up_1", "W_head"} <= {*found}
    for name, (derived, differences) in found.items():
        assert derived == pytest.approx(differences, rel=1e-4, abs=1e-6), name


def cropped(start: int) -> Graph:
    draft = Draft()
    draft.axis(AxisUse.TOKEN, whole=5, left=2)
    draft.axis(tap=1)
    x = draft.weight("x", "whole")
    window = Window(axis="whole", at="left", tap="tap", start=start)
    draft.make("crop", Function.CROP, x, axes="left", windows=(window,))
    probe = draft.tensor("probe", "left")
    draft.reduced("loss", Function.SUM, draft.make("y", Function.MULTIPLY, "crop", probe),
                  over="left")  # fmt: skip
    return draft.graph()


@pytest.mark.parametrize("start", [0, 2, 3])
def test_a_crop_is_the_places_from_its_start_on(start):
    graph = cropped(start)
    values = named_models.values_of(graph)
    assert run(graph, values)["crop"] == pytest.approx(values["x"][start : start + 2])
    ((derived, differences),) = gradient_errors(graph, values, of=(Role.WEIGHT,)).values()
    assert derived == pytest.approx(differences)


def test_a_graph_with_crops_is_written_and_read_again(tmp_path):
    graph = unet_graph(TINY, images=2)
    text = write_graph(graph)
    assert "start: 4" in text  # 16 places, of which 8 are left
    file = tmp_path / "unet.yaml"
    file.write_text(text)
    assert read_graph(file) == graph


def test_a_crop_has_one_tap():
    draft = Draft()
    draft.axis(whole=5, left=2, tap=2)
    x = draft.tensor("x", "whole")
    window = Window(axis="whole", at="left", tap="tap")
    draft.make("crop", Function.CROP, x, axes="left", windows=(window,))
    with pytest.raises(InputError, match="tap has 2 places; allowed: one, of a crop"):
        draft.graph()


def test_a_window_starts_inside_or_before_an_axis():
    with pytest.raises(InputError, match="start: got 2; allowed: 0, with padding"):
        Window(axis="whole", at="left", tap="tap", padding=1, start=2)


# ronneberger2015unet, figure 1: channels, places on the way down, and what is left of them
@pytest.mark.parametrize(
    ("level", "channels", "places", "left"),
    [(1, 64, 568, 392), (2, 128, 280, 200), (3, 256, 136, 104), (4, 512, 64, 56)],
)
def test_what_passes_by_the_levels_below_is_kept_for_the_backward_pass(
    level, channels, places, left
):
    graph = unet_graph(UNET, images=1)
    held = kept(graph)
    assert held[f"relu_down_{level}_2"] == 2 * channels * places**2  # of 2 bytes
    assert held[f"join_{level}"] == 2 * 2 * channels * left**2
    assert f"crop_{level}" not in held  # the whole is, and with what is beside it
    readers = {o.name for b in graph.blocks for o in b.operations
               if f"relu_down_{level}_2" in o.reads}  # fmt: skip
    assert {f"crop_{level}", f"pool_{level}", f"pool_{level}_bwd0"} <= readers


@pytest.mark.parametrize("on", ["tpu-v4-cube", "h100-dgx"])
def test_a_mapping_on_64_chips_is_as_good_as_proved_and_holds_what_is_kept(on):
    job = Job(model=UNET, batch=64, optimizer="sgd-momentum")
    plan = crosstack.optimise(job, crosstack.system(on, chips=64))
    assert plan.certificate.gap <= 0.02
    held = kept(unet_graph(UNET, images=1))
    activations = sum(held.values()) - held["labels"]  # of an image a chip, nothing made again
    sizes = dict(zip(ROWS, plan.evaluation.memory.sizes, strict=True))
    assert sizes["activations"] == pytest.approx((activations,))


def test_a_file_says_a_u_net_by_its_name():
    text = "workload: {images: {model: unet, batch: 64}}\nsystem: {on: h100-sxm}\n"
    assert read_task(text, "unet.yaml").workload.graph.names == STEP.names


def test_an_up_convolution_moves_its_picture_once():
    draft = Draft()
    draft.axis(AxisUse.TOKEN, image=8, y=28, x=28, y_out=56, x_out=56)
    draft.axis(c=64, f=32, ty=2, tx=2)
    picture, weight = draft.tensor("picture", "image y x c"), draft.weight("W", "ty tx c f")
    slides = (Window(axis=f"{a}_out", at=a, tap=f"t{a}", stride=2) for a in "yx")
    draft.convolve("up", picture, weight, "image y_out x_out f", *slides)
    system = crosstack.system("h100-sxm")
    workload = workload_of(draft.graph(), items="image")
    (only,) = crosstack.optimise(workload, system).evaluation.partitions
    read, made, held = 28 * 28 * 64 * 2, 56 * 56 * 32 * 2, 4 * 64 * 32 * 2  # [B], of one image
    assert read + made < only.memory_traffic <= read + made + held


def test_padded_features_pass_by_whole():
    graph = unet_graph(PADDED, images=1, train=False)
    assert not any(o.function is Function.CROP for b in graph.blocks for o in b.operations)
    assert graph.tensor["join_1"].axes == ("image", "y512", "x512", "c128")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image": 570}, "image: got 570; allowed: so many that there is an even number to halve"),
        ({"image": 172}, "image: got 172; allowed: so many that some are left"),
        ({"image": 100, "padding": 1}, "image: got 100; allowed: so many"),
        ({"padding": 2}, "padding: got 2; allowed: 0 or 1"),
    ],
)
def test_an_image_is_halved_between_levels(changes, message):
    with pytest.raises(InputError, match=message):
        UNet(**changes)
