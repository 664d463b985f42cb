"""Figure 11 of the DeepFlow paper: how many chips of 512 share a package."""

from __future__ import annotations

from crosstack.charts import LineChart, Measure, Series
from crosstack.validation.figures.cooptimised_nodes import (
    EVALUATIONS,
    SEARCHES,
    best_of_strategies,
)
from crosstack.validation.figures.deepflow_setting import CHIPS, INTRA_BANDWIDTH
from crosstack.validation.figures.figure import Figure, Progress, claim, statement

__all__ = ["package_size"]

SIZES = (1, 2, 4, 8, 16)
SHOWN = ("N7", "N3")
SOURCE = "ardalani2022deepflow, section 9.2"
RULES = "crosstack"


def package_size(progress: Progress) -> Figure:
    """Return Figure 11: parallelism and architecture searched for every size of package."""
    times: dict[str, list[float]] = {node: [] for node in SHOWN}
    names: dict[str, list[str]] = {node: [] for node in SHOWN}
    for node in SHOWN:
        for size in SIZES:
            progress(f"{node}: packages of {size}")
            found = best_of_strategies(node, evaluations=EVALUATIONS, per_package=size)
            times[node].append(found.design.metrics.time)
            names[node].append(dict(found.best.choice.labels)["strategy"])
    gains = {node: [times[node][0] / time for time in times[node]] for node in SHOWN}
    best = max(max(values) for values in gains.values())
    four = SIZES.index(4)
    beyond = [max(gains[node]) / max(gains[node][: four + 1]) for node in SHOWN]
    claims = (
        claim("Fig. 11", "more chips a package gain, at best", 1.32, best, tolerance=0.1,
              rules=RULES, source=SOURCE,
              reason="the best strategies still sum gradients between packages at 200 GB/s a "
              "chip; the paper names neither its strategies nor the node, memory and network of "
              "the figure, nor what a package shares towards the others"),
        statement("Fig. 11", "beyond 4 chips a package the gain is marginal, below 10 %",
                  [value < 1.1 for value in beyond], rules=RULES, source=SOURCE,
                  reason="at N7 the best strategy splits kernels over 8 chips, which only a "
                  "package of 8 holds"),
    )  # fmt: skip
    return Figure(
        name="package-size",
        title="Figure 11 (DeepFlow): chips that share a package",
        source="ardalani2022deepflow, Fig. 11",
        header=("node", "chips a package", "time [s]", "gain [x]", "strategy"),
        rows=tuple(
            (node, float(size), times[node][i], gains[node][i], names[node][i])
            for node in SHOWN
            for i, size in enumerate(SIZES)
        ),
        claims=claims,
        charts=(
            LineChart(
                title=f"Gain over one chip a package, {CHIPS} chips",
                x=Measure(label="chips a package", log=True),
                y=Measure(label="gain", unit="x"),
                series=tuple(
                    Series(
                        name=node,
                        x=tuple(map(float, SIZES)),
                        y=tuple(gains[node]),
                        colour=colour,
                    )
                    for colour, node in enumerate(SHOWN)
                ),
            ),
        ),
        notes=(
            f"Links of {INTRA_BANDWIDTH / 1e12:g} TB/s join the chips of a package in a ring; "
            "every chip keeps its 200 GB/s towards other packages. For every size all strategies "
            f"are looked at, {SEARCHES} searched for their chip, {EVALUATIONS} evaluations each.",
        ),
    )
