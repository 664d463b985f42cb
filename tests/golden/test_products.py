"""Products that were measured on an A100, predicted at the clock of the measurements."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "roofline.md"
FAMILY = "products"
CASE = "a100-pcie-80gb at 1.05 GHz"


@pytest.mark.slow
def test_products_take_what_they_did(run, golden, row, tmp_path):
    out = tmp_path / "product.json"
    lines = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| ", PAGE.read_text(), flags=re.MULTILINE)
    assert len(lines) == 48
    rows = []
    for shape in dict.fromkeys(lines):  # some were measured twice
        sides = ",".join(shape)
        run(
            "predict",
            "--on",
            "a100-pcie-80gb",
            "--gemm",
            sides,
            "--set",
            "frequency=1.05GHz",
            "--json",
            out,
        )
        kernel = json.loads(out.read_text())["kernel"]
        values = {"time": kernel["time"], "bound": kernel["bound"]}
        for name, level in kernel["levels"].items():
            values |= {f"{name} {what}": level[what] for what in ("traffic", "passing")}
        rows.append(row(name=sides, rules="crosstack", values=values))
    golden.check(FAMILY, CASE, rows)


def test_every_case_of_the_file_is_computed(golden):
    golden.check_cases(FAMILY, [CASE])
