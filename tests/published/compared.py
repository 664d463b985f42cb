"""Measured over predicted steps of training, by framework, generation of chips and kind of model.

Usage: python tests/published/compared.py (prints COMPARISONS of crosstack.evaluate.comparisons;
needs ../shared/data/measured; minutes)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from crosstack.evaluate.comparisons import GENERATIONS, SHARES, Comparison, Ratios
from crosstack.evaluate.run_scores import RunScore, score_runs
from crosstack.io.measured_runs import read_runs

RUNS = Path(__file__).resolve().parents[3] / "shared/data/measured/training.jsonl"
SOME = 40  # runs of every source at most, as docs/parallelism.md has them
FEWEST = 4  # runs that a comparison is made of


def scored() -> dict[str, RunScore]:
    """Return the scores of the runs of every source."""
    return {source: score_runs(runs, most=SOME) for source, runs in read_runs(RUNS).sets.items()}


def compared(scores: Mapping[str, RunScore]) -> list[Comparison]:
    """Return the comparisons of all runs with these scores that were measured."""
    ratios: dict[tuple[str, str, bool], list[tuple[str, float]]] = defaultdict(list)
    for source, score in scores.items():
        for one in () if score.computed else score.timed:
            chip, framework = one.run.system.chip, one.run.system.chip.framework
            assert framework is not None
            assert one.run.time is not None
            (generation,) = (name for name, some in GENERATIONS.items() if chip.name in some)
            key = framework.name, generation, one.run.has_experts
            ratios[key].append((source, one.run.time / one.time))
    return [
        Comparison(
            framework=framework,
            generation=generation,
            experts=experts,
            runs=len(found),
            sources=tuple(sorted({source for source, _ in found})),
            ratios=Ratios(
                *(round(float(x), 3) for x in np.quantile([r for _, r in found], SHARES))
            ),
        )
        for (framework, generation, experts), found in sorted(ratios.items())
        if len(found) >= FEWEST
    ]


if __name__ == "__main__":
    for comparison in compared(scored()):
        print(f"    {comparison},")
