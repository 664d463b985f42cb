from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
pytest.importorskip("pyarrow", reason="needs crosstack[explore]")
# Processes import the evaluator of these tests by name.
sys.path.insert(0, str(HERE))


@pytest.fixture
def write(tmp_path):
    """Return a writer of files in a fresh folder."""

    def build(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return build
