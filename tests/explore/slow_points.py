"""An evaluator that takes its time and says in a file which points it was asked."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstack.errors import InfeasibleError, InputError, Problem
from crosstack.explore import points as points_module
from crosstack.explore.axes import Axis, Span
from crosstack.explore.evaluators import BaseProblem, Column, PointAnswer
from crosstack.explore.run import sweep
from crosstack.explore.study import Study
from crosstack.io.study_file import Goal


@dataclass(frozen=True)
class SlowPoints:
    """Squares of ``x``; some points fail, one may kill its process."""

    log: str = ""
    pause: float = 0.0
    deadly: float | None = None
    name: str = "slow"
    objectives: tuple[tuple[str, Goal], ...] = (("square", Goal.MINIMUM),)

    def options(self, given: dict[str, Any], folder: Path) -> dict[str, Any]:
        return given

    def columns(self, base: BaseProblem) -> tuple[Column, ...]:
        return (Column(name="square", unit="1"),)

    def tree(self, base: BaseProblem) -> Any:
        return {"x": 0}

    def check(self, base: BaseProblem, assignments: Sequence[tuple[str, Any]]) -> None:
        pass

    def run(
        self, base: BaseProblem, assignments: Sequence[tuple[str, Any]], keep: Sequence[str]
    ) -> PointAnswer:
        x = dict(assignments)["x"]
        if self.log:
            with open(self.log, "ab", buffering=0) as file:
                file.write(f"{x}\n".encode())
        time.sleep(self.pause)
        if x == self.deadly:
            os._exit(7)
        if x % 10 == 3:
            raise InfeasibleError(
                resource="SRAM", demand=2.0, limit=1.0, unit="B", where="x", levers=("less",)
            )
        if x % 10 == 4:
            raise InputError(Problem("x", "is 4."))
        if x % 10 == 5:
            raise ZeroDivisionError("by five")
        return PointAnswer(status="feasible", terms={"square": float(x) ** 2 / 3.0})


def one_version() -> str:
    """Stand for the model's version, which changes with every edit of the source."""
    return "a version"


def study_of(count: int, **changes: Any) -> Study:
    """Return a study of x = 0, 1, ... ``count`` - 1."""
    span = Span(low=0.0, high=count - 1.0, count=count, whole=True)
    return Study(
        name="slow",
        base=BaseProblem(content="", source="none"),
        evaluator=SlowPoints(**changes),
        axes=(Axis(name="number", paths=("x",), span=span),),
    )


def main() -> None:
    """``slow_points.py STORE LOG COUNT PAUSE JOBS [LARGEST FILE]``: sweep until killed."""
    place, log, count, pause, jobs, *limit = sys.argv[1:]
    points_module.model_version = one_version
    if limit:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit[0]), int(limit[0])))
    study = study_of(int(count), log=log, pause=float(pause))
    try:
        sweep(study, store=place, jobs=int(jobs), resume=True)
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
