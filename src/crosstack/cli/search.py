"""``crosstack optimize`` and ``crosstack codesign``: searches for chips and machines of them."""

from __future__ import annotations

from pathlib import Path

from crosstack.cli.chip import library_given
from crosstack.cli.inputs import options_named, refuse
from crosstack.cli.outputs import PageOptions
from crosstack.cli.sweep import RUNS, check_resume, searching


def optimize(
    *,
    file: Path,
    set_: list[str] | None = None,
    library: Path | None = None,
    store: Path | None = None,
    resume: bool = False,
    pages: PageOptions,
) -> None:
    """Find how to share out area, power and edge, under which technology and strategy."""
    from crosstack.explore.optimize import read_optimization
    from crosstack.report import optimize_text as text

    pages.check(file)
    asked = read_optimization(file, set_ or (), library_given(library))
    if asked.evaluations == 1:
        message = "there is nothing to draw: search.evaluations is 1."
        refuse({"--svg": pages.svg_out}, message)
    check_resume(store, resume=resume)
    with searching(store) as update:
        found = asked.run(store=store, resume=resume, progress=update)
    data = text.optimum_data(found, asked.workload, asked.objective)
    pages.show_and_save(text.optimum_tables(data), data, text.optimum_html, text.optimum_svg)


def codesign(
    *,
    file: Path,
    set_: list[str] | None = None,
    library: Path | None = None,
    jobs: int = 1,
    store: Path | None = None,
    resume: bool = False,
    timeout: float | None = None,
    dask: str | None = None,
    pages: PageOptions,
) -> None:
    """Generate chips, map a workload on machines of them, and keep what nothing else beats."""
    from crosstack.explore.read_codesign import codesign as run
    from crosstack.report.front_text import front_data, front_html, front_svg, front_tables

    pages.check(file)
    check_resume(store, resume=resume)
    with searching(store) as update, options_named(RUNS):
        found = run(
            file,
            set_ or (),
            library=library_given(library),
            jobs=jobs,
            store=store,
            resume=resume,
            timeout=timeout,
            dask=dask,
            progress=update,
        )
    data = front_data(found)
    pages.show_and_save(front_tables(data, reused=found.reused), data, front_html, front_svg)
