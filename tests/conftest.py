"""Builders that the tests share.

The fixtures return functions, and live as long as the session, so that property tests may use
them too.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from builders.once import FOLDER

from crosstack.machine.chip import Chip, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.kernels import ComputeUnit, Consumer, Kernel, KernelKind, Tensor

SHARED_DATA = Path(__file__).resolve().parents[1].parent / "shared" / "data"

Edge = tuple[int, int]

# A shell starts what runs in the background with interrupts ignored, and children inherit that;
# tests interrupt their own.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run; `--hypothesis-profile explore` draws new ones. A busy machine
# fails no test.
hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile("steady")


def pytest_configure(config: pytest.Config) -> None:
    """Give all processes of a run one folder; those that xdist starts inherit its name."""
    if not hasattr(config, "workerinput"):
        kept = tempfile.TemporaryDirectory(prefix="crosstack-tests-")
        os.environ[FOLDER] = kept.name
        config.add_cleanup(kept.cleanup)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected to itself when garbage is looked for."""
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the frozen numbers be written again; see tests/golden."""
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the rows of tests/golden that are run, instead of comparing them",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give one test a published DFModel run; skip where the runs are not there."""
    if "published_run" not in metafunc.fixturenames:
        return
    path = SHARED_DATA / "dfmodel" / "cases.jsonl"
    if not path.exists():
        reason = "published runs are not part of the repository (../shared/data/dfmodel)"
        metafunc.parametrize(
            "published_run", [pytest.param(None, marks=pytest.mark.skip(reason=reason))]
        )
        return
    runs = [json.loads(line) for line in path.read_text().splitlines()]
    marker = metafunc.definition.get_closest_marker("runs_with")
    wanted: Callable[[dict[str, Any]], bool] = marker.args[0] if marker else lambda run: True
    runs = [run for run in runs if wanted(run)]
    ids = [f"{run['path']}@{run['commit'][:8]}" for run in runs]
    metafunc.parametrize("published_run", runs, ids=ids)


@pytest.fixture(scope="session")
def a_kernel() -> Callable[..., Kernel]:
    """Return a builder of an elementwise kernel with as many inputs of 8 bytes as asked."""

    def build(name: str, inputs: int = 1, size: float = 8.0, **changes: Any) -> Kernel:
        values: dict[str, Any] = {
            "kind": KernelKind.ELEMENTWISE if inputs == 1 else KernelKind.ELEMENTWISE_2,
            "m": 2,
            "n": 2,
            "output_size": size,
            "input_sizes": (size,) * inputs,
            "unit": ComputeUnit.SIMD,
        }
        return Kernel(name=name, **{**values, **changes})

    return build


@pytest.fixture(scope="session")
def a_graph(a_kernel: Callable[..., Kernel]) -> Callable[..., KernelGraph]:
    """Return a builder of a graph of elementwise kernels from edges between their numbers.

    A kernel has two operands; edges past the second only order it.
    """

    def build(n_kernels: int, edges: Sequence[Edge]) -> KernelGraph:
        names = [f"kernel_{i}" for i in range(n_kernels)]
        kernels = tuple(a_kernel(name, inputs=2) for name in names)
        readers: dict[int, list[Consumer]] = {}
        taken = [0] * n_kernels
        for source, target in edges:
            operand = taken[target]
            readers.setdefault(source, []).append(
                Consumer(kernel=names[target], operand=min(operand, 1), elided=operand > 1)
            )
            taken[target] += 1
        tensors = tuple(
            Tensor(producer=names[source], consumers=tuple(consumers), size=8.0)
            for source, consumers in sorted(readers.items())
        )
        return kernel_graph(kernels=kernels, tensors=tensors, word=2)

    return build


@pytest.fixture(scope="session")
def small_graph(a_graph: Callable[..., KernelGraph]) -> KernelGraph:
    """Return a diamond: 0 is read by 1 and 2, both are read by 3."""
    return a_graph(4, [(0, 1), (0, 2), (1, 3), (2, 3)])


@pytest.fixture(scope="session")
def a_chip() -> Callable[..., Chip]:
    """Return a builder of a chip: SambaNova SN30 as DFModel describes it (Table V)."""

    def build(**changes: Any) -> Chip:
        values: dict[str, Any] = {
            "n_cores": 1280,
            "lanes": 32,
            "stages": 6,
            "frequency": 1.25e9,
            "sram_capacity": 671088640.0,
        }
        return flat_chip(**{**values, **changes})

    return build


@pytest.fixture(scope="session")
def a_dimension() -> Callable[..., Dimension]:
    """Return a builder of a dimension: a ring of 25 GB/s links."""

    def build(**changes: Any) -> Dimension:
        return Dimension(**{"kind": DimensionKind.RING, "bandwidth": 25e9, **changes})

    return build


@pytest.fixture(scope="session")
def a_system(
    a_chip: Callable[..., Chip], a_dimension: Callable[..., Dimension]
) -> Callable[..., System]:
    """Return a builder of a system: by default a ring of 8 chips."""

    def build(**changes: Any) -> System:
        values: dict[str, Any] = {
            "chip": a_chip(),
            "memory": main_memory(bandwidth=100e9),
            "network": (a_dimension(size=8),),
            "n_chips": 8,
        }
        values |= changes
        memories = values.pop("memory")
        return System(**values | {"chip": replace(values["chip"], memories=memories)})

    return build
