"""Points that are served: a transformer over degrees, batches and contexts, as a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import require, require_whole, unknown_name
from crosstack.evaluate.serving_sweep import Phase, ServingSweep, check_serving, serving_sweep
from crosstack.explore.axes import Assignment, Axis
from crosstack.explore.evaluators import (
    Arrays,
    BaseProblem,
    Column,
    PointAnswer,
    PointAnswers,
)
from crosstack.explore.keys import stated
from crosstack.explore.options import known_options
from crosstack.explore.progress import Meter, Tell
from crosstack.explore.run import sweep
from crosstack.explore.study import Study
from crosstack.io.study_file import Goal
from crosstack.machine.system import System
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.records import require_type
from crosstack.units import format_quantity
from crosstack.workload.architectures import Transformer
from crosstack.workload.dtype import Dtype

__all__ = ["AXES", "Served", "ServedPoints", "serve"]

AXES = ("tensor", "pipeline", "batch", "context")
COUNTS = ("microbatch", "n_tiles")
UNITS: dict[str, str | None] = {
    **dict.fromkeys(COUNTS, "1"),
    "latency": "s",
    "time": "s",
    "throughput": "1/s",
    "memory_used": "B",
    "memory_capacity": "B",
    "bound_by": None,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """``serve``: a transformer on a machine, kernel by kernel; see `serving_sweep`."""

    model: Transformer
    system: System
    rules: Rules
    phase: Phase | str = Phase.DECODE
    tokens: int = 1
    microbatch: int | None = None
    dtype: Dtype | str = Dtype.BF16
    name: str = "serve"
    objectives: tuple[tuple[str, Goal], ...] = (
        ("throughput", Goal.MAXIMUM),
        ("latency", Goal.MINIMUM),
    )

    def asked(self, arrays: Arrays) -> dict[str, Any]:
        """Return what `serving_sweep` is asked besides model and system."""
        numbers = {name: _whole(values) for name, values in arrays.items()}
        return {
            "phase": self.phase,
            "tokens": self.tokens,
            "microbatch": self.microbatch,
            "dtype": self.dtype,
            "rules": self.rules,
            **numbers,
        }

    def options(self, given: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return the options: there are none."""
        known_options(given, ())
        return given

    def columns(self, base: BaseProblem) -> tuple[Column, ...]:
        """Return the terms of a point."""
        return tuple(Column(name=name, unit=unit) for name, unit in UNITS.items())

    def tree(self, base: BaseProblem) -> Any:
        """Return what is served, how, and on what."""
        asked = {name: stated(value) for name, value in self.asked({}).items()}
        told = {"model": stated(self.model), "system": stated(self.system)}
        return {**told, **asked, **dict.fromkeys(AXES)}

    def check(self, base: BaseProblem, assignments: Sequence[Assignment]) -> None:
        """Raise `InputError` for what is no degree, batch or context."""
        for path, _ in assignments:
            if path not in AXES:
                raise unknown_name("path", "number is", path, AXES)

    def run(
        self, base: BaseProblem, assignments: Sequence[Assignment], keep: Sequence[str]
    ) -> PointAnswer:
        """Price one point."""
        arrays = {path: np.array([value], dtype=float) for path, value in assignments}
        found = self.run_many(base, (), arrays)
        terms = {name: values[0].item() for name, values in found.terms.items()}
        return PointAnswer(status=str(found.status[0]), reason=found.reason[0], terms=terms)

    def array_fields(self, base: BaseProblem, fields: Sequence[str]) -> dict[str, str]:
        """Return the numbers that the formulas take as arrays: all of them."""
        return {field: "1" for field in fields if field in AXES}

    def run_many(
        self, base: BaseProblem, assignments: Sequence[Assignment], arrays: Arrays
    ) -> PointAnswers:
        """Price many points at once; one that does not fit is priced all the same."""
        found: ServingSweep = serving_sweep(self.model, self.system, **self.asked(arrays))
        limits = np.array([limit or None for limit in found.limit], dtype=object)
        terms = {name: np.asarray(getattr(found, name)) for name in UNITS}
        return PointAnswers(
            status=np.where(found.fits, "feasible", "infeasible"),
            reason=limits,
            terms={
                name: values.astype(object if UNITS[name] is None else float)
                for name, values in terms.items()
            },
        )


