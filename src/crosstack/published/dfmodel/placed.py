"""Published DFModel runs of recommendation models, factorisations and Fourier transforms.

Sources: as `crosstack.published.dfmodel.cases`. The logs of the recommendation models name tables
and batch only; layers, their widths and pooling are those of the models they are called after
(``mudigere2022dlrm``, Table I), samples a chip follow from the printed work.
"""

from __future__ import annotations

from crosstack.machine.chip import Overlap
from crosstack.machine.system import DimensionKind, Parallelism, System
from crosstack.mapping.mapping import Constraints, Task
from crosstack.published.case import Case, Check
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.machines import RING, SWITCH, chip, system
from crosstack.published.dfmodel.unfused import ONE_TB
from crosstack.workload.workload import Workload

__all__ = [
    "HBM",
    "Shape",
    "dlrm_a",
    "free_use",
    "hpl_circe",
    "hpl_selene",
    "placed_cases",
    "placed_task",
]

FULL = DimensionKind.FULLY_CONNECTED
HBM = 103079215104.0
INPUTS = "layers, widths and pooling are those of the model (Mudigere 2022), not in the log"
Shape = tuple[tuple[DimensionKind, int, float], ...]


def free_use(shape: Shape) -> tuple[tuple[DimensionKind, int, float, Parallelism | None], ...]:
    """Return dimensions that no parallelism is given to."""
    return tuple((kind, size, speed, None) for kind, size, speed in shape)


def placed_task(workload: Workload, machine: System) -> Task:
    """Return a workload that brings its own distribution, one kernel after the other."""
    given = Constraints(microbatch_size=1, kernel_by_kernel=True)
    return Task(workload=workload, system=machine, constraints=given)


def _h100(shape: Shape, memory: tuple[float, float | None], sram: float | None = None) -> System:
    fast = memory[0] > 1000
    return system(
        chip("H100", utilization=0.9, price=33000, power=750, sram=sram),
        memory,
        free_use(shape),
        link_power=0.0104 if fast else 0.052,
        memory_power=0.05624 if fast else 0.16248,
    )


def _table(time: float, use: float, price: float, power: float) -> tuple[Check, ...]:
    return (
        Check("time", time),
        Check("utilization", use),
        Check("price", price),
        Check("power", power),
    )


def _fft_cases() -> list[Case]:
    design = fft(length=2**40, radix=32, word=2, name="FFT of 2^40 points")
    shapes = (
        (
            "1,024 H100, 3-D torus",
            "h100/3d_torus_hbm_nvlink",
            _h100(((RING, 8, 450.0), (RING, 8, 450.0), (RING, 16, 450.0)), (3072.0, HBM)),
            _table(0.02031876953399225, 0.10896559119044309, 46614528.0, 974268.7025356293),
        ),
        (
            "1,024 SN30, 2-D torus",
            "sn30/2d_torus_ddr_pcie",
            system(
                chip("SN30", utilization=0.9),
                (300.0, 1099511627776.0),
                free_use(((RING, 32, 50.0), (RING, 32, 50.0))),
            ),
            _table(0.35075566250666673, 0.010204081632653059, 17584384.0, 510950.6113471985),
        ),
        (
            "1,024 H100, switches",
            "h100/dgx_2_hbm_nvlink",
            _h100(((SWITCH, 8, 450.0), (SWITCH, 128, 450.0)), (3072.0, HBM)),
            _table(0.010774397765103355, 0.20549146066472432, 50416128.0, 977263.9027583599),
        ),
    )
    measured = system(
        chip("A100 FP32", price=33000, power=750),
        (2039.0, 85899345920.0),
        free_use(((SWITCH, 8, 300.0), (SWITCH, 128, 12.5))),
        link_power=0.0104,
    )
    points = fft(length=1073740000000, radix=2, word=4, name="FFT of 1.07e12 points")
    return [
        *(
            Case(
                name=f"FFT of 2^40 points on {name}",
                source=f"FFT/DSE/system/{source}",
                rules="dfmodel-e2",
                task=placed_task(design, machine),
                checks=(*checks, Check("work", 2251799813685248.0)),
                proved=True,
            )
            for name, source, machine, checks in shapes
        ),
        Case(
            name="FFT of 1.07e12 points on 1,024 A100, cycles",
            source="FFT/Compare_w_existing/FP32/1024",
            rules="dfmodel-e4",
            task=placed_task(points, measured),
            checks=(
                *_table(1.357981486505653, 0.02519471172309386, 43908736.0, 1126516.9546906352),
                Check("work", 682898292614256.0),
            ),
            proved=True,
        ),
    ]


def hpl_selene() -> Task:
    """Return the factorisation on 8,100 A100: 64 iterations."""
    return placed_task(
        hpl(size=262144, block=4096, word=8, name="HPL 262144"),
        system(
            chip("A100 FP64", utilization=0.9, price=33000, power=750),
            (1555.0, 42949672960.0),
            free_use(((SWITCH, 90, 25.0), (SWITCH, 90, 25.0))),
            link_power=0.0104,
        ),
    )


def hpl_circe() -> Task:
    """Return the factorisation on 576 V100: 64 iterations."""
    return placed_task(
        hpl(size=65536, block=1024, word=8, name="HPL 65536"),
        system(
            chip("V100 FP64", utilization=0.9, price=33000, power=750),
            (897.0, 17179869184.0),
            free_use(((SWITCH, 24, 12.5), (SWITCH, 24, 12.5))),
            link_power=0.0104,
        ),
    )


