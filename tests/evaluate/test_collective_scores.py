"""Claims about scores of collectives: by the engine's own model, on the library's machines."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from crosstack.evaluate.collective_scores import (
    CollectiveSet,
    Library,
    MeasuredCollective,
    collectives_said,
    line_said,
    score_sets,
)
from crosstack.io import library
from crosstack.machine.system import Parallelism
from crosstack.model.collectives import LeastTime, NetworkUse
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernels import Collective

C = Collective
SYSTEM = library.system_on("h100-dgx")
ROW = MeasuredCollective(collective=C.ALL_REDUCE, ranks=8, size=2**20, time=1e-5)


def rows(**changes):
    return [replace(ROW, **changes)]


@pytest.mark.parametrize("chips", [2, 8, 16])
@pytest.mark.parametrize("collective", [C.ALL_REDUCE, C.ALL_GATHER, C.REDUCE_SCATTER, C.ALL_TO_ALL])
def test_a_row_of_the_library_takes_what_a_mapping_takes_whose_framework_has_no_kernels(
    collective, chips
):
    system = library.system_on("h100-dgx", chips=chips, framework="megatron")
    sizes = tuple(level.size for level in system.network)
    network = NetworkUse.of(system, sizes, (Parallelism.TENSOR,) * len(sizes), Dtype.BF16)
    size = 2.0**20 * (chips if collective is C.ALL_TO_ALL else 1)
    (said,) = collectives_said(rows(collective=collective, ranks=chips), system)
    assert said == LeastTime().kernels(network)[collective].time(size)


def test_kernels_of_frameworks_are_faster_for_few_bytes_and_the_library_for_many():
    def said(kernel, size):
        return collectives_said(rows(library=kernel, size=size), SYSTEM)[0]

    for own in (Library.TENSORRT_LLM, Library.VLLM):
        assert said(own, 1024) < 0.5 * said(Library.NCCL, 1024)
        assert said(own, 2**30) == said(Library.NCCL, 2**30)
    # Eager: two launches of 5 us, or a copy before the kernel, whichever takes longer.
    assert said(Library.VLLM_EAGER, 1024) == 10e-6
    copied = 2 * 2**22 / SYSTEM.chip.main_memory.speed
    assert said(Library.VLLM_EAGER, 2**22) == pytest.approx(said(Library.VLLM, 2**22) + copied)
    assert said(Library.VLLM_EAGER, 2**28) == said(Library.NCCL, 2**28)
    # By hand: 2 us in a graph; a flag, a read there and back and a flag of 0.6 us each.
    assert said(Library.VLLM, 1) == pytest.approx(2e-6 + 4 * 0.6e-6, rel=1e-4)
    assert said(Library.TENSORRT_LLM, 1) == pytest.approx(2e-6 + 0.6e-6, rel=1e-4)


@pytest.mark.parametrize(
    ("collective", "loads"),
    [
        (C.ALL_REDUCE, 14 / 8),
        (C.ALL_GATHER, 7 / 8),
        (C.REDUCE_SCATTER, 7 / 8),
        (C.ALL_TO_ALL, 7 / 8),
    ],
)
def test_the_line_is_a_launch_and_the_bytes_at_one_share_of_the_bandwidth(collective, loads):
    (found,) = line_said(rows(collective=collective), SYSTEM)
    assert found == pytest.approx(5e-6 + loads * 2**20 / (0.8 * 450e9))


def test_scores_are_by_machine_library_and_collective_and_over_all_of_a_library():
    sizes = [2**10, 2**18, 2**22, 2**28]
    measured = [
        replace(ROW, collective=collective, size=size, time=1e-5)
        for collective in (C.ALL_REDUCE, C.ALL_GATHER)
        for size in sizes
    ]
    own = replace(ROW, library=Library.VLLM)
    found = score_sets([CollectiveSet(gpu="H100", system=SYSTEM, rows=(*measured, own))])
    assert list(found) == [
        ("H100", "NCCL", "all"), ("H100", "NCCL", "all_gather"), ("H100", "NCCL", "all_reduce"),
        ("H100", "vLLM", "all_reduce"),
    ]  # fmt: skip
    assert [score.ours.rows for score in found.values()] == [8, 4, 4, 1]
    gathers = found["H100", "NCCL", "all_gather"]
    assert [one and one.rows for one in gathers.by_size] == [1, 1, 1, 1]
    assert [one and one.rows for one in found["H100", "vLLM", "all_reduce"].by_size] == [
        None, None, 1, None,
    ]  # fmt: skip
    (said,) = collectives_said(rows(collective=C.ALL_GATHER, size=2**28), SYSTEM)
    assert gathers.by_size[3].bias == pytest.approx(math.log(said / 1e-5))
