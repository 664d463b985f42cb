"""Figure 7: how many GPUs a high-bandwidth domain needs."""

from __future__ import annotations

import itertools

from crosstack.charts import LineChart, Measure, Series
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    Progress,
    figure,
    mapped,
    published_points,
    status,
)

RULES = "dfmodel-e4"
LOGS = [(size, log) for size, log in TEXTS["figures"]["rail-only"]["logs"]]


def domain_sweep(progress: Progress) -> Figure:
    """Return Figure 7: GPT-3 1T on 16,384 H100, domains of 1 to 256."""
    answers = []
    for size, _ in LOGS:
        progress(f"domains of {size}")
        answers.append(mapped(published_task("rail_only", domain_size=size), RULES))
    times = [answer.evaluation.time for answer in answers]
    use = [answer.evaluation.utilization for answer in answers]
    states = [status(answer) for answer in answers]
    sizes = tuple(float(size) for size, _ in LOGS)
    logs = tuple(log for _, log in LOGS)
    seconds = [t * u / log for t, u, log in zip(times, use, logs, strict=True)]
    falling = [log < before for before, log in itertools.pairwise(logs)]
    points = published_points(
        "rail-only",
        (
            (f"domains of {size}", log, ours, state,
             f"LLM/Compare_w_existing/rail_only/16384/{size}")
            for (size, log), ours, state in zip(LOGS, use, states, strict=True)
        ),
    )  # fmt: skip
    return figure(
        "rail-only",
        rows=tuple(zip(sizes, seconds, times, logs, use, strict=True)),
        claims={"never slower": [b <= a * (1 + 1e-9) for a, b in itertools.pairwise(times)]},
        points=points,
        charts=(
            LineChart(
                title="Iteration by size of the domain",
                x=Measure(label="chips of a domain", log=True, ticks=sizes),
                y=Measure(label="iteration", unit="s"),
                series=(
                    Series(name="published log", x=sizes, y=tuple(seconds), published=True),
                    Series(name="ours, proved best", x=sizes, y=tuple(times)),
                ),
            ),
        ),
        slower=sum(falling),
        steps=len(falling),
    )
