"""Published DFModel runs of recommendation models, factorisations and Fourier transforms.

Sources: as `crosstack.published.dfmodel.cases`. The logs of the recommendation models name tables
and batch only; layers, their widths and pooling are those of the models they are called after
(``mudigere2022dlrm``, Table I), samples a chip follow from the printed work.
"""

from __future__ import annotations

from crosstack.machine.chip import Overlap
from crosstack.machine.system import DimensionKind, Parallelism, System
from crosstack.mapping.mapping import Constraints, Task
from crosstack.published.case import Case
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.machines import RING, SWITCH, chip, system
from crosstack.published.dfmodel.printed import published_case
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


def _fft_cases() -> list[Case]:
    design = fft(length=2**40, radix=32, word=2, name="FFT of 2^40 points")
    machines = {
        "1,024 H100, 3-D torus": _h100(
            ((RING, 8, 450.0), (RING, 8, 450.0), (RING, 16, 450.0)), (3072.0, HBM)
        ),
        "1,024 SN30, 2-D torus": system(
            chip("SN30", utilization=0.9),
            (300.0, 1099511627776.0),
            free_use(((RING, 32, 50.0), (RING, 32, 50.0))),
        ),
        "1,024 H100, switches": _h100(((SWITCH, 8, 450.0), (SWITCH, 128, 450.0)), (3072.0, HBM)),
    }
    measured = system(
        chip("A100 FP32", price=33000, power=750),
        (2039.0, 85899345920.0),
        free_use(((SWITCH, 8, 300.0), (SWITCH, 128, 12.5))),
        link_power=0.0104,
    )
    points = fft(length=1073740000000, radix=2, word=4, name="FFT of 1.07e12 points")
    return [
        *(
            published_case(f"FFT of 2^40 points on {name}", placed_task(design, machine))
            for name, machine in machines.items()
        ),
        published_case(
            "FFT of 1.07e12 points on 1,024 A100, cycles", placed_task(points, measured)
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
        published_case("HPL, 64 of 512 panels, on 1,024 H100, 3-D torus", torus),
        published_case("HPL on 8,100 A100, switches", hpl_selene()),
        published_case("HPL on 576 V100, switches", hpl_circe()),
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
        published_case("DLRM-A on 128 A100, rings joined fully", dlrm_a()),
        published_case("DLRM-I on 128 A100, rings joined fully", _zion(model_i)),
        published_case(
            "DLRM-F on 128 A100, rings joined fully", _zion(model_f, (400.0, 206158430208.0))
        ),
        published_case(
            "DLRM-A, twice as wide, on 1,024 H100, 2-D torus", placed_task(_dlrm_a(6750), design)
        ),
    ]


def placed_cases() -> list[Case]:
    """Return every case, in the order of the published table."""
    return [*_fft_cases(), *_hpl_cases(), *_dlrm_cases()]
