"""A timeline as a Gantt chart and as a trace for Perfetto or the Chrome trace viewer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from crosstack.evaluate.timeline import FREE, Timeline
from crosstack.report.drawing import Canvas, standalone
from crosstack.report.scales import round_scale
from crosstack.report.wording import time_words

__all__ = ["gantt_svg", "trace_json"]

MARGIN = 24.0
NAMES = 130.0
WIDTH = 860.0
ROW = 24.0
HEAD = 84.0
TICKS = 8
NARROWEST = 0.4  # pixels; what is narrower and touches what is drawn is left out
CLASSES = {
    "forward": "xs-compute",
    "backward": "xs-memory",
    "transfer": "xs-network",
    "reduction": "xs-head",
}
MICRO = 1e6


def gantt_svg(timelines: Sequence[Timeline], title: str) -> str:
    """Return timelines, one after the other, as a chart: a row for each chip and link."""
    total = sum(timeline.makespan for timeline in timelines) or 1.0
    rows = _rows(timelines)
    kinds = {kind for timeline in timelines for kind in timeline.graph.kinds}
    height = HEAD + ROW * max(1, len(rows)) + MARGIN
    canvas = Canvas()
    canvas.text(MARGIN, 32, title, size=18, cls="xs-ink xs-strong", width=NAMES + WIDTH)
    x = MARGIN
    for kind, cls in CLASSES.items():
        if kind in kinds:
            canvas.box(x, 45, 12, 12, cls, 2)
            canvas.text(x + 18, 55, kind, cls="xs-muted")
            x += 100
    left = MARGIN + NAMES
    canvas.text(left + WIDTH, 55, f"{time_words(total)} in all", cls="xs-muted", anchor="end")
    for tick in round_scale(total, most=TICKS).ticks:
        if tick > total:
            continue
        at = left + WIDTH * tick / total
        canvas.line(((at, HEAD - 6), (at, height - MARGIN)), "xs-line")
        label = time_words(tick) if tick else "0"
        canvas.text(at, HEAD - 10, label, size=9.5, cls="xs-muted", anchor="middle")
    for name, row in rows.items():
        canvas.text(MARGIN, HEAD + ROW * row + 15, name, cls="xs-ink", width=NAMES - 8)
    before = 0.0
    for timeline in timelines:
        _bars(canvas, timeline, rows, left, WIDTH / total, before)
        before += timeline.makespan
    return standalone(canvas, left + WIDTH + 2 * MARGIN, height, title, own=True)


def _rows(timelines: Sequence[Timeline]) -> dict[str, int]:
    """Return the row of every resource that works: kinds as they come, each by number."""
    busy = {name: None for timeline in timelines for name, time in timeline.busy().items() if time}
    kinds = list(dict.fromkeys(name.rpartition(" ")[0] for name in busy))

    def place(name: str) -> tuple[int, int]:
        kind, _, number = name.rpartition(" ")
        return kinds.index(kind), int(number) if number.isdecimal() else 0

    return {name: row for row, name in enumerate(sorted(busy, key=place))}


def _bars(
    canvas: Canvas,
    timeline: Timeline,
    rows: dict[str, int],
    left: float,
    scale: float,
    before: float,
) -> None:
    graph = timeline.graph
    drawn = dict.fromkeys(rows, float("-inf"))
    for task in sorted(range(len(graph)), key=lambda i: float(timeline.start[i])):
        if graph.resources[task] == FREE:
            continue
        name = graph.resource_names[graph.resources[task]]
        start = left + (before + float(timeline.start[task])) * scale
        end = left + (before + float(timeline.finish[task])) * scale
        if end == start or (end - start < NARROWEST and start - drawn[name] < NARROWEST):
            continue
        cls = CLASSES.get(graph.kinds[task], "xs-lane")
        y = HEAD + ROW * rows[name] + 3
        canvas.box(start, y, max(end - start, NARROWEST), ROW - 6, cls)
        if end - start > 60:
            canvas.text(
                start + 4,
                y + 12,
                graph.names[task],
                size=9.5,
                cls="xs-on-network",
                width=end - start - 8,
            )
        drawn[name] = end


def trace_json(timelines: Sequence[Timeline]) -> str:
    """Return timelines, one after the other, in the Trace Event Format, times in microseconds.

    Every resource is a thread; free tasks are left out.
    """
    threads: dict[str, int] = {}
    events: list[dict[str, object]] = []
    before = 0.0
    for timeline in timelines:
        graph = timeline.graph
        for name in graph.resource_names:
            threads.setdefault(name, len(threads))
        for task, resource in enumerate(graph.resources):
            if resource == FREE:
                continue
            start, finish = float(timeline.start[task]), float(timeline.finish[task])
            events.append(
                {
                    "name": graph.names[task],
                    "cat": graph.kinds[task] or "task",
                    "ph": "X",
                    "ts": (before + start) * MICRO,
                    "dur": (finish - start) * MICRO,
                    "pid": 0,
                    "tid": threads[graph.resource_names[resource]],
                }
            )
        before += timeline.makespan
    names = [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": name}}
        for name, number in threads.items()
    ]
    return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"}, indent=1) + "\n"
