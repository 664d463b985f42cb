"""What bounds an answer and what each resource is worth: sentences, a table, JSON, a chart."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.explore.explain import Effect, Explanation
from crosstack.explore.resources import Resource
from crosstack.report.drawing import Canvas, standalone, text_width
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import NOT_GIVEN, percent, table_of, time_words, usd
from crosstack.units import format_quantity
from crosstack.version import __version__

SMALLEST = 5e-4  # elasticities below it are called none
MOST = 8  # findings on single resources
MARGIN, ROW, BAR, SMALL = 22.0, 24.0, 13.0, 10
HALF = 170.0  # of the bars, each way
LESS, MORE = "xs-hollow-0", "xs-fill-0"


def findings(explanation: Explanation) -> list[str]:
    """Return one sentence for each finding, the strongest first."""
    step = percent(explanation.step)
    shares = explanation.bound_by.items()
    said = ", ".join(f"{name} for {percent(share)} of the time" for name, share in shares)
    sentences = [f"Partitions are bound by {said}."] if said else []
    strong = [e for e in explanation.effects if _moves(e)]
    sentences += [_sentence(e, step) for e in strong[:MOST]]
    still = [e.resource.name for e in explanation.effects if not _moves(e)]
    idle = [name for name in still if "price" not in name]
    if idle:
        sentences.append(f"{step} more or less changes nothing: {', '.join(idle)}.")
    priced = [e for e in explanation.effects if abs(e.price_elasticity) >= SMALLEST]
    if priced:
        most = max(priced, key=lambda e: abs(e.price_elasticity))
        sentences.append(
            f"The price of the system follows the {most.resource.name} most: "
            f"{most.price_elasticity:.2g} % for 1 %."
        )
    wasted = [e.resource.name for e in priced if not _moves(e) and e.resource.unit == "B/s"]
    if wasted:
        sentences.append(f"Paid for without being faster: {', '.join(wasted)}.")
    sentences += _unproved(explanation)
    return sentences


def _unproved(explanation: Explanation) -> list[str]:
    """Say which figures are of the mapping as it is, and which searches ended without a proof."""
    moved = [e for e in explanation.effects if "USD" not in e.resource.unit]
    kept = [e.resource.name for e in moved if e.of_mapping]
    open_ = [e.resource.name for e in moved if not e.proved and not e.of_mapping]
    said = "run on the changed machine, not of the best mapping there, as no proof was reached"
    sentences = []
    if kept:
        which = "Every figure is" if len(kept) == len(moved) else f"{', '.join(kept)}: figures are"
        sentences.append(f"{which} of this mapping, {said}.")
    if open_:
        sentences.append(f"{', '.join(open_)}: a search stopped before a proof.")
    if kept or open_:
        sentences.append("Where a change is between two, the least time is between those bounds.")
    return sentences


def _moves(effect: Effect) -> bool:
    return any(c is None or abs(c) >= SMALLEST for c in effect.one_sided)


def _sentence(effect: Effect, step: str) -> str:
    less, more = effect.one_sided
    name = effect.resource.name
    heading = name[:1].upper() + name[1:]  # SRAM stays as it is
    if effect.resource.value == 0:
        added = format_quantity(effect.more, effect.resource.unit)
        return f"{heading}: {added} {_changed(more)}."
    return f"{heading}: {step} more {_changed(more)}, {step} less {_changed(less)}."


def _changed(change: float | None) -> str:
    if change is None:
        return "does not fit"
    if abs(change) < SMALLEST:
        return "changes nothing"
    return f"is {percent(abs(change))} {'slower' if change > 0 else 'faster'}"


def _value(resource: Resource) -> str:
    value, unit = resource.value, resource.unit
    return usd(value) if unit == "USD" else format_quantity(value, unit)


def explanation_tables(explanation: Explanation) -> Group:
    """Return the findings, then every resource."""
    answer = explanation.answer
    head = (
        ("time", time_words(answer.evaluation.time)),
        ("status", answer.certificate.status.value),
        ("price of the system", usd(answer.evaluation.price.total)),
    )
    table = table_of(
        explanation.effects,
        ("resource", "<", lambda e: e.resource.name),
        ("is", ">", lambda e: _value(e.resource)),
        ("time: % for 1 %", ">", lambda e: f"{_plus_zero(e.elasticity):.3f}"),
        ("less", ">", lambda e: _between(e.one_sided[0], e.ranges[0])),
        ("more", ">", lambda e: _between(e.one_sided[1], e.ranges[1])),
        ("price: % for 1 %", ">", _price_cell),
    )
    title = f"{answer.task.workload.name} on {answer.task.system.name}"
    said = (Text(sentence) for sentence in findings(explanation))
    return titled(title, pairs_table(head), *said, rows_table(table))


def _price_cell(effect: Effect) -> str:
    return NOT_GIVEN if effect.price is None else f"{_plus_zero(effect.price_elasticity):.3f}"


def _plus_zero(value: float) -> float:
    return 0.0 if abs(value) < SMALLEST else value


def _between(change: float | None, between: tuple[float, float] | None) -> str:
    """Say a change, or between what it lies, where that is not known to a tenth of a percent."""
    if between is None or not math.isfinite(between[1]) or between[1] - between[0] < SMALLEST:
        return _cell(change)
    least, most = map(_cell, between)
    return least if least == most else f"{least} to {most}"


def _cell(change: float | None) -> str:
    return "does not fit" if change is None else f"{_plus_zero(change):+.1%}"


def explanation_data(explanation: Explanation) -> dict[str, Any]:
    """Return everything as plain data, in SI units."""
    answer = explanation.answer
    return {
        "crosstack_version": __version__,
        "workload": answer.task.workload.name,
        "system": answer.task.system.name,
        "rules": answer.rules.name,
        "status": answer.certificate.status.value,
        "time_s": answer.evaluation.time,
        "price_usd": answer.evaluation.price.total,
        "step": explanation.step,
        "bound_by": explanation.bound_by,
        "findings": findings(explanation),
        "resources": list(map(_effect_data, explanation.effects)),
    }


def _effect_data(e: Effect) -> dict[str, Any]:
    return {
        **{name: getattr(e.resource, name) for name in ("path", "name", "value", "unit")},
        **{name: getattr(e, name) for name in ("less", "more")},
        "time_less_s": e.time_less,
        "time_more_s": e.time_more,
        "bound_less_s": e.bound_less,
        "bound_more_s": e.bound_more,
        "elasticity": e.elasticity,
        "price_elasticity": None if e.price is None else e.price_elasticity,
        "time_per_unit_s": e.time_per_unit,
        **{name: getattr(e, name) for name in ("proved", "of_mapping")},
        "reason": e.reason or None,
    }


def explanation_svg(explanation: Explanation) -> str:
    """Return the tornado chart of everything that a time may depend on.

    Bars go to the left where the task gets faster, to the right where slower.
    """
    answer, step = explanation.answer, explanation.step
    rows = [
        (e.resource.name, *e.one_sided)
        for e in explanation.effects
        if "USD" not in e.resource.unit and e.resource.value > 0
    ]
    canvas = Canvas()
    label = max((text_width(name, SMALL) for name, _, _ in rows), default=60.0)
    middle = MARGIN + label + 60.0 + HALF
    width = middle + HALF + 60.0 + MARGIN
    title = f"{answer.task.workload.name} on {answer.task.system.name}"
    canvas.text(MARGIN, 34, title, size=18, cls="xs-ink xs-strong", width=width - 2 * MARGIN)
    anew = "the mapping kept" if any(e.of_mapping for e in explanation.effects) else "mapped anew"
    time = time_words(answer.evaluation.time)
    said = f"{time} an iteration; each resource changed alone, and {anew}."
    y = canvas.paragraph((MARGIN, 54), said, width - 2 * MARGIN) + 6
    legend = {f"{100 * step:g} % less": LESS, f"{100 * step:g} % more": MORE}
    canvas.legend(MARGIN, y, legend, size=SMALL)
    canvas.text(middle - 6, y, "faster", size=SMALL, cls="xs-muted", anchor="end")
    canvas.text(middle + 6, y, "slower", size=SMALL, cls="xs-muted")
    top = y + 10
    largest = max((abs(c) for _, *both in rows for c in both if c is not None), default=0.0)
    scale = HALF / largest if largest > 0 else 0.0
    for k, (name, less, more) in enumerate(rows):
        canvas.text(MARGIN, top + k * ROW + ROW / 2 + 3.5, name, size=SMALL)
        _bars(canvas, less, more, middle, top + k * ROW + ROW / 2, scale)
    bottom = top + len(rows) * ROW
    canvas.line(((middle, top), (middle, bottom)), "xs-wire")
    return standalone(canvas, width, bottom + MARGIN, title, own=True)


def _bars(
    canvas: Canvas, less: float | None, more: float | None, x: float, y: float, scale: float
) -> None:
    """Draw what less and more of a resource do; None: the task does not fit."""
    words = ["none" if change is None else f"{change:.6g}" for change in (less, more)]
    with canvas.group(data_less=words[0], data_more=words[1]):
        for change, cls, shift in ((less, LESS, -BAR / 2), (more, MORE, 0.0)):
            if change is None:
                canvas.text(x + 6, y + 3.5, "does not fit", size=8.5, cls="xs-muted")
                continue
            start, length = x + min(change * scale, 0.0), max(abs(change) * scale, 0.5)
            canvas.rectangle(start, y + shift, length, BAR / 2, cls)
    ends = [c for c in (less, more) if c]
    for change in {min(ends, default=0.0), max(ends, default=0.0)} - {0.0}:
        at, anchor = (5, "start") if change > 0 else (-5, "end")
        end = x + change * scale + at
        canvas.text(end, y + 3.5, f"{change:+.1%}", size=8.5, cls="xs-muted", anchor=anchor)
