"""Bytes of an element by tensor, and what kernels compute with, where a graph has several types."""

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.machine.chip import Chip
from crosstack.model.parts import Clock
from crosstack.workload.axes import AxisUse
from crosstack.workload.draft import Draft
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.operations import Role

TOKENS, WIDTH, INNER = 8, 16, 32


def mixed() -> KernelGraph:
    """Return a product of FP8 operands with a BF16 result, and what follows it in BF16."""
    draft = Draft()
    draft.axis(AxisUse.TOKEN, token=TOKENS)
    draft.axis(width=WIDTH, inner=INNER)
    x = draft.tensor("x", "token width", dtype=Dtype.FP8)
    weight = draft.tensor("w", "width inner", Role.WEIGHT, dtype=Dtype.FP8)
    up = draft.product("up", x, weight, "token inner")
    draft.make("active", Function.RELU, up)
    return workload_of(draft.graph()).graph


def test_products_compute_with_what_they_read_and_others_with_the_widest() -> None:
    graph = mixed()
    assert graph.dtypes == (Dtype.FP8, Dtype.BF16)
    assert graph.dtype is Dtype.FP8  # of products


def test_each_tensor_has_elements_of_its_own_size() -> None:
    graph = mixed()
    assert graph.input_element[:, 0].tolist() == [1.0, 2.0]
    assert graph.output_element.tolist() == [2.0, 2.0]
    assert graph.input_sizes[:, 0].tolist() == [TOKENS * WIDTH, TOKENS * INNER * 2.0]
    assert graph.output_size.tolist() == [TOKENS * INNER * 2.0] * 2
    assert graph.weight_size[0] == WIDTH * INNER
    assert graph.parameters[0] == WIDTH * INNER


def test_a_list_cannot_say_a_graph_of_several_types() -> None:
    with pytest.raises(InputError, match="dtype: got 'bf16, fp8'; allowed: one type"):
        _ = mixed().word
    assert mixed().computed_in(Dtype.BF16).dtypes == (Dtype.BF16, Dtype.BF16)


def test_work_takes_as_long_as_its_own_type_says(h100: Chip) -> None:
    graph, clock = mixed(), Clock()
    slower = clock.slower(h100, graph)
    twice = h100.rate(Dtype.FP8) / h100.rate(Dtype.BF16)
    assert np.array_equal(slower, [1.0, twice])
    work = {Dtype.FP8: 3e12, Dtype.BF16: 1e12}
    by_hand = sum(done / clock.reached_rate(h100, dtype) for dtype, done in work.items())
    assert clock.least_time(h100, work) == by_hand


@pytest.fixture
def h100() -> Chip:
    """Return a chip that has rates by type."""
    from crosstack.io.library import system_on

    return system_on("h100-dgx").chip
