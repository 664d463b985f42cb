"""Published DFModel runs of transformers kernel by kernel.

Sources: as `crosstack.published.dfmodel.cases`. Where a log prints the sharding, or its
partitions tell it, that sharding is given; otherwise ties among shardings of fewest bytes are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from crosstack.machine.chip import Chip, Overlap
from crosstack.machine.system import DimensionKind, Parallelism
from crosstack.mapping.mapping import Constraints, Task
from crosstack.published.case import Case
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.machines import (
    DATA,
    FORWARD_SHARDING,
    PIPELINE,
    RING,
    SWITCH,
    TENSOR,
    TRAINING_SHARDING,
    axes,
    chip,
    given,
    gpt3_1t,
    gpt3_175b,
    system,
)
from crosstack.published.dfmodel.printed import published_case

__all__ = ["ONE_TB", "calculon", "gpt_100t", "rail_only", "sn10_unfused", "unfused_cases"]

ONE_TB = 1099511600000.0
UNFUSED = Constraints(microbatch_size=1, kernel_by_kernel=True)
Dimensions = Sequence[tuple[DimensionKind, int, float, Parallelism]]


def calculon(degrees: tuple[int, int, int]) -> Task:
    """Return GPT-3 1T on 4,096 A100: tensor, pipeline and data chips, as compared with Calculon."""
    uses = (TENSOR, PIPELINE, DATA)
    speeds = (150.0, 25.0, 25.0)
    dimensions = tuple(
        (SWITCH, size, speed, use)
        for size, speed, use in zip(degrees, speeds, uses, strict=True)
        if size > 1
    )
    return Task(
        workload=gpt3_1t(),
        system=system(
            chip("A100", utilization=0.9, overlap=Overlap.NONE),
            (2039.0, 4294967296000.0),
            dimensions,
        ),
        constraints=UNFUSED,
    )


def _design_space(
    the_chip: Chip, dimensions: Dimensions, power: tuple[float, ...], tile_size: int | None = 2048
) -> Task:
    return Task(
        workload=gpt3_1t(),
        system=system(
            the_chip, (3072.0, 103079215104.0), dimensions, link_power=power, memory_power=0.05624
        ),
        constraints=replace(UNFUSED, tile_size=tile_size),
    )


def rail_only(domain_size: int) -> Task:
    """Return GPT-3 1T on 16,384 H100 in domains of ``domain_size`` chips."""
    machine = system(
        chip("H100", overlap=Overlap.NONE),
        (3072.0, None),
        ((SWITCH, 8, 900.0, TENSOR), (SWITCH, 2, 50.0, PIPELINE), (SWITCH, 1024, 50.0, DATA)),
        link_power=(0.052, 0.052, 0.0),
    )
    return Task(
        workload=replace(gpt3_1t(), global_batch_size=4096),
        system=replace(machine, domain_size=domain_size),
        constraints=UNFUSED,
    )


def sn10_unfused(overlap: Overlap) -> Task:
    """Return GPT-3 175B on a ring of 8 SN10, kernel by kernel, sharding of the log."""
    task = Task(
        workload=gpt3_175b(),
        system=system(chip("SN10", overlap=overlap), (100.0, ONE_TB), ((RING, 8, 25.0, TENSOR),)),
        constraints=UNFUSED,
    )
    return given(task, axes(FORWARD_SHARDING))


def _table_6() -> list[Case]:
    return [
        published_case(
            "GPT-3 175B on 8 SN10, kernel by kernel, sharding of the log", sn10_unfused(Overlap.ALL)
        ),
        published_case(
            "GPT-3 175B on 8 SN10, kernel by kernel, no overlap, sharding of the log",
            sn10_unfused(Overlap.NONE),
        ),
    ]


def _compared() -> list[Case]:
    megatron = Task(
        workload=llm(
            hidden=12288, sequence_length=2048, n_heads=96, head_size=128, n_layers=80,
            global_batch_size=2304, name="GPT 145B training",
        ),
        system=system(
            chip("A100", overlap=Overlap.NONE, price=33000, power=750),
            (2039.0, 85899345920.0),
            ((RING, 8, 300.0, TENSOR), (RING, 8, 12.5, PIPELINE), (RING, 24, 12.5, DATA)),
            link_power=(0.0104, 0.052, 0.0),
        ),
        constraints=UNFUSED,
    )  # fmt: skip
    swept = "GPT-3 1T on 4,096 A100 (TP{} PP{} DP{}), kernel by kernel, sharding of the log"
    return [
        published_case(
            "GPT 145B on 1,536 A100, kernel by kernel, sharding of the log",
            given(megatron, axes(TRAINING_SHARDING, {2: 1, 17: 1, 18: 1})),
        ),
        published_case(
            "GPT-3 1T on 16,384 H100, domains of 8, kernel by kernel, sharding of the log",
            given(rail_only(8), axes(TRAINING_SHARDING, {18: 1})),
        ),
        published_case(
            "GPT-3 1T on 16,384 H100, domains of one chip, kernel by kernel",
            given(rail_only(1), axes(TRAINING_SHARDING)),
        ),
        *(
            published_case(
                swept.format(*degrees), given(calculon(degrees), axes(TRAINING_SHARDING, {18: 1}))
            )
            for degrees in ((8, 1, 512), (16, 32, 8))
        ),
    ]


def _design_space_cases() -> list[Case]:
    h100 = chip("H100", utilization=0.9, price=33000, power=750)
    torus = _design_space(
        h100,
        ((RING, 8, 450.0, TENSOR), (RING, 64, 50.0, PIPELINE), (RING, 2, 50.0, DATA)),
        (0.0104, 0.052, 0.052),
    )
    dgx = _design_space(
        h100, ((RING, 8, 450.0, TENSOR), (SWITCH, 128, 50.0, PIPELINE)), (0.0104, 0.052)
    )
    tpu = _design_space(
        chip("TPU v4", price=4474.816901, power=170.6308815),
        ((RING, 8, 450.0, TENSOR), (RING, 128, 50.0, PIPELINE)),
        (0.0104, 0.052),
        tile_size=None,
    )
    small = Task(
        workload=gpt3_175b(),
        system=system(
            chip("SN10", sram=157286400.0),
            (100.0, ONE_TB),
            ((RING, 4, 50.0, TENSOR), (RING, 2, 50.0, DATA)),
        ),
        constraints=UNFUSED,
    )
    log = axes(TRAINING_SHARDING, {18: 1})
    return [
        published_case(
            "GPT-3 1T on 1,024 H100, 3-D torus, kernel by kernel, sharding of the log",
            given(torus, log),
        ),
        published_case(
            "GPT-3 1T on 1,024 H100, rings joined by a switch, kernel by kernel", given(dgx, log)
        ),
        published_case(
            "GPT-3 1T on 1,024 TPU v4, kernel by kernel, cycles",
            given(tpu, axes(TRAINING_SHARDING)),
        ),
        published_case("GPT-3 175B on 4x2 SN10, 150 MB SRAM, kernel by kernel", small),
        published_case(
            "GPT 100T on 8 SN40L, memory of 100 GB/s, kernel by kernel",
            given(gpt_100t(), axes(FORWARD_SHARDING)),
        ),
    ]


def gpt_100t() -> Task:
    """Return a model of 100T parameters on a ring of 8 SN40L, memory of 100 GB/s."""
    return Task(
        workload=llm(
            hidden=256000, sequence_length=2048, n_heads=400, head_size=640, n_layers=128,
            global_batch_size=16384, training=False, name="GPT 100T forward",
        ),
        system=system(chip("SN40L"), (100.0, None), ((RING, 8, 1000.0, TENSOR),)),
        constraints=UNFUSED,
    )  # fmt: skip


def unfused_cases() -> list[Case]:
    """Return every case, in the order of the published table."""
    return [*_table_6(), *_compared(), *_design_space_cases()]
