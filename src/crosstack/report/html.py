"""An answer as one self-contained page, or a fragment of one for notebooks.

No script, nothing fetched; light and dark follow the reader's choice.
"""

from __future__ import annotations

from crosstack.evaluate.answer import Answer
from crosstack.report.drawing import DARK, LIGHT, attribute, figure_css
from crosstack.report.layer_figure import layer_sentence
from crosstack.report.sources import cited, rule_rows
from crosstack.report.svg import (
    bars_svg,
    graph_svg,
    layer_svg,
    legend_svg,
    machine_svg,
    memory_svg,
    roofline_svg,
)
from crosstack.report.wording import (
    Table,
    bills,
    certificate_sentence,
    headline,
    kernel_rows,
    key_numbers,
    network_rows,
    partition_rows,
    splits,
    stage_rows,
)
from crosstack.version import __version__

__all__ = ["answer_html"]

_CSS = """
.xs-answer {{ color: {ink}; background: {page}; }}
.xs-answer .xs-status, .xs-answer .xs-card-box {{ border-color: {line}; }}
.xs-answer th, .xs-answer .xs-quiet, .xs-answer dt, .xs-answer caption {{ color: {muted}; }}
.xs-answer th, .xs-answer td {{ border-color: {line}; }}
.xs-answer .xs-number, .xs-answer .xs-status {{ background: {frame}; }}
.xs-answer .xs-status {{ border-left-color: {fs-line}; }}
.xs-answer .xs-by-compute::before {{ background: {compute}; }}
.xs-answer .xs-by-memory::before {{ background: {memory}; }}
.xs-answer .xs-by-network::before {{ background: {network}; }}
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
.xs-answer caption { text-align: left; padding-bottom: .3rem; }
.xs-answer p { margin: .4rem 0; max-width: 60rem; overflow-wrap: anywhere; }
.xs-answer li { margin: .3rem 0; max-width: 60rem; overflow-wrap: anywhere; }
.xs-answer .xs-columns { display: flex; flex-wrap: wrap; gap: 0 3rem; }
.xs-answer .xs-columns > * { max-width: 100%; }
.xs-answer svg { display: block; }
.xs-answer details > summary { cursor: pointer; }
@media print {
  .xs-answer { max-width: none; padding: 0; }
  .xs-answer .xs-scroll { overflow: visible; }
  .xs-answer svg { max-width: 100%; height: auto; }
  .xs-answer table { font-size: 7.5pt; }
  .xs-answer th, .xs-answer td { white-space: normal; padding-right: .4rem; }
  .xs-answer tr, .xs-answer .xs-number, .xs-answer svg { break-inside: avoid; }
  .xs-answer h2 { break-after: avoid; }
  .xs-answer .xs-by-compute::before, .xs-answer .xs-by-memory::before,
  .xs-answer .xs-by-network::before, .xs-answer svg { print-color-adjust: exact; }
}
"""


def answer_html(answer: Answer, *, whole_page: bool = True) -> str:
    """Return an answer as HTML with its figures inside.

    Parameters
    ----------
    whole_page : bool
        A page to save, or a fragment whose style touches nothing outside of it.
    """
    style = (
        f"<style>{_SHAPES}{_theme(LIGHT)}"
        f"@media screen and (prefers-color-scheme: dark) {{{_theme(DARK)}}}</style>"
    )
    tag = "main" if whole_page else "div"
    body = f'{style}\n<{tag} class="xs-answer">\n{_body(answer)}</{tag}>\n'
    if not whole_page:
        return body
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{attribute(headline(answer))}</title>\n"
        f"<style>html, body {{ margin: 0; background: {LIGHT['page']}; }} "
        "@media screen and (prefers-color-scheme: dark) "
        f"{{ html, body {{ background: {DARK['page']}; }} }}</style>\n"
        f"</head>\n<body>\n{body}</body>\n</html>\n"
    )


def _theme(theme: dict[str, str]) -> str:
    figures = figure_css(theme).replace("\n.xs-", "\n.xs-answer .xs-")
    # The class of the figure itself sets its font only, so nesting it is harmless.
    return _CSS.format(**theme) + figures


