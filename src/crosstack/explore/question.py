"""What a study asked, as its store remembers it beside the answers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from crosstack.explore.keys import model_version
from crosstack.explore.store import Store, checksum, is_sound
from crosstack.explore.study import Bound, Goal, Study

__all__ = ["StudyQuestion", "question_in", "question_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyQuestion:
    """What a study asked, as its store remembers it; ``model``: which answered, "" for any."""

    name: str
    evaluator: str
    base: str
    axes: tuple[str, ...]
    bounds: tuple[Bound, ...]
    objectives: tuple[tuple[str, Goal], ...]
    model: str = ""

    def note(self, store: Store) -> None:
        """Keep what was asked beside the answers, as the last that was."""
        asked = json.dumps(asdict(self)).encode()
        with store.database(write=True) as db:
            db.execute("insert or replace into studies values (?, ?)", (asked, checksum(asked)))


def question_of(study: Study) -> StudyQuestion:
    """Return what a study asks, without the problem itself."""
    return StudyQuestion(
        name=study.name,
        evaluator=study.evaluator.name,
        base=study.base.source,
        axes=tuple(axis.name for axis in study.axes),
        bounds=study.bounds,
        objectives=study.objectives,
        model=model_version(),
    )


def question_in(store: Store) -> StudyQuestion:
    """Return what the last study asked whose sweep used a store.

    What is damaged is passed over; a store that has nothing else knows its axes still.
    """
    with store.database() as db:
        known = db.execute("select asked, checksum from studies order by rowid desc").fetchall()
    for asked, found in known:
        if is_sound(asked, found):
            data: dict[str, Any] = json.loads(asked)
            data["axes"] = tuple(data["axes"])
            data["bounds"] = tuple(Bound(**bound) for bound in data["bounds"])
            data["objectives"] = tuple((name, Goal(goal)) for name, goal in data["objectives"])
            return StudyQuestion(**data)
        store.damage["studies"] = "is damaged, so that it is not known what was asked last"
    if not known:
        store.damage["studies"] = "nothing is known of what was asked"
    return StudyQuestion(
        name=store.path.stem,
        evaluator="",
        base="",
        axes=store.layout.axes,
        bounds=(),
        objectives=(),
    )
