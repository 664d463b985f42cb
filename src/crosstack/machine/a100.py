"""An NVIDIA A100 80 GB, as PCIe card and in a server, from data sheets and microbenchmarks.

Nothing here comes from the products that the model is compared with (docs/roofline.md).
"""

from __future__ import annotations

from dataclasses import replace

from crosstack.errors import require_quantity
from crosstack.machine.chip import GPU_FUSIONS, Chip, Execution, Link
from crosstack.machine.compute import Compute, Dataflow
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.workload.dtype import Dtype

__all__ = ["a100_pcie_80gb", "a100_sxm_80gb"]

BOOST_CLOCK = 1.41e9
N_MULTIPROCESSORS = 108
TENSOR_CORES_EACH = 4
HBM_BANDWIDTH = 1935e9
RATES = ((Dtype.TF32, 0.5), (Dtype.BF16, 1.0), (Dtype.FP16, 1.0), (Dtype.INT8, 2.0))


def a100_pcie_80gb(*, frequency: float = BOOST_CLOCK, launch_overhead: float = 5e-6) -> Chip:
    """Return the chip at a clock.

    Parameters
    ----------
    frequency : float
        Clock of the multiprocessors and of the L2, which follows it. [Hz]
    launch_overhead : float
        Of one kernel; assumed: several microseconds are usually quoted, and this one was not
        measured. [s]

    Raises
    ------
    InputError
        If the clock is not above 0.

    Notes
    -----
    Data sheet (``choquette2020a100``, ``nvidia_a100``): 108 multiprocessors of 4 tensor cores,
    each an 8 x 4 x 8 product a cycle (256 multiply-adds) in FP16 and BF16, half
    as deep in TF32, twice in INT8; registers 256 KiB,
    shared memory 164 KiB each; L2 40 MiB in two parts; memory 80 GB at 1935 GB/s; clock 1.41 GHz.

    Shared memory: 32 banks x 4 B a cycle (``nvidia_cuda_guide``). Registers: assumed, 4 parts x
    32 lanes x 3 operands x 4 B a cycle.

    Measured by others: L2 4830 GB/s of 7219 at 1.41 GHz (``nvidia_l2_a100``), scaled with the
    clock; latency 29 cycles to shared memory, 261.5 to L2, 466.3 to main memory
    (``luo2024hopper``, at 1.41 GHz; the way past the L2 does not follow the clock); 90 % of main
    memory's bandwidth (``tsai2020a100``).
    """
    require_quantity("frequency", frequency, "Hz", above_zero=True)
    multiprocessors, clock = N_MULTIPROCESSORS, frequency
    to_l2 = 261.5 / clock
    return Chip(
        name="A100 PCIe 80 GB",
        compute=Compute(
            n_units=multiprocessors * TENSOR_CORES_EACH,
            n_multiprocessors=multiprocessors,
            work_per_cycle=512.0,
            frequency=clock,
            rows=8,
            columns=8,
            depth=8.0,
            utilization=1.0,
            relative_rates=RATES,
            dataflow=Dataflow.BEST,
        ),
        levels=(
            MemoryLevel(
                name="registers",
                scope=Scope.UNIT,
                capacity=multiprocessors * 256 * 2**10,
                bandwidth=multiprocessors * TENSOR_CORES_EACH * 32 * 3 * 4 * clock,
            ),
            MemoryLevel(
                name="L1",
                scope=Scope.MULTIPROCESSOR,
                capacity=multiprocessors * 164 * 2**10,
                bandwidth=multiprocessors * 32 * 4 * clock,
                latency=29.0 / clock,
            ),
            MemoryLevel(
                name="L2",
                scope=Scope.CHIP,
                capacity=40 * 2**20,
                bandwidth=4830e9 * clock / BOOST_CLOCK,
                latency=to_l2,
                partitions=2,
            ),
        ),
        memories=(
            MemoryLevel(
                name="HBM2e",
                capacity=80e9,
                bandwidth=0.9 * HBM_BANDWIDTH,
                latency=to_l2 + (466.3 - 261.5) / BOOST_CLOCK,
            ),
        ),
        execution=Execution.TEMPORAL,
        fusions=GPU_FUSIONS,
        launch_overhead=launch_overhead,
    )


def a100_sxm_80gb(*, frequency: float = BOOST_CLOCK, launch_overhead: float = 5e-6) -> Chip:
    """Return the module of a server of eight; parameters and errors as `a100_pcie_80gb`.

    Notes
    -----
    Data sheet: memory 2039 GB/s (``nvidia_a100``), of which the same share is reached; 12 NVLinks
    of 25 GB/s one way to a switch (``choquette2020a100``); a port of 200 Gbit/s out of the server
    for each module (``nvidia_dgx_a100``). Latencies are those of the technology library: 500 ns,
    assumed, and 5 us (``deepflow_code``).
    """
    card = a100_pcie_80gb(frequency=frequency, launch_overhead=launch_overhead)
    return replace(
        card.with_memory(bandwidth=card.main_memory.speed / 1935 * 2039),
        name="A100 SXM 80 GB",
        intra=Link(n_links=12, bandwidth=12 * 25e9, latency=500e-9),
        inter=Link(n_links=1, bandwidth=25e9, latency=5e-6),
    )
