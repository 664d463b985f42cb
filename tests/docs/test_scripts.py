"""The example scripts run on their own, and as pages of the site."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import crosstack

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples" / "scripts").glob("*.py"))
SMALL = """\
# %% [markdown]
# # Title
#
# A sentence.

# %%
x = 2
print(x)

# %%
from pathlib import Path
Path("drawn.svg").write_text("<svg/>")
"""


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Return the module that makes pages of scripts."""
    spec = importlib.util.spec_from_file_location("cells", ROOT / "docs" / "cells.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_page_has_text_code_output_and_pictures_in_order(maker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script, pages = tmp_path / "small.py", tmp_path / "pages"
    script.write_text(SMALL)
    pages.mkdir()
    text = maker.page(script, pages)
    assert text.startswith("# Title\n\nA sentence.\n\n```python\nx = 2\nprint(x)\n```")
    assert "```text\n2\n```" in text
    assert text.rstrip().endswith("![drawn](drawn.svg)")
    assert (pages / "drawn.svg").read_text() == "<svg/>"


def test_an_error_names_the_line_of_the_script(maker, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "wrong.py"
    script.write_text("# %%\nx = 1\n\n# %%\n1 / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        maker.page(script, tmp_path)
    assert caught.traceback[-1].lineno == 4  # counted from 0


def test_there_are_six_scripts_and_each_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert len(SCRIPTS) == 6
    assert [s.stem for s in SCRIPTS if f"scripts/{s.stem}.md" not in navigation] == []


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_runs_prints_and_draws(script, tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    package = str(Path(crosstack.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, f"examples/scripts/{script.name}"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": package},
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d", done.stdout)
    assert [p.stem for p in tmp_path.glob("*.svg")] == [script.stem]
