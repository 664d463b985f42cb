"""Points of a serving sweep: degrees, batches and contexts, checked against model and network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import ArrayLike

from crosstack.errors import InputError, Problem, require, require_whole
from crosstack.machine.system import Parallelism, System
from crosstack.model.rules import Rules
from crosstack.model.tiles import divisors
from crosstack.workload.architectures import Transformer
from crosstack.workload.kernel_graph import Bools, Ints

MOST_POINTS = 1_000_000
USES = Parallelism.TENSOR, Parallelism.PIPELINE


def machine_of(system: System, tensor: int, pipeline: int, rules: Rules) -> System:
    """Return ``tensor`` x ``pipeline`` chips of ``system``.

    Dimension 0 joins the tensor-parallel chips; the next one, or one like dimension 0 where there
    is no other, joins the pipeline stages. A part of a ring is a line, but by rules that know whole
    dimensions alone.
    """
    parts = rules.collectives.share_dimensions
    inner, outer = (
        d.part(size) if parts else replace(d, size=size)
        for d, size in ((system.network[0], tensor), (system.network[:2][-1], pipeline))
    )
    return replace(
        system,
        network=(
            replace(inner, parallelism=Parallelism.TENSOR),
            replace(outer, parallelism=Parallelism.PIPELINE),
        ),
        n_chips=tensor * pipeline,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingPoints:
    """What is swept, one entry a point; see `crosstack.evaluate.serving_sweep.ServingSweep`. [1]"""

    tensor: Ints
    pipeline: Ints
    batch: Ints
    context: Ints
    microbatch: Ints

    def at(self, rows: Ints) -> ServingPoints:
        """Return the points of these rows alone."""
        return ServingPoints(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def serving_points(**given: ArrayLike) -> ServingPoints:
    """Check what is swept and return it as arrays of one length.

    Raises `InputError` if lengths differ, there are too many points, or a batch does not divide.
    """
    whole = {name: _whole(name, values) for name, values in given.items()}
    try:
        arrays = dict(zip(whole, np.broadcast_arrays(*whole.values()), strict=True))
    except ValueError:
        shapes = ", ".join(f"{name} {values.shape}" for name, values in whole.items())
        message = f"got {shapes}; allowed: lengths that are equal or 1."
        raise InputError(Problem("points", message)) from None
    size = next(iter(arrays.values())).size
    require(size <= MOST_POINTS, "points", size, f"at most {MOST_POINTS:,} points")
    arrays = {name: values.ravel() for name, values in arrays.items()}
    batch = arrays["batch"]
    arrays.setdefault("microbatch", _microbatches(batch, arrays["pipeline"]))
    for i in np.flatnonzero(batch % arrays["microbatch"])[:1]:
        allowed = f"a divisor of the batch, {batch[i]}"
        require(False, "microbatch", int(arrays["microbatch"][i]), allowed)
    return ServingPoints(**arrays)


def _chips_of(system: System, i: int) -> int:
    """Return the chips that dimension ``i`` joins, or may join where its size is free. [1]"""
    size = system.network[i].size
    return size or system.n_chips // math.prod(d.size or 1 for d in system.network)


def check_degrees(model: Transformer, system: System, points: ServingPoints, layers: int) -> None:
    """Refuse degrees that cannot split the model, or that no dimension of the network joins."""
    outer = min(1, len(system.network) - 1)
    inside, between = _chips_of(system, 0), _chips_of(system, outer)
    widths = [model.feed_forward, *([model.experts.feed_forward] if model.experts else [])]
    allowed = [d for d in divisors(math.gcd(model.heads, *widths)) if d <= inside]
    most, problems = min(layers, between), []
    if wrong := sorted(set(points.tensor.tolist()) - set(allowed)):
        message = (
            f"got {_listed(wrong)}; allowed: {_listed(allowed)}: divisors of {model.heads} heads "
            f"and of a feed-forward width of {' and '.join(f'{width:,}' for width in widths)}, "
            f"at most the {inside:,} chips of system.network[0]."
        )
        problems.append(Problem("tensor", message))
    if wrong := sorted({p for p in points.pipeline.tolist() if p > most}):
        message = (
            f"got {_listed(wrong)}; allowed: 1 to {most}: at most a stage a layer, "
            f"{layers}, and the {between:,} chips of system.network[{outer}]."
        )
        problems.append(Problem("pipeline", message))
    if problems:
        raise InputError(problems)


def _listed(numbers: Sequence[int], most: int = 20) -> str:
    return ", ".join(map(str, numbers[:most])) + ", ..." * (len(numbers) > most)


def too_many_chips(system: System, points: ServingPoints) -> Bools:
    """Return where one dimension cannot join both the tensor-parallel chips and the stages."""
    if len(system.network) > 1:
        return np.zeros(len(points.tensor), dtype=np.bool_)
    return np.asarray(points.tensor * points.pipeline > _chips_of(system, 0))


def _whole(name: str, values: ArrayLike) -> Ints:
    """Return whole numbers of at least 1 as an array."""
    array = np.atleast_1d(np.asarray(values))
    if array.size == 0:
        raise InputError(Problem(name, "got nothing; allowed: one number or more."))
    if array.dtype.kind in "iu":
        require_whole(name, int(array.min()))
        require_whole(name, int(array.max()))
    else:
        for value in array.ravel().tolist():
            require_whole(name, value)
    return array.astype(np.int64)


def _microbatches(batch: Ints, pipeline: Ints) -> Ints:
    """Return the largest divisor of each batch that leaves every stage one, or 1. [1]"""
    pairs, which = np.unique(np.stack([batch, pipeline], axis=1), axis=0, return_inverse=True)
    sizes = [
        max(d for d in divisors(sequences) if d <= max(sequences // stages, 1))
        for sequences, stages in pairs.tolist()
    ]
    return np.array(sizes, dtype=np.int64)[which.ravel()]
