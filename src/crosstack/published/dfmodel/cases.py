"""Published DFModel runs: what was printed, and how to compute the same with crosstack.

Sources: the public tool's logs (``dfmodel_code``; directory and release named in each case), its
README (``dfmodel_code``, release E3a) and the paper (``ko2025dfmodel``).
"""

from __future__ import annotations

from crosstack.machine.chip import Overlap
from crosstack.mapping.mapping import Constraints, Task
from crosstack.published.case import Case
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.machines import (
    DATA,
    FORWARD_SHARDING,
    PIPELINE,
    RING,
    TENSOR,
    TRAINING_SHARDING,
    axes,
    chip,
    given,
    gpt3_1t,
    gpt3_175b,
    mapping,
    system,
)
from crosstack.published.dfmodel.placed import placed_cases
from crosstack.published.dfmodel.printed import published_case
from crosstack.published.dfmodel.serving import serving_cases
from crosstack.published.dfmodel.unfused import ONE_TB, calculon, unfused_cases

__all__ = [
    "DFMODEL_PARTITIONS",
    "DFMODEL_PINS",
    "VENDOR_LANES",
    "VENDOR_PARTITIONS",
    "VENDOR_PINS",
    "VENDOR_STAGES",
    "dfmodel_cases",
    "readme_task",
    "sn10",
    "sn10_torus",
]

README_PARTITIONS = (
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5,
    5, 5, 5, 5, 4, 3, 5, 5, 5, 5,
)  # fmt: skip
VENDOR_PARTITIONS = (0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3)
VENDOR_LANES = (2, 2, 4, 4, 48, 37, 46, 128, 3, 25, 1, 1, 1, 14, 1, 10, 5, 1)
VENDOR_STAGES = (1, 1, 43, 44, 6, 8, 1, 1, 6, 6, 1, 1, 1, 45, 1, 63, 1, 1)
DFMODEL_PARTITIONS = (0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3, 3)
VENDOR_PINS = (
    ("Q", 0), ("K", 0), ("V", 0), ("MHA_GEMM_1", 1), ("MHA_GEMM_2", 1), ("PROJ_GEMM", 1),
    ("FFN0", 2), ("FFN1", 3),
)  # fmt: skip
DFMODEL_PINS = tuple((name, 2 if name == "PROJ_GEMM" else p) for name, p in VENDOR_PINS)


def _sn30(link: float) -> Task:
    dimensions = ((RING, 8, link, TENSOR), (RING, 128, 50.0, PIPELINE))
    power = 0.052 if link < 100 else 0.0104
    return Task(
        workload=gpt3_1t(),
        system=system(chip("SN30", utilization=0.9), (300.0, ONE_TB), dimensions, link_power=power),
        constraints=Constraints(microbatch_size=1, max_partitions=6),
    )


def sn10(pins: tuple[tuple[str, int], ...], overlap: Overlap = Overlap.ALL) -> Task:
    """Return GPT-3 175B on a ring of 8 SN10, four partitions, these kernels pinned."""
    return Task(
        workload=gpt3_175b(),
        system=system(chip("SN10", overlap=overlap), (100.0, ONE_TB), ((RING, 8, 25.0, TENSOR),)),
        constraints=Constraints(microbatch_size=1, max_partitions=4, partitions=pins),
    )


def sn10_torus(link: float, count: int, sram: float | None = None) -> Task:
    """Return GPT-3 175B on 4 x 2 SN10: links [GB/s], most partitions, SRAM [B]."""
    dimensions = ((RING, 4, link, TENSOR), (RING, 2, link, DATA))
    return Task(
        workload=gpt3_175b(),
        system=system(chip("SN10", sram=sram), (100.0, ONE_TB), dimensions),
        constraints=Constraints(microbatch_size=1, max_partitions=count),
    )


def readme_task() -> Task:
    """Return the README's example: GPT-3 1T on 1,024 SN30, links 50/50, six partitions."""
    return _sn30(50.0)


def _readme() -> list[Case]:
    task = readme_task()
    published = mapping(task, README_PARTITIONS, 2048, axes(TRAINING_SHARDING))
    fast = _sn30(450.0)
    log = axes(TRAINING_SHARDING, {18: 1})
    return [
        published_case("GPT-3 1T on 1,024 SN30, links 50/50, published mapping", task, published),
        published_case("the same, mapping free", task),
        published_case(
            "GPT-3 1T on 1,024 SN30, links 450/50, sharding of the log", given(fast, log)
        ),
        published_case("the same, sharding free among those of fewest bytes", fast),
    ]


