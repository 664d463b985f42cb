from __future__ import annotations

import re

from crosstack.report.roofline_figure import roofline_figure
from crosstack.report.svg import piece_svg

TEXT = re.compile(r'<text [^>]*?x="([\d.-]+)" y="([\d.-]+)"[^>]*>(\d+)</text>')


def test_points_at_one_place_have_names_beside_each_other(make_answer):
    answer = make_answer(["a", "b", "c"], [], [0, 1, 2])  # alike, so that they fall on one point
    picture = piece_svg(answer, "roofline")
    assert picture.count("data-spot=") == 3
    named = [(float(x), float(y)) for x, y, name in TEXT.findall(picture) if name in "012"]
    assert len(set(named)) == 3
    assert all(
        abs(ax - bx) >= 6 or abs(ay - by) >= 8
        for k, (ax, ay) in enumerate(named)
        for bx, by in named[:k]
    )


def test_every_point_says_what_it_is(small_answer):
    figure = roofline_figure(small_answer)
    assert figure is not None
    spots = {p.number for p in small_answer.evaluation.partitions if p.memory_traffic}
    assert piece_svg(small_answer, "roofline").count("data-spot=") == len(spots)
    assert "bound by" in piece_svg(small_answer, "roofline")
