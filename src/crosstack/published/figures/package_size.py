"""Figure 11 of the DeepFlow paper: how many chips of 512 share a package."""

from __future__ import annotations

from crosstack.charts import LineChart, Measure
from crosstack.published.figures.cooptimised_nodes import (
    EVALUATIONS,
    SEARCHES,
    best_of_strategies,
)
from crosstack.published.figures.deepflow_setting import CHIPS, INTRA_BANDWIDTH
from crosstack.published.figures.figure import Figure, Ours, Progress, figure, lines

SIZES = (1, 2, 4, 8, 16)
Case = tuple[str, str]  # node, network between packages
SHOWN: tuple[Case, ...] = tuple((n, link) for n in ("N7", "N3") for link in ("NDR-x8", "XDR-x8"))


def package_size(progress: Progress) -> Figure:
    """Return Figure 11: parallelism and architecture searched for every size of package."""
    times: dict[Case, list[float]] = {case: [] for case in SHOWN}
    names: dict[Case, list[str]] = {case: [] for case in SHOWN}
    for case in SHOWN:
        node, network = case
        for size in SIZES:
            progress(f"{node}, {network}: packages of {size}")
            found = best_of_strategies(
                node, evaluations=EVALUATIONS, per_package=size, network=network
            )
            times[case].append(found.design.metrics.time)
            names[case].append(dict(found.best.choice.labels)["strategy"])
    gains = {case: [times[case][0] / time for time in times[case]] for case in SHOWN}
    best = max(max(values) for values in gains.values())
    four = SIZES.index(4)
    beyond = [max(gains[case]) / max(gains[case][: four + 1]) for case in SHOWN]
    claims: dict[str, Ours] = {"gain": best, "marginal": [value < 1.1 for value in beyond]}
    return figure(
        "package-size",
        rows=tuple(
            (*case, float(size), times[case][i], gains[case][i], names[case][i])
            for case in SHOWN
            for i, size in enumerate(SIZES)
        ),
        claims=claims,
        charts=(
            LineChart(
                title=f"Gain over one chip a package, {CHIPS} chips",
                x=Measure(label="chips a package", names=tuple(map(str, SIZES))),
                y=Measure(label="gain", unit="x"),
                series=lines(
                    [1.0 + i for i in range(len(SIZES))],
                    {f"{node}, {network}": gains[node, network] for node, network in SHOWN},
                ),
            ),
        ),
        beyond=100 * max(beyond) - 100,
        inside=INTRA_BANDWIDTH / 1e12,
        searches=SEARCHES,
        evaluations=EVALUATIONS,
    )
