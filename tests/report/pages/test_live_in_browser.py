"""A store behind the server, read in headless Chromium while a sweep adds to it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from builders.stores import points_in

from crosstack.report.pages.server import StudyServer

TASK = Path(__file__).resolve().parents[3] / "examples" / "gpt3_1t_sn30.yaml"
SEARCHED = """\
base: {base}
evaluate: map
axes:
  memory: {{path: system.memory.bandwidth, log_range: {{from: 100 GB/s, to: 3200 GB/s, count: 6}}}}
objectives: {{time: min, price: min}}
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def explore():
    """Return a function that starts ``crosstack explore`` and returns its address."""
    started = []

    def start(store):
        command = [sys.executable, "-m", "crosstack", "explore", str(store), "--port", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]

    yield start
    for process in started:
        process.terminate()
        process.wait(120)
        process.stdout.close()


def says(page, selector, words):
    """Wait until an element says something."""
    from playwright.sync_api import expect  # there where the browser is

    expect(page.locator(selector)).to_contain_text(words, timeout=20_000)


def test_new_points_appear_and_what_the_reader_did_stays(swept, explore, visit):
    store = swept("N7")
    page = visit(explore(store))
    assert page.inner_text("#summary").startswith("5 points")
    page.click('[data-sort="power_efficiency"]')
    page.click('#table [data-point="3"]')
    opened = page.inner_text("#point")
    swept("N7", "N5", "N3")
    says(page, "#summary", "15 points: ")
    assert "Live: 15 points" in page.inner_text("#live")
    assert page.get_attribute("#table th:has([data-sort=power_efficiency])", "aria-sort") == (
        "descending"
    )
    assert page.is_visible("#point")
    size = re.search(r"size (\S+)", opened)[0]
    assert size in page.inner_text("#point")
    page.keyboard.press("Escape")
    page.click("#filters summary")
    page.click('[data-key="node=N3"]')
    assert page.inner_text("#active").startswith("5 of 15 points")


def test_points_come_while_a_sweep_runs(explore, visit, tmp_path):
    study, store = tmp_path / "memory.yaml", tmp_path / "memory.store"
    study.write_text(SEARCHED.format(base=TASK))
    command = [sys.executable, "-m", "crosstack", "sweep", str(study), "--store", str(store)]
    with subprocess.Popen([*command, "--jobs", "1"], stdout=subprocess.DEVNULL) as sweep:
        while not points_in(store):
            assert sweep.poll() is None
            time.sleep(0.05)
        page = visit(explore(store))
        first = int(page.inner_text("#summary").split()[0])
        assert first < 6
        assert sweep.poll() is None
        says(page, "#summary", "6 points: 6 optimal")
        assert sweep.wait(300) == 0


def test_the_page_says_when_its_server_is_gone(swept, visit):
    with StudyServer(swept("N7")) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        page = visit(server.address)
        server.shutdown()
        thread.join()
    says(page, "#live", "The server does not answer")
    assert page.locator("#table tbody tr").count() == 5
    said = visit.heard.errors  # by the browser itself
    assert said
    assert all("ERR_CONNECTION_REFUSED" in error for error in said)
    said.clear()
