"""``crosstack sweep``: every point of a study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from crosstack.cli.inputs import in_file, options_named, refuse
from crosstack.cli.outputs import EVERY, printable, show, tell_damage, watching
from crosstack.interrupt import INTERRUPTED_EXIT

if TYPE_CHECKING:
    import pyarrow

    from crosstack.explore.progress import Tell
    from crosstack.explore.study import Study

RUNS = {"jobs": "--jobs", "timeout": "--timeout", "dask": "--dask"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How many points run together, where, and where their answers go."""

    jobs: int | None = None
    store: Path | None = None
    resume: bool = False
    timeout: float | None = None
    dask: str | None = None

    def run(self, study: Study, usual: Path, source: str) -> pyarrow.Table:
        """Run a study into a store, print what came of it and return its table.

        Parameters
        ----------
        study : Study
            Whose points run.
        usual : Path
            The store, unless an option says it.
        source : str
            Where the study is from, which its problems are said under.
        """
        from crosstack.explore.pool import executor_for
        from crosstack.explore.question import question_of
        from crosstack.explore.run import layout_of, run_study
        from crosstack.explore.store import Store
        from crosstack.report.study_text import results_tables

        place = self.store or usual
        with options_named(RUNS):
            executor = executor_for(self.jobs, self.timeout, self.dask)
        kept = Store.fresh(place, layout_of(study), resume=self.resume)
        with searching(place) as update, in_file(Path(source)):
            points = run_study(study, kept, executor, progress=update)
        table = kept.table(points.keys)
        tell_damage(kept)
        show(results_tables(table, question_of(study), 3))
        typer.echo(f"{table.num_rows:,} points are in {printable(str(place))}")
        if "failed" in table.column("status").to_pylist():
            raise typer.Exit(1)
        return table


def sweep(study: Path, run: RunOptions) -> None:
    """Answer every point of a study, and keep each answer as soon as it is there."""
    from crosstack.explore.study import read_study

    run.run(read_study(study), Path(f"{study.stem}.store"), str(study))


def check_resume(store: Path | None, *, resume: bool) -> None:
    """Refuse to go on with nothing."""
    if store is None:
        refuse({"--resume": resume}, "allowed with --store.")


@contextmanager
def searching(place: Path | None) -> Iterator[Tell | None]:
    """Show where a study stands; say what is in its store where it is interrupted."""
    from crosstack.report.study_text import progress_words

    with watching(progress_words, every=EVERY) as update:
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
