"""Published DFModel runs: what was printed, and how to compute the same with crosstack.

Sources: the public tool's logs (``dfmodel_code``; directory and release named in each case), its
README (``dfmodel_code``, release E3a) and the paper (``ko2025dfmodel``).
"""

from __future__ import annotations

from crosstack.machine.chip import Overlap
from crosstack.mapping.mapping import Constraints, Task
from crosstack.published.case import Case, Check
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
    source = "README; LLM/DSE/system/sn30/2d_torus_ddr_pcie"
    fast = _sn30(450.0)
    log = axes(TRAINING_SHARDING, {18: 1})
    return [
        Case(
            name="GPT-3 1T on 1,024 SN30, links 50/50, published mapping",
            source=source,
            rules="dfmodel-readme",
            task=task,
            mapping=published,
            checks=(
                Check("layer_time", 24525758.084895607e-9),
                Check("time", 78.99477102558104),
                Check("utilization", 0.7748055154407518),
                Check("price", 17757184.0),
                Check("power", 511325.01135492325),
                Check("work", 3.85072240461978e19),
            ),
        ),
        Case(
            name="the same, mapping free",
            source=source,
            rules="dfmodel-readme",
            task=task,
            checks=(
                Check("time", 78.99477102558104, "at most"),
                Check("utilization", 0.7748055154407518, "at least"),
            ),
            proved=True,
        ),
        Case(
            name="GPT-3 1T on 1,024 SN30, links 450/50, sharding of the log",
            source="SN30 GPT-3 1T example, links 450/50",
            rules="dfmodel-e3b",
            task=given(fast, log),
            checks=(
                Check("layer_time", 22138266.66e-9),
                Check("time", 71.35718595906),
                Check("utilization", 0.8577353977595918),
            ),
            proved=True,
        ),
        Case(
            name="the same, sharding free among those of fewest bytes",
            source="SN30 GPT-3 1T example, links 450/50",
            rules="dfmodel-e3b",
            task=fast,
            checks=(
                Check("layer_time", 22138266.66e-9, "at most"),
                Check("utilization", 0.8577353977595918, "at least"),
            ),
            proved=True,
            note="three elementwise kernels the log replicates may be split at equal bytes",
        ),
    ]


