"""Pages of the site that are made from the code and from files outside `docs`."""

from __future__ import annotations

import inspect
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
# Pages from outside `docs`, by their name on the site.
OUTSIDE = {
    "readme.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "benchmarks.md": "benchmarks/README.md",
}
SCRIPT = re.compile(r"\((?:\.\./)*examples/scripts/(?P<name>\w+)\.py\)")  # a link to one
WIDE = {"validation.md", "figures.md", "roofline.md"}  # tables of many columns
PACKAGES = (
    "workload", "technology", "machine", "model", "mapping", "evaluate", "explore", "io",
    "published", "report",
)  # fmt: skip


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    made: dict[str, str | bytes] = {
        name: (ROOT / path).read_text() for name, path in OUTSIDE.items()
    }
    made["reference/cli.md"] = command_reference()
    made["reference/api.md"] = api_index()
    made |= {f"reference/{name}.md": api_page(name) for name in PACKAGES}
    made["reference/errors.md"] = (
        "# Errors and units\n\n::: crosstack.errors\n\n::: crosstack.units\n"
    )
    for example in (ROOT / "examples").rglob("*.yaml"):
        made[str(example.relative_to(ROOT))] = example.read_text()
    made |= script_pages()
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links between pages inside the repository to pages of the site."""
    markdown = ROWS.sub(validation_rows, markdown)
    if page.file.src_uri in WIDE:
        page.meta.setdefault("hide", ["toc"])
    up = "../" * page.file.src_uri.count("/")
    for name, path in OUTSIDE.items():
        markdown = markdown.replace(f"(../{path})", f"({up}{name})")
        markdown = markdown.replace(f"({path})", f"({up}{name})")
    markdown = SCRIPT.sub(rf"({up}scripts/\g<name>.md)", markdown)
    markdown = markdown.replace("(../examples/scripts/)", f"({up}scripts/first_mapping.md)")
    markdown = markdown.replace("(../examples/", f"({up}examples/")
    if page.file.src_uri in OUTSIDE:
        markdown = markdown.replace("(docs/", "(").replace("(../docs/", "(")
    return markdown


# ---------------------------------------------------------------- validation

# A place for the rows of a suite whose case a pattern finds: `<!-- rows: SUITE | PATTERN -->`.
ROWS = re.compile(r"<!-- rows: (?P<suite>\w+) \| (?P<pattern>.+?) -->")
SHOWN = ("case", "quantity", "published", "ours", "error", "verdict")


def validation_rows(place: re.Match[str]) -> str:
    """Return the rows that a page asks for, as they are in `docs/validation.md`."""
    text = (ROOT / "docs" / "validation.md").read_text()
    suite = text.partition(f"\n## {place['suite']}\n")[2].partition("\n## ")[0]
    table = [line for line in suite.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]
    if not cells:
        raise RuntimeError(f"docs/validation.md has no suite {place['suite']!r}")
    columns = [cells[0].index(name) for name in SHOWN]
    rows = [row for row in cells[1:] if re.search(place["pattern"], row[0])]
    if not rows:
        raise RuntimeError(f"no row of {place['suite']!r} matches {place['pattern']!r}")
    kept = [list(SHOWN), ["---"] * len(SHOWN)]
    for row in rows:
        case, quantity, published, ours, error, verdict = (row[i] for i in columns)
        numbers = [f"{float(number):.4g}" for number in (published, ours)]
        kept.append([case, quantity, *numbers, f"{100 * float(error):+.1f} %", verdict])
    return "\n".join(f"| {' | '.join(row)} |" for row in kept)


# ---------------------------------------------------------------- scripts


def script_pages() -> dict[str, bytes]:
    """Run every example script and return its page and its pictures, by their names on the site."""
    with TemporaryDirectory() as pages:
        scripts = sorted((ROOT / "examples" / "scripts").glob("*.py"))
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda script: run_script(script, Path(pages)), scripts))
        return {f"scripts/{page.name}": page.read_bytes() for page in Path(pages).iterdir()}


def run_script(script: Path, pages: Path) -> None:
    """Write the page of a script, which runs in a directory with the examples."""
    import crosstack

    package = str(Path(crosstack.__file__).parents[1])
    target = pages / f"{script.stem}.md"
    with TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder, "examples"))
        done = subprocess.run(
            [sys.executable, str(ROOT / "docs" / "cells.py"), str(script), str(target)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": package},
            check=False,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"{script.name}:\n{done.stderr}")


# ---------------------------------------------------------------- command line


def command_reference() -> str:
    """Return every command with its arguments and options, as the program knows them."""
    import typer

    from crosstack.cli.main import app

    root = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "Written from the program itself; `crosstack COMMAND --help` says the same.",
        "",
        "Exit codes: 0 done, 2 bad input, 3 no answer (infeasible, or none found before a limit), "
        "4 stopped at a limit with an answer, 1 a bug.",
    ]
    for path, command in commands(root, "crosstack"):
        lines += ["", f"## {path}", ""]
        lines += ["```", usage(path, command), "```", "", plain(command.help or "")]
        lines += options(command)
    return "\n".join(lines) + "\n"


def commands(command: Any, path: str) -> list[tuple[str, Any]]:
    """Return the commands below one, without the groups."""
    if not hasattr(command, "commands"):
        return [(path, command)]
    below = [(name, command.commands[name]) for name in command.list_commands(None)]
    return [pair for name, one in below for pair in commands(one, f"{path} {name}")]


def usage(path: str, command: Any) -> str:
    """Return the usage line."""
    arguments = [
        getattr(p, "metavar", None) or p.name.upper()
        for p in command.params
        if p.param_type_name == "argument"
    ]
    return " ".join([path, "[OPTIONS]", *arguments])


def options(command: Any) -> list[str]:
    """Return a table of the arguments and options."""
    rows = []
    for parameter in command.params:
        is_option = parameter.param_type_name == "option"
        metavar = getattr(parameter, "metavar", None)
        name = ", ".join(parameter.opts) if is_option else metavar or parameter.name.upper()
        if is_option and metavar:
            name += f" {metavar}"
        text = plain(getattr(parameter, "help", None) or "")
        if is_option and parameter.required:
            text = f"{text} Required."
        if text or not is_option:
            rows.append(f"| <code>{name.replace('|', '&#124;')}</code> | {text} |")
    return ["", "| argument or option | meaning |", "|---|---|", *rows] if rows else []


def plain(text: str) -> str:
    """Return help as one paragraph for each of its own, without control characters."""
    clean = inspect.cleandoc(text.replace("\b", "").replace("\f", ""))
    return clean.replace("|", "\\|")


# ---------------------------------------------------------------- API


def api_index() -> str:
    """Return the page of the package itself: every public name, and where all about it is."""
    import crosstack

    parts = "\n".join(f"- [`crosstack.{name}`]({name}.md)" for name in PACKAGES)
    parts += "\n- [errors and units](errors.md)"
    rows, own = [], []
    for name in crosstack.__all__:
        value = getattr(crosstack, name)
        module = getattr(value, "__module__", None)
        if module is None:  # the version
            continue
        full = f"{module}.{value.__qualname__}"
        if module == "crosstack":
            own.append(f"::: {full}")
        says = first_sentence(inspect.getdoc(value) or "")
        rows.append(f"| [`{name}`][{full}] | {says} |")
    return (
        "# Python\n\nWritten from the docstrings: shapes in parentheses, units in brackets.\n\n"
        "| name | |\n|---|---|\n" + "\n".join(rows) + f"\n\n## Packages\n\n{parts}\n\n"
        "## Functions of the package itself\n\n" + "\n\n".join(own) + "\n"
    )


def first_sentence(text: str) -> str:
    """Return the first line of a docstring, its code marked as Markdown does."""
    return text.partition("\n")[0].replace("``", "`").replace("|", "\\|")


def api_page(package: str) -> str:
    """Return a page with every module of a package and of those below it."""
    folder = ROOT / "src" / "crosstack" / package
    names = sorted(
        module.name
        for module in pkgutil.walk_packages([str(folder)], f"crosstack.{package}.")
        if not module.ispkg and not module.name.endswith(("__main__", "_pb2"))
    )
    blocks = "\n\n".join(f"::: {name}" for name in names)
    return f"# crosstack.{package}\n\n{blocks}\n"
