"""Recorded runs of DeepFlow, as parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def recorded_runs(golden: Path, wanted: Callable[[dict[str, Any]], bool]) -> list[Any]:
    """Return the recorded runs of a file that are wanted; one that is skipped without it."""
    if not golden.exists():
        return [pytest.param(None, marks=pytest.mark.skip("the recorded runs are absent"))]
    rows = [json.loads(line) for line in golden.read_text().splitlines()]
    return [pytest.param(row, id=row["id"]) for row in rows if wanted(row)]
