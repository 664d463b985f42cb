"""What a table of measurements tells of a machine, as a table and as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crosstack.evaluate.calibrate import Fit
from crosstack.evaluate.scores import Score
from crosstack.machine.calibration import FACTORS
from crosstack.report.score_text import size_words
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import Table, table_of

if TYPE_CHECKING:
    from rich.console import Group

ABOUT = (
    "Held out: each row with the factors that four fifths of the rows give, without it. An error "
    "is ln(said / measured): mean size and, behind it, its mean, in %."
)


def factor_table(fit: Fit) -> Table:
    """Return a row for each factor that was found."""
    return table_of(
        fit.fitted,
        ("factor", "<", lambda one: one.name),
        ("of", "<", lambda one: FACTORS[one.name].of),
        ("found", ">", lambda one: f"{one.value:.3f}"),
        ("95 %", ">", lambda one: f"{one.low:.3f} to {one.high:.3f}"),
        ("may be", ">", lambda one: "{:g} to {:g}".format(*FACTORS[one.name][:2])),
    )


def _line(words: str, score: Score) -> str:
    return f"{words}: {size_words(score)}, median {100 * score.median:.1f}"


def fit_shown(fit: Fit, left_out: Mapping[str, int]) -> Group:
    """Return the factors for a terminal, with errors before and after below."""
    words = [
        _line(f"{fit.before.rows} rows, before", fit.before),
        _line("held out, after", fit.held_out),
        _line("all of them, after", fit.after),
        *(f"{one.name} is at an end of what it may be" for one in fit.fitted if one.at_an_end),
        *(f"not told: {one.name}: {one.why}" for one in fit.refused),
        *(f"left out: {name}, {n} rows" for name, n in left_out.items()),
        ABOUT,
    ]
    table = rows_table(factor_table(fit), wraps=1)
    return titled("Calibrated", table, "\n".join(words))


def fit_data(fit: Fit, left_out: Mapping[str, int]) -> dict[str, Any]:
    """Return the fit as data."""
    said = fit.calibration
    return {
        "table": said.table,
        "rows": said.rows,
        "sha256": said.digest,
        "factors": [asdict(one) for one in fit.fitted],
        "refused": [asdict(one) for one in fit.refused],
        "before": asdict(fit.before),
        "held_out": asdict(fit.held_out),
        "after": asdict(fit.after),
        "left_out": dict(left_out),
    }
