import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from crosstack import Dimension, DimensionKind, System, Task, optimise
from crosstack.io import library
from crosstack.machine.chip import Overlap
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.report.drawing import fit, text_width
from crosstack.report.plan_rows import key_numbers
from crosstack.report.svg import answer_svg, piece_svg, task_svg
from crosstack.report.wording import time_words

NAMESPACE = "{http://www.w3.org/2000/svg}"


def with_attribute(svg, name):
    return [e for e in ElementTree.fromstring(svg).iter() if e.get(name) is not None]


def bars_of(answer):
    widths = {}
    for group in with_attribute(answer_svg(answer), "data-bar"):
        rect = group.find(f"{NAMESPACE}rect")
        widths[int(group.get("data-of")), group.get("data-bar")] = float(rect.get("width"))
    return widths


def test_every_kernel_is_drawn_once(small_answer):
    names = [k.name for k in small_answer.evaluation.kernels]
    for svg in (answer_svg(small_answer), task_svg(small_answer.task)):
        drawn = [e.get("data-kernel") for e in with_attribute(svg, "data-kernel")]
        assert sorted(drawn) == sorted(names)


def test_every_partition_is_drawn_once_with_its_time_and_bound(small_answer):
    svg = answer_svg(small_answer)
    drawn = [e.get("data-partition") for e in with_attribute(svg, "data-partition")]
    assert drawn == ["0", "1", "2"]
    for p in small_answer.evaluation.partitions:
        assert f"partition {p.number}<" in svg
        assert f"bound by {p.bound_by}<" in svg


def test_bars_are_as_long_as_times(small_answer):
    widths = bars_of(small_answer)
    times = {
        (p.number, term): getattr(p, f"{term}_time")
        for p in small_answer.evaluation.partitions
        for term in ("compute", "memory", "network")
    }
    assert widths.keys() == times.keys()
    longest = max(times, key=times.get)
    scale = widths[longest] / times[longest]
    assert scale > 0
    for bar, time in times.items():
        assert widths[bar] == pytest.approx(time * scale, abs=2e-3)


def test_kernels_of_a_gpu_follow_one_another_with_what_bounds_each():
    chip = replace(library.chip("a100-sxm-80gb").with_memory(capacity=None), overlap=Overlap.ALL)
    alone = Dimension(kind=DimensionKind.RING, size=1, bandwidth=1e11)
    graph = llm(hidden=1024, sequence_length=2048, n_heads=8, head_size=128, n_layers=1,
                global_batch_size=1)  # fmt: skip
    task = Task(workload=graph, system=System(chip=chip, network=(alone,), n_chips=1))
    answer = optimise(task, gap=0.5, work_limit=1e4)
    drawn = with_attribute(piece_svg(answer, "layer"), "data-lane")
    bars = {(e.get("data-lane"), e[0].text): e.find(f"{NAMESPACE}rect") for e in drawn}
    runs = [run for p in answer.evaluation.partitions for run in p.kernel_runs]
    shown = [(text, bar) for (lane, text), bar in bars.items() if lane == "kernel"]
    assert len(shown) > len(runs) / 2  # but those too short to be seen
    ends = 0.0
    for text, bar in sorted(shown, key=lambda one: float(one[1].get("x"))):
        run = next(run for run in runs if text.startswith(f"{run.name}:"))
        assert text.endswith(f"bound by {run.bound_by}")
        assert float(bar.get("x")) >= ends - 0.1
        ends = float(bar.get("x")) + float(bar.get("width"))
        longest = max(run.compute + run.reduction, run.memory)
        assert time_words(longest, 3) in text or run.reduction


def test_collectives_are_marked(small_answer):
    assert any(k.collective == "reduce_scatter" for k in small_answer.evaluation.kernels)
    assert ">reduce-scatter<" in answer_svg(small_answer)


def test_no_key_number_is_cut_off(small_answer):
    workload = replace(small_answer.task.workload, item="sequence", item_part="token")
    answer = replace(small_answer, task=replace(small_answer.task, workload=workload))
    svg = answer_svg(answer)
    assert "tokens/s" in svg
    for _, value in key_numbers(answer):
        assert f">{value}<" in svg


def test_one_kernel_on_one_chip_has_no_wires_and_no_collective(lonely_answer):
    svg = answer_svg(lonely_answer)
    assert len(with_attribute(svg, "data-kernel")) == 1
    graph = svg.partition("Key numbers")[0]
    assert 'class="xs-wire"' not in graph
    assert "all-reduce" not in svg
    assert bars_of(lonely_answer)[0, "network"] == 0
    ElementTree.fromstring(task_svg(lonely_answer.task))


def test_names_are_escaped_and_control_characters_replaced(make_answer):
    names = ['<b>&"', "bell\x07", "x" * 300]
    answer = make_answer(names, [(0, 1), (1, 2)], [0, 0, 1])
    for svg in (answer_svg(answer), task_svg(answer.task)):
        drawn = [e.get("data-kernel") for e in with_attribute(svg, "data-kernel")]
        assert drawn == ['<b>&"', "bell\N{REPLACEMENT CHARACTER}", "x" * 300]
        assert "<b>" not in svg


def test_two_thousand_kernels_are_drawn_as_a_grid(large_answer):
    svg = answer_svg(large_answer)
    assert len(with_attribute(svg, "data-kernel")) == 2000
    assert len(with_attribute(svg, "data-partition")) == 20
    assert "too many to draw" in svg
    assert len(with_attribute(task_svg(large_answer.task), "data-kernel")) == 2000


def test_partitions_of_one_kernel_each_stay_on_a_page(make_answer):
    n = 400
    answer = make_answer(
        [f"k{i}" for i in range(n)], [(i, i + 1) for i in range(n - 1)], list(range(n))
    )
    svg = answer_svg(answer)
    assert len(with_attribute(svg, "data-partition")) == n
    assert float(re.search(r'height="(\d+)"', svg)[1]) < 10_000


@pytest.mark.parametrize("text", ["", "a", "MHA_GEMM_1_bwd_weight_update", "W" * 80, "核" * 40])
def test_fitted_text_is_never_wider_than_asked(text):
    fitted = fit(text, 90, 11)
    assert text_width(fitted, 11) <= 90
    assert fitted == text or fitted.endswith("…")
