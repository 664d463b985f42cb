"""The page of a study in headless Chromium: what it shows, and what its controls do."""

from __future__ import annotations

import csv
import io
import os
import re

import pytest

from crosstack.report.pages.study_page import study_html
from crosstack.report.pages.study_table import StudyTable, front

pytestmark = pytest.mark.slow

NONE = "\N{EN DASH}"
WIDTHS = "[document.documentElement.scrollWidth, window.innerWidth]"


def shown(page):
    """Return how many points the filters leave."""
    words = page.inner_text("#active").split(" shown")[0]
    return int(words.split(" of ")[0].replace(",", ""))


def column(page, name):
    """Return what the cells of a column of the table say."""
    names = page.eval_on_selector_all("#table thead button", "all => all.map(b => b.dataset.sort)")
    rows = page.eval_on_selector_all(
        "#table tbody tr", "all => all.map(r => [...r.cells].slice(1).map(c => c.innerText))"
    )
    return [row[names.index(name)] for row in rows]


def numbers(words):
    return [float(w.replace(",", "")) for w in words if w != NONE]


def drag(page, selector, start, end):
    """Drag over an element, from one share of its size to another."""
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    (x0, y0), (x1, y1) = (
        (box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)
    )
    page.mouse.move(x0, y0)
    page.mouse.down()
    page.mouse.move((x0 + x1) / 2, (y0 + y1) / 2)
    page.mouse.move(x1, y1)
    page.mouse.up()


def coloured(page, selector):
    """Return how many pixels of a canvas are drawn on."""
    return page.eval_on_selector(
        selector,
        """c => { const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let k = 3; k < d.length; k += 4) if (d[k]) n += 1; return n; }""",
    )


def test_every_view_is_there(study_page, space):
    page = study_page()
    assert page.title() == page.inner_text("h1") == "A made-up space"
    assert "240 points: 225 optimal, 15 infeasible" in page.inner_text("#summary")
    assert page.locator("section:visible h2").all_inner_texts() == [
        "Filters", "Heat map", "Pareto front", "Parallel coordinates", "Points",
    ]  # fmt: skip
    assert page.locator("#heat td button").count() == 20
    assert coloured(page, "#pareto .plot canvas >> nth=0") > 1000
    assert coloured(page, "#parallel .plot canvas >> nth=0") > 1000
    on_front = len(front(space(240), ["price", "time"]))
    assert page.inner_text("#pareto .said").startswith(f"{on_front} points on the front")
    assert page.locator("#table tbody tr").count() == 50


def test_choices_filter_every_view(study_page, space):
    page = study_page()
    page.click("#filters summary")
    page.click('[data-key="chip=SN30"]')
    assert shown(page) == space(240).columns["chip"].count("SN30")
    assert set(column(page, "chip")) == {"SN30"}
    assert page.locator("#heat td button").count() == 5
    assert page.get_attribute('[data-key="chip=SN30"]', "aria-pressed") == "true"
    page.click('[data-key="chip=H100"]')
    both = {"SN30", "H100"}
    assert shown(page) == sum(c in both for c in space(240).columns["chip"])
    page.click("#active button")
    assert shown(page) == 240


def test_ranges_filter_in_the_unit_that_is_shown(study_page, space):
    page = study_page()
    page.click("#filters summary")
    page.fill('[data-key="bandwidth least"]', "100")
    page.keyboard.press("Tab")
    assert shown(page) == sum(b >= 100e9 for b in space(240).columns["bandwidth"])
    assert "bandwidth: at least 100 GB/s" in page.inner_text("#active")


def test_headers_sort_and_pages_turn(study_page, space):
    page = study_page()
    known = sorted(t for t in space(240).columns["time"] if t is not None)
    page.click('[data-sort="time"]')
    assert page.get_attribute("#table th:has([data-sort=time])", "aria-sort") == "ascending"
    assert numbers(column(page, "time")) == pytest.approx(known[:50], rel=1e-3)
    page.click('[data-sort="time"]')
    assert numbers(column(page, "time"))[0] == pytest.approx(known[-1], rel=1e-3)
    page.click('[data-to="last"]')
    assert column(page, "time")[-1] == NONE  # what has no value stands last either way
    assert "201 to 240 of 240 points" in page.inner_text("#table .said")
    assert page.is_disabled('[data-to="next"]')


def test_every_way_of_opening_a_point_shows_its_breakdown(study_page, space):
    page = study_page()
    table = space(240)
    answered = [i for i, t in enumerate(table.columns["time"]) if t is not None]
    fastest = min(answered, key=lambda i: table.columns["time"][i])

    page.click("#best button >> nth=0")
    assert page.inner_text("#point-title") == f"Point {fastest + 1}"
    dialog = page.inner_text("#point")
    assert "the best of the points shown" in dialog
    assert re.search(r"times the best, rank \d+ of 225", dialog)
    assert "Where the time goes" in dialog
    assert page.locator("#point .bar").count() == 3
    assert table.columns["key"][fastest] in page.url
    page.keyboard.press("Escape")
    assert not page.is_visible("#point")
    page.wait_for_function("!location.hash")  # a dialog tells that it closed a moment later

    page.click('#table [data-point="7"]')  # one without an answer says why
    assert "98 GB, the limit is 80 GB" in page.inner_text("#point .reason")
    page.click('[data-go="Next"]')
    assert page.inner_text("#point-title") == "Point 9"
    page.click('[data-go="Close"]')

    page.click("#heat td button.best")
    assert page.inner_text("#point-title") == f"Point {fastest + 1}"
    page.click('[data-go="Close"]')

    page.click("#pareto summary")
    page.click("#pareto table button >> nth=0")
    assert page.is_visible("#point")


