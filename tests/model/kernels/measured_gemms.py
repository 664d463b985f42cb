"""The table of docs/roofline.md: products measured on an A100, and what is predicted for them.

Usage: python tests/model/kernels/measured_gemms.py (prints the table; needs
../shared/data/deepflow).
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from builders.products import gemm_time
from numpy.typing import NDArray

from crosstack.io import library
from crosstack.model.kernels.clock import KernelTime

DATA = Path(__file__).resolve().parents[3].parent / "shared/data/deepflow/gemm_a100_measured.csv"
CLOCK = 1.05e9
HEAD = (
    "| M | K | N | measured us | predicted us | error % | at its own clock % | bound | DRAM | L2 |"
)
LINE = "|---|---|---|---|---|---|---|---|---|---|"

Floats = NDArray[np.float64]


def measured() -> dict[str, Floats]:
    """Return the columns: sides, ``time`` [s], ``clock`` [Hz], ``dram`` and ``l2`` traffic [B]."""
    with DATA.open() as file:
        rows = list(csv.DictReader(file))

    def column(name: str) -> Floats:
        return np.array([float(row[name]) for row in rows])

    return {
        "m": column("m"),
        "k": column("k"),
        "n": column("n"),
        "time": column("measured_s"),
        "clock": column("measured_sm_clock_GHz") * 1e9,
        "dram": column("measured_dram_read_B") + column("measured_dram_write_B"),
        "l2": column("measured_l2_total_B"),
    }


def counted(found: KernelTime, level: str) -> Floats:
    """Return the traffic of a level as the profiler counts it: both parts of the L2 count. [B]"""
    return found.traffic[level] + found.passing[level]


def predicted(m: Floats, k: Floats, n: Floats) -> KernelTime:
    """Return the prediction at the clock of the measurements."""
    return gemm_time(library.chip("a100-pcie-80gb", frequency=CLOCK), m, k, n)


def at_own_clock(data: dict[str, Floats]) -> Floats:
    """Return the time of every row at the clock that was read while it ran. [s]"""
    rows = zip(data["clock"], data["m"], data["k"], data["n"], strict=True)
    return np.array(
        [
            float(gemm_time(library.chip("a100-pcie-80gb", frequency=float(f)), m, k, n).time)
            for f, m, k, n in rows
        ]
    )


def table() -> list[str]:
    """Return the table's rows, the shortest kernel first."""
    data = measured()
    found = predicted(data["m"], data["k"], data["n"])
    own = at_own_clock(data) / data["time"] - 1
    error = found.time / data["time"] - 1
    dram, l2 = counted(found, "HBM2e") / data["dram"], counted(found, "L2") / data["l2"]
    lines = [HEAD, LINE]
    for i in np.argsort(data["time"], kind="stable"):
        sides = " | ".join(f"{data[name][i]:.0f}" for name in "mkn")
        times = f"{data['time'][i] * 1e6:.3f} | {found.time[i] * 1e6:.1f}"
        lines.append(
            f"| {sides} | {times} | {100 * error[i]:+.1f} | {100 * own[i]:+.1f} | "
            f"{found.bound[i]} | {dram[i]:.2f} | {l2[i]:.2f} |"
        )
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
