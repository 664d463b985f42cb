"""A timeline as a Gantt chart and as a trace for Perfetto or the Chrome trace viewer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crosstack.model.schedule.events import FREE, PAIR, Timeline
from crosstack.report.drawing import Canvas, Figure, standalone, text_width
from crosstack.report.scales import round_scale
from crosstack.report.wording import common_scale, time_words

MARGIN = 24.0
NAMES = 130.0
WIDTH = 860.0
ROW = 24.0
HEAD = 84.0
TICKS = 8
FIGURE_HEAD, FIGURE_ROW = 26.0, 26.0  # of a picture of some rows
BETWEEN = 0.7  # pixels between boxes
NARROWEST = 0.4  # pixels; what is narrower and touches what is drawn is left out
CLASSES = {
    "forward": "xs-compute",
    "backward": "xs-memory",
    PAIR: "xs-pair",
    "transfer": "xs-network",
    "update": "xs-launch",
    "reduction": "xs-head",
}
MICRO = 1e6
Track = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """A task as it ran on a track, which is a resource and one of its lanes."""

    name: str
    kind: str
    track: Track
    start: float
    finish: float


def _spans(timelines: Sequence[Timeline]) -> list[_Span]:
    """Return the tasks that take a resource, of one timeline after the other."""
    found, before = [], 0.0
    for timeline in timelines:
        graph = timeline.graph
        for i, resource in enumerate(graph.resources):
            if resource != FREE:
                span = _Span(
                    name=graph.names[i],
                    kind=graph.kinds[i],
                    track=(graph.resource_names[resource], int(timeline.lane[i])),
                    start=before + float(timeline.start[i]),
                    finish=before + float(timeline.finish[i]),
                )
                found.append(span)
        before += timeline.makespan
    return found


def gantt_svg(timelines: Sequence[Timeline], title: str) -> str:
    """Return timelines, one after the other, as a chart: a row for each chip and link.

    A chip that runs several kernels at once has a row for each.
    """
    total = sum(timeline.makespan for timeline in timelines) or 1.0
    spans = _spans(timelines)
    rows = _rows(timelines, spans)
    kinds = {kind for timeline in timelines for kind in timeline.graph.kinds}
    height = HEAD + ROW * max(1, len(rows)) + MARGIN
    left = MARGIN + NAMES
    canvas = Canvas()
    canvas.text(MARGIN, 32, title, size=18, cls="xs-ink xs-strong", width=NAMES + WIDTH)
    canvas.legend(MARGIN, 55, {kind: cls for kind, cls in CLASSES.items() if kind in kinds})
    canvas.text(left + WIDTH, 55, f"{time_words(total)} in all", cls="xs-muted", anchor="end")
    for tick in round_scale(total, most=TICKS).ticks:
        if tick <= total:
            at = left + WIDTH * tick / total
            canvas.line(((at, HEAD - 6), (at, height - MARGIN)), "xs-line")
            label = time_words(tick) if tick else "0"
            canvas.text(at, HEAD - 10, label, size=9.5, cls="xs-muted", anchor="middle")
    for track, row in rows.items():
        canvas.text(MARGIN, HEAD + ROW * row + 15, _track_name(track), width=NAMES - 8)
    drawn = dict.fromkeys(rows, float("-inf"))
    for span in sorted(spans, key=lambda span: span.start):
        start, end = (left + at * WIDTH / total for at in (span.start, span.finish))
        if end == start or end - start < NARROWEST > start - drawn[span.track]:
            continue
        y = HEAD + ROW * rows[span.track] + 3
        cls = CLASSES.get(span.kind, "xs-lane")
        canvas.rectangle(start, y, max(end - start, NARROWEST), ROW - 6, cls)
        if end - start > 60:
            width = end - start - 8
            canvas.text(start + 4, y + 12, span.name, size=9.5, cls="xs-on-network", width=width)
        drawn[span.track] = end
    return standalone(canvas, left + WIDTH + 2 * MARGIN, height, title, own=True)


def rows_figure(timeline: Timeline, rows: Mapping[str, str]) -> Figure | None:
    """Return the rows of some resources of a timeline, as they are called; None: none works.

    Boxes of microbatches carry their number where they are wide enough.
    """
    spans = [span for span in _spans([timeline]) if span.track[0] in rows]
    busy = {span.track[0] for span in spans if span.finish > span.start}
    shown = [name for name in rows if name in busy]
    if not shown:
        return None
    total = timeline.makespan
    kinds = {span.kind for span in spans}
    bottom = FIGURE_HEAD + FIGURE_ROW * len(shown)
    canvas = Canvas()
    canvas.legend(0, 12, {kind: cls for kind, cls in CLASSES.items() if kind in kinds})
    unit, worth, _ = common_scale([total])
    for tick in round_scale(total / worth, most=TICKS).ticks:
        at = NAMES + WIDTH * tick * worth / total
        if at <= NAMES + WIDTH * (1 + 1e-9):
            canvas.line(((at, FIGURE_HEAD - 4), (at, bottom + 4)), "xs-line")
            canvas.text(at, bottom + 17, f"{tick:g}", size=9.5, cls="xs-muted", anchor="middle")
    canvas.text(NAMES + WIDTH + 12, bottom + 17, unit, size=9.5, cls="xs-muted")
    drawn = dict.fromkeys(shown, float("-inf"))
    for name in shown:
        y = FIGURE_HEAD + FIGURE_ROW * shown.index(name)
        canvas.rectangle(NAMES, y + 3, WIDTH, FIGURE_ROW - 6, "xs-frame")
        canvas.text(0, y + 17, rows[name], size=10.5, width=NAMES - 8)
    for span in sorted(spans, key=lambda span: span.start):
        name = span.track[0]
        start, end = (NAMES + at * WIDTH / total for at in (span.start, span.finish))
        if name not in drawn or end == start or end - start < NARROWEST > start - drawn[name]:
            continue
        y = FIGURE_HEAD + FIGURE_ROW * shown.index(name) + 3
        shape = max(end - start - (BETWEEN if end - start > 4 * BETWEEN else 0.0), NARROWEST)
        with canvas.group(f"{span.kind}{span.name}: {time_words(span.finish - span.start, 3)}"):
            canvas.rectangle(start, y, shape, FIGURE_ROW - 6, CLASSES.get(span.kind, "xs-head"))
            number = span.name.rpartition("microbatch ")[2]
            if number.isdecimal() and text_width(number, 9) <= shape - 3:
                x, cls = start + shape / 2, "xs-on-network"
                canvas.text(x, y + 12.5, number, size=9, cls=cls, anchor="middle")
        drawn[name] = end
    return Figure(canvas, NAMES + WIDTH + 30, bottom + 24)


def _track_name(track: Track) -> str:
    name, lane = track
    return f"{name}, kernel {lane + 1}" if lane else name


def _rows(timelines: Sequence[Timeline], spans: Sequence[_Span]) -> dict[Track, int]:
    """Return the row of every track that works: kinds as they come, each by number and lane."""
    resources = [name for timeline in timelines for name in timeline.graph.resource_names]
    kinds = list(dict.fromkeys(name.rpartition(" ")[0] for name in resources))

    def place(track: Track) -> tuple[int, int, int]:
        kind, _, number = track[0].rpartition(" ")
        return kinds.index(kind), int(number) if number.isdecimal() else 0, track[1]

    busy = {span.track for span in spans if span.finish > span.start}
    return {track: row for row, track in enumerate(sorted(busy, key=place))}


def trace_json(timelines: Sequence[Timeline]) -> str:
    """Return timelines, one after the other, in the Trace Event Format, times in microseconds.

    Every resource is a thread, and every further kernel of a chip that runs several at once; free
    tasks are left out.
    """
    resources = [name for timeline in timelines for name in timeline.graph.resource_names]
    spans = _spans(timelines)
    tracks = [(name, 0) for name in resources] + [span.track for span in spans]
    threads = {track: number for number, track in enumerate(dict.fromkeys(tracks))}
    events = [
        {
            "name": span.name,
            "cat": span.kind or "task",
            "ph": "X",
            "ts": span.start * MICRO,
            "dur": (span.finish - span.start) * MICRO,
            "pid": 0,
            "tid": threads[span.track],
        }
        for span in spans
    ]
    thread = {"name": "thread_name", "ph": "M", "pid": 0}
    names = [
        {**thread, "tid": number, "args": {"name": _track_name(track)}}
        for track, number in threads.items()
    ]
    return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"}, indent=1) + "\n"