def _sn10_cases() -> list[Case]:
    vendor, own = sn10(VENDOR_PINS), sn10(DFMODEL_PINS)
    sharding = axes(FORWARD_SHARDING)
    cores = tuple(zip(VENDOR_LANES, VENDOR_STAGES, strict=True))
    return [
        published_case(
            "GPT-3 175B on 8 SN10, vendor mapping with its cores",
            vendor,
            mapping(vendor, VENDOR_PARTITIONS, 8, sharding, cores),
        ),
        published_case("GPT-3 175B on 8 SN10, vendor partitions pinned", vendor),
        published_case(
            "GPT-3 175B on 8 SN10, DFModel's mapping",
            own,
            mapping(own, DFMODEL_PARTITIONS, 8, sharding),
        ),
        published_case("GPT-3 175B on 8 SN10, DFModel's pins", own),
        published_case(
            "GPT-3 175B on 8 SN10, DFModel's pins, no overlap", sn10(DFMODEL_PINS, Overlap.NONE)
        ),
        published_case("GPT-3 175B on 4x2 SN10, all free", sn10_torus(25.0, 5)),
        published_case("GPT-3 175B on 4x2 SN10, 150 MB SRAM", sn10_torus(50.0, 8, 157286400.0)),
    ]


def _other_cases() -> list[Case]:
    four = Task(
        workload=gpt3_1t(n_layers=4, training=False),
        system=system(
            chip("SN30", utilization=0.9),
            (300.0, ONE_TB),
            ((RING, 8, 50.0, TENSOR), (RING, 2, 50.0, PIPELINE), (RING, 2, 50.0, DATA)),
        ),
        constraints=Constraints(microbatch_size=1, max_partitions=6),
    )
    wafer = Task(
        workload=gpt3_1t(),
        system=system(
            chip("WSE-2", utilization=0.9, price=3025964.118, power=20298.12258),
            (3072.0, 103079215104.0),
            ((RING, 8, 450.0, TENSOR), (RING, 64, 50.0, PIPELINE), (RING, 2, 50.0, DATA)),
            memory_power=0.05624,
        ),
        constraints=Constraints(microbatch_size=1, max_partitions=1),
    )
    return [
        published_case("GPT-3 1T forward, 4 layers, on 32 SN30 (TP8 PP2 DP2)", four),
        published_case(
            "GPT-3 1T on 1,024 WSE-2, one partition",
            wafer,
            mapping(wafer, (0,) * 41, 2048, axes(TRAINING_SHARDING, {18: 1})),
        ),
        published_case("GPT 13B on 16 SN10, data parallel", _gpt_13b()),
        published_case("GPT 1.5B on 4 A100, two partitions", _gpt_1_5b()),
        published_case(
            "GPT-3 1T on 4,096 A100 (TP1 PP128 DP32), kernel by kernel", calculon((1, 128, 32))
        ),
        published_case(
            "GPT-3 1T on 4,096 A100 (TP8 PP16 DP32), kernel by kernel, sharding of the log",
            given(calculon((8, 16, 32)), axes(TRAINING_SHARDING, {18: 1})),
        ),
    ]


def _gpt_13b() -> Task:
    return Task(
        workload=llm(
            hidden=5120, sequence_length=2048, n_heads=40, head_size=128, n_layers=40,
            global_batch_size=8192, name="GPT 13B training",
        ),
        system=system(
            chip("SN10", price=33000, power=750), (100.0, None), ((RING, 16, 50.0, DATA),)
        ),
        constraints=Constraints(microbatch_size=1, max_partitions=6),
    )  # fmt: skip


def _gpt_1_5b() -> Task:
    return Task(
        workload=llm(
            hidden=2048, sequence_length=2048, n_heads=16, head_size=128, n_layers=24,
            global_batch_size=8192, name="GPT 1.5B training",
        ),
        system=system(
            chip("A100", utilization=0.9, price=33000, power=750),
            (1555.0, 42949672960.0),
            ((RING, 4, 600.0, TENSOR),),
            link_power=0.0104,
        ),
        constraints=Constraints(microbatch_size=1, max_partitions=2),
    )  # fmt: skip


def dfmodel_cases() -> list[Case]:
    """Return every case, in the order of the published table."""
    transformers = [*_readme(), *_sn10_cases(), *_other_cases(), *unfused_cases()]
    return [*transformers, *placed_cases(), *serving_cases()]
