"""A co-optimised design as tables, as JSON, as the picture of its search and as a page."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.evaluate.predict import Step
from crosstack.explore.cooptimise import ChoiceResult, ChoiceStatus, CoResult
from crosstack.explore.design import Metric
from crosstack.io.study_file import Goal
from crosstack.report import chip_text as chip
from crosstack.report import html_parts as page
from crosstack.report.chart_figure import chart_svg, charts_svg
from crosstack.report.drawing import attribute
from crosstack.report.pages.study_table import Cell, StudyTable
from crosstack.report.text import pairs_table, reason_lines, rows_table, titled
from crosstack.report.wording import Table, percent, plural, table_of
from crosstack.units import format_quantity
from crosstack.version import __version__

SHOWN = 12  # choices in a table, the best ones
ON_PAGE, MOST = 20, 500  # choices in sight, and on the page
DRAWN = 6  # searches in the picture
OTHERS = (Metric.TIME, Metric.POWER, Metric.ENERGY)
SHARED_OUT = "How the budget is shared out"


def optimum_title(data: dict[str, Any]) -> str:
    """Return what was looked for and what was chosen, on one line."""
    return f"{data['workload']}: least {data['objective']}, {_choice_words(data['choice'])}"


def _choice_words(choice: dict[str, str]) -> str:
    return ", ".join(f"{field}={value}" for field, value in choice.items())


def optimum_tables(data: dict[str, Any]) -> Group:
    """Return what was found, the best choices, and the chip with what binds it.

    ``data`` is what `optimum_data` returns, perhaps saved and read again.
    """
    parts: list[Any] = [pairs_table(optimum_pairs(data))]
    if len(data["choices"]) > 1:
        parts.append(rows_table(choice_rows(data, SHOWN)))
        reasons = _reasons(data)
        parts += [titled("Why choices have no design", *reasons)] if reasons else []
    parts.append(titled(SHARED_OUT, rows_table(share_rows(data))))
    return titled(optimum_title(data), *parts, chip.chip_tables(data["chip"]))


def _written(value: float | None, data: dict[str, Any]) -> str:
    return "-" if value is None else format_quantity(value, data["unit"])


def optimum_pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the numbers of the best design, and how it was found."""
    objective, best, metrics = data["objective"], data["best"], data["metrics"]
    first = next(c["first"] for c in data["choices"] if c["choice"] == data["choice"])
    counts = Counter(c["status"] for c in data["choices"])
    pairs = [(objective, _written(best, data))]
    if first is not None and best < first:
        before = f"{_written(first, data)}, {first / best:.3g} times"
        pairs.append(("before its search", before))
    if data["bound"]:
        pairs.append(("no design beats", _written(data["bound"], data)))
    return (
        *pairs,
        *((m, format_quantity(metrics[m], m.unit)) for m in OTHERS if m != objective),
        ("energy is", data["energy_basis"]),
        ("chip area", f"{metrics['area'] * 1e6:,.4g} mm^2"),
        ("choices", ", ".join(f"{counts[s]:,} {s}" for s in ChoiceStatus if counts[s])),
        ("evaluations", f"{data['evaluations']:,}"),
    )


def _reasons(data: dict[str, Any]) -> list[Text]:
    """Return why choices have no design."""
    return reason_lines(c["reason"] for c in data["choices"] if c["best"] is None and c["reason"])