def _hpl_cases() -> list[Case]:
    torus = placed_task(
        hpl(size=1048576, block=2048, iterations=64, word=2, name="HPL 1048576"),
        _h100(
            ((RING, 4, 450.0), (RING, 8, 450.0), (RING, 32, 450.0)),
            (3072.0, None),
            sram=167772160.0,
        ),
    )
    return [
        Case(
            name="HPL, 64 of 512 panels, on 1,024 H100, 3-D torus",
            source="HPL/DSE/system/h100/3d_torus_hbm_nvlink",
            rules="dfmodel-e2",
            task=torus,
            checks=(
                *_table(0.27774263269892896, 0.8999999761581421, 48688128.0, 978761.5026283264),
                Check("work", 2.542307278418084e17),
            ),
            proved=True,
        ),
        Case(
            name="HPL on 8,100 A100, switches",
            source="HPL/Compare_w_existing/GPU/Selene",
            rules="dfmodel-e2",
            task=hpl_selene(),
            checks=(
                *_table(0.18253588986326588, 0.8530716552638549, 285219000.0, 8134293.198423693),
                Check("work", 1.229253999853568e16),
            ),
            proved=True,
        ),
        Case(
            name="HPL on 576 V100, switches",
            source="HPL/Compare_w_existing/GPU/Circe",
            rules="dfmodel-e2",
            task=hpl_circe(),
            checks=(
                Check("time", 0.06304543074356042, "at most"),
                Check("utilization", 0.748577053838195, "at least"),
                Check("price", 19719672.0),
                Check("power", 516416.86485353485),
                Check("work", 192070937477120.0),
            ),
            proved=True,
            note="one partition of the published run is 286 ns above its terms, 4.5e-6 of all",
        ),
    ]


def _dlrm_a(width: int) -> Workload:
    """DLRM-A: 793 billion parameters; ``width`` 3375, or twice that in the design space."""
    return dlrm(
        width=width, n_bottom=10, n_top=10, n_tables=600, rows=14211469, embedding_size=93,
        samples=512, pooled_rows=15, global_batch_size=128000000, name="DLRM-A",
    )  # fmt: skip


def _zion(workload: Workload, memory: tuple[float, float] = (1555.0, 42949672960.0)) -> Task:
    machine = system(
        chip("A100", utilization=0.9, overlap=Overlap.NONE, price=19999.99997, power=511.5771047),
        memory,
        free_use(((RING, 8, 600.0), (FULL, 16, 25.0))),
        link_power=(0.0104, 0.052),
        switch_power=0.0,
    )
    return placed_task(workload, machine)


def dlrm_a() -> Task:
    """Return DLRM-A on 128 A100: 60 kernels."""
    return _zion(_dlrm_a(3375))


def _dlrm_cases() -> list[Case]:
    model_i = dlrm(
        width=682, n_bottom=20, n_top=23, n_tables=50, rows=72173913, embedding_size=92,
        samples=2048, pooled_rows=70, global_batch_size=128000000, name="DLRM-I",
    )  # fmt: skip
    model_f = dlrm(
        width=490, n_bottom=2, n_top=5, n_tables=100, rows=468750000, embedding_size=256,
        samples=512, pooled_rows=20, global_batch_size=128000000, name="DLRM-F",
    )  # fmt: skip
    design = _h100(((RING, 32, 50.0), (RING, 32, 50.0)), (300.0, ONE_TB))
    return [
        Case(
            name="DLRM-A on 128 A100, rings joined fully",
            source="DLRM/Compare_w_existing/A",
            rules="dfmodel-e2",
            task=dlrm_a(),
            checks=(
                Check("layer_time", 38217967.64790911e-9),
                *_table(38217.96764790844, 0.0587162570035742, 3539040.0, 98932.60964179039),
                Check("work", 8.957952e19),
            ),
            proved=True,
            note=INPUTS,
        ),
        Case(
            name="DLRM-I on 128 A100, rings joined fully",
            source="DLRM/Compare_w_existing/I",
            rules="dfmodel-e2",
            task=_zion(model_i),
            checks=(
                *_table(55932.11001630807, 0.014089137066513099, 3539040.0, 98932.60964179039),
                Check("work", 3.1457802190848e19),
            ),
            proved=True,
            note=INPUTS,
        ),
        Case(
            name="DLRM-F on 128 A100, rings joined fully",
            source="DLRM/Compare_w_existing/F",
            rules="dfmodel-e2",
            task=_zion(model_f, (400.0, 206158430208.0)),
            checks=(
                Check("layer_time", 23671572.76655616e-9),
                *_table(23671.57276655616, 0.0006993772279187301, 3391200.0, 74911.5669324398),
                Check("work", 6.608781312e17),
            ),
            proved=True,
        ),
        Case(
            name="DLRM-A, twice as wide, on 1,024 H100, 2-D torus",
            source="DLRM/DSE/system/h100/2d_torus_ddr_pcie",
            rules="dfmodel-e2",
            task=placed_task(_dlrm_a(6750), design),
            checks=(
                Check("layer_time", 277870900.5353245e-9),
                *_table(34733.86256691556, 0.010143145275424358, 34457600.0, 823571.4550971985),
                Check("work", 3.5831808e20),
            ),
            proved=True,
            note=INPUTS,
        ),
    ]


def placed_cases() -> list[Case]:
    """Return every case, in the order of the published table."""
    return [*_fft_cases(), *_hpl_cases(), *_dlrm_cases()]
