"""``crosstack report`` and ``crosstack explore``: pages of results and of studies."""

from __future__ import annotations

import signal
from pathlib import Path

import typer

from crosstack.cli import inputs
from crosstack.cli.outputs import printable, tell_damage, write
from crosstack.cli.saved import read_result, saved_result

PAGES = (".html", ".htm")


def report(source: Path, output: Path, task: Path | None = None, rules: str | None = None) -> None:
    """Write one page that needs nothing else: of a result, or of a whole study."""
    inputs.check_suffix("--output", output, PAGES)
    inputs.check_outputs(source, {"--output": output})
    if not source.is_dir():
        write((output, saved_result(source, read_result(source), task, rules).page()))
        return
    from crosstack.explore.store import Store
    from crosstack.report.pages.study_page import study_html
    from crosstack.report.pages.study_table import store_table

    inputs.refuse({"--task": task, "--rules": rules}, "allowed: with a mapping alone.")
    store = Store.open(source)
    page = study_html(store_table(store))
    tell_damage(store)
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
