"""Training in fewer bits: which products read them, what casts move, and what is kept, by hand."""

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.evaluate.predicted import predict_job
from crosstack.io import library
from crosstack.io.native.read_graph import graph_in
from crosstack.io.native.write import write_graph
from crosstack.model.memory import copy_memory, kept_tensors
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.job import Job
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.passes.quantized import RECIPES

LLAMA = library.model("llama3-8b")
T, H, F, KV = 128, 4096, 14336, 1024  # tokens, hidden, feed-forward width, width of keys
WEIGHTS = 2 * H * H + 2 * H * KV + 3 * H * F  # of the products of a layer
SIZES = {"fp8": 1.0, "mxfp8": 33 / 32, "nvfp4": 9 / 16, "fp8-blocks": 33 / 32}


def layer(dtype: str, model: str = "llama3-8b") -> KernelGraph:
    """Return one layer in training, of 128 tokens."""
    return Job(model=library.model(model), batch=8, sequence=T, dtype=dtype).workload.graph


@pytest.mark.parametrize("dtype", RECIPES)
def test_products_of_weights_of_layers_and_no_others_are_in_fewer_bits(dtype):
    """2 FLOP a weight and token forward, twice that backward; scores and values stay."""
    graph = layer(dtype)
    work = {kind: float(graph.work[those].sum()) for kind, those in graph.kernels_by_dtype}
    assert {*work} == {dtype, Dtype.BF16}
    assert work[dtype] == 6 * T * WEIGHTS
    assert work[Dtype.BF16] == layer("bf16").total_work + casts(graph) - 6 * T * WEIGHTS


def casts(graph: KernelGraph) -> float:
    """Work of all casts. [FLOP]"""
    return float(sum(w for n, w in zip(graph.names, graph.work, strict=True) if "_cast" in n))


@pytest.mark.parametrize("dtype", RECIPES)
def test_a_tensor_is_cast_once_for_all_that_read_it(dtype):
    """What is read: normed tokens twice, attended, gated; gradients of seven products, two alike.

    Up and gate, and queries, keys and values, have gradients of their own; down and the last of
    attention have those that come from behind.
    """
    graph = layer(dtype)
    cast = np.array([name.endswith("_cast") for name in graph.names])
    assert (cast & ~graph.backward).sum() == 4
    assert (cast & graph.backward).sum() == 7
    assert graph.input_element[cast, 0].tolist() == [2.0] * 11
    assert graph.output_element[cast].tolist() == [SIZES[dtype]] * 11
    assert graph.copies[cast].tolist() == [2] * 11
    assert not graph.copies[~cast].max() > 1


@pytest.mark.parametrize("dtype", RECIPES)
def test_what_a_product_reads_backward_is_kept_in_fewer_bits(dtype):
    """Normed tokens twice, attended and gated; all else is kept as before."""
    kept = {kind: float(kept_size(layer(kind))) for kind in ("bf16", dtype)}
    assert kept["bf16"] - kept[dtype] == T * (3 * H + F) * (2 - SIZES[dtype])


def kept_size(graph: KernelGraph) -> float:
    """Bytes that a layer keeps for its backward pass. [B]"""
    return float((kept_tensors(graph).output * graph.output_size).sum())


@pytest.mark.parametrize("dtype", RECIPES)
def test_weights_are_held_in_two_copies_beside_those_that_they_are_cast_from(dtype):
    """Of deepseek's recipe the master weights are cast, which the optimizer has."""
    job = Job(model=LLAMA, batch=8, sequence=T, dtype=dtype)
    workload, rules = job.workload, rules_named("crosstack")
    graph, system = workload.graph, library.system_on("b200")
    plan = make_plan(workload, system, (1,), ("none",), 1, rules)  # type: ignore[arg-type]
    nothing = np.zeros(graph.n)
    weight = np.where(graph.has_weight, graph.weight_size, 0.0)
    held = copy_memory(
        workload, graph, plan, rules,
        weight=weight, cache=nothing, kept=nothing, again=nothing, waiting=nothing,
    )  # fmt: skip
    beside = 0 if dtype is Dtype.FP8_BLOCKS else 2
    each = 2 * SIZES[dtype] + beside
    assert held.weights.sum() == WEIGHTS * each
    assert held.gradients.sum() == WEIGHTS * 2
    assert held.optimizer_state.sum() == WEIGHTS * 12
    # Once an iteration, for each of two bytes of a gradient: read what stays, write the copies.
    speed = system.chip.memory_speed(spilled=False)
    assert plan.casting == pytest.approx(each / 2 / speed, rel=1e-12, abs=0)
    assert plan.update == pytest.approx(54 / 2 / speed, rel=1e-12, abs=0)


def test_routers_and_heads_stay_as_they_are():
    graph = layer("fp8-blocks", "deepseek-v3")
    products = {n for n, d, g in zip(graph.names, graph.dtypes, graph.gemm, strict=True)
                if g and d is Dtype.BF16}  # fmt: skip
    assert {name.removeprefix("expert_").split("_bwd")[0] for name in products} == {
        "routes", "scores", "attended"
    }  # fmt: skip
    job = Job(model=library.model("deepseek-v3"), batch=8, sequence=T, dtype="fp8-blocks")
    head = next(end.graph for end in job.workload.after if end.name == "head")
    assert {*head.dtypes} == {Dtype.BF16}


def test_a_step_takes_less_than_in_bf16_and_more_than_half():
    system = library.system_on("h100-dgx")
    given = {"zero": 1, "recompute": "attention"}
    times = [
        predict_job(
            Job(model=LLAMA, batch=8, sequence=2048, dtype=dtype), system, "dp=8", **given
        ).time
        for dtype in ("bf16", "fp8")
    ]
    assert times[0] / 2 < times[1] < times[0]


@pytest.mark.parametrize(("node", "dtype"), [("a100-dgx-80gb", "fp8"), ("h100-dgx", "mxfp8")])
def test_a_chip_without_a_rate_of_the_type_is_refused_by_name(node, dtype):
    job = Job(model=LLAMA, batch=8, sequence=T, dtype=dtype)
    with pytest.raises(InputError, match=f"no rate for {dtype}; it has"):
        predict_job(job, library.system_on(node), "tp=8")


@pytest.mark.parametrize("kind", ["forward", "prefill"])
def test_types_with_scales_are_of_training(kind):
    with pytest.raises(InputError, match="dtype: mxfp8: allowed to train; else: fp64"):
        Job(model=LLAMA, kind=kind, sequence=T, dtype="mxfp8")


def test_a_graph_of_fewer_bits_is_written_and_read():
    graph = Job(model=library.model("llama-68m"), sequence=16, dtype="fp8").graph
    assert graph_in(write_graph(graph), "graph") == graph
    cast = {o.made for b in graph.blocks for o in b.operations if o.function is Function.QUANTIZE}
    assert {graph.tensor[name].dtype for name in cast} == {Dtype.FP8}


@pytest.mark.parametrize(("dtype", "size"), SIZES.items())
def test_an_element_has_its_share_of_a_scale(dtype, size):
    assert Dtype(dtype).size == size
