"""``crosstack report`` and ``crosstack explore``: pages of results and of studies."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, assert_never

import typer

from crosstack.cli.inputs import (
    Saved,
    check_outputs,
    options_named,
    read_result,
    result_answer,
    saved_kind,
)
from crosstack.cli.outputs import check_suffix, printable, tell_damage, write
from crosstack.errors import InputError, Problem

__all__ = ["explore", "report"]

PAGES = (".html", ".htm")


def report(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="STORE|RESULT",
            help="The store of a sweep, or what `map`, `predict`, `optimize` or `codesign` saved "
            "with --json.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="The page (.html).")
    ],
    task: Annotated[
        Path | None,
        typer.Option(
            "--task", metavar="FILE", help="What was mapped, for a result that does not hold it."
        ),
    ] = None,
    rules: Annotated[
        str | None,
        typer.Option("--rules", metavar="NAME|FILE", help="For a result under rules of a file."),
    ] = None,
) -> None:
    """Write one page that needs nothing else: of a result, or of a whole study.

    Examples: `crosstack report map.json -o map.html` and
    `crosstack report study.store -o study.html`
    """
    check_suffix("--output", output, PAGES)
    check_outputs(source, {"--output": output})
    of_mappings = {"--task": task, "--rules": rules}
    if source.is_dir():
        _refuse(of_mappings)
        from crosstack.explore.store import Store
        from crosstack.report.pages.study_page import study_html
        from crosstack.report.pages.study_table import store_table

        store = Store.open(source)
        page = study_html(store_table(store))
        tell_damage(store)
        write((output, page))
        return
    data = read_result(source)
    kind, data = saved_kind(source, data)
    if kind is Saved.MAPPING:
        from crosstack.report.html import answer_html

        write((output, answer_html(result_answer(source, data, task, rules))))
        return
    _refuse(of_mappings)
    write((output, _page(kind, data)))


def _page(kind: Literal[Saved.FRONT, Saved.OPTIMUM, Saved.PREDICTION], data: dict[str, Any]) -> str:
    match kind:
        case Saved.FRONT:
            from crosstack.report.pages.front_page import front_html

            return front_html(data)
        case Saved.OPTIMUM:
            from crosstack.report.optimum_page import optimum_html

            return optimum_html(data)
        case Saved.PREDICTION:
            from crosstack.report.prediction_page import prediction_html

            return prediction_html(data)
        case _:
            assert_never(kind)


def _refuse(options: Mapping[str, object]) -> None:
    for option, given in options.items():
        if given is not None:
            raise InputError(Problem(option, "allowed: with a mapping alone."))


def explore(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The store of a sweep.")],
    port: Annotated[int, typer.Option("--port", metavar="N", help="0: any that is free.")] = 8765,
) -> None:
    """Serve the page of a study on this machine alone; new points appear while a sweep runs.

    Example: `crosstack explore study.store`, and open the address it prints. Ctrl-C ends it.
    """
    from crosstack.report.pages.server import StudyServer

    with options_named({"port": "--port"}), StudyServer(store, port) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
        typer.echo(f"{printable(str(store))}: {server.address} (Ctrl-C ends it)")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("stopped")
