"""What a command shows and saves: tables on a terminal or in a pipe, progress, files."""

from __future__ import annotations

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from crosstack.cli.inputs import YAML_SUFFIXES, check_outputs, in_file
from crosstack.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from crosstack.errors import InfeasibleError
    from crosstack.evaluate.plan import Plan
    from crosstack.explore.store import Store
    from crosstack.mapping.mapping import Task
    from crosstack.model.rules import Rules

EVERY = 5.0  # s between two lines of progress where there is no terminal


def printable(text: str) -> str:
    """Return ``text`` on one line, with what could steer a terminal written as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show(*renderables: RenderableType) -> None:
    """Print, in colour and as wide as the terminal, or plainly where there is none."""
    if sys.stdout.isatty():
        from rich.console import Console

        console = Console(highlight=False)
        for renderable in renderables:
            console.print(renderable, crop=False)
        return
    from crosstack.report.text import plain_text

    for renderable in renderables:
        typer.echo(plain_text(renderable), nl=False)


def show_answer(answer: Plan, *, kernels: bool) -> None:
    """Print an answer, on request with the table of its kernels."""
    from crosstack.report.text import answer_tables, kernel_table

    show(answer_tables(answer), *([kernel_table(answer)] if kernels else []))


def tell_ways(
    error: InfeasibleError, task: Task, rules: Rules | str | None, pages: PageOptions
) -> typer.Exit:
    """Say why nothing fits and what would, and save that; return the exit of the command.

    Parameters
    ----------
    error, task, rules
        What a search of a task under some rules ended with.
    pages : PageOptions
        Where to save it; there is no figure of it.
    """
    from crosstack.explore.fitting import ways_to_fit
    from crosstack.report.fitting_text import ways_html, ways_tables

    typer.echo(f"crosstack: {printable(str(error))}", err=True)
    with watching(lambda words: f"trying {words}") as update:
        data = ways_to_fit(task, error, rules=rules, progress=update).to_dict()
    texts = asked_files(
        (pages.json_out, lambda: json_text(data)), (pages.html_out, lambda: ways_html(data))
    )
    show_and_write(ways_tables(data), texts)
    return typer.Exit(error.exit_code)


def show_and_write(tables: RenderableType, texts: list[tuple[Path, str]]) -> None:
    """Print, then write files: the reader of the tables may be gone, the result is not lost."""
    try:
        show(tables)
    finally:
        write(*texts)


def write(*texts: tuple[Path, str], note: str = "") -> None:
    """Write files, then say so."""
    from crosstack.io.files import write_atomically

    for path, text in texts:
        write_atomically(path, text)
    for path, _ in texts:
        typer.echo(f"wrote {printable(str(path))}{note}")


def asked_files(*asked: tuple[Path | None, Callable[[], str]]) -> list[tuple[Path, str]]:
    """Return the files that were asked for with their texts, none made for another."""
    return [(path, text()) for path, text in asked if path is not None]


def json_text(data: Any) -> str:
    """Return what a command saves with ``--json``."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOptions:
    """Files that a result is saved as."""

    json_out: Path | None = None
    html_out: Path | None = None
    svg_out: Path | None = None

    def check(self, source: Path, others: Mapping[str, Path | None] | None = None) -> None:
        """Refuse places that cannot be written; ``others`` are of options of one's own."""
        named = {"--json": self.json_out, "--html": self.html_out, "--svg": self.svg_out}
        check_outputs(source, named | dict(others or {}))

    def show_and_save(
        self,
        tables: RenderableType,
        data: dict[str, Any],
        html: Callable[[dict[str, Any]], str],
        svg: Callable[[dict[str, Any]], str],
    ) -> None:
        """Print tables, and write what is asked for of the data of a search."""
        texts = asked_files(
            (self.json_out, lambda: json_text(data)),
            (self.html_out, lambda: html(data)),
            (self.svg_out, lambda: svg(data)),
        )
        show_and_write(tables, texts)

    def save(self, answer: Plan, trace_out: Path | None = None) -> None:
        """Write an answer as what is asked for; all is made before the first file is touched."""
        from crosstack.report.html import answer_html
        from crosstack.report.svg import answer_svg

        def trace() -> str:
            from crosstack.evaluate.timeline import stages_of, timeline_of
            from crosstack.report.timeline_figure import trace_json

            return trace_json((timeline_of(answer, stages_of(answer)),))

        def saved() -> str:
            return json.dumps(answer_data(answer), indent=2, allow_nan=False) + "\n"

        texts = asked_files(
            (self.json_out, saved),
            (trace_out, trace),
            (self.html_out, lambda: answer_html(answer)),
            (self.svg_out, lambda: answer_svg(answer)),
        )
        write(*texts)


def answer_data(answer: Plan) -> dict[str, Any]:
    """Return what is saved of an answer: with what was mapped, a report needs nothing else."""
    from crosstack.io import native

    return answer.to_dict() | {"task": native.write_task(answer.task)}


def tell_damage(store: Store) -> None:
    """Say which pieces of a store were left out."""
    for problem in store.problems:
        typer.echo(f"crosstack: {printable(str(problem))}", err=True)


def task_text(task: Task, target: Path | None) -> str:
    """Return the text of a task in the format of a file's suffix, native YAML where there is none.

    What the format cannot say is reported under the name of the file.
    """
    if target is None or target.suffix.lower() in YAML_SUFFIXES:
        from crosstack.io import native

        return native.write_task(task)
    from crosstack.io.dfmodel.write import write_task

    with in_file(target):
        return write_task(task)


def converted_text(
    task: Task, answer: Plan | None, source: Path, overrides: Sequence[str], target: Path
) -> str:
    """Return a task of a file in the format of another's suffix, or an answer as DFModel text.

    What the format cannot say is reported under the name of the file that was read, by its fields.
    """
    from crosstack.io import load, native
    from crosstack.io.dfmodel.write import write_answer, write_task

    try:
        if answer is not None:
            return write_answer(answer)
        if target.suffix.lower() in YAML_SUFFIXES:
            return native.write_task(task)
        return write_task(task)
    except InputError as error:
        said = f"cannot be written to {target.name}"
        own = load.as_in_file(error, task, source, overrides)
        raise InputError(replace(p, message=f"{said}: {p.message}") for p in own.problems) from None


@contextmanager
def watching(
    words: Callable[[Any], str] | None = None, *, every: float | None = None
) -> Iterator[Callable[[Any], None] | None]:
    """Show where something long stands while it runs: ``with watching() as update``.

    On a terminal a line that changes; elsewhere a line of its own ``every`` so many seconds, or
    nothing where that is left out. ``words`` turns what is told into a line; None: that of a
    search for a mapping.
    """
    from crosstack.report.text import progress_line

    say = words or progress_line
    last = time.monotonic()

    def tell(progress: Any) -> None:
        nonlocal last
        if every is not None and time.monotonic() - last >= every:
            last = time.monotonic()
            typer.echo(say(progress), err=True)

    if not sys.stderr.isatty():
        yield None if every is None else tell
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("starting") as status:
        yield lambda progress: status.update(Text(say(progress)))
