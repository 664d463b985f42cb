"""``crosstack sweep``: every point of a study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstack.cli.inputs import in_file, options_named
from crosstack.cli.outputs import EVERY, Searching, printable, show, tell_damage
from crosstack.errors import InputError, Problem
from crosstack.interrupt import INTERRUPTED_EXIT

if TYPE_CHECKING:
    import pyarrow

    from crosstack.explore.progress import Tell
    from crosstack.explore.study import Study

__all__ = [
    "DaskOption",
    "JobsOption",
    "ResumeOption",
    "StoreOption",
    "TimeoutOption",
    "check_resume",
    "run_and_show",
    "searching",
    "sweep",
]  # fmt: skip

JobsOption = Annotated[
    int | None,
    typer.Option("--jobs", metavar="N", help="Processes; one a processor if left out."),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store", metavar="DIR", help="Keep every answer here while it runs, as a sweep does."
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with a store that has points already.")
]
TimeoutOption = Annotated[
    float | None,
    typer.Option("--timeout", metavar="S", help="Give a point up after S seconds."),
]
DaskOption = Annotated[
    str | None,
    typer.Option("--dask", metavar="ADDRESS", help="Run on the cluster of a Dask scheduler."),
]


def sweep(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="A study, as YAML.")],
    jobs: JobsOption = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="DIR", help="Where results go; STUDY.store if left out."),
    ] = None,
    resume: ResumeOption = False,
    timeout: TimeoutOption = None,
    dask: DaskOption = None,
) -> None:
    """Answer every point of a study, and keep each answer as soon as it is there.

    Whatever ends a sweep, `--resume` goes on with it. Several sweeps may share one store.
    Points that do not fit or take too long are rows with their reason. Then `crosstack study
    show|plot|export DIR`, `crosstack report DIR -o study.html` and `crosstack explore DIR` (while
    it runs, too) read the store; pandas and DuckDB read what `study export` writes.

    `crosstack study init study.yaml --base FILE` writes a study to start from.

    Example: `crosstack sweep examples/studies/memory_and_links.yaml --jobs 2`
    """
    from crosstack.explore.study import read_study

    place = store or Path(f"{study.stem}.store")
    chosen = read_study(study)
    run_and_show(
        chosen, place, jobs=jobs, resume=resume, timeout=timeout, dask=dask, source=str(study)
    )


def run_and_show(
    study: Study,
    place: Path,
    *,
    jobs: int | None,
    resume: bool,
    timeout: float | None,
    dask: str | None,
    source: str,
) -> pyarrow.Table:
    """Run a study into a store, print what came of it and return its table.

    ``source``: where it is from, which its problems are said under.
    """
    from crosstack.explore.pool import executor_for
    from crosstack.explore.question import question_of
    from crosstack.explore.run import layout_of, run_study
    from crosstack.explore.store import Store
    from crosstack.report.study_text import results_tables

    with options_named({"jobs": "--jobs", "timeout": "--timeout", "dask": "--dask"}):
        executor = executor_for(jobs, timeout, dask)
    kept = Store.fresh(place, layout_of(study), resume=resume)
    with searching(place) as update, in_file(Path(source)):
        points = run_study(study, kept, executor, progress=update)
    table = kept.table(points.keys)
    tell_damage(kept)
    show(results_tables(table, question_of(study), 3))
    typer.echo(f"{table.num_rows:,} points are in {printable(str(place))}")
    if "failed" in table.column("status").to_pylist():
        raise typer.Exit(1)
    return table


def check_resume(store: Path | None, *, resume: bool) -> None:
    """Refuse to go on with nothing."""
    if resume and store is None:
        raise InputError(Problem("--resume", "allowed with --store."))


@contextmanager
def searching(place: Path | None) -> Iterator[Tell | None]:
    """Show where a study stands; say what is in its store where it is interrupted."""
    from crosstack.report.study_text import progress_words

    with Searching(progress_words, every=EVERY) as update:
        try:
            yield update
        except KeyboardInterrupt:
            if place is None or not place.exists():
                raise
            from crosstack.explore.store import Store

            done = Store.open(place).count()
            message = f"stopped; {done:,} points are in {place}, --resume goes on with them"
            typer.echo(f"crosstack: {printable(message)}", err=True)
            raise typer.Exit(INTERRUPTED_EXIT) from None
