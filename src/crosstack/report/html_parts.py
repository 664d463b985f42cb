"""What pages of single results are made of: their style and frame, numbers, tables, figures."""

from __future__ import annotations

from collections.abc import Sequence

from crosstack.report.drawing import DARK, LIGHT, attribute, figure_css, style_text
from crosstack.report.wording import Table


def fragment(body: str, *, tag: str = "div") -> str:
    """Return a body with its style, which touches nothing outside of it."""
    style = (
        f"<style>\n{style_text('page.css')}{_theme(LIGHT)}"
        f"@media screen and (prefers-color-scheme: dark) {{{_theme(DARK)}}}</style>"
    )
    return f'{style}\n<{tag} class="xs-answer">\n{body}</{tag}>\n'


def page_frame(title: str, body: str) -> str:
    """Return a page to save."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{attribute(title)}</title>\n"
        f"<style>html, body {{ margin: 0; background: {LIGHT['page']}; }} "
        "@media screen and (prefers-color-scheme: dark) "
        f"{{ html, body {{ background: {DARK['page']}; }} }}</style>\n"
        f"</head>\n<body>\n{fragment(body, tag='main')}</body>\n</html>\n"
    )


def number_cards(pairs: tuple[tuple[str, str], ...], cls: str) -> str:
    """Return labelled numbers side by side."""
    cells = "".join(
        f'<div class="xs-number"><dt>{attribute(label)}</dt><dd>{attribute(value)}</dd></div>'
        for label, value in pairs
    )
    return f'<dl class="{cls}">{cells}</dl>'


def scrolled(inner: str, label: str) -> str:
    """Return what may be wider than the page; it scrolls by keyboard too."""
    return (
        f'<div class="xs-scroll" tabindex="0" role="region" aria-label="{attribute(label)}">'
        f"{inner}</div>"
    )


def section(title: str, inner: str) -> str:
    """Return what stands beside other sections, under its title."""
    return f"<section><h2>{title}</h2>{inner}</section>"


def folded(inner: str, fold: bool, words: str = "Show all") -> str:
    """Return what opens at a click, if it is to be folded away."""
    return f"<details><summary>{words}</summary>{inner}</details>" if fold else inner


def html_table(table: Table, bound: int | None = None, wrap: int | None = None) -> str:
    """Return a table.

    ``bound`` is the column that says what a row is bound by, ``wrap`` one of long text.
    """
    right = ["xs-right" if numeric else "" for numeric in table.numeric]
    head = "".join(
        f'<th class="{cls}" scope="col">{attribute(label)}</th>'
        for cls, label in zip(right, table.header, strict=True)
    )
    rows = []
    for row in table.rows:
        cells = []
        for i, (cls, cell) in enumerate(zip(right, row, strict=True)):
            by = f" xs-by-{row[bound]} xs-strong-cell" if bound is not None and i == bound else ""
            by += " xs-wrap" if i == wrap else ""
            cells.append(f'<td class="{cls}{by}">{attribute(cell)}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    inner = "\n".join(rows)
    return scrolled(
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{inner}</tbody></table>",
        f"table of {table.header[0]}, {table.header[1]}",
    )


def bar_table(
    label: str, value: str, rows: list[tuple[str, str, float]], most: float, colour: str
) -> str:
    """Return a table with a bar beside each number; the longest possible one is ``most``."""
    per_cent = 100 / most if most else 0.0
    body = "\n".join(
        f'<tr><th scope="row">{attribute(name)}</th>'
        f'<td class="xs-right">{attribute(words)}</td><td class="xs-bar-cell">'
        f'<div class="xs-bar xs-bar-{colour}" style="width: {number * per_cent:.4g}%"></div>'
        "</td></tr>"
        for name, words, number in rows
    )
    head = f'<th scope="col">{label}</th><th class="xs-right" scope="col">{value}</th><td></td>'
    table = (
        f'<table class="xs-bars"><thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>'
    )
    return scrolled(table, f"{value} by {label}")


def hero(number: str, words: str, beside: Sequence[tuple[str, str]]) -> str:
    """Return the one number of a page, what it is, and what is read with it."""
    cells = "".join(
        f"<div><dt>{attribute(label)}</dt><dd>{attribute(value)}</dd></div>"
        for label, value in beside
    )
    return (
        f'<div class="xs-hero"><p class="xs-hero-number"><strong>{attribute(number)}</strong> '
        f"{attribute(words)}</p><dl>{cells}</dl></div>"
    )


def pairs_rows(pairs: Sequence[tuple[str, str]]) -> str:
    """Return labels with their words, a row each."""
    rows = "".join(
        f'<tr><th scope="row">{attribute(label)}</th>'
        f'<td class="xs-wrap">{attribute(value)}</td></tr>'
        for label, value in pairs
    )
    return f"<table><tbody>{rows}</tbody></table>"


def _theme(theme: dict[str, str]) -> str:
    figures = figure_css(theme).replace("\n.xs-", "\n.xs-answer .xs-")
    # The class of the figure itself sets its font only, so nesting it is harmless.
    return f"\n{style_text('page_colours.css') % theme}{figures}"
