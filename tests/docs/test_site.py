"""The built documentation site: complete, no broken links, nothing loaded from elsewhere."""

from __future__ import annotations

import html.parser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builders.once import folder_of_run, once_a_run

import crosstack

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples" / "scripts").glob("*.py"))
# What a browser loads by itself; links that a reader follows (`a`) may lead anywhere.
LOADED = {"audio", "embed", "iframe", "img", "link", "script", "source", "track", "video"}
FOLLOWED_LINKS = {"canonical", "next", "prev"}  # `link` elements that load nothing
ELSEWHERE = ("http://", "https://", "//")

pytestmark = pytest.mark.slow


@once_a_run
def built() -> Path:
    """Build the site, strictly, and return where it is."""
    target = folder_of_run() / "site"
    package = str(Path(crosstack.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": package},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="module")
def site() -> Path:
    """Return where the site is: `CROSSTACK_SITE` where it is built already, as in .ci/run."""
    if "CROSSTACK_SITE" in os.environ:
        return Path(os.environ["CROSSTACK_SITE"])
    pytest.importorskip("material", reason="the extra crosstack[docs] is not installed")
    pytest.importorskip("mkdocstrings", reason="the extra crosstack[docs] is not installed")
    return built()


class Loads(html.parser.HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "link" and FOLLOWED_LINKS & set(given.get("rel", "").split()):
            return
        if tag in LOADED:
            self.addresses += [given[name] for name in ("src", "href") if name in given]
            self.addresses += [
                part.split()[0] for part in given.get("srcset", "").split(",") if part
            ]


def loads(page: str) -> list[str]:
    reader = Loads()
    reader.feed(page)
    return reader.addresses


def test_a_load_from_elsewhere_is_found():
    page = '<a href="https://a"></a><link rel="canonical" href="https://b"><img src="//c/d.png">'
    assert loads(page) == ["//c/d.png"]


def test_no_page_loads_anything_from_elsewhere(site):
    found = {
        (path.relative_to(site).as_posix(), address)
        for path in site.rglob("*.html")
        for address in loads(path.read_text())
        if address.startswith(ELSEWHERE)
    }
    assert found == set()


def test_no_style_sheet_loads_anything_from_elsewhere(site):
    found = {
        (path.relative_to(site).as_posix(), address)
        for path in [*site.rglob("*.css"), *site.rglob("*.html")]
        for address in re.findall(r"(?:url\(|@import\s+)[\"']?([^\"')\s]+)", path.read_text())
        if address.startswith(ELSEWHERE)
    }
    assert found == set()


def test_every_page_in_the_folder_is_on_the_site(site):
    pages = [p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md")]
    assert pages
    assert [p.as_posix() for p in pages if not (site / p.with_suffix(".html")).exists()] == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_page_of_a_script_shows_its_output_and_its_picture(site, script):
    text = (site / "scripts" / f"{script.stem}.html").read_text()
    cells = script.read_text().splitlines().count("# %%")
    assert text.count("<pre>") > cells >= 2  # what a cell prints has a block of its own
    assert f'src="{script.stem}.svg"' in text
    assert (site / "scripts" / f"{script.stem}.svg").read_text().startswith("<svg")


def test_rows_of_the_validation_are_on_the_pages_of_the_models(site):
    text = (site / "models" / "serving.html").read_text()
    assert "<!-- rows" not in text
    assert "Llama-3 8B decoding on 16 SN40L" in text


def test_every_public_name_is_in_the_reference(site):
    text = (site / "reference" / "api.html").read_text()
    names = [name for name in crosstack.__all__ if name != "__version__"]
    listed = set(re.findall(r"<code>(\w+)</code></a>", text))
    assert [name for name in names if name not in listed] == []


def test_every_command_is_in_the_reference(site):
    text = (site / "reference" / "cli.html").read_text()
    from typer.main import get_command

    from crosstack.cli.main import app

    names = [name for name, one in get_command(app).commands.items() if not one.hidden]
    assert len(names) > 10
    assert [name for name in names if f"crosstack {name}" not in text] == []
