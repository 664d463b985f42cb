"""Tests run in processes of their own, under a trace or against a file that is changed.

A process is a fork of one that has loaded the libraries and nothing of the project: the project
is imported anew as it is, or with one file changed.
"""

from __future__ import annotations

import difflib
import functools
import gc
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import coverage
import hypothesis
import pytest
from changes import Lines

MOST_MEMORY = 12 << 30  # [B]
ARGUMENTS = ["-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-profile=mutation"]

# An example that fails need not be made small.
hypothesis.settings.register_profile(
    "mutation",
    deadline=None,
    derandomize=True,
    database=None,
    phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
)


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a text instead of that of its file."""

    text: bytes

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec")


class Changed(importlib.abc.MetaPathFinder):
    """Finds one file of the project changed."""

    def __init__(self, path: Path, text: bytes) -> None:
        self.path, self.text = path, text

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is None or spec.origin is None or Path(spec.origin) != self.path:
            return None
        spec.loader = loader = _Loader(fullname, spec.origin)
        loader.text = self.text
        return spec


class Chosen:
    """Runs the tests that are named, in that order, and writes down which fail."""

    def __init__(self, tests: Sequence[str], report: Path) -> None:
        self.rank = {test: i for i, test in enumerate(tests)}
        self.report = report

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self.rank]
        items[:] = sorted(chosen, key=lambda item: self.rank[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self.report.open("a") as out:
                out.write(report.nodeid + "\n")


class Traced:
    """Runs tests under coverage, each as a context, and writes down how long they take."""

    def __init__(self, sources: Sequence[Path], folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        self.coverage = coverage.Coverage(
            data_file=str(folder / "lines"), source=[str(p) for p in sources], config_file=False
        )
        self.times: dict[str, float] = {}
        self.failed: set[str] = set()
        self.file = ""
        self.caches: list[Any] = []
        self.sources = sources
        self.coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        if self.file != (file := item.nodeid.partition("::")[0]):
            self.file, objects, engine = file, gc.get_objects(), self._of_sources()
            caches = [kept for kept in objects if isinstance(kept, functools._lru_cache_wrapper)]
            self.caches = [kept for kept in caches if getattr(kept, "__module__", "") in engine]
        # What a test finds kept by one before it would hide the lines that it rests on.
        for kept in self.caches:
            kept.cache_clear()
        self.coverage.switch_context(item.nodeid)
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.times[item.nodeid] = time.process_time() - start
            self.coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()
        traced = {
            "times": {test: s for test, s in self.times.items() if test not in self.failed},
            "loaded": [name for name, module in [*sys.modules.items()] if self._library(module)],
        }
        (self.folder / "traced.json").write_text(json.dumps(traced))

    def _of_sources(self) -> set[str]:
        files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items()}
        return {
            name
            for name, file in files.items()
            if file and any(Path(file).is_relative_to(source) for source in self.sources)
        }

    def _library(self, module: ModuleType) -> bool:
        file = getattr(module, "__file__", None) or str(self.root)
        return "site-packages" in file or not Path(file).is_relative_to(self.root)


def in_fork(run: Callable[[], int], log: Path, limit: float) -> int | None:
    """Return the status of a call in a process of its own; None past a limit on its time [s].

    The limit is that on the processor, and a tenth of that on the clock.
    """
    child = os.fork()
    if child == 0:
        status = 70
        with suppress(BaseException):
            os.setsid()
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 6))
            resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
            status = run()
        os._exit(status)
    end = time.monotonic() + 10 * limit
    found = status = 0
    while not found and time.monotonic() < end:
        time.sleep(0.02)
        found, status = os.waitpid(child, os.WNOHANG)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if not found:
        os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if found and os.WIFEXITED(status) else None


@dataclass(slots=True, kw_only=True)
class Suite:
    """The tests of a project and which lines each runs, kept in a folder between runs."""

    root: Path
    sources: list[Path]
    tests: list[Path]
    kept: Path
    times: dict[str, float] = field(init=False, default_factory=dict)
    traces: list[Path] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.kept.mkdir(exist_ok=True, parents=True)
        # Forks find what an earlier one has compiled.
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(self.kept.resolve() / "bytecode")

    def trace(self, say: Callable[[str], None]) -> None:
        """Run the tests of files that are new or edited under a trace, and load all traces."""
        current = {
            file.relative_to(self.root).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for folder in self.tests
            for file in sorted(folder.rglob("test_*.py"))
        }
        known: set[str] = set()
        for trace in sorted(self.kept.glob("trace-*/traced.json"), reverse=True):
            known |= self._load(trace.parent, current, known)
        if new := [name for name in current if name not in known]:
            say(f"tracing the tests of {len(new)} files")
            folder = self.kept / f"trace-{time.time_ns()}"
            folder.mkdir()
            files = [file for source in self.sources for file in source.rglob("*.py")]
            texts = {str(file.relative_to(self.root)): file.read_text() for file in files}
            (folder / "texts.json").write_text(json.dumps(texts))
            (folder / "digests.json").write_text(json.dumps({name: current[name] for name in new}))

            def run() -> int:
                return pytest.main([*ARGUMENTS, *new], [Traced(self.sources, folder, self.root)])

            if in_fork(run, folder / "log", 36000.0) not in (0, 1):
                (folder / "traced.json").unlink(missing_ok=True)
                raise SystemExit((folder / "log").read_text()[-2000:])
            self._load(folder, current, known)

    def _load(self, folder: Path, current: dict[str, str], known: set[str]) -> set[str]:
        digests = json.loads((folder / "digests.json").read_text())
        files = {name for name, digest in digests.items() if current.get(name) == digest} - known
        if files:
            traced = json.loads((folder / "traced.json").read_text())
            times = traced["times"].items()
            self.times |= {test: s for test, s in times if test.partition("::")[0] in files}
            self.traces.append(folder)
            for name in traced["loaded"]:
                with suppress(BaseException):
                    importlib.import_module(name)
        return files

    def tests_of(self, path: str, ranges: Sequence[Lines]) -> list[str]:
        """Return the tests that run lines of a file, fastest first, one of every function first.

        Where an import is all that runs the first range of lines, the next one counts; where it is
        all that runs any, tests of the folder that is called like the file's.
        """
        by_line = contexts(self.root, path, tuple(self.traces))
        found: set[str] = set()
        for first, last in ranges:
            found = {test for line in range(first, last + 1) for test in by_line.get(line, ())}
            if found != {""}:
                break
        else:
            folder = Path(path).parent.name
            found = {t for t in self.times if folder in Path(t.partition("::")[0]).parts}
            found = found or {*self.times}
        tests = sorted(found & self.times.keys(), key=lambda test: (self.times[test], test))
        seen: Counter[str] = Counter()
        variant: dict[str, int] = {}
        for test in tests:
            function = test.partition("[")[0]
            variant[test] = seen[function]
            seen[function] += 1
        return sorted(tests, key=variant.__getitem__)

    def run(self, tests: Sequence[str], changed: Changed | None, limit: float) -> list[str]:
        """Return the tests that fail, with a change up to the first, or what ended the run.

        They run in the order in which they are named, for at most that long on a processor [s].
        """
        report, log = self.kept / "failed", self.kept / "log"
        report.write_text("")
        files = sorted({test.partition("::")[0] for test in tests})

        def decide() -> int:
            if changed is not None:
                sys.meta_path.insert(0, changed)
            first = ["-x"] if changed is not None else []
            return pytest.main([*ARGUMENTS, *first, *files], [Chosen(tests, report)])

        status = in_fork(decide, log, limit)
        if status in (0, 5):
            return []
        # Where no test fails, test files could not be loaded.
        return report.read_text().splitlines() or ["time" if status is None else "import"]


@cache
def contexts(root: Path, path: str, traces: tuple[Path, ...]) -> dict[int, set[str]]:
    """Return what ran every line of a file, with lines that moved since found where they are."""
    now = (root / path).read_text().splitlines()
    found: dict[int, set[str]] = {}
    for trace in traces:
        text: str = json.loads((trace / "texts.json").read_text()).get(path, "")
        data = coverage.CoverageData(str(trace / "lines"))
        data.read()
        by_line = data.contexts_by_lineno(str(root / path))
        matcher = difflib.SequenceMatcher(None, text.splitlines(), now, autojunk=False)
        for then, here, size in matcher.get_matching_blocks():
            for i in range(size):
                found.setdefault(here + i + 1, set()).update(by_line.get(then + i + 1, ()))
    return found
