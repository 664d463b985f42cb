"""An answer as one self-contained page, or a fragment of one for notebooks.

No script, nothing fetched; light and dark follow the reader's choice.
"""

from __future__ import annotations

from crosstack.evaluate.plan import Plan
from crosstack.report import html_parts as page
from crosstack.report import plan_rows, step_words, wording
from crosstack.report.certificate_words import certificate_sentence, closing_sentence, is_open
from crosstack.report.drawing import attribute
from crosstack.report.layer_figure import layer_sentence
from crosstack.report.memory_front_words import front_rows, front_title
from crosstack.report.sources import cited, rule_rows
from crosstack.report.svg import piece_svg
from crosstack.version import __version__

EVERY_RULE = "Every rule and what it switches"


def answer_html(answer: Plan, *, whole_page: bool = True) -> str:
    """Return an answer as HTML: a page to save, or a fragment whose style stays inside it."""
    body = _body(answer)
    return page.page_frame(plan_rows.headline(answer), body) if whole_page else page.fragment(body)


def _body(answer: Plan) -> str:
    partitions = len(answer.evaluation.partitions)
    fold = len(answer.evaluation.kernels) > 60
    rows = plan_rows.partition_rows(answer, name_width=160)
    sources = "".join(
        f"<li>{attribute(key)}: {attribute(words)}</li>"
        for key, words in cited(answer.rules, ("williams2009roofline",))
    )

    on_chip = any(p.sram_used for p in answer.evaluation.partitions)

    sections = {
        "Time of every partition": _piece(answer, "bars", "times"),
        "Roofline of the partitions": _piece(answer, "roofline", "roofline"),
        "Memory on the chip": _piece(answer, "memory", "memory") if on_chip else "",
        "Price and power": page.html_table(plan_rows.bills(answer)),
        "Machine": _piece(answer, "machine", "machine"),
    }
    parts = [
        f"<h1>{attribute(plan_rows.headline(answer))}</h1>",
        *step_sections(answer),
        "<h2>Numbers</h2>",
        page.number_cards(plan_rows.key_numbers(answer), "xs-numbers xs-plain"),
        "<h2>Partitions, in the order they run</h2>",
        page.folded(
            page.html_table(rows, bound=rows.header.index("bound by"), wrap=1), partitions > 60
        ),
        *(
            f"<h2>{title}</h2>\n{page.html_table(rows)}"
            for title, rows in plan_rows.tables_of_parts(answer)
        ),
        "<h2>Timeline of one layer</h2>",
        f"<p>{attribute(layer_sentence(answer))}</p>",
        _piece(answer, "layer", "timeline"),
        '<div class="xs-columns">',
        *(page.section(title, s) for title, s in sections.items() if s),
        "</div>",
        "<h2>How it is split</h2>",
        page.number_cards(plan_rows.splits(answer), "xs-numbers xs-plain"),
        f"<p></p>{page.html_table(plan_rows.network_rows(answer))}",
        "<h2>Graph</h2>",
        piece_svg(answer, "legend"),
        f"<p></p>{_piece(answer, 'graph', 'graph')}",
        "<h2>Kernels</h2>",
        page.folded(page.html_table(plan_rows.kernel_rows(answer)), fold),
        '<p class="xs-quiet">m, k and n are extents on one chip.</p>',
        "<h2>What the answer rests on</h2>",
        _origin(answer),
        "<h2>Rules and sources</h2>",
        page.folded(page.html_table(rule_rows(answer.rules), wrap=2), True, EVERY_RULE),
        f"<ul>{sources}</ul>",
    ]
    return "\n".join(parts) + "\n"


def _piece(answer: Plan, name: str, label: str) -> str:
    drawn = piece_svg(answer, name)
    return page.scrolled(drawn, label) if drawn else ""


def step_sections(answer: Plan) -> list[str]:
    """Return what is read first: the step, what it is made of and holds, a run, what is next."""
    account, run, ranked = answer.step_account(), answer.run, answer.next_plans
    said = (
        step_words.bound_sentence(answer, account),
        step_words.first_sentence(account),
        step_words.expected_sentence(answer),
    )
    first = "".join(f"<p>{attribute(sentence)}</p>" for sentence in said if sentence)
    (_, time), *numbers = step_words.step_numbers(answer)
    found = [
        page.hero(
            wording.time_words(answer.evaluation.time), "a step", step_words.hero_pairs(answer)
        ),
        f'<div class="xs-first">{first}</div>',
        _certificate(answer),
        page.number_cards((("step time", time), *numbers), "xs-numbers xs-plain"),
    ]
    if run is not None:
        cards = page.number_cards(step_words.run_numbers(run), "xs-numbers xs-plain")
        found += [f"<h2>{attribute(step_words.run_title(run))}</h2>", cards]
    memory = page.html_table(plan_rows.memory_rows(answer))
    sections = {
        "What the step is made of": step_words.spent_bars(answer, account),
        "Memory": _piece(answer, "held", "memory by stage"),
    }
    found.append('<div class="xs-columns">')
    found += [page.section(title, inner) for title, inner in sections.items() if inner]
    found += ["</div>", "<p></p>", memory]
    if timeline := _piece(answer, "stages", "timeline of the stages"):
        words = step_words.timeline_sentence(answer, account)
        found += ["<h2>Timeline of a step</h2>", f"<p>{attribute(words)}</p>", timeline]
    if ranked is not None:
        found.append(f"<h2>{attribute(step_words.next_title(answer, ranked))}</h2>")
        if ranked.found:
            found.append(page.html_table(step_words.next_rows(answer, ranked), wrap=9))
    if answer.front is not None:
        found.append(f"<h2>{attribute(front_title(answer, answer.front))}</h2>")
        found.append(_piece(answer, "front", "front of time and memory"))
        found.append(page.html_table(front_rows(answer, answer.front), wrap=6))
    return found


def _certificate(answer: Plan) -> str:
    sentence = attribute(certificate_sentence(answer))
    warned = "".join(f"<p>Warning: {attribute(words)}</p>" for words in answer.warnings)
    if not is_open(answer):
        return f'<p class="xs-status">{sentence}</p>{warned}'
    how = attribute(closing_sentence(answer))
    return (
        f'<div class="xs-status xs-open" role="alert"><p>{sentence}</p><p>{how}</p></div>{warned}'
    )


def _origin(answer: Plan) -> str:
    c = answer.certificate
    pairs = (
        ("rules", answer.rules.name),
        ("status", c.status.value),
        ("searched", ", ".join(c.free) or "nothing"),
        ("given", ", ".join(c.given) or "nothing"),
        ("method", c.method),
        ("version", f"crosstack {__version__}"),
    )
    return page.pairs_rows(pairs)
