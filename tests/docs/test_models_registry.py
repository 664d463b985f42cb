"""The page on language models says what the library and the reader of files hold."""

from __future__ import annotations

import re
from pathlib import Path

from crosstack.io.huggingface import ARCHITECTURES
from crosstack.report.model_text import model_table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "models-registry.md").read_text()


def test_the_table_is_that_of_the_library():
    table = PAGE.partition("\n## Models\n")[2]
    lines = [line for line in table.splitlines() if line.startswith("|") and "---" not in line]
    rows = [tuple(cell.strip() for cell in line[1:-1].split("|")) for line in lines]
    assert rows == [model_table().header, *model_table().rows]


def test_the_architectures_are_those_that_are_read():
    section = PAGE.partition("\n## A file of the hub\n")[2].partition("\n## ")[0]
    named = re.findall(r"`(\w+)`", section.partition("architectures of the models below")[2])
    assert set(named) == set(ARCHITECTURES)