def test_an_address_with_a_point_opens_it(study_page):
    page = study_page()
    address = f"{page.url}#point={12:032x}"
    page.goto("about:blank")
    page.goto(address)
    assert page.inner_text("#point-title") == "Point 13"


def test_a_brush_over_the_scatter_keeps_what_is_inside(study_page):
    page = study_page()
    drag(page, "#pareto .over", (0.1, 0.5), (0.5, 0.95))
    left = shown(page)
    assert 0 < left < 240
    assert re.search(r"price: .* to ", page.inner_text("#active"))
    assert re.search(r"time: .* to ", page.inner_text("#active"))
    page.click("#active button:has-text('Clear all')")
    assert shown(page) == 240


def test_a_click_on_the_scatter_opens_the_nearest_point(study_page, space):
    page = study_page(n=1)
    assert not page.is_visible("#pareto")  # one point has nothing to be compared with
    page = study_page(n=9)
    page.locator("#pareto .plot").focus()
    page.keyboard.press("ArrowRight")
    ring = page.eval_on_selector(
        "#pareto .over",
        """c => { const d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
        let [n, x, y] = [0, 0, 0];
        for (let k = 3; k < d.length; k += 4) if (d[k] > 128) {
          n += 1; x += ((k - 3) / 4) % c.width; y += Math.floor((k - 3) / 4 / c.width); }
        return [x / n, y / n]; }""",
    )
    said = page.inner_text("#pareto .said")
    page.locator("#pareto .over").click(position={"x": ring[0], "y": ring[1]})
    opened = int(page.inner_text("#point-title").split()[1]) - 1
    assert space(9).columns["chip"][opened] in said


def test_a_brush_along_an_axis_keeps_a_range(study_page):
    page = study_page()
    # The first axis is the chip, drawn upright at the left.
    drag(page, "#parallel .over", (46 / 1216, 0.6), (46 / 1216, 0.99))
    assert 0 < shown(page) < 240
    assert "chip: " in page.inner_text("#active")
    box = page.locator("#parallel .over").bounding_box()
    page.mouse.click(box["x"] + 46, box["y"] + 200)
    assert shown(page) == 240


def test_the_heat_map_follows_its_choices(study_page, space):
    page = study_page()
    page.select_option('[data-control="heat how"]', "count")
    cells = page.locator("#heat td button").all_inner_texts()
    assert sum(int(cell) for cell in cells) == 240
    page.select_option('[data-control="heat how"]', "best")
    page.select_option('[data-control="heat value"]', "price")
    cheapest = min(p for p in space(240).columns["price"] if p is not None)
    assert "★" in page.inner_text("#heat td button.best >> nth=0")
    stars = numbers(t[2:] for t in page.locator("#heat td button.best").all_inner_texts())
    unit = {"k": 1e3, "M": 1e6}[re.search(r"price \[(.)USD\]", page.inner_text("#heat"))[1]]
    assert {s * unit for s in stars} == {cheapest}
    page.select_option('[data-control="heat column"]', "bandwidth")
    assert page.locator("#heat thead th").count() == 13  # many numbers are put into twelve bands


def test_a_third_column_gives_a_heat_map_for_each_of_its_values(study_page, space):
    page = study_page()
    page.select_option('[data-control="heat each"]', "n_chips")
    sizes = sorted(set(space(240).columns["n_chips"]))
    captions = page.locator("#heat caption").all_inner_texts()
    assert captions == [f"n_chips {size:,.0f} by topology and chip" for size in sizes]
    assert page.locator("#heat table:has(.best)").count() == len(sizes)
    page.select_option('[data-control="heat how"]', "count")
    cells = page.locator("#heat td button").all_inner_texts()
    assert sum(int(cell) for cell in cells) == 240
    assert page.locator('#heat button[tabindex="0"]').count() == len(sizes)
    page.select_option('[data-control="heat each"]', "")
    assert page.locator("#heat table").count() == 1


def test_the_page_works_by_keyboard_alone(study_page):
    page = study_page()
    page.keyboard.press("Tab")
    assert "Skip" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("Open point")
    page.focus('#heat button[tabindex="0"]')
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.cell") == "0,1,1"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    assert page.is_visible("#point")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.cell") == "0,1,1"  # back where one was
    page.focus('[data-sort="price"]')
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.sort") == "price"
    page.locator("#pareto .plot").focus()
    page.keyboard.press("ArrowRight")
    assert "time: " in page.inner_text("#pareto .said")
    page.keyboard.press("Enter")
    assert page.is_visible("#point")


