"""Pages of a mapping and of a prediction in headless Chromium."""

from __future__ import annotations

import pytest

from crosstack.report.html import answer_html
from crosstack.report.prediction_text import prediction_html

pytestmark = pytest.mark.slow

WIDTHS = "[document.documentElement.scrollWidth, window.innerWidth]"
PREDICTION = {
    "crosstack_version": "0.1.0",
    "workload": "GPT <b>",
    "strategy": "RC-1-8-d8-p8",
    "n_chips": 512,
    "rules": "crosstack",
    "inputs": {"file": "chip.yaml", "model": "gpt3-175b", "gemm": None, "set": ["packages=512"]},
    "chip": {"name": "n5", "throughput": 1e15, "memory_bandwidth": 4e12, "memory_capacity": 1e11},
    "time": sum(1 / (k + 1) for k in range(20)),
    "run_time": 86400.0 * 30,
    "parts": {f"part {k}": 1 / (k + 1) for k in range(20)},
    "busiest": "stage 7",
    "busy": {f"stage {k}": 1.0 + k / 10 for k in range(8)},
    "memory": {
        "total": 8e10,
        "rows": {
            "weights": [4.5e10] * 8,
            "activations": [3.4e10 - 1e9 * k for k in range(8)],
            "logits": [1e9] + [0.0] * 7,
        },
    },
}


@pytest.fixture(params=["mapping", "prediction"])
def result_html(request, small_answer):
    return answer_html(small_answer) if request.param == "mapping" else prediction_html(PREDICTION)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_light_and_dark(visit, result_html, scheme):
    page = visit(result_html, color_scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.querySelector('main')).color")
    light = ("rgb(255, 255, 255)", "rgb(28, 36, 48)")
    dark = ("rgb(20, 24, 31)", "rgb(230, 234, 240)")
    assert (ground, ink) == (light if scheme == "light" else dark)


def test_a_phone_shows_it_without_scrolling_sideways(visit, result_html):
    page = visit(result_html, width=360, height=740, is_mobile=True, has_touch=True)
    assert page.evaluate(WIDTHS) == [360, 360]


def test_what_is_wider_than_the_page_scrolls_by_keyboard(visit, small_answer):
    page = visit(answer_html(small_answer), width=360)
    wide = page.locator(".xs-scroll[aria-label=graph]")
    wide.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(300)  # scrolling is smooth
    if wide.evaluate("e => e.scrollWidth > e.clientWidth"):
        assert wide.evaluate("e => e.scrollLeft") > 0
    assert wide.evaluate("e => getComputedStyle(e).outlineStyle") == "solid"


def test_print_is_light(visit, result_html):
    page = visit(result_html, color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.querySelector('main')).color") == (
        "rgb(28, 36, 48)"
    )
    assert page.pdf().startswith(b"%PDF")


def test_bars_of_a_prediction_are_as_long_as_their_numbers(visit):
    page = visit(prediction_html(PREDICTION))
    assert page.inner_text("h1") == "GPT <b> under RC-1-8-d8-p8 on n5"
    widths = page.eval_on_selector_all(
        "[aria-label='time by piece'] .xs-bar",
        "all => all.map(e => e.getBoundingClientRect().width)",
    )
    assert len(widths) == 20
    shown = widths[:14]
    assert [w / shown[0] for w in shown] == pytest.approx(
        [1 / (k + 1) for k in range(14)], abs=0.01
    )
    page.click("summary >> nth=0")
    assert page.is_visible("text=part 19")
