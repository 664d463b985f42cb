"""Figure 22: how much of a chip should be compute, by its memory."""

from __future__ import annotations

from dataclasses import replace

from crosstack.charts import LineChart, Measure, Series
from crosstack.model.rules import ModelRules
from crosstack.validation.dfmodel_unfused import gpt_100t
from crosstack.validation.figures.figure import Figure, Progress, claim, mapped, statement
from crosstack.validation.machines import FORWARD_SHARDING, GB, axes, given

__all__ = ["stacked_memory"]

# The logs cut sequences into 11, 13, 23, 90 and 342 tiles, which do not divide 2,048.
RULES = replace(ModelRules.dfmodel_e5(), name="dfmodel-e5, any tiles", tiles_divide=False)
UNITS, UNIT_SRAM = 2080, 2.0**19  # compute or memory units of a chip; bytes of a memory unit
SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)
MEMORIES = (("2-D DDR, 100 GB/s", 100.0), ("2.5-D HBM, 1 TB/s", 1024.0), ("3-D, 100 TB/s", 1e5))
# Utilization in the logs of LLM/3d_memory (commit f9cda5e3); HBM/0.5 has none.
LOGS = (
    (0.4466200735549612, 0.20855677149941196, 0.11310457710641979, 0.0624292641077631,
     0.029151152550901165),
    (0.9436117659320463, 0.9298085424747375, None, 0.6173055591583868, 0.29937572801999207),
    (0.9569937028413156, 0.8984023847926232, 0.8848249754642439, 0.9585601432099526,
     0.8141845648560107),
)  # fmt: skip
FOLDERS = ("DDR", "HBM", "3D")
# The compute share that the paper prefers: low, middle, high.
PREFERRED = ((0.2, 0.35), (0.35, 0.5, 0.65), (0.65, 0.8))


def stacked_memory(progress: Progress) -> Figure:
    """Return Figure 22: throughput over the share of compute units, for three memories."""
    base = given(gpt_100t(), axes(FORWARD_SHARDING))
    peaks: list[float] = []
    use: list[list[float]] = []
    for name, bandwidth in MEMORIES:
        use.append([])
        peaks = []
        for compute in SHARES:
            progress(f"{name}, {compute:.0%} compute")
            cores = round(UNITS * compute)
            chip = replace(
                base.system.chip, n_cores=cores, sram_capacity=(UNITS - cores) * UNIT_SRAM
            )
            memory = replace(base.system.memory, bandwidth=bandwidth * GB)
            task = replace(base, system=replace(base.system, chip=chip, memory=memory))
            use[-1].append(mapped(task, RULES).evaluation.utilization)
            peaks.append(chip.peak_throughput)
    rates = [[u * peak for u, peak in zip(row, peaks, strict=True)] for row in use]
    logged = [
        [None if u is None else u * peak for u, peak in zip(row, peaks, strict=True)]
        for row in LOGS
    ]
    best = [SHARES[row.index(max(row))] for row in rates]
    words = ("2-D: little compute is best", "2.5-D: a balance is best", "3-D: much compute is best")
    claims = tuple(
        statement("Fig. 22", f"{text}: ours at {at:.0%}", at in wanted, rules=RULES.name)
        for text, at, wanted in zip(words, best, PREFERRED, strict=True)
    )  # fmt: skip
    claims += (
        statement("Fig. 22", "faster memory is never slower",
                  [rates[i + 1][j] >= rates[i][j] for i in (0, 1) for j in range(len(SHARES))],
                  rules=RULES.name),
    )  # fmt: skip
    points = tuple(
        claim("Fig. 22", f"{name}, {compute:.0%} compute", log, ours, quantity="utilization",
              sense="at least", tolerance=1e-6, rules=RULES.name, status="optimal",
              source=f"LLM/3d_memory/{folder}/{compute:g}")
        for (name, _), folder, logs, row in zip(MEMORIES, FOLDERS, LOGS, use, strict=True)
        for compute, log, ours in zip(SHARES, logs, row, strict=True) if log is not None
    )  # fmt: skip
    series = []
    for k, ((name, _), row, logs) in enumerate(zip(MEMORIES, rates, logged, strict=True)):
        known = [(s, v) for s, v in zip(SHARES, logs, strict=True) if v is not None]
        series += [
            Series(name=name, x=SHARES, y=tuple(row), colour=k),
            Series(name=f"{name}, log", x=tuple(s for s, _ in known),
                   y=tuple(v for _, v in known), colour=k, published=True),
        ]  # fmt: skip
    return Figure(
        name="stacked-memory",
        title="Figure 22: compute share of a chip under 2-D, 2.5-D and 3-D memory",
        source="ko2025dfmodel, Fig. 22",
        header=("memory", "compute [%]", "log [TFLOP/s]", "ours [TFLOP/s]", "utilization, log",
                "utilization, ours"),
        rows=tuple(
            (name, 100 * compute, None if log is None else log / 1e12, rate / 1e12, logs, ours)
            for (name, _), row, log_row, u_row, l_row in zip(
                MEMORIES, rates, logged, use, LOGS, strict=True)
            for compute, rate, log, ours, logs in zip(
                SHARES, row, log_row, u_row, l_row, strict=True)
        ),
        claims=claims,
        points=points,
        charts=(
            LineChart(
                title="Throughput of a chip",
                x=Measure(label="units that compute", unit="%", worth=0.01,
                          ticks=(20.0, 35.0, 50.0, 65.0, 80.0)),
                y=Measure(label="throughput", unit="TFLOP/s", worth=1e12),
                series=tuple(series),
            ),
        ),
        notes=(
            "The text has 1,024 chips that train, fused; the published runs have 8 chips on a "
            "ring of 1 TB/s, the forward pass alone, kernel by kernel, and 1,024 GB/s for HBM. "
            "Ours are those runs, proved best for the sharding of their graph.",
        ),
    )  # fmt: skip
