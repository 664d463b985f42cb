from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "crosstack"
FILES = sorted(SOURCE.rglob("*.py"))
MOST_LINES = 600
# Longer files and why each of them is one file.
LONG: dict[str, str] = {
    "workload/kernel_graph.py": "one record, whose sixty columns are said in one place",
}
# What `import crosstack` must not load: slow, or needed by one command only.
HEAVY = ["google.protobuf", "highspy", "pydantic", "rich", "typer"]
FORBIDDEN_NAMES = {"utils", "util", "common", "core", "misc", "helpers", "manager"}


# What a published tool does is above, in `published`.
ENGINE = [
    path
    for path in FILES
    if path.relative_to(SOURCE).parts[0]
    in ("workload", "technology", "machine", "model", "mapping", "evaluate")
]
RELEASE = re.compile("dfmodel|deepflow|crossflow", re.IGNORECASE)
CITED = re.compile(r"\b(ko2025dfmodel|dfmodel_code|ardalani2022deepflow|deepflow_code)\b")


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


MODULES = {
    ".".join(("crosstack", *path.relative_to(SOURCE).with_suffix("").parts)): path
    for path in FILES
    if path.name != "__init__.py"
}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> set[str]:
    """Return the modules that a file imports, wherever in it."""
    modules: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules.add(node.module)
    return modules


def roots(path: Path) -> set[str]:
    return {module.partition(".")[0] for module in imported(path)}


def test_a_package_imports_only_from_packages_below_it(monkeypatch):
    cli = pytest.importorskip("importlinter.cli", reason="import-linter is not installed")
    monkeypatch.chdir(ROOT)
    status = cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == 0, "run `lint-imports` to see which import breaks which contract"


def imported_when_loaded(path: Path) -> set[str]:
    """Return the files that a file of the package imports as it is loaded, by module."""
    found: set[str] = set()
    for node in tree(path).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (parts & MODULES.keys()) or {node.module}
    return found & MODULES.keys()


def test_no_file_imports_itself_over_others():
    order = graphlib.TopologicalSorter(
        {module: imported_when_loaded(path) for module, path in MODULES.items()}
    )
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"imported in a circle: {error.args[1]}")


def importers(of: set[str], paths: Iterable[Path] = FILES) -> list[str]:
    return [name_of(path) for path in paths if roots(path) & of]


def test_no_file_of_the_package_imports_a_solver():
    assert importers({"highspy", "scipy"}) == []


def test_only_io_imports_file_formats():
    elsewhere = [path for path in FILES if not path.is_relative_to(SOURCE / "io")]
    assert importers({"google", "pydantic", "yaml"}, elsewhere) == []


def asks_for_workloads(path: Path) -> list[str]:
    """Return the lines of a file that ask what kind of workload they have."""
    kinds = {"Workload", "Job", "Product", "LstmModel", "Training", "TransformerTraining"}
    kinds |= {"ImageTraining"}
    calls = (node for node in ast.walk(tree(path)) if isinstance(node, ast.Call))
    return [
        f"{name_of(path)}:{call.lineno}"
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "isinstance"
        if kinds & {node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)}
    ]


def test_only_workloads_ask_what_kind_of_workload_one_is():
    others = [path for path in FILES if not path.is_relative_to(SOURCE / "workload")]
    assert [line for path in others for line in asks_for_workloads(path)] == []


def test_no_file_of_the_package_imports_a_test_tool():
    assert importers({"pytest", "hypothesis", "unittest"}) == []


def test_a_file_is_long_where_it_has_a_reason():
    long = [name_of(path) for path in FILES if path.read_text().count("\n") > MOST_LINES]
    assert sorted(long) == sorted(LONG)


def test_a_file_says_what_it_is():
    assert [name_of(path) for path in FILES if not ast.get_docstring(tree(path))] == []


def test_a_name_says_what_is_in_the_file():
    parts = {path: path.relative_to(SOURCE).with_suffix("").parts for path in FILES}
    assert [name_of(path) for path in FILES if {*parts[path]} & FORBIDDEN_NAMES] == []


def docstrings(tree: ast.Module) -> list[ast.Constant]:
    """Return the docstrings of a module, its classes and its functions, as nodes."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, owners) and node.body]
    first = [body[0].value for body in bodies if isinstance(body[0], ast.Expr)]
    return [
        node for node in first if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def releases_named(path: Path) -> list[str]:
    """Return the lines of a file that name a release, but for the sources that it cites."""
    lines = path.read_text().splitlines()
    said = []
    for node in docstrings(tree(path)):
        said.append(node.value)
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = ""
    return [
        f"{name_of(path)}: {line}"
        for text in (*said, *lines)
        for line in text.splitlines()
        if RELEASE.search(CITED.sub("", line))
    ]


def test_no_file_of_the_engine_names_a_release():
    assert len(ENGINE) > 100
    assert [line for path in ENGINE for line in releases_named(path)] == []


def test_the_package_is_marked_as_typed():
    assert (SOURCE / "py.typed").exists()


@pytest.fixture(scope="module")
def loaded_by_import() -> set[str]:
    """Return the modules that `import crosstack` loads in a fresh interpreter."""
    code = "import crosstack, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", HEAVY)
def test_importing_the_package_does_not_load(loaded_by_import, module):
    assert module not in loaded_by_import


def test_every_source_that_is_cited_is_in_the_bibliography():
    bibliography = (SOURCE / "data" / "references.bib").read_text()
    known = set(re.findall(r"@\w+\{(\w+),", bibliography))
    cited: dict[str, str] = {}
    for path in FILES:
        for key in re.findall(r"``([a-z]+(?:19|20)\d\d[a-z0-9]*)``", path.read_text()):
            cited.setdefault(key, name_of(path))
    assert {key: where for key, where in cited.items() if key not in known} == {}