def _whole(values: NDArray[np.float64]) -> NDArray[Any]:
    whole = np.rint(values)
    return whole.astype(np.int64) if np.array_equal(whole, values) else values


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedPoints:
    """What was served, and everything that is known of the points, by name. SI units.

    ``limit`` is what a point that does not fit exceeds, empty where it fits.
    """

    served: Served
    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        """How many points there are. [1]"""
        return len(self.columns["time"])

    def __str__(self) -> str:
        """Return what was served, and how fast at most."""
        served, fits = self.served, self.columns["limit"] == ""
        said = [
            f"{served.model.name}, {served.phase}, on {served.system.name}: {len(self):,} points"
        ]
        said.append(f"  that fit: {int(fits.sum()):,}")
        if fits.any():
            best = np.flatnonzero(fits)[np.argmax(self.columns["throughput"][fits])]
            degrees = ", ".join(f"{name} {self.columns[name][best]:,}" for name in AXES)
            rate = self.columns["throughput"][best]
            said.append(f"  most throughput: {rate:,.4g}/s at {degrees}")
            said.append(f"  its latency: {format_quantity(self.columns['latency'][best], 's')}")
        return "\n".join(said)

    __repr__ = __str__


def serve(
    model: Transformer,
    system: System,
    *,
    context: int | Sequence[int],
    tensor: int | Sequence[int] = 1,
    pipeline: int | Sequence[int] = 1,
    batch: int | Sequence[int] = 1,
    phase: Phase | str = Phase.DECODE,
    tokens: int = 1,
    microbatch: int | None = None,
    dtype: Dtype | str = Dtype.BF16,
    rules: Rules | str | None = None,
    store: Path | None = None,
    resume: bool = False,
    progress: Tell | None = None,
) -> ServedPoints:
    """Serve a transformer at every combination of degrees, batches and contexts.

    Parameters
    ----------
    model : Transformer
        What `crosstack.model` returns.
    system : System
        The machine: its first network dimension joins the chips that split tensors, the next one
        the stages.
    context : int or sequence of int
        Tokens kept of each sequence, or of a prompt; a number that is given twice counts once. [1]
    tensor, pipeline, batch : int or sequence of int
        Chips that split tensors, stages, and sequences served at once. [1]
    phase : Phase or str
        ``decode`` or ``prefill``.
    tokens : int
        New ones of a decoding step. [1]
    microbatch : int, optional
        Sequences a stage works on at a time; the most that keep every stage busy if left out. [1]
    dtype : Dtype or str
        Of weights and activations.
    rules : Rules or str, optional
        What is counted; by name, or ``crosstack``.
    store : Path, optional
        Where every point is kept while it runs, as a sweep's are.
    resume : bool
        Go on with a store that has points already.
    progress : callable, optional
        Told where it stands.

    Raises
    ------
    InputError
        As `serving_sweep`, or `sweep`.
    """
    require_type("model", model, Transformer)
    require_type("system", system, System)
    served = Served(
        model=model,
        system=system,
        phase=phase,
        tokens=tokens,
        microbatch=microbatch,
        dtype=dtype,
        rules=chosen_rules(rules, MAPPED),
    )
    swept = dict(zip(AXES, (tensor, pipeline, batch, context), strict=True))
    axes = {name: _several(name, values) for name, values in swept.items()}
    grid = np.meshgrid(*axes.values(), indexing="ij")
    points = {name: values.ravel() for name, values in zip(AXES, grid, strict=True)}
    columns: dict[str, NDArray[Any]]
    if store is None:
        meter = Meter(progress)
        found = served.run_many(BaseProblem(content="", source="none"), (), points)
        columns = {**points, **found.terms, "reason": found.reason}
        meter.show(len(found.status), len(found.status))
    else:
        check_serving(model, system, **served.asked(points))
        study = _study(served, axes)
        table = sweep(study, store=store, jobs=1, resume=resume, table="arrow", progress=progress)
        columns = {n: table.column(n).to_numpy(zero_copy_only=False) for n in table.column_names}
    limits = [reason or "" for reason in columns["reason"]]
    columns = {name: columns[name] for name in (*AXES, *UNITS)}
    columns |= {name: columns[name].astype(np.int64) for name in (*AXES, *COUNTS)}
    return ServedPoints(served=served, columns=columns | {"limit": np.array(limits, dtype=object)})


def _several(name: str, values: int | Sequence[int]) -> NDArray[np.float64]:
    """Return one number or a list of them, all whole, as an array; each once."""
    found = [values] if isinstance(values, int) else values
    good = isinstance(found, Sequence) and not isinstance(found, str | bytes) and len(found) > 0
    require(good, name, values, "a whole number, or a list of them")
    for value in found:
        require_whole(name, value)
    return np.array(list(dict.fromkeys(found)), dtype=float)


def _study(served: Served, axes: Mapping[str, NDArray[np.float64]]) -> Study:
    """Return every combination of degrees, batches and contexts as a study."""
    return Study(
        name="serve",
        base=BaseProblem(content="", source=f"{served.model.name} on {served.system.name}"),
        evaluator=served,
        axes=tuple(
            Axis(
                name=name,
                labels=tuple(values.tolist()),
                choices=tuple(((name, value),) for value in values.tolist()),
            )
            for name, values in axes.items()
        ),
        objectives=served.objectives,
    )