def _ordered(data: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(data["choices"], key=lambda c: math.inf if c["best"] is None else c["best"])


def choice_rows(data: dict[str, Any], most: int) -> Table:
    """Return the best choices, at most so many."""
    return table_of(
        _ordered(data)[:most],
        ("choice", "<", lambda c: _choice_words(c["choice"])),
        ("best", ">", lambda c: _written(c["best"], data)),
        ("before its search", ">", lambda c: _written(c["first"], data)),
        ("no design beats", ">", lambda c: _written(c["bound"], data)),
        ("what became of it", "<", lambda c: c["status"]),
    )


def share_rows(data: dict[str, Any]) -> Table:
    """Return the shares of the budget, as given and as found."""
    return table_of(
        data["shares"],
        ("share", "<", str),
        ("given", ">", lambda name: percent(data["given_shares"][name])),
        ("found", ">", lambda name: percent(data["shares"][name])),
    )


def optimum_data(found: CoResult, workload: Step, objective: Metric) -> dict[str, Any]:
    """Return everything as plain data; units are in the names, SI."""
    metrics = found.design.metrics
    problem = found.best.choice.problem
    names = problem.free.space.names
    return {
        "crosstack_version": __version__,
        "workload": workload.name,
        "objective": objective.value,
        "unit": objective.unit,
        "best": found.best.best,
        "bound": found.proved or None,
        "choice": dict(found.best.choice.labels),
        "metrics": {m.value: metrics.value(m) for m in Metric},
        "energy_basis": metrics.energy.basis.value,
        "given_shares": dict(zip(names, problem.free.start.tolist(), strict=True)),
        "shares": dict(zip(names, found.point, strict=True)),
        "chip": chip.chip_data(found.design.chip, problem.rules.name),
        "evaluations": found.evaluations,
        "choices": list(map(_choice_data, found.results)),
    }


def _choice_data(one: ChoiceResult) -> dict[str, Any]:
    values = None if one.result is None else one.result.best_values  # after every evaluation
    return {
        "choice": dict(one.choice.labels),
        "status": one.status.value,
        "best": one.best,
        "first": one.first,
        "bound": one.bound or None,
        "reason": one.reason or None,
        # None before the first design.
        "history": values and [v if math.isfinite(v) else None for v in values],
    }


def optimum_chart(data: dict[str, Any]) -> LineChart | None:
    """Return the best value after every evaluation, for the best searches; None without any."""
    searched = [c for c in _ordered(data) if c["history"]][:DRAWN]
    series = []
    for number, c in enumerate(searched):
        points = [(float(i), v) for i, v in enumerate(c["history"], 1) if v is not None]
        xs, ys = (tuple(point[k] for point in points) for k in (0, 1))
        name = _choice_words(c["choice"])
        series.append(Series(name=name, x=xs, y=ys, colour=number, mark=Mark.NONE))
    if not series:
        return None
    return LineChart(
        title="Best design after every evaluation",
        x=Measure(label="evaluations"),
        y=Measure(label=data["objective"], unit=data["unit"], log=True),
        series=tuple(series),
    )


def optimum_svg(data: dict[str, Any]) -> str:
    """Return the best value after every evaluation as a picture."""
    chart = optimum_chart(data)
    subtitle = (
        f"{_choice_words(data['choice'])}: {_written(data['best'], data)} after "
        f"{plural(data['evaluations'], 'evaluation')} of {plural(len(data['choices']), 'choice')}."
    )
    title = f"{data['workload']}: least {data['objective']}"
    return charts_svg(title, subtitle, [] if chart is None else [chart], [], [])


def optimum_html(data: dict[str, Any]) -> str:
    """Return a page; ``data`` is what ``crosstack optimize`` saves with ``--json``."""
    title, made = optimum_title(data), data["chip"]
    version = f"crosstack {data['crosstack_version']}"
    chart = optimum_chart(data)
    search = "" if chart is None else page.scrolled(chart_svg(chart), "the search")
    parts = [
        f"<h1>{attribute(title)}</h1>",
        f'<p class="xs-status">{attribute(_sentence(data))}</p>',
        page.number_cards(optimum_pairs(data), "xs-numbers"),
        '<div class="xs-columns">',
        *([page.section("The search", search)] if search else []),
        page.section(SHARED_OUT, page.html_table(share_rows(data))),
        "</div>",
        *_choices(data),
        f"<h2>The chip {attribute(made['hierarchy']['name'])}</h2>",
        page.pairs_rows(chip.chip_pairs(made)),
        f"<p></p>{page.html_table(chip.level_rows(made))}",
        "<h2>What each component takes, and what binds it</h2>",
        page.html_table(chip.budget_rows(made)),
        f"<p></p>{page.pairs_rows(chip.left_pairs(made))}",
        *(f"<p>Warning: {attribute(words)}</p>" for words in made["warnings"]),
        "<h2>What the answer rests on</h2>",
        page.pairs_rows([("rules of the chip", made["rules"]), ("version", version)]),
    ]
    return page.page_frame(title, "\n".join(parts) + "\n")


def _sentence(data: dict[str, Any]) -> str:
    searched = sum(c["status"] == "searched" for c in data["choices"])
    of = plural(len(data["choices"]), "choice")
    found = f"The best design known, after searching {searched:,} of {of}"
    if not data["bound"]:
        return f"{found}; nothing is proved of it."
    factor = data["best"] / data["bound"]
    return f"{found}; no design of any is more than {factor:.3g} times better."


def _choices(data: dict[str, Any]) -> list[str]:
    count = len(data["choices"])
    if count < 2:
        return []
    found = ["<h2>Choices, the best first</h2>", page.html_table(choice_rows(data, ON_PAGE))]
    if count > ON_PAGE:
        words = f"Show {'all' if count <= MOST else f'the best {MOST:,} of'} {count:,}"
        found.append(page.folded(page.html_table(choice_rows(data, MOST)), True, words))
    items = "".join(f"<li>{attribute(line.plain.strip())}</li>" for line in _reasons(data))
    return [*found, f"<p>Why choices have no design:</p><ul>{items}</ul>"] if items else found


def optimum_study(data: dict[str, Any]) -> StudyTable:
    """Return a row for each choice."""
    choices = data["choices"]
    fields = ("status", "best", "first", "bound", "reason")
    columns: dict[str, list[Cell]] = {n: [c["choice"][n] for c in choices] for n in data["choice"]}
    return StudyTable(
        title=optimum_title(data),
        columns=columns | {name: [c[name] for c in choices] for name in fields},
        axes=tuple(data["choice"]),
        objectives=(("best", Goal.MINIMUM),) if any(c["best"] for c in choices) else (),
        units=dict.fromkeys(("best", "first", "bound"), data["unit"]),
    )
