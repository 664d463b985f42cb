"""What the pages name is there: parts of the package, files of the project, options."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import typer.main

from crosstack.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "crosstack"
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
]
SOURCES = [*sorted(SOURCE.rglob("*.py")), *sorted((ROOT / "tests").rglob("*.py"))]
NAME = re.compile(r"\bcrosstack(?:\.\w+)+\b")
PATH = re.compile(r"`(?P<path>[\w*-]+(?:/[\w.*-]+)+/?)`|`(?P<file>\w+\.py)`")
FENCED = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
# The package of a protobuf message, and the program as Windows names it.
NO_PARTS = {"crosstack.dfmodel", "crosstack.exe"}
# Files of the tools that are re-created; units.
OTHERS = {
    "a100_sxm/gemm", "ai-dynamo/aiconfigurator", "evaluations/s", "gkarfakis19/DeepFlow",
    "MooreThreads/SimuMax", "calculon-ai/calculon", "gkarfakis19/Rapid-LLM", "VIA-Research/vTrain",
    "mosaicml/llm-foundry", "NVIDIA-NeMo/Megatron-Bridge", "PrincetonUniversity/LLMCompass",
    "meta-pytorch/tritonbench",
    "mappings/s", "run_perf.py", "user_input/setup.txt",
    "validation_scripts/ncu_metrics_results.csv",
}  # fmt: skip
# Options of Dask's programs.
FOREIGN = {"--nthreads", "--nworkers"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or what one has."""
    parts = name.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            if not hasattr(found, part):
                return part in getattr(found, "__annotations__", {})
            found = getattr(found, part)
        return True
    return False


def unknown(text: str) -> list[str]:
    """Return the parts of the package that a text names and that do not exist."""
    said = set(NAME.findall(text)) - NO_PARTS
    return sorted(name for name in said if not exists(name))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_part_of_the_package_that_a_page_names_exists(page):
    assert unknown(page.read_text()) == []


def test_every_part_of_the_package_that_a_source_names_exists():
    missing = {name_of(path): unknown(path.read_text()) for path in SOURCES}
    assert {path: names for path, names in missing.items() if names} == {}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_that_a_page_names_exists(page):
    text = page.read_text()
    missing = []
    for found in PATH.finditer(text):
        wanted = (found["path"] or found["file"]).rstrip("/")
        pattern = re.sub(r"\b[A-Z]{2,}\b", "*", wanted)  # NAME and FILE stand for any
        anywhere = found["file"] is not None
        roots = [ROOT, SOURCE, ROOT / "src", page.parent]
        matches = (
            any((ROOT / top).rglob(pattern)) if anywhere else any(Path(root).glob(pattern))
            for top, root in zip(("src", "tests", "benchmarks", "examples"), roots, strict=True)
        )
        if wanted not in OTHERS and not any(matches):
            missing.append(wanted)
    assert missing == []


def options(command: object) -> Iterator[str]:
    """Return the options of a command and of those below it."""
    yield from (
        o for parameter in command.params for o in (*parameter.opts, *parameter.secondary_opts)
    )  # type: ignore[attr-defined]
    for below in getattr(command, "commands", {}).values():
        yield from options(below)


@cache
def program() -> object:
    return typer.main.get_command(app)


@cache
def known_options() -> frozenset[str]:
    return frozenset({"--help", *options(program())})


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CONTRIBUTING.md"], ids=name_of)
def test_every_option_that_a_page_names_is_one(page):
    said = set(OPTION.findall(page.read_text()))
    assert sorted(said - known_options() - FOREIGN) == []


def misused(words: list[str]) -> list[str]:
    """Return what is wrong with a command: its name, or options that it does not have."""
    command, said = program(), "crosstack"
    while words and hasattr(command, "commands"):
        name = words.pop(0)
        if name.startswith("-") or name.isupper():  # of the program itself; any command
            return []
        if name not in command.commands:
            return [f"{said} {name}"]
        command, said = command.commands[name], f"{said} {name}"
    allowed = {"--help", *options(command)}
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return [f"{said} {option}" for option in given if option not in allowed]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_of_a_page_has_its_options(page):
    text = page.read_text().replace("\\\n", " ")
    lines = [line for block in FENCED.findall(text) for line in block.splitlines()]
    lines += [" ".join(code.split()) for code in QUOTED.findall(FENCED.sub("", text))]
    commands = [line.removeprefix("$ ") for line in lines]
    wrong = []
    for command in commands:
        if command.startswith("crosstack "):
            words = re.split(r"[|;&>#]", command)[0].split()[1:]
            wrong += misused([word for word in words if word not in ("...", "[OPTIONS]")])
    assert wrong == []
