"""The changes that the page on adding things shows apply to the source as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "extend.md").read_text()
CHANGES = [
    (section.splitlines()[0], change)
    for section in PAGE.split("\n## ")[1:]
    for change in re.findall(r"```diff\n(.*?)```", section, re.DOTALL)
]
MOST_FILES = 3  # besides tests


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the changes")
@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_change_applies(name, change):
    command = ["git", "apply", "--check", "-"]
    tried = subprocess.run(
        command, input=change, text=True, capture_output=True, cwd=ROOT, check=False
    )
    assert tried.returncode == 0, tried.stderr
    files = set(re.findall(r"^\+\+\+ b/(\S+)", change, re.MULTILINE))
    assert len([file for file in files if not file.startswith("tests/")]) <= MOST_FILES


def test_the_page_shows_all_kinds():
    assert len(CHANGES) == PAGE.count("```diff") == 7