def _sn10_cases() -> list[Case]:
    vendor, own = sn10(VENDOR_PINS), sn10(DFMODEL_PINS)
    sharding = axes(FORWARD_SHARDING)
    cores = tuple(zip(VENDOR_LANES, VENDOR_STAGES, strict=True))
    cost = (Check("price", 134578.0), Check("power", 3700.6336558163166))
    return [
        Case(
            name="GPT-3 175B on 8 SN10, vendor mapping with its cores",
            source="LLM/dataflow_mapping/existing_8x1",
            rules="dfmodel-e4",
            task=vendor,
            mapping=mapping(vendor, VENDOR_PARTITIONS, 8, sharding, cores),
            checks=(
                Check("time", 1231.538922455016),
                Check("utilization", 0.5575178760593329),
                *cost,
            ),
        ),
        Case(
            name="GPT-3 175B on 8 SN10, vendor partitions pinned",
            source="LLM/dataflow_mapping/existing_8x1",
            rules="dfmodel-e4",
            task=vendor,
            checks=(Check("utilization", 0.5575178760593329, "at least"),),
            proved=True,
            note="published run stopped at its time limit; four tiles beat its eight",
        ),
        Case(
            name="GPT-3 175B on 8 SN10, DFModel's mapping",
            source="LLM/dataflow_mapping/dfmodel_8x1",
            rules="dfmodel-e4",
            task=own,
            mapping=mapping(own, DFMODEL_PARTITIONS, 8, sharding),
            checks=(
                Check("time", 1026.282435379187),
                Check("utilization", 0.6690214512711948),
            ),
        ),
        Case(
            name="GPT-3 175B on 8 SN10, DFModel's pins",
            source="LLM/dataflow_mapping/dfmodel_8x1 (gap 0)",
            rules="dfmodel-e4",
            task=own,
            checks=(Check("time", 1026.282435379187),),
            proved=True,
        ),
        Case(
            name="GPT-3 175B on 8 SN10, DFModel's pins, no overlap",
            source="LLM/dataflow_mapping/dfmodel_8x1_nooverlap",
            rules="dfmodel-e4",
            task=sn10(DFMODEL_PINS, Overlap.NONE),
            checks=(Check("time", 2215.49445513216, "at most"),),
            proved=True,
            note="pins assumed equal to the overlapped run",
        ),
        Case(
            name="GPT-3 175B on 4x2 SN10, all free",
            source="LLM/dataflow_mapping/dfmodel_4x2 (gap 94.6 %)",
            rules="dfmodel-e4",
            task=sn10_torus(25.0, 5),
            checks=(
                Check("time", 793.1945602252472, "at most"),
                Check("utilization", 0.8656, "at least"),
            ),
            proved=True,
        ),
        Case(
            name="GPT-3 175B on 4x2 SN10, 150 MB SRAM",
            source="LLM/sram_dram/DF/s_sram_s_dram",
            rules="dfmodel-e3b",
            task=sn10_torus(50.0, 8, 157286400.0),
            checks=(
                Check("time", 2228.685373439722, "at most"),
                Check("price", 148978.0),
                Check("power", 3760.4336570501328),
            ),
            proved=True,
            note="published run stopped at 600 s",
        ),
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
        Case(
            name="GPT-3 1T forward, 4 layers, on 32 SN30 (TP8 PP2 DP2)",
            source="4layer, release E3a",
            rules="dfmodel-readme",
            task=four,
            checks=(
                Check("layer_time", 9767291.32e-9, "at most"),
                Check("time", 30.0246535286, "at most"),
                Check("utilization", 0.67952, "at least", 1e-5),
                Check("price", 634312.0),
            ),
            proved=True,
        ),
        Case(
            name="GPT-3 1T on 1,024 WSE-2, one partition",
            source="LLM/DSE/system/wse-2/3d_torus_hbm_nvlink",
            rules="dfmodel-e2",
            task=wafer,
            mapping=mapping(wafer, (0,) * 41, 2048, axes(TRAINING_SHARDING, {18: 1})),
            checks=(
                Check("layer_time", 1810373.5562299425e-9),
                Check("time", 6.326445544823357),
                Check("utilization", 0.791144579723657),
                Check("price", 3106891264.0),
            ),
        ),
        Case(
            name="GPT 13B on 16 SN10, data parallel",
            source="LLM/Compare_w_existing/RDU/arxiv/2048",
            rules="dfmodel-e5",
            task=_gpt_13b(),
            checks=(Check("time", 651.46331136, "at most"),),
            proved=True,
            note="the published run may have pinned kernels",
        ),
        Case(
            name="GPT 1.5B on 4 A100, two partitions",
            source="LLM/Compare_w_existing/GPU/arxiv/GPT3_1.5B_seq2048",
            rules="dfmodel-e4",
            task=_gpt_1_5b(),
            checks=(
                Check("time", 126.43654940670761, "at most"),
                Check("price", 143020.0),
                Check("power", 4035.5855794250965),
            ),
            proved=True,
        ),
        Case(
            name="GPT-3 1T on 4,096 A100 (TP1 PP128 DP32), kernel by kernel",
            source="LLM/Compare_w_existing/Calculon/fix_DP/1_128_32",
            rules="dfmodel-e4+separate",
            task=calculon((1, 128, 32)),
            checks=(Check("time", 85.50267989926701),),
            proved=True,
        ),
        Case(
            name="GPT-3 1T on 4,096 A100 (TP8 PP16 DP32), kernel by kernel, sharding of the log",
            source="LLM/Compare_w_existing/Calculon/fix_TP/8_16_32",
            rules="dfmodel-e4+separate",
            task=given(calculon((8, 16, 32)), axes(TRAINING_SHARDING, {18: 1})),
            checks=(
                Check("layer_time", 54290523.2447e-9),
                Check("time", 43.69955836015329),
            ),
            proved=True,
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
