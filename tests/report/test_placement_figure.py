from xml.etree import ElementTree

import pytest

from crosstack.machine.topology import Grid
from crosstack.mapping.placement import place
from crosstack.mapping.strategy import parse_strategy
from crosstack.mapping.transform import transform
from crosstack.published.dfmodel.graphs.llm import llm_graph
from crosstack.report.placement_figure import placement_svg
from crosstack.report.transform_figure import transform_svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("strategy", "grid"),
    [
        ("RC-4-2-d1-p1", Grid(package=(8,))),
        ("RC-4-2-d4-p2", Grid(package=(4, 4), packages=(2, 2), torus=True)),
        ("RC-2-2-d2-p1", Grid(package=(2, 2, 2))),
    ],
)
def test_every_shard_is_on_a_chip(strategy, grid):
    placement = place(parse_strategy(strategy), grid)
    shown = texts(placement_svg(placement))
    shards = {text for text in shown if text and text.count(".") == 3 and text[0].isdigit()}
    assert len(shards) == placement.strategy.n_chips


def test_the_busiest_load_is_written_on_a_link():
    placement = place(parse_strategy("RC-1-1-d4-p1"), Grid(package=(4,)))
    assert texts(placement_svg(placement)).count("2") == 3


def test_too_many_chips_are_said_not_drawn():
    placement = place(parse_strategy("RC-1-1-d2-p1"), Grid(package=(128, 64)))
    assert any("too many" in (text or "") for text in texts(placement_svg(placement)))


def test_every_step_of_the_transformation_has_a_panel():
    graph = llm_graph(training=False, hidden=64, sequence_length=32, n_heads=4, head_size=16)
    steps = transform(graph, parse_strategy("RC-2-2-d2-p2"))
    svg = transform_svg(steps, "one layer")
    assert {step.title for step in steps} <= set(texts(svg))
    boxes = ElementTree.fromstring(svg).iter(f"{SVG}rect")
    assert sum(1 for _ in boxes) - 1 == sum(len(step.nodes) for step in steps)
