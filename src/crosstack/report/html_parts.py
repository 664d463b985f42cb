"""What pages of single results are made of: their style and frame, numbers, tables, figures."""

from __future__ import annotations

from collections.abc import Sequence

from crosstack.report.drawing import DARK, LIGHT, attribute, figure_css
from crosstack.report.wording import Table

__all__ = [
    "folded",
    "fragment",
    "html_table",
    "number_cards",
    "page_frame",
    "pairs_rows",
    "scrolled",
]

_CSS = """
.xs-answer {{ color: {ink}; background: {page}; }}
.xs-answer .xs-status, .xs-answer .xs-card-box {{ border-color: {line}; }}
.xs-answer th, .xs-answer .xs-quiet, .xs-answer dt, .xs-answer caption {{ color: {muted}; }}
.xs-answer th, .xs-answer td {{ border-color: {line}; }}
.xs-answer .xs-number, .xs-answer .xs-status {{ background: {frame}; }}
.xs-answer .xs-status {{ border-left-color: {fs-line}; }}
.xs-answer .xs-open {{ border-color: {network}; border-left-color: {network}; }}
.xs-answer .xs-open p:first-child {{ color: {network}; font-weight: bold; }}
.xs-answer .xs-by-compute::before {{ background: {compute}; }}
.xs-answer .xs-by-memory::before {{ background: {memory}; }}
.xs-answer .xs-by-network::before {{ background: {network}; }}
.xs-answer .xs-by-launch::before {{ background: {launch}; }}
.xs-answer .xs-bar-compute {{ background: {compute}; }}
.xs-answer .xs-bar-memory {{ background: {memory}; }}
.xs-answer :focus-visible {{ outline: 3px solid {fs-line}; outline-offset: 2px; }}
"""

_SHAPES = """
.xs-answer { font: 14px/1.45 Helvetica, Arial, sans-serif; padding: 1.2rem 1.6rem;
  box-sizing: border-box; max-width: 1400px; margin: 0 auto; }
.xs-answer * { box-sizing: border-box; }
.xs-answer h1 { font-size: 1.5rem; margin: 0 0 .6rem; overflow-wrap: anywhere; }
.xs-answer h2 { font-size: 1.05rem; margin: 1.8rem 0 .6rem; }
.xs-answer .xs-status { border: 1px solid; border-left: 4px solid; border-radius: 6px;
  padding: .7rem 1rem; margin: 0 0 1rem; font-size: 1.05rem; }
.xs-answer .xs-numbers { display: grid; gap: .6rem; margin: 0;
  grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); }
.xs-answer .xs-number { border-radius: 6px; padding: .5rem .8rem; }
.xs-answer dt { font-size: .8rem; }
.xs-answer dd { margin: 0; font-size: 1.1rem; font-weight: bold; }
.xs-answer .xs-plain { grid-template-columns: repeat(auto-fill, minmax(165px, 1fr)); }
.xs-answer .xs-plain dd { font-size: 1rem; font-weight: normal; }
.xs-answer .xs-scroll { overflow-x: auto; max-width: 100%; }
.xs-answer table { border-collapse: collapse; font-size: .88rem; margin: 0; }
.xs-answer th, .xs-answer td { text-align: left; padding: .28rem .7rem .28rem 0;
  border-bottom: 1px solid; vertical-align: top; background: none; }
.xs-answer th { font-weight: normal; white-space: nowrap; }
.xs-answer td { white-space: nowrap; }
.xs-answer td.xs-wrap { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
.xs-answer .xs-right { text-align: right; font-variant-numeric: tabular-nums; }
.xs-answer .xs-strong-cell { font-weight: bold; }
.xs-answer .xs-strong-cell::before { content: ""; display: inline-block; width: .6rem;
  height: .6rem; border-radius: 2px; margin-right: .35rem; }
.xs-answer .xs-bar { height: .8rem; border-radius: 2px; min-width: 1px; margin-top: .2rem; }
.xs-answer .xs-bar-cell { min-width: 8rem; width: 28rem; }
.xs-answer caption { text-align: left; padding-bottom: .3rem; }
.xs-answer p { margin: .4rem 0; max-width: 60rem; overflow-wrap: anywhere; }
.xs-answer li { margin: .3rem 0; max-width: 60rem; overflow-wrap: anywhere; }
.xs-answer .xs-columns { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.xs-answer .xs-columns > * { max-width: 100%; }
.xs-answer svg { display: block; }
.xs-answer details > summary { cursor: pointer; }
@media (max-width: 600px) {
  .xs-answer .xs-bars th, .xs-answer .xs-bars td { white-space: normal; }
  .xs-answer .xs-bar-cell { min-width: 5rem; }
}
@media print {
  .xs-answer { max-width: none; padding: 0; }
  .xs-answer .xs-scroll { overflow: visible; }
  .xs-answer svg { max-width: 100%; height: auto; }
  .xs-answer table { font-size: 7.5pt; }
  .xs-answer th, .xs-answer td { white-space: normal; padding-right: .4rem; }
  .xs-answer td.xs-right, .xs-answer .xs-strong-cell { white-space: nowrap; }
  .xs-answer tr, .xs-answer .xs-number, .xs-answer svg { break-inside: avoid; }
  .xs-answer h2 { break-after: avoid; }
  .xs-answer .xs-by-compute::before, .xs-answer .xs-by-memory::before,
  .xs-answer .xs-by-network::before, .xs-answer .xs-by-launch::before, .xs-answer .xs-bar,
  .xs-answer svg { print-color-adjust: exact; }
}
"""


def fragment(body: str, *, tag: str = "div") -> str:
    """Return a body with its style, which touches nothing outside of it."""
    style = (
        f"<style>{_SHAPES}{_theme(LIGHT)}"
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
    return _CSS.format(**theme) + figures
