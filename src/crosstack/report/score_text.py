"""What is said of kernels beside what was measured, set by set, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crosstack.evaluate.run_scores import ChoiceScore, FitScore, RunScore
from crosstack.evaluate.scores import DURATIONS, KernelScore, Score
from crosstack.report.text import reason_lines, rows_table, titled
from crosstack.report.wording import Table, table_of

if TYPE_CHECKING:
    from rich.console import Group

RUNS = (
    "Mean size of ln(said / measured) and, behind it, its mean, in %. Repeats: how far runs "
    "that are spread in the same way are from their mean. One MFU: every step takes the FLOP of "
    "the model at 0.4 of the peak. Fits: of the runs that fit and those that ran out "
    "of memory. Choices: groups of runs that differ in how they are spread, how much slower the "
    "one is that is said to be the fastest, in %, and the share where that is 5 % at most."
)
COMPUTED = (
    "steps are sums of equal microbatches, to a part in a million: computed by its source, not "
    "measured."
)
Scored = tuple[str, str, KernelScore]  # the chip with a type, the source, and the scores
CLASSES = ("below 10 us", "to 100 us", "to 1 ms", "above")
ABOUT = (
    "Mean size of ln(said / measured) and, behind it, its mean, in %; by duration, rows before. "
    "The roofline: 0.8 of the peak and of the bandwidth, and 2 us."
)


def score_table(scored: Sequence[Scored]) -> Table:
    """Return a row for each set."""
    return table_of(
        scored,
        ("chip, type", "<", lambda one: one[0]),
        ("source", "<", lambda one: one[1]),
        ("rows", ">", lambda one: f"{one[2].ours.rows}"),
        ("median", ">", lambda one: f"{100 * one[2].ours.median:.1f}"),
        ("mean", ">", lambda one: size_words(one[2].ours)),
        *(
            (heading, ">", lambda one, number=number: class_words(one[2].by_duration[number]))
            for number, heading in enumerate(CLASSES)
        ),
        ("roofline", ">", lambda one: size_words(one[2].roofline)),
    )


def run_table(scored: Mapping[str, RunScore]) -> Table:
    """Return a row for each source of training runs."""
    return table_of(
        scored.items(),
        ("source", "<", lambda one: one[0]),
        ("runs", ">", lambda one: f"{len(one[1].timed)}"),
        ("refused", ">", lambda one: f"{len(one[1].refused)}"),
        ("median", ">", lambda one: f"{100 * one[1].ours.median:.1f}" if one[1].ours else "-"),
        ("mean", ">", lambda one: size_words(one[1].ours) if one[1].ours else "-"),
        ("repeats", ">", lambda one: _repeats(one[1].repeats)),
        ("one MFU", ">", lambda one: size_words(one[1].plain) if one[1].plain else "-"),
        ("fits, F1", ">", lambda one: _fits(one[1].fits)),
        ("choices", ">", lambda one: _choices(one[1].choices)),
    )


def _repeats(apart: float | None) -> str:
    return "-" if apart is None else f"{100 * apart:.1f}"


def _fits(score: FitScore | None) -> str:
    return "-" if score is None else f"{score.f1:.2f}"


def _choices(score: ChoiceScore | None) -> str:
    if score is None:
        return "-"
    return f"{score.groups}: {100 * score.regret:.1f}, {100 * score.near:.0f} near"


def runs_shown(scored: Mapping[str, RunScore], left_out: Mapping[str, int]) -> Group:
    """Return the table for a terminal, with what was refused and what is left out below."""
    words = [reason for one in scored.values() for _, reason in one.refused]
    left = [f"left out: {name}, {n} rows" for name, n in left_out.items()]
    left += [f"{source}: {COMPUTED}" for source, one in scored.items() if one.computed]
    table = rows_table(run_table(scored), wraps=0)
    return titled("Predicted and measured", table, *reason_lines(words), "\n".join([RUNS, *left]))


def runs_data(scored: Mapping[str, RunScore], left_out: Mapping[str, int]) -> dict[str, Any]:
    """Return the scores as data, with every run."""
    sets = [
        {
            "source": source,
            "ours": None if one.ours is None else asdict(one.ours),
            "one_mfu": None if one.plain is None else asdict(one.plain),
            "repeats": one.repeats,
            "computed": one.computed,
            "runs": [
                {
                    "name": s.run.name,
                    "given": s.run.given,
                    "said_s": s.time,
                    "measured_s": s.run.time,
                    "memory_b": s.memory,
                    "fits": s.fits,
                }
                for s in one.said
            ],
            "fits": None if one.fits is None else asdict(one.fits) | {"f1": one.fits.f1},
            "choices": None if one.choices is None else asdict(one.choices),
            "refused": [{"name": run.name, "why": why} for run, why in one.refused],
        }
        for source, one in scored.items()
    ]
    return {"sets": sets, "left_out": dict(left_out)}


def size_words(score: Score) -> str:
    """Return the mean size of errors, and their mean. [%]"""
    return f"{100 * score.mean:.1f} ({100 * score.bias:+.1f})"


def class_words(score: Score | None) -> str:
    """Return rows and errors of a class; a dash of none."""
    return "-" if score is None else f"{score.rows}: {size_words(score)}"


def scores_shown(scored: Sequence[Scored], left_out: Mapping[str, int]) -> Group:
    """Return the table for a terminal, with what is left out below."""
    left = [f"left out: {name}, {n} rows" for name, n in left_out.items()]
    table = rows_table(score_table(scored), wraps=1)
    return titled("Said and measured", table, "\n".join([ABOUT, *left]))


def scores_data(scored: Sequence[Scored], left_out: Mapping[str, int]) -> dict[str, Any]:
    """Return the scores as data."""
    sets = [{"chip": chip, "source": source, **asdict(found)} for chip, source, found in scored]
    return {"durations_s": list(DURATIONS), "sets": sets, "left_out": dict(left_out)}
