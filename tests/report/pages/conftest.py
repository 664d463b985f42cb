"""A study of any number of points, and pages of it in a real browser."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from crosstack.io.study_file import Goal
from crosstack.report.pages.study_page import study_html
from crosstack.report.pages.study_table import StudyTable

CHIP = Path(__file__).resolve().parents[3] / "examples" / "chips" / "n5_hbm3.yaml"
CHIPS = ("H100", "TPU v4", "SN30", "WSE-2")
NETWORKS = ("2-D torus", "3-D torus", "dragonfly", "DGX-1", "DGX-2")
INSIDE = ("file:", "data:", "about:", "http://127.0.0.1:")
REASON = "main memory: partition 3 needs 98 GB, the limit is 80 GB"
UNITS = {
    "bandwidth": "B/s",
    "n_chips": "1",
    "time": "s",
    "price": "USD",
    "throughput": "1/s",
    "power": "W",
    "compute_time": "s",
    "memory_time": "s",
    "network_time": "s",
}


def make_space(n: int, seed: int = 3) -> StudyTable:
    """Return points of a made-up space; one in sixteen has no answer."""
    random = np.random.default_rng(seed)
    chip = random.integers(len(CHIPS), size=n)
    network = random.integers(len(NETWORKS), size=n)
    bandwidth = 10 ** random.uniform(10, 12, n)
    n_chips = 2.0 ** random.integers(3, 11, n)
    compute = 1e3 / n_chips * (1 + 0.3 * chip) * random.uniform(0.8, 1.2, n)
    memory = 600 / n_chips * random.uniform(0.9, 1.1, n)
    wires = 1e12 / bandwidth * (1 + 0.1 * network) * random.uniform(0.5, 2, n)
    time = np.maximum(np.maximum(compute, memory), wires)
    price = n_chips * (chip + 1) * 1e4
    answered = np.arange(n) % 16 != 7

    def where_answered(values):
        return [float(v) if ok else None for v, ok in zip(values, answered, strict=True)]

    columns = {
        "key": [f"{i:032x}" for i in range(n)],
        "chip": [CHIPS[k] for k in chip],
        "topology": [NETWORKS[k] for k in network],
        "bandwidth": bandwidth.tolist(),
        "n_chips": n_chips.tolist(),
        "status": ["optimal" if ok else "infeasible" for ok in answered],
        "reason": [None if ok else REASON for ok in answered],
        "time": where_answered(time),
        "price": where_answered(price),
        "throughput": where_answered(1 / time),
        "power": where_answered(n_chips * 700),
        "compute_time": where_answered(compute),
        "memory_time": where_answered(memory),
        "network_time": where_answered(wires),
        "runtime": [0.01] * n,
        "model": ["0.1.0+abc"] * n,
    }
    return StudyTable(
        title="A made-up space",
        columns=columns,
        axes=("chip", "topology", "bandwidth", "n_chips"),
        objectives=(("time", Goal.MINIMUM), ("price", Goal.MINIMUM)),
        units=UNITS,
        details=(("Where the time goes", ("compute_time", "memory_time", "network_time")),),
    )


@pytest.fixture(scope="session")
def space():
    """Return a builder of made-up spaces."""
    return make_space


STUDY = """\
base: {base}
evaluate: chip
axes:
  size: {{path: chip_area, range: {{from: 400 mm^2, to: 800 mm^2, step: 100 mm^2}}}}
  node: [{nodes}]
objectives: {{peak_throughput: max, power_efficiency: max}}
constraints: {{memory.capacity: {{min: 1 GB}}}}
"""


@pytest.fixture
def swept(tmp_path):
    """Return a function that adds five points of each node to one store, and returns it."""
    pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
    from crosstack.explore.run import sweep

    def sweep_nodes(*nodes):
        study = tmp_path / "chips.yaml"
        study.write_text(STUDY.format(base=CHIP, nodes=", ".join(nodes)))
        sweep(study, store=tmp_path / "chips.store", resume=True, table="arrow", jobs=1)
        return tmp_path / "chips.store"

    return sweep_nodes


@pytest.fixture(scope="session")
def browser():
    """Return headless Chromium."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Chromium")
    with api.sync_playwright() as driver:
        # The sandbox needs rights that a container seldom has; all pages are our own.
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@dataclass
class Heard:
    """What a page said that a good one does not, and what it asked for."""

    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser, tmp_path):
    """Return a function that opens HTML or an address; afterwards nothing may have gone wrong."""
    contexts, heard = [], Heard()

    def listen(page):
        def hear(message):
            if message.type in ("error", "warning"):
                heard.errors.append(message.text)

        page.on("console", hear)
        page.on("pageerror", lambda error: heard.errors.append(str(error)))
        page.on("request", lambda request: heard.requests.append(request.url))

    def open_page(html_or_address, width=1280, height=900, **settings):
        context = browser.new_context(
            viewport={"width": width, "height": height}, accept_downloads=True, **settings
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        listen(page)
        address = html_or_address
        if not address.startswith("http://"):
            file = tmp_path / f"page{len(contexts)}.html"
            file.write_text(html_or_address, encoding="utf-8")
            address = file.as_uri()
        page.goto(address)
        return page

    open_page.heard = heard
    yield open_page
    for context in contexts:
        context.close()
    assert heard.errors == []
    outside = [u for u in heard.requests if not u.startswith(INSIDE)]
    assert outside == []


@pytest.fixture
def study_page(visit, space):
    """Return a function that opens the page of a made-up space."""

    def open_study(n=240, **settings):
        page = visit(study_html(space(n)), **settings)
        assert page.get_attribute("body", "data-ready") == "yes"
        return page

    return open_study
