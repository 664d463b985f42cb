import json
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from crosstack.model.schedule.events import TaskGraphBuilder, simulate
from crosstack.model.schedule.passes import Operation, Stage
from crosstack.model.schedule.pipeline_graph import pipeline_graph
from crosstack.report.timeline_figure import gantt_svg, trace_json


@pytest.fixture
def timeline():
    """Return a pipeline of two stages and three microbatches."""
    operation = Operation(name="layer", forward=1.0, backward=2.0)
    return simulate(pipeline_graph([Stage(operations=(operation,), send=0.25)] * 2, 3))


def test_a_trace_holds_every_task_that_takes_a_resource(timeline):
    events = json.loads(trace_json([timeline]))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == sum(resource >= 0 for resource in timeline.graph.resources)
    assert max(e["ts"] + e["dur"] for e in spans) == pytest.approx(timeline.makespan * 1e6)
    assert min(e["ts"] for e in spans) == 0


def test_every_resource_is_a_named_thread(timeline):
    events = json.loads(trace_json([timeline]))["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert set(named.values()) == set(timeline.graph.resource_names)
    assert {e["tid"] for e in events if e["ph"] == "X"} <= set(named)


def test_timelines_follow_one_another(timeline):
    events = json.loads(trace_json([timeline, timeline]))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert max(e["ts"] + e["dur"] for e in spans) == pytest.approx(2e6 * timeline.makespan)


def test_a_chart_has_a_row_for_every_busy_resource(timeline):
    svg = gantt_svg([timeline], "step")
    texts = [e.text for e in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    busy = {name for name, time in timeline.busy().items() if time}
    assert busy <= set(texts)


def test_bars_of_a_row_do_not_overlap(timeline):
    svg = ElementTree.fromstring(gantt_svg([timeline], "step"))
    rows = {}
    for box in svg.iter("{http://www.w3.org/2000/svg}rect"):
        if box.get("class") in ("xs-compute", "xs-memory", "xs-network", "xs-head"):
            x, y = float(box.get("x")), float(box.get("y"))
            if y > 60:
                rows.setdefault(y, []).append((x, x + float(box.get("width"))))
    assert len(rows) == sum(time > 0 for time in timeline.busy().values())
    for spans in rows.values():
        spans.sort()
        assert all(a[1] <= b[0] + 0.11 for a, b in pairwise(spans))


def test_kernels_that_run_at_once_have_rows_and_threads_of_their_own():
    build = TaskGraphBuilder(["stage 0"], lanes=2)
    for i in range(8):
        build.add(f"layer {i}", 1.0, resource="stage 0", kind="forward")
    ran = simulate(build.build())
    events = json.loads(trace_json([ran]))["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
    assert set(named.values()) == {"stage 0", "stage 0, kernel 2"}
    for thread in named:
        spans = sorted(
            (e["ts"], e["ts"] + e["dur"])
            for e in events
            if e.get("tid") == thread and e["ph"] == "X"
        )
        assert len(spans) == 4
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    svg = gantt_svg([ran], "step")
    texts = [e.text for e in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert {"stage 0", "stage 0, kernel 2"} <= set(texts)