def test_everything_has_a_name_for_those_who_do_not_see_it(study_page):
    page = study_page()
    page.click("#filters summary")
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("button, select, input, [role=region], [role=img]")]
        .filter((e) => !e.getAttribute("aria-label") && !e.innerText?.trim() && !e.labels?.length)
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    assert page.evaluate("[...document.querySelectorAll('table')].every((t) => t.caption)")
    levels = page.eval_on_selector_all("h1, h2", "all => all.map((e) => e.tagName)")
    assert levels.count("H1") == 1
    assert levels[0] == "H1"
    assert page.get_attribute("html", "lang") == "en"


def test_a_phone_shows_it_without_scrolling_sideways(study_page):
    page = study_page(width=360, height=740, has_touch=True, is_mobile=True, device_scale_factor=2)
    assert page.evaluate(WIDTHS) == [360, 360]
    page.click("#filters summary")
    page.click('[data-point="3"]')
    assert page.evaluate(WIDTHS) == [360, 360]
    box = page.locator("#point").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 360
    small = page.evaluate(
        """() => [...document.querySelectorAll("button")].filter((b) => b.offsetHeight
        && Math.min(b.offsetHeight, b.offsetWidth) < 22).map((b) => b.textContent)"""
    )
    assert small == []  # WCAG 2.5.8 asks for 24 CSS pixels with their surroundings


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_light_and_dark(study_page, scheme):
    page = study_page(color_scheme=scheme)
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 31)"}[scheme]
    page.emulate_media(color_scheme={"light": "dark", "dark": "light"}[scheme])
    other = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert other != ground


def test_print_is_light_and_without_controls(study_page):
    page = study_page(color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(28, 36, 48)"
    assert not page.is_visible("#heat .controls")
    assert not page.is_visible('[data-to="csv"]')
    assert page.is_visible("#table table")
    assert len(page.pdf()) > 20_000


def test_csv_holds_every_number_of_the_shown_points(study_page, space):
    page = study_page()
    page.click("#filters summary")
    page.click('[data-key="chip=SN30"]')
    with page.expect_download() as download:
        page.click('[data-to="csv"]')
    text = download.value.path().read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    columns = space(240).columns
    mine = [i for i in range(240) if columns["chip"][i] == "SN30"]
    assert [row["key"] for row in rows] == [columns["key"][i] for i in mine]
    times = [float(row["time [s]"]) if row["time [s]"] else None for row in rows]
    assert times == [columns["time"][i] for i in mine]


def test_text_of_a_study_stays_text(visit, space):
    evil = "<img src=x onerror=alert(1)>"
    table = space(12)
    columns = dict(table.columns, chip=[evil, "b"] * 6)
    page = visit(study_html(StudyTable(title=evil, columns=columns, axes=table.axes,
                                       objectives=table.objectives, notes=(evil,))))  # fmt: skip
    page.click("#filters summary")
    page.click('[data-point="0"]')
    assert page.locator("img").count() == 0
    assert evil in page.inner_text("#point")


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_points_make_a_page_too(study_page, n):
    page = study_page(n=n)
    assert f"{n} point" in page.inner_text("#summary")


def test_a_thinned_study_says_how_many_points_are_here(visit, space):
    page = visit(study_html(space(900).thinned(300)))
    assert re.match(r"900 points, \d{3} of them here: ", page.inner_text("#summary"))
    assert "900 points; this page holds" in page.inner_text("#notes")


def test_ten_thousand_points_are_quick(study_page):
    page = study_page(n=10_000)
    opened = page.evaluate(
        "performance.getEntriesByType('navigation')[0].loadEventEnd"
    )  # ms since the page was asked for
    assert opened < 3000 * max(1.0, os.getloadavg()[0] / os.cpu_count())
    page.click("#filters summary")
    # Until the browser has drawn it: of two frames the first holds the change.
    timed = """async ([selector, value]) => {
      const element = document.querySelector(selector);
      const start = performance.now();
      if (value === null) element.click();
      else { element.value = value; element.dispatchEvent(new Event("change")); }
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      return performance.now() - start; }"""
    steps = [
        [('[data-key="chip=H100"]', None), ("#active button", None)],
        [('[data-sort="time"]', None)],
        [('[data-to="next"]', None)],
        [('[data-control="heat value"]', "price"), ('[data-control="heat value"]', "time")],
        [('[data-control="scatter 0"]', "power"), ('[data-control="scatter 0"]', "price")],
        [('[data-control="scatter 2"]', "bandwidth"), ('[data-control="scatter 2"]', "chip")],
        [("#table [data-point]", None), ('[data-go="Close"]', None)],
    ]
    took = {}
    for step in (step for pair in steps for step in pair * 6):
        took.setdefault(step, []).append(page.evaluate(timed, list(step)))
    # The quickest is the page's own time; what others do on the machine slows that down, too.
    crowd = max(1.0, os.getloadavg()[0] / os.cpu_count())
    slow = {step: times for step, times in took.items() if min(times) >= 200 * crowd}
    assert not slow
