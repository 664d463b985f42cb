"""Runs a study: every point answered once, every answer in the store."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.explore.batches import (
    CHUNK,
    Arrayed,
    Batch,
    Common,
    answer,
    arrayed,
    cut,
)
from crosstack.explore.evaluators import PointAnswer, PointAnswers
from crosstack.explore.keys import hex_keys, model_version
from crosstack.explore.layout import Layout, columns_as
from crosstack.explore.points import Points, expand
from crosstack.explore.pool import Executor, executor_for
from crosstack.explore.progress import Meter, Tell
from crosstack.explore.question import question_of
from crosstack.explore.session import Session
from crosstack.explore.store import Store
from crosstack.explore.study import Study, read_study
from crosstack.explore.tables import as_frame
from crosstack.io.files import in_file
from crosstack.records import require_type

__all__ = ["check_study", "layout_of", "run_study", "sweep"]


def layout_of(study: Study) -> Layout:
    """Return the columns of a study's store."""
    axes = [(axis.name, (axis.unit or "1") if axis.is_number else None) for axis in study.axes]
    terms = study.evaluator.columns(study.base)
    return Layout.of(axes, [*terms, *((path, "1") for path in study.keep)])


def run_study(
    study: Study,
    store: Store,
    executor: Executor,
    *,
    progress: Tell | None = None,
) -> Points:
    """Answer every point of a study that is not in the store yet.

    Parameters
    ----------
    executor : Executor
        Where.
    progress : callable, optional
        Called whenever something is finished.

    Raises
    ------
    InputError
        If an axis or a path to keep leads nowhere, or the store cannot be written.
    KeyboardInterrupt
        As it comes; what is finished is in the store.
    """
    points = expand(study)
    check_study(study)
    common = Common(evaluator=study.evaluator, base=study.base, keep=study.keep)
    arrays = arrayed(common, points)
    question_of(study).note(store)
    counts: Counter[str] = Counter()
    with (
        Session(store, points.keys) as session,
        executor.started(partial(answer, common)) as run,
    ):
        meter = Meter(progress)
        for batch, found in run(_batches(session, points, arrays)):
            if not counts.keys() & {"optimal", "feasible", "limit"}:
                _check_kept(found)
            counts.update(_record(session, points, batch, found))
            meter.show(session.n_done, len(points), fresh=counts.total(), counts=counts)
        assert session.complete  # batches end when nothing is left
    return points


def check_study(study: Study) -> None:
    """Raise `InputError` for a path that leads nowhere, before hours are spent."""
    problems: list[Problem] = []
    for axis in study.axes:
        choices = [axis.sets(float(axis.span.low))] if axis.span is not None else axis.choices
        for choice in choices:
            try:
                study.evaluator.check(study.base, choice)
            except InputError as error:
                problems += in_file(error, f"axes.{axis.name}").problems
                break
    if problems:
        raise InputError(problems)


def _check_kept(answer: PointAnswer | PointAnswers) -> None:
    """Raise `InputError` if the first answer lacks what is to be kept, before others are made."""
    if isinstance(answer, PointAnswers) or answer.status != "invalid" or answer.reason is None:
        return
    where, _, message = answer.reason.partition(": ")
    if where.startswith("keep."):
        raise InputError(Problem(where, message))


def _batches(session: Session, points: Points, arrays: Arrayed) -> Iterator[Batch | None]:
    """Yield open points until all are finished, by this sweep or another on the same store."""
    while not session.complete:
        if arrays:
            for start in range(0, len(points), CHUNK):
                if len(found := session.claim(CHUNK, slice(start, start + CHUNK))):
                    yield cut(points, found, arrays)
        else:
            while len(found := session.claim(1)):
                yield cut(points, found, arrays)
        if (session.state != session.ELSEWHERE).all():
            return  # what is left is in flight here
        yield None


def _record(
    session: Session, points: Points, batch: Batch, answer: PointAnswer | PointAnswers
) -> Counter[str]:
    """Write the rows of a batch; return how many there are of each status."""
    numbers, model = batch.points, model_version()
    keys = hex_keys(points.keys[numbers])
    varied: dict[str, Any] = {
        axis.name: points.column(i, numbers) for i, axis in enumerate(points.axes)
    }
    found = {"status": answer.status, "reason": answer.reason, **answer.terms}
    if isinstance(answer, PointAnswers):
        runtime = np.full(len(numbers), answer.runtime)
        values = {"key": keys, **varied, **found, "runtime": runtime, "model": [model] * len(keys)}
        session.record(numbers, columns_as(values, session.store.layout))
        return Counter(answer.status.tolist())
    # One answer for many points: their process did not live to answer them.
    rest = {**found, "runtime": answer.runtime, "model": model}
    rows = [
        {"key": key, **{name: values[i] for name, values in varied.items()}, **rest}
        for i, key in enumerate(keys)
    ]
    session.record(numbers, rows)
    return Counter({answer.status: len(rows)})


def sweep(
    study: Study | str | Path,
    *,
    store: str | Path | None = None,
    jobs: int | None = None,
    resume: bool = False,
    timeout: float | None = None,
    dask: Any = None,
    evaluator: Any = None,
    table: Literal["pandas", "polars", "arrow"] = "pandas",
    progress: Tell | None = None,
) -> Any:
    """Answer every point of a study and return a table with a row each.

    Parameters
    ----------
    study : Study, str or Path
        A study, or the file of one.
    store : str or Path, optional
        Directory of the results; none are kept if it is left out.
    jobs : int, optional
        Processes; as many as there are processors if left out, 1 for this process alone. [1]
    resume : bool
        Go on with a store that has rows already; without it that is an error.
    timeout : float, optional
        Seconds after which a point is given up. [s]
    dask : distributed.Client or str, optional
        A Dask cluster, or the address of its scheduler, to run on instead.
    evaluator : Evaluator, optional
        See `crosstack.explore.study.read_study`.
    table : {"pandas", "polars", "arrow"}
        What the table is made with.
    progress : callable, optional
        Called with a `crosstack.explore.progress.Progress` whenever something is finished.

    Raises
    ------
    InputError
        With every problem found.
    """
    require_type("study", study, Study | str | Path)
    require_type("store", store, str | Path | None)
    chosen = study if isinstance(study, Study) else read_study(study, evaluator=evaluator)
    executor = executor_for(jobs, timeout, dask)
    with ExitStack() as stack:
        place = store or stack.enter_context(TemporaryDirectory(prefix="crosstack-"))
        kept = Store.fresh(place, layout_of(chosen), resume=resume or store is None)
        points = run_study(chosen, kept, executor, progress=progress)
        found = as_frame(kept.table(points.keys), table)
    for problem in kept.problems:
        warnings.warn(str(problem), stacklevel=2)
    return found
