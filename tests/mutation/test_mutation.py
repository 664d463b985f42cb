from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("coverage", reason="coverage is not installed")

from mutation.changes import changes_of, sample

RUN = Path(__file__).with_name("run.py")
MODULE = '''"""Sums."""

BASE = 3


def total(a: int, b: int = 0) -> int:
    """Return a sum."""
    if a > 100:
        raise ValueError(f"{a + 1} is too much")
    return a + b


def weak(a: int) -> int:
    return BASE if a > 0 else 0


def unseen(a: int) -> int:
    return a * 2


def loaded(a: int) -> int:
    first = [a][0]
    return first
'''
TESTS = """
from toy.sums import loaded, total, weak

SIX = loaded(7) - 1

def test_total():
    assert (total(2, 3), total(2)) == (5, 2)

def test_weak():
    assert weak(5) == 3
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "src/toy/sums.py": MODULE,
        "tests/test_sums.py": TESTS,
        "pytest.ini": "[pytest]\npythonpath = src\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def changes(project):
    return changes_of(project / "src/toy/sums.py", project)


def test_words_and_types_are_not_changed(changes):
    assert [(c.around[0][0], c.before, c.after) for c in changes if c.around[0][0] < 11] == [
        (3, "3", "(4)"),
        (6, "0", "(1)"),
        (8, "a > 100", "(a >= 100)"),
        (8, "a > 100", "(a <= 100)"),
        (8, "100", "(101)"),
        (10, "return a + b", "return None"),
        (10, "a + b", "(a - b)"),
    ]


def test_every_change_is_one_other_file_under_a_name_of_its_own(project, changes):
    path = project / "src/toy/sums.py"
    texts = {change.applied(path.read_bytes()) for change in changes}
    for text in texts:
        compile(text, path, "exec")
    assert len({change.key for change in changes}) == len(changes) == len(texts)


def test_a_change_stays_in_the_draw_when_lines_come_before_it(project, changes):
    drawn = [change.key for change in sample(changes, 0, 5)]
    path = project / "src/toy/sums.py"
    path.write_text(MODULE.replace("BASE = 3", "import math\n\nBASE = 3"))
    again = sample(changes_of(path, project), 0, 5)
    assert [change.key for change in again] == drawn


def test_a_draw_takes_a_line_once(changes):
    drawn = sample(changes, 1, 100)
    assert len({change.around[0][0] for change in drawn}) == len(drawn) < len(changes)


def test_what_a_test_notices_is_killed_by_it_and_the_rest_survives(project):
    (project / "tests/mutation").mkdir()
    same = "src/toy/sums.py::unseen | return a * 2 | return a * 2 -> return None"
    (project / "tests/mutation/equivalent.yaml").write_text(
        f'- change: "{same}"\n  reason: Nobody calls it.\n'
    )
    command = [sys.executable, RUN, "--root", project, "--source", "src/toy", "--tests", "tests"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    by = json.loads((project / ".mutation/results.json").read_text())
    of = {key.partition("::")[2]: found for key, found in by.items()}
    assert of["weak | a > 0 | a > 0 -> a <= 0"] == "tests/test_sums.py::test_weak"
    assert of["total | a > 100 | a > 100 -> a >= 100"] == "(noticed by none of 1 tests, of 1)"
    assert of["loaded | [a][0] | 0 -> 1"] == "import"
    assert "6 of 7 killed (85.7%), 1 survive; 1 more change nothing" in done.stdout


@pytest.mark.mutation
@pytest.mark.timeout(0)
def test_nine_of_ten_changes_of_the_engine_are_noticed():
    subprocess.run([sys.executable, RUN, "--count", "400", "--least", "0.9"], check=True)
