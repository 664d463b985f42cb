"""The best design of a search as a page, and all its choices for other tools."""

from __future__ import annotations

from typing import Any

from crosstack.io.study_file import Goal
from crosstack.report import html_parts as page
from crosstack.report import optimize_text as text
from crosstack.report.chart_figure import chart_svg
from crosstack.report.chip_text import budget_rows, chip_pairs, left_pairs, level_rows
from crosstack.report.drawing import attribute
from crosstack.report.pages.study_table import Cell, StudyTable
from crosstack.report.text import reason_lines
from crosstack.report.wording import plural

SHOWN, MOST = 20, 500  # choices in sight, and on the page


def optimum_html(data: dict[str, Any]) -> str:
    """Return a page; ``data`` is what ``crosstack optimize`` saves with ``--json``."""
    title = text.optimum_title(data)
    chip, version = data["chip"], f"crosstack {data['crosstack_version']}"
    chart = text.optimum_chart(data)
    search = [] if chart is None else [page.scrolled(chart_svg(chart), "the search")]
    parts = [
        f"<h1>{attribute(title)}</h1>",
        f'<p class="xs-status">{attribute(_sentence(data))}</p>',
        page.number_cards(text.optimum_pairs(data), "xs-numbers"),
        '<div class="xs-columns">',
        *(page.section("The search", picture) for picture in search),
        page.section("How the budget is shared out", page.html_table(text.share_rows(data))),
        "</div>",
        *_choices(data),
        f"<h2>The chip {attribute(chip['hierarchy']['name'])}</h2>",
        page.pairs_rows(chip_pairs(chip)),
        f"<p></p>{page.html_table(level_rows(chip))}",
        "<h2>What each component takes, and what binds it</h2>",
        page.html_table(budget_rows(chip)),
        f"<p></p>{page.pairs_rows(left_pairs(chip))}",
        *(f"<p>Warning: {attribute(words)}</p>" for words in chip["warnings"]),
        "<h2>What the answer rests on</h2>",
        page.pairs_rows([("rules of the chip", chip["rules"]), ("version", version)]),
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
    found = [
        "<h2>Choices, the best first</h2>",
        page.html_table(text.choice_rows(data, SHOWN)),
    ]
    if count > SHOWN:
        words = f"Show {'all' if count <= MOST else f'the best {MOST:,} of'} {count:,}"
        found.append(page.folded(page.html_table(text.choice_rows(data, MOST)), True, words))
    reasons = reason_lines(text.optimum_reasons(data))
    if reasons:
        items = "".join(f"<li>{attribute(line.plain.strip())}</li>" for line in reasons)
        found.append(f"<p>Why choices have no design:</p><ul>{items}</ul>")
    return found


def optimum_study(data: dict[str, Any]) -> StudyTable:
    """Return a row for each choice."""
    choices = data["choices"]
    columns: dict[str, list[Cell]] = {
        name: [c["choice"][name] for c in choices] for name in data["choice"]
    }
    for name in ("status", "best", "first", "bound", "reason"):
        columns[name] = [c[name] for c in choices]
    goal = (("best", Goal.MINIMUM),) if any(c["best"] for c in choices) else ()
    return StudyTable(
        title=text.optimum_title(data),
        columns=columns,
        axes=tuple(data["choice"]),
        objectives=goal,
        units=dict.fromkeys(("best", "first", "bound"), data["unit"]),
    )
