"""What a study asked, as its store remembers it beside the answers."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstack.errors import InputError
from crosstack.explore.keys import model_version
from crosstack.explore.layout import Layout, sealed, unsealed
from crosstack.explore.store import Store
from crosstack.explore.study import Bound, Goal, Study
from crosstack.io.files import read_text, write_atomically

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
        """Keep what was asked beside the answers."""
        text = sealed(self._data())
        for known in (store.path / "studies").glob("*.json"):
            with suppress(OSError):  # it is another's, or no file
                if known.read_bytes() == text.encode():
                    known.touch()
                    return
        stamp = time.strftime("%Y%m%d-%H%M%S")
        write_atomically(store.path / "studies" / f"{stamp}-{self.name}.json", text)

    def _data(self) -> dict[str, Any]:
        """Return it as plain data; see `question_in`."""
        return {
            "name": self.name,
            "evaluator": self.evaluator,
            "base": self.base,
            "axes": list(self.axes),
            "constraints": [[b.column, b.minimum, b.maximum] for b in self.bounds],
            "objectives": [[name, goal.value] for name, goal in self.objectives],
            "model": self.model,
        }


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
    folder = store.path / "studies"
    known: list[tuple[int, Path]] = []
    for path in folder.glob("*.json"):
        with suppress(OSError):  # gone in this moment
            known.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(known, reverse=True):
        with suppress(InputError):
            found = _asked(unsealed(read_text(path)) or {}, store.layout)
            if found is not None:
                return found
        store.note(path, "is damaged, so that it is not known what was asked")
    if not known:
        store.note(folder, "nothing is known of what was asked")
    return StudyQuestion(
        name=store.path.stem,
        evaluator="",
        base="",
        axes=store.layout.axes,
        bounds=(),
        objectives=(),
    )


def _asked(data: dict[str, Any], layout: Layout) -> StudyQuestion | None:
    """Return what `StudyQuestion.note` wrote; None for anything else."""
    try:
        found = StudyQuestion(
            name=data["name"],
            evaluator=data["evaluator"],
            base=data["base"],
            axes=tuple(data["axes"]),
            bounds=tuple(
                Bound(column=column, minimum=low, maximum=high)
                for column, low, high in data["constraints"]
            ),
            objectives=tuple((name, Goal(goal)) for name, goal in data["objectives"]),
            model=data.get("model", ""),
        )
    except (KeyError, TypeError, ValueError):
        return None
    texts = (found.name, found.evaluator, found.base, found.model)
    numbers = {name for name, unit in layout.columns if unit is not None}
    ends = [end for bound in found.bounds for end in (bound.minimum, bound.maximum)]
    good = (
        all(isinstance(text, str) for text in texts)
        and set(found.axes) <= {name for name, _ in layout.columns}
        and {bound.column for bound in found.bounds} <= numbers
        and {name for name, _ in found.objectives} <= numbers
        and all(end is None or isinstance(end, int | float) for end in ends)
    )
    return found if good else None
