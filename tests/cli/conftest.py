"""The command line, run inside the test's process, and small files to run it on."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from crosstack.cli.main import main

TESTS = Path(__file__).resolve().parents[1]

SMALL = """\
name: small
workload:
  word: 2
  n_layers: 4
  global_batch_size: 8
  kernels:
    - {name: A, kind: elementwise, m: 64, n: 32}
    - {name: Q, kind: gemm_weight, outer: 2, m: 32, k: 64, n: 32, inputs: [A]}
    - {name: K, kind: gemm_weight, outer: 2, m: 32, k: 64, n: 32, inputs: [A]}
    - {name: S, kind: gemm, outer: 2, m: 32, k: 32, n: 32, inputs: [Q, K]}
    - {name: F, kind: elementwise_2, outer: 2, m: 32, n: 32, inputs: [S, null]}
system:
  name: four chips
  chip: {n_cores: 4, lanes: 8, stages: 4, frequency: 1 GHz, sram_capacity: 256 KiB}
  memory: {bandwidth: 20 GB/s, capacity: 1 GB}
  n_chips: 4
  network:
    - {kind: ring, size: 2, bandwidth: 10 GB/s, parallelism: tensor}
    - {kind: switch, size: 2, bandwidth: 5 GB/s}
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def problems(self) -> list[str]:
        """Lines of stderr, each without the program's name."""
        lines = self.err.splitlines()
        assert all(line.startswith("crosstack: ") for line in lines), self.err
        return [line.removeprefix("crosstack: ") for line in lines]


Run = Callable[..., Outcome]


def run_command(*arguments: object) -> Outcome:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
            raise AssertionError("main came back")
        except SystemExit as stop:
            code = stop.code or 0
    assert isinstance(code, int)
    return Outcome(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def run() -> Run:
    """Return a function that runs ``crosstack`` with arguments."""
    return run_command


@pytest.fixture(scope="session")
def saved_by(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Outcome, str | None]]:
    """Return a function that says how a command ends and what ``--json`` saves.

    What many tests ask is run once for all of them; that a command says the same each time is a
    test of its own.
    """

    @cache
    def answer(*arguments: object) -> tuple[Outcome, str | None]:
        out = tmp_path_factory.mktemp("saved") / "saved.json"
        outcome = run_command(*arguments, "--json", out)
        printed = replace(outcome, out=outcome.out.replace(f"wrote {out}\n", ""))
        return printed, out.read_text() if out.exists() else None

    return answer


@pytest.fixture(scope="session")
def small_text() -> str:
    """Return a task of five kernels on four chips, in native YAML."""
    return SMALL


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a file with the small task, alone in its directory."""
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="session")
def dfmodel_text() -> str:
    """Return a task of three kernels on eight chips, in DFModel text; no kernel is pinned."""
    text = (TESTS / "io" / "dfmodel_small.txt").read_text()
    assert "config: 1" in text
    return text.replace("config: 1", "config: -1")


@pytest.fixture
def dfmodel_file(tmp_path: Path, dfmodel_text: str) -> Path:
    path = tmp_path / "small.txt"
    path.write_text(dfmodel_text)
    return path


@pytest.fixture(scope="session")
def small_result(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the JSON that mapping the small task saves."""
    folder = tmp_path_factory.mktemp("result")
    (folder / "small.yaml").write_text(SMALL)
    outcome = run_command("map", folder / "small.yaml", "--json", folder / "result.json")
    assert outcome.code == 0, outcome.err
    return (folder / "result.json").read_text()
