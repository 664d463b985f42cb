"""What the pages show is what runs: every command and every piece of Python in them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import crosstack

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *sorted((ROOT / "docs" / "how-to").glob("*.md")),
]
RUN = {"sh", "python"}
SHOWN = {"text", "yaml", "json", "diff"}  # nothing to run
NOT_RUN = re.compile(r"<!-- not run: (?P<reason>.+?) -->\s*\Z")
FENCE = re.compile(r"^```(?P<language>\S*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)
LONGEST = 300  # s, for one block on a busy machine; none takes more than a few alone


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and why it is not run, if so."""

    line: int
    language: str
    code: str
    reason: str | None


def blocks(text: str) -> list[Block]:
    found = []
    for fence in FENCE.finditer(text):
        marker = NOT_RUN.search(text[: fence.start()])
        found.append(
            Block(
                line=text[: fence.start()].count("\n") + 1,
                language=fence["language"],
                code=fence["code"],
                reason=marker["reason"] if marker else None,
            )
        )
    return found


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a directory with the examples in it and `crosstack` on its own path."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    program = tmp_path / ".bin" / "crosstack"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m crosstack "$@"\n')
    program.chmod(0o755)
    return tmp_path


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    shell = ["bash", "-euo", "pipefail", "-c"]
    python = [sys.executable, "-c"]
    return subprocess.run(
        [*(python if block.language == "python" else shell), block.code],
        cwd=folder,
        check=False,
        env={
            **os.environ,
            "PATH": f"{folder / '.bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(Path(crosstack.__file__).parents[1]),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST,
    )


def test_a_block_knows_its_line_its_language_and_why_it_is_not_run():
    text = "a\n\n```sh\nls\n```\n\n<!-- not run: installs -->\n```sh\nget\n```\n"
    assert blocks(text) == [Block(3, "sh", "ls\n", None), Block(8, "sh", "get\n", "installs")]


@pytest.mark.parametrize(("language", "code"), [("sh", "false | cat\ntrue\n"), ("python", "1 / 0")])
def test_a_block_that_fails_is_seen(folder, language, code):
    assert run(Block(1, language, code, None), folder).returncode != 0


def test_the_table_of_the_readme_has_every_command():
    from typer.main import get_command

    from crosstack.cli.main import app

    table = (ROOT / "README.md").read_text().partition("## What it can do")[2]
    shown = set(re.findall(r"`crosstack ([\w-]+)", table)) - {"COMMAND"}
    assert shown == set(get_command(app).commands)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is(page):
    unknown = [b.line for b in blocks(page.read_text()) if b.language not in RUN | SHOWN]
    assert unknown == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_a_page_runs(page, folder):
    todo = [b for b in blocks(page.read_text()) if b.language in RUN and b.reason is None]
    assert todo, "a page without anything to try needs no place among these"
    for block in todo:
        done = run(block, folder)
        where = f"{name_of(page)}:{block.line}"
        assert done.returncode == 0, f"{where}\n{block.code}\n{done.stdout}\n{done.stderr}"


@pytest.mark.slow
def test_the_first_tutorial_says_what_links_and_memory_bring():
    def time(*changes: str) -> float:
        task = crosstack.load(ROOT / "examples" / "gpt3_1t_sn30.yaml", changes)
        return crosstack.optimise(task).evaluation.time

    text = " ".join((ROOT / "docs" / "tutorial" / "first_mapping.md").read_text().split())
    links = 1 - time("system.topology.link=nvlink4_setup") / time()
    memory = 1 - time("system.memory=hbm") / time()
    assert f"Links nine times as fast save {100 * links:.0f} % of the iteration" in text
    assert f"memory ten times as fast {100 * memory:.0f} %" in text
