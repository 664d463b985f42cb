"""A timeline as a Gantt chart and as a trace for Perfetto or the Chrome trace viewer."""

from __future__ import annotations

import json
from collections.abc import Sequence

from crosstack.model.schedule.events import FREE, Timeline
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
    """Return timelines, one after the other, as a chart: a row for each chip and link.

    A chip that runs several kernels at once has a row for each.
    """
    total = sum(timeline.makespan for timeline in timelines) or 1.0
    rows = _rows(timelines)
    kinds = {kind for timeline in timelines for kind in timeline.graph.kinds}
    height = HEAD + ROW * max(1, len(rows)) + MARGIN
    canvas = Canvas()
    canvas.text(MARGIN, 32, title, size=18, cls="xs-ink xs-strong", width=NAMES + WIDTH)
    x = MARGIN
    for kind, cls in CLASSES.items():
        if kind in kinds:
            canvas.rectangle(x, 45, 12, 12, cls, 2)
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
    for track, row in rows.items():
        name = _track_name(track)
        canvas.text(MARGIN, HEAD + ROW * row + 15, name, cls="xs-ink", width=NAMES - 8)
    before = 0.0
    for timeline in timelines:
        _bars(canvas, timeline, rows, left, WIDTH / total, before)
        before += timeline.makespan
    return standalone(canvas, left + WIDTH + 2 * MARGIN, height, title, own=True)


Track = tuple[str, int]


def _tracks(timeline: Timeline) -> list[Track | None]:
    """Return the resource and the lane of every task; None of one that takes none."""
    names, lanes = timeline.graph.resource_names, timeline.lane.tolist()
    resources = timeline.graph.resources
    return [
        None if resource == FREE else (names[resource], lane)
        for resource, lane in zip(resources, lanes, strict=True)
    ]


def _track_name(track: Track) -> str:
    name, lane = track
    return f"{name}, kernel {lane + 1}" if lane else name


def _rows(timelines: Sequence[Timeline]) -> dict[Track, int]:
    """Return the row of every track that works: kinds as they come, each by number and lane."""
    busy = {
        track
        for timeline in timelines
        for track, time in zip(_tracks(timeline), timeline.finish - timeline.start, strict=True)
        if track is not None and time > 0
    }
    resources = [name for timeline in timelines for name in timeline.graph.resource_names]
    kinds = list(dict.fromkeys(name.rpartition(" ")[0] for name in resources))

    def place(track: Track) -> tuple[int, int, int]:
        kind, _, number = track[0].rpartition(" ")
        return kinds.index(kind), int(number) if number.isdecimal() else 0, track[1]

    return {track: row for row, track in enumerate(sorted(busy, key=place))}


def _bars(
    canvas: Canvas,
    timeline: Timeline,
    rows: dict[Track, int],
    left: float,
    scale: float,
    before: float,
) -> None:
    graph, tracks = timeline.graph, _tracks(timeline)
    drawn = dict.fromkeys(rows, float("-inf"))
    for task in sorted(range(len(graph)), key=lambda i: float(timeline.start[i])):
        track = tracks[task]
        if track is None:
            continue
        start = left + (before + float(timeline.start[task])) * scale
        end = left + (before + float(timeline.finish[task])) * scale
        if end == start or (end - start < NARROWEST and start - drawn[track] < NARROWEST):
            continue
        cls = CLASSES.get(graph.kinds[task], "xs-lane")
        y = HEAD + ROW * rows[track] + 3
        canvas.rectangle(start, y, max(end - start, NARROWEST), ROW - 6, cls)
        if end - start > 60:
            canvas.text(
                start + 4,
                y + 12,
                graph.names[task],
                size=9.5,
                cls="xs-on-network",
                width=end - start - 8,
            )
        drawn[track] = end


def trace_json(timelines: Sequence[Timeline]) -> str:
    """Return timelines, one after the other, in the Trace Event Format, times in microseconds.

    Every resource is a thread, and every further kernel of a chip that runs several at once; free
    tasks are left out.
    """
    threads: dict[Track, int] = {}
    events: list[dict[str, object]] = []
    before = 0.0
    for timeline in timelines:
        graph = timeline.graph
        for name in graph.resource_names:
            threads.setdefault((name, 0), len(threads))
        for task, track in enumerate(_tracks(timeline)):
            if track is None:
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
                    "tid": threads.setdefault(track, len(threads)),
                }
            )
        before += timeline.makespan
    names = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": 0,
            "tid": number,
            "args": {"name": _track_name(track)},
        }
        for track, number in threads.items()
    ]
    return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"}, indent=1) + "\n"
