"""``crosstack report`` and ``crosstack explore``: pages of results and of studies."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import assert_never

import typer

from crosstack.cli import inputs
from crosstack.cli.outputs import printable, tell_damage, write

PAGES = (".html", ".htm")


def report(source: Path, output: Path, task: Path | None = None, rules: str | None = None) -> None:
    """Write one page that needs nothing else: of a result, or of a whole study."""
    inputs.check_suffix("--output", output, PAGES)
    inputs.check_outputs(source, {"--output": output})
    of_mappings, only = {"--task": task, "--rules": rules}, "allowed: with a mapping alone."
    if source.is_dir():
        inputs.refuse(of_mappings, only)
        from crosstack.explore.store import Store
        from crosstack.report.pages.study_page import study_html
        from crosstack.report.pages.study_table import store_table

        store = Store.open(source)
        page = study_html(store_table(store))
        tell_damage(store)
        write((output, page))
        return
    kind, data = inputs.saved_kind(source, inputs.read_result(source))
    if kind is not inputs.Saved.MAPPING:
        inputs.refuse(of_mappings, only)
    match kind:
        case inputs.Saved.MAPPING:
            from crosstack.report.html import answer_html

            page = answer_html(inputs.result_answer(source, data, task, rules))
        case inputs.Saved.FRONT:
            from crosstack.report.front_text import front_html

            page = front_html(data)
        case inputs.Saved.OPTIMUM:
            from crosstack.report.optimize_text import optimum_html

            page = optimum_html(data)
        case inputs.Saved.PREDICTION:
            from crosstack.report.prediction_text import prediction_html

            page = prediction_html(data)
        case _:
            assert_never(kind)
    write((output, page))


def explore(store: Path, port: int = 8765) -> None:
    """Serve the page of a study on this machine alone; new points appear while a sweep runs."""
    from crosstack.report.pages.server import StudyServer

    with inputs.options_named({"port": "--port"}), StudyServer(store, port) as server:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
        typer.echo(f"{printable(str(store))}: {server.address} (Ctrl-C ends it)")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            typer.echo("stopped")