def _body(answer: Answer) -> str:
    partitions = len(answer.evaluation.partitions)
    fold = len(answer.evaluation.kernels) > 60
    parts = [
        f"<h1>{attribute(headline(answer))}</h1>",
        f'<p class="xs-status">{attribute(certificate_sentence(answer))}</p>',
        _numbers(key_numbers(answer), "xs-numbers"),
        "<h2>Partitions, in the order they run</h2>",
        _folded(_table(partition_rows(answer, name_width=160), bound=6, wrap=1), partitions > 60),
        *_stages(answer),
        "<h2>Timeline of one layer</h2>",
        f"<p>{attribute(layer_sentence(answer))}</p>",
        _scroll(layer_svg(answer), "timeline"),
        '<div class="xs-columns">',
        f"<section><h2>Time of every partition</h2>{_scroll(bars_svg(answer), 'times')}</section>",
        *_roofline(answer),
        f"<section><h2>Memory of a chip</h2>{_scroll(memory_svg(answer), 'memory')}</section>",
        f"<section><h2>Price and power</h2>{_table(bills(answer))}</section>",
        f"<section><h2>Machine</h2>{_scroll(machine_svg(answer), 'machine')}</section>",
        "</div>",
        "<h2>How it is split</h2>",
        _numbers(splits(answer), "xs-numbers xs-plain"),
        f"<p></p>{_table(network_rows(answer))}",
        "<h2>Graph</h2>",
        legend_svg(answer),
        f"<p></p>{_scroll(graph_svg(answer), 'graph')}",
        "<h2>Kernels</h2>",
        _folded(_table(kernel_rows(answer)), fold),
        '<p class="xs-quiet">m, k and n are extents on one chip.</p>',
        "<h2>What the answer rests on</h2>",
        _origin(answer),
        "<h2>Rules and sources</h2>",
        _folded(_table(rule_rows(answer.rules), wrap=2), True, "Every rule and what it switches"),
        _sources(answer),
    ]
    return "\n".join(parts) + "\n"


def _stages(answer: Answer) -> list[str]:
    rows = stage_rows(answer)
    return ["<h2>Pipeline stages, for one microbatch</h2>", _table(rows)] if rows.rows else []


def _numbers(pairs: tuple[tuple[str, str], ...], cls: str) -> str:
    cells = "".join(
        f'<div class="xs-number"><dt>{attribute(label)}</dt><dd>{attribute(value)}</dd></div>'
        for label, value in pairs
    )
    return f'<dl class="{cls}">{cells}</dl>'


def _scroll(inner: str, label: str) -> str:
    """Return what may be wider than the page; it scrolls by keyboard too."""
    return (
        f'<div class="xs-scroll" tabindex="0" role="region" aria-label="{attribute(label)}">'
        f"{inner}</div>"
    )


def _folded(inner: str, fold: bool, words: str = "Show all") -> str:
    return f"<details><summary>{words}</summary>{inner}</details>" if fold else inner


def _roofline(answer: Answer) -> list[str]:
    figure = roofline_svg(answer)
    if not figure:
        return []
    return [f"<section><h2>Roofline of the partitions</h2>{_scroll(figure, 'roofline')}</section>"]


def _sources(answer: Answer) -> str:
    entries = "".join(
        f"<li>{attribute(key)}: {attribute(words)}</li>"
        for key, words in cited(answer.rules, ("williams2009roofline",))
    )
    return f"<ul>{entries}</ul>"


def _table(table: Table, bound: int | None = None, wrap: int | None = None) -> str:
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
    return _scroll(
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>\n{inner}</tbody></table>",
        f"table of {table.header[0]}, {table.header[1]}",
    )


def _origin(answer: Answer) -> str:
    c = answer.certificate
    pairs = (
        ("rules", answer.rules.name),
        ("status", c.status.value),
        ("searched", ", ".join(c.free) or "nothing"),
        ("given", ", ".join(c.given) or "nothing"),
        ("method", c.method),
        ("version", f"crosstack {__version__}"),
    )
    rows = "".join(
        f'<tr><th scope="row">{attribute(label)}</th>'
        f'<td class="xs-wrap">{attribute(value)}</td></tr>'
        for label, value in pairs
    )
    return f"<table><tbody>{rows}</tbody></table>"
