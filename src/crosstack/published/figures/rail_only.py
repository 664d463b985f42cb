"""Figure 7: how many GPUs a high-bandwidth domain needs."""

from __future__ import annotations

import itertools

from crosstack.charts import LineChart, Measure, Series
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import (
    Figure,
    Progress,
    claim,
    figure,
    mapped,
    status,
)

__all__ = ["domain_sweep"]

RULES = "dfmodel-e4"
# Chips of a domain and the logged utilization (LLM/Compare_w_existing/rail_only/16384, commit
# 47ecdc73).
LOGS = (
    (1, 0.33580380752702454), (2, 0.4415322389393984), (4, 0.5194919235587981),
    (8, 0.5871696400156247), (16, 0.5924982900064324), (32, 0.5941619592460725),
    (64, 0.6168388649502651), (128, 0.6151010191478121), (256, 0.6114129919523752),
)  # fmt: skip


def domain_sweep(progress: Progress) -> Figure:
    """Return Figure 7: GPT-3 1T on 16,384 H100, domains of 1 to 256."""
    times, use = [], []
    states: list[str] = []
    for size, _ in LOGS:
        progress(f"domains of {size}")
        answer = mapped(published_task("rail_only", domain_size=size), RULES)
        found = answer.evaluation
        states.append(status(answer))
        times.append(found.time)
        use.append(found.utilization)
    sizes = tuple(float(size) for size, _ in LOGS)
    logs = tuple(log for _, log in LOGS)
    seconds = [t * u / log for t, u, log in zip(times, use, logs, strict=True)]
    falling = [log < before for before, log in itertools.pairwise(logs)]
    points = tuple(
        claim("Fig. 7", f"domains of {size}", log, ours, quantity="utilization",
              sense="at least", tolerance=1e-6, rules=RULES, state=state,
              source=f"LLM/Compare_w_existing/rail_only/16384/{size}")
        for (size, log), ours, state in zip(LOGS, use, states, strict=True)
    )  # fmt: skip
    return figure(
        "rail-only",
        rows=tuple(
            (size, log_time, ours, log, u)
            for size, log_time, ours, log, u in zip(sizes, seconds, times, logs, use, strict=True)
        ),
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
