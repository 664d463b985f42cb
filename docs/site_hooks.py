"""Pages of the site that are made from the code and from files outside `docs`."""

from __future__ import annotations

import inspect
import pkgutil
from pathlib import Path
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
PACKAGES = (
    "workload", "technology", "chip", "system", "model", "mapping", "evaluate", "explore", "io",
    "report", "validation",
)  # fmt: skip


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    made = {name: (ROOT / path).read_text() for name, path in OUTSIDE.items()}
    made["reference/cli.md"] = command_reference()
    made["reference/api.md"] = api_index()
    made |= {f"reference/{name}.md": api_page(name) for name in PACKAGES}
    for example in (ROOT / "examples").rglob("*.yaml"):
        made[str(example.relative_to(ROOT))] = example.read_text()
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links between pages inside the repository to pages of the site."""
    up = "../" * page.file.src_uri.count("/")
    for name, path in OUTSIDE.items():
        markdown = markdown.replace(f"(../{path})", f"({up}{name})")
        markdown = markdown.replace(f"({path})", f"({up}{name})")
    markdown = markdown.replace("(../examples/", f"({up}examples/")
    if page.file.src_uri in OUTSIDE:
        markdown = markdown.replace("(docs/", "(").replace("(../docs/", "(")
    return markdown


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
        "Exit codes: 0 done, 2 bad input, 3 infeasible, 4 stopped at a limit with an answer, "
        "1 a bug.",
    ]
    for path, command in commands(root, "crosstack"):
        lines += ["", f"## {path}", ""]
        lines += ["```", usage(path, command), "```", "", plain(command.help or "")]
        lines += options(command)
    return "\n".join(lines) + "\n"


def commands(command: Any, path: str) -> list[tuple[str, Any]]:
    """Return the commands below one, without the groups."""
    below = getattr(command, "commands", None)
    if below is None:
        return [(path, command)]
    return [pair for name, one in below.items() for pair in commands(one, f"{path} {name}")]


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
        if text or not is_option:
            rows.append(f"| `{name.replace('|', chr(92) + '|')}` | {text} |")
    return ["", "| | |", "|---|---|", *rows] if rows else []


def plain(text: str) -> str:
    """Return help as one paragraph for each of its own, without control characters."""
    clean = inspect.cleandoc(text.replace("\b", "").replace("\f", ""))
    return clean.replace("|", "\\|")


# ---------------------------------------------------------------- API


def api_index() -> str:
    """Return the page of the package itself, with links to its parts."""
    parts = "\n".join(f"- [`crosstack.{name}`]({name}.md)" for name in PACKAGES)
    return (
        "# Python\n\nWritten from the docstrings: shapes in parentheses, units in brackets.\n\n"
        f"{parts}\n\n## Functions of the package\n\n"
        "::: crosstack.evaluate.answer.optimise\n\n::: crosstack.evaluate.answer.evaluate_task\n\n"
        "::: crosstack.evaluate.answer.Answer\n\n::: crosstack.load\n\n::: crosstack.save\n"
    )


def api_page(package: str) -> str:
    """Return a page with every public module of a package."""
    folder = ROOT / "src" / "crosstack" / package
    names = sorted(
        f"crosstack.{package}.{module.name}"
        for module in pkgutil.iter_modules([str(folder)])
        if not module.ispkg and not module.name.startswith("_")
    )
    blocks = "\n\n".join(f"::: {name}" for name in names)
    return f"# crosstack.{package}\n\n{blocks}\n"
