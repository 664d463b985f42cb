"""The points of a study: every combination of its axes, and samples of its ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem
from crosstack.explore.axes import Assignment, Axis
from crosstack.explore.flat import leaves
from crosstack.explore.keys import (
    Keys,
    as_words,
    changes_key,
    model_version,
    number_keys,
    problem_key,
)
from crosstack.explore.sobol import MOST_DIMENSIONS, sobol
from crosstack.explore.study import Bound, Sampling, Study

__all__ = ["MOST_POINTS", "Points", "expand"]

MOST_POINTS = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """All points of a study, axis by axis.

    Parameters
    ----------
    axes : tuple of Axis
        In the order of ``choice`` and ``values``.
    values : tuple of array
        What every axis may be: numbers, or labels.
    choice : array, shape (n, axes)
        Which of the values each point has.
    keys : array, shape (n, 2)
        See `crosstack.explore.keys`.
    """

    axes: tuple[Axis, ...]
    values: tuple[NDArray[np.float64] | NDArray[np.object_], ...]
    choice: NDArray[np.int32]
    keys: Keys

    def __len__(self) -> int:
        """Return how many points there are."""
        return len(self.choice)

    def column(
        self, axis: int, rows: NDArray[np.int64] | slice = slice(None)
    ) -> NDArray[np.generic]:
        """Return what stands in the column of an axis."""
        return self.values[axis][self.choice[rows, axis]]

    def assignments(self, point: int, axes: Sequence[int] | None = None) -> list[Assignment]:
        """Return what a point sets, fields of fields last; of some axes alone if they are given."""
        found: list[Assignment] = []
        for i in range(len(self.axes)) if axes is None else axes:
            axis, chosen = self.axes[i], int(self.choice[point, i])
            if axis.span is None:
                found += axis.choices[chosen]
            else:
                found += axis.sets(self.values[i][chosen])
        return sorted(found, key=lambda item: len(item[0]))


def expand(study: Study) -> Points:
    """Return the points of a study that its constraints on axes leave.

    Raises
    ------
    InputError
        For more than `MOST_POINTS`, or none at all.
    """
    sampled = set(study.sample.axes if study.sample is not None else ())
    drawn = [i for i, axis in enumerate(study.axes) if axis.name in sampled]
    grid = [i for i, axis in enumerate(study.axes) if axis.name not in sampled]
    values: list[NDArray[np.float64] | NDArray[np.object_]] = [
        _values(axis) if i in grid else np.empty(0) for i, axis in enumerate(study.axes)
    ]
    sizes = [len(values[i]) for i in grid]
    n_drawn = study.sample.count if study.sample is not None else 1
    # As Python integers: a product of a few axes may leave 64 bits.
    total = n_drawn
    for size in sizes:
        total *= size
    if total > MOST_POINTS:
        message = f"make {total:,} points; allowed: up to {MOST_POINTS:,}."
        raise InputError(Problem("axes", message))
    choice = np.zeros((total, len(study.axes)), dtype=np.int32)
    numbers = np.unravel_index(np.arange(total), (*sizes, n_drawn))
    for i, picked in zip(grid, numbers[:-1], strict=True):
        choice[:, i] = picked
    if study.sample is not None:
        shares = _shares(study, len(drawn))
        for k, i in enumerate(drawn):
            span = study.axes[i].span
            assert span is not None  # only ranges are drawn from
            values[i], which = np.unique(span.at(shares[:, k]), return_inverse=True)
            choice[:, i] = which[numbers[-1]]
    kept = _within(study, values, choice)
    choice = choice[kept]
    if not len(choice):
        words = ", ".join(bound.words for bound in study.axis_bounds)
        raise InputError(Problem("constraints", f"leave no point: {words}."))
    keys = _keys(study, values, choice)
    return Points(axes=study.axes, values=tuple(values), choice=choice, keys=keys)


def _values(axis: Axis) -> NDArray[np.float64] | NDArray[np.object_]:
    if axis.is_number:
        return axis.numbers()
    labels = np.empty(len(axis.labels), dtype=object)
    labels[:] = axis.labels
    return labels


def _shares(study: Study, dimensions: int) -> NDArray[np.float64]:
    sample = study.sample
    assert sample is not None  # the caller has looked
    if sample.method is Sampling.RANDOM:
        return np.random.default_rng(sample.seed).random((sample.count, dimensions))
    if dimensions > MOST_DIMENSIONS:
        message = f"got {dimensions} axes; allowed: up to {MOST_DIMENSIONS} of a Sobol sequence."
        raise InputError(Problem("sample.axes", message))
    return sobol(sample.count, dimensions, seed=sample.seed)


def _within(
    study: Study,
    values: Sequence[NDArray[np.float64] | NDArray[np.object_]],
    choice: NDArray[np.int32],
) -> NDArray[np.bool_]:
    kept = np.ones(len(choice), dtype=bool)
    bounds: dict[str, Bound] = {bound.column: bound for bound in study.axis_bounds}
    for i, axis in enumerate(study.axes):
        bound = bounds.get(axis.name)
        if bound is None:
            continue
        if not axis.is_number:
            message = "holds text; allowed: a bound on numbers."
            raise InputError(Problem(f"constraints.{axis.name}", message))
        low = -np.inf if bound.minimum is None else bound.minimum
        high = np.inf if bound.maximum is None else bound.maximum
        good = (values[i] >= low) & (values[i] <= high)
        kept &= good[choice[:, i]]
    return kept


def _keys(
    study: Study,
    values: Sequence[NDArray[np.float64] | NDArray[np.object_]],
    choice: NDArray[np.int32],
) -> Keys:
    """Return the key of every point: that of the base, changed by what each axis sets."""
    base = {
        "base": study.evaluator.tree(study.base),
        "options": dict(study.base.options),
        "evaluator": study.evaluator.name,
        "keep": sorted(study.keep),
        "model": model_version(),
    }
    known = list(leaves(base))
    keys = np.broadcast_to(as_words([problem_key(base)]), (len(choice), 2)).copy()
    for i, axis in enumerate(study.axes):
        # Leaves of the base outside of what the axis sets do not change by it.
        near = [
            (path, value)
            for path, value in known
            if any(path.startswith(_place(field)) for field in axis.fields)
        ]
        used = np.unique(choice[:, i])
        table = np.zeros((len(values[i]), 2), dtype=np.uint64)
        if axis.span is None:
            table[used] = as_words(
                [
                    changes_key(near, [(_place(p), value) for p, value in axis.choices[chosen]])
                    for chosen in used.tolist()
                ]
            )
        else:
            places = [_place(path) for path in axis.paths]
            table[used] = number_keys(near, places, values[i][used].astype(float))
        keys ^= table[choice[:, i]]
    return keys


def _place(path: str) -> str:
    """Return where a field stands in the tree that the key is made of."""
    return path if path.startswith("options.") else f"base.{path}"
