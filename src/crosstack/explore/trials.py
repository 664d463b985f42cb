"""Trials of a search: points of numbers under a choice, each with what came of it.

A search draws its points from its seed and asks here for each. What a store knows already is not
evaluated again, so that a search that was stopped comes to where it was and goes on; it ends as one
that was not stopped. Without a store, trials are remembered while the search runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.explore.evaluators import PointAnswer
from crosstack.explore.keys import model_version, point_keys
from crosstack.explore.layout import Column, Layout
from crosstack.explore.question import StudyQuestion
from crosstack.explore.store import Row, Store
from crosstack.explore.study import Bound, Goal

__all__ = ["Space", "Trials", "trials_in"]

Floats = NDArray[np.float64]
Labels = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What a search varies and what comes of it, as the columns of a store.

    Parameters
    ----------
    name, kind, base : str
        Of the search, what does it, and the file that it starts from.
    labels : tuple of str
        Fields that are chosen. One that is called as a term is ``choice.NAME`` as a column.
    shares : tuple of str
        Numbers of a point; a choice may lack some. [1]
    terms : tuple of (str, str or None)
        What comes of a point, with units; None: text.
    problem : nested data
        What the answers depend on besides choice and shares.
    bounds, objectives
        As of a study.
    """

    name: str
    kind: str
    base: str
    labels: tuple[str, ...]
    shares: tuple[str, ...]
    terms: tuple[Column, ...]
    problem: Any
    bounds: tuple[Bound, ...] = ()
    objectives: tuple[tuple[str, Goal], ...] = ()

    def column(self, label: str) -> str:
        """Return the column of a label."""
        taken = {*(name for name, _ in self.terms), *self.shares, "key", "status", "reason"}
        return f"choice.{label}" if label in {*taken, "runtime", "model"} else label

    @property
    def axes(self) -> list[Column]:
        """Columns of labels, then of shares."""
        texts: list[Column] = [(self.column(label), None) for label in self.labels]
        return texts + [(share, "1") for share in self.shares]

    def question(self) -> StudyQuestion:
        """Return what is asked, as a store remembers it."""
        return StudyQuestion(
            name=self.name,
            evaluator=self.kind,
            base=self.base,
            axes=tuple(name for name, _ in self.axes),
            bounds=self.bounds,
            objectives=self.objectives,
            model=model_version(),
        )


@dataclass(slots=True, kw_only=True)
class Trials:
    """Answers by the key of their point; ``reused`` of them were in the store before."""

    space: Space | None = None
    store: Store | None = None
    reused: int = 0
    _known: dict[str, PointAnswer] = field(default_factory=dict)
    _before: set[str] = field(default_factory=set)

    def keys(self, labels: Labels, names: Sequence[str], points: Floats, **more: Any) -> list[str]:
        """Return the key of every point of a choice; ``more`` tells apart how it is evaluated."""
        problem = None if self.space is None else self.space.problem
        whole = {"problem": problem, "choice": dict(labels), "model": model_version(), **more}
        return point_keys(whole, names, points)

    def recall(self, key: str) -> PointAnswer | None:
        """Return what came of a point, if that is known."""
        if key in self._before:
            self._before.remove(key)
            self.reused += 1
        return self._known.get(key)

    def record(
        self,
        labels: Labels,
        names: Sequence[str],
        answers: Mapping[str, tuple[Sequence[float], PointAnswer, float]],
    ) -> None:
        """Remember points of a choice by their keys: shares, what came of each, runtime [s]."""
        self._known |= {key: answer for key, (_, answer, _) in answers.items()}
        if self.store is None or self.space is None or not answers:
            return
        chosen = {self.space.column(name): value for name, value in labels}
        rows: list[Row] = [
            {
                "key": key,
                **chosen,
                **dict(zip(names, map(float, point), strict=True)),
                "status": answer.status,
                "reason": answer.reason,
                **answer.terms,
                "runtime": runtime,
                "model": model_version(),
            }
            for key, (point, answer, runtime) in answers.items()
        ]
        with self.store.database(write=True) as db:
            self.store.add(db, bytes.fromhex("".join(answers)), rows)

    def _take(self, rows: Sequence[Row], terms: Sequence[str]) -> None:
        for row in rows:
            self._known[row["key"]] = PointAnswer(
                status=row["status"],
                reason=row["reason"],
                terms={name: row[name] for name in terms},
            )
        self._before = set(self._known)


@contextmanager
def trials_in(space: Space, place: Path | None, *, resume: bool = False) -> Iterator[Trials]:
    """Return the trials of a search, kept in the store at ``place``, or nowhere.

    Raises
    ------
    InputError
        As `Store.fresh`.
    """
    if place is None:
        yield Trials(space=space)
        return
    store = Store.fresh(place, Layout.of(space.axes, space.terms), resume=resume)
    space.question().note(store)
    trials = Trials(space=space, store=store)
    trials._take(store.table().to_pylist(), [name for name, _ in space.terms])
    yield trials
