"""Which strategies a framework runs: how degrees have to divide a model.

Chips that share the tensors of a layer have whole heads and equal parts of the feed-forward network
each; heads of keys and values are shared out, or had by as many chips each as there are too many. A
vocabulary is padded, so any degree does. Experts are in parts of as many (which is asked of every
plan, whatever drives it), and one that is cut is in equal parts of its width. Stages hold whole
layers, and as many each unless the framework allows others. Sources: ``narayanan2021megatron``
(sections 2.2 and 2.3), ``nvidia_megatron_core``, ``liang2024torchtitan``. Axes that a graph does
not name are not asked. Stages take microbatches in the orders that the framework has
(``nvidia_megatron_schedules``, ``pytorch_pipelining``); one stage alone takes one after the other,
there and back.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from crosstack.errors import Problem
from crosstack.machine.framework import Framework
from crosstack.workload.transformer_training import Recompute, Schedule
from crosstack.workload.workload import Workload

_SHARED = {"heads": "heads", "feed_forward": "columns of the feed-forward network"}
_REPEATED = {"kv_heads": "heads of keys and values"}
PATH = "constraints.degrees"


def unrunnable(
    workload: Workload,
    framework: Framework | None,
    *,
    tensor: int,
    pipeline: int,
    expert_tensor: int = 1,
) -> Problem | None:
    """Return why a framework does not run a workload by such degrees; None where it does. [1]

    The problem says the field, what came, what is allowed and the nearest that is.
    """
    if framework is None:
        return None
    even = None if framework.uneven_stages else framework.ends_as_layers
    asked = (_tensor, tensor, "tp"), (_pipeline, pipeline, "pp"), (_expert, expert_tensor, "etp")
    for lacks, degree, word in asked:
        why = next(lacks(workload, degree, even), None)
        if why is not None:
            good = [n for n in range(1, 2 * degree + 1) if not any(lacks(workload, n, even))]
            near = [*[n for n in good if n < degree][-1:], *[n for n in good if n > degree][:1]]
            close = " or ".join(f"{word}={n}" for n in near)
            message = (
                f"got {word}={degree}; allowed with {framework.name}: {why}. Nearest: {close}."
            )
            return Problem(PATH, message)
    return None


def runs_schedule(framework: Framework | None, schedule: Schedule, pipeline: Any) -> Any:
    """Whether a framework runs so many stages in the order of a schedule; or of arrays of them."""
    if framework is None or not framework.schedules or schedule in framework.schedules:
        return np.equal(pipeline, pipeline)
    return np.equal(pipeline, 1) & (schedule is Schedule.ONE_F_ONE_B)


def runs_again(framework: Framework | None, schedule: Schedule, recompute: Recompute) -> bool:
    """Whether a framework computes so much again where microbatches follow a schedule.

    Passes that are combined go layer by layer, none of which Megatron computes again whole
    (``nvidia_combined_1f1b``).
    """
    whole = recompute is Recompute.FULL and schedule is Schedule.COMBINED
    return framework is None or not whole


def schedules_allowed(framework: Framework | None, schedule: Schedule) -> str:
    """Say which schedules a framework runs in place of one that it does not; empty: it does. [1]

    The nearest has gradients of weights wait as that one does, if any does.
    """
    if framework is None or not framework.schedules or schedule in framework.schedules:
        return ""
    near = [one for one in framework.schedules if one.defers_weights and schedule.defers_weights]
    near = near or [one for one in framework.schedules if one is Schedule.ONE_F_ONE_B]
    nearest = f"; nearest: {near[0]}" if near and framework.schedules[1:] else ""
    return f"{', '.join(framework.schedules)} with {framework.name}{nearest}"


def uneven(workload: Workload, *, tensor: int, expert_tensor: int = 1) -> tuple[str, ...]:
    """Return, of each degree that does not divide a model, what it would be first of all. [1]"""
    found = []
    for lacks, degree, word in ((_tensor, tensor, "tp"), (_expert, expert_tensor, "etp")):
        whys = itertools.islice(lacks(workload, degree, 0), 1)
        found += [f"{word}={degree} is not {why}" for why in whys]
    return tuple(found)


def _tensor(workload: Workload, degree: int, even: int | None) -> Iterator[str]:
    """Yield what so many tensor-parallel chips would have to divide, and do not."""
    sizes = {} if workload.made_of is None else workload.made_of.graph.sizes
    for axis, words in _SHARED.items():
        if sizes.get(axis, degree) % degree:
            yield f"a divisor of {sizes[axis]:,} {words}"
    for axis, words in _REPEATED.items():
        if axis in sizes and sizes[axis] % degree and degree % sizes[axis]:
            yield f"a divisor or a multiple of {sizes[axis]:,} {words}"


def _expert(workload: Workload, degree: int, even: int | None) -> Iterator[str]:
    """Yield what so many chips that each expert is cut over would have to divide, and do not."""
    sizes = {} if workload.made_of is None else workload.made_of.graph.sizes
    width = sizes.get("expert_width", degree)
    if width % degree:
        yield f"a divisor of {width:,} columns of an expert"


def _pipeline(workload: Workload, degree: int, even: int | None) -> Iterator[str]:
    """Yield what so many stages would have to be; ``even``: layers that may lack, None: any."""
    layers, (_, named) = workload.graph_repetitions, workload.graph_words
    if degree > layers:
        yield f"up to {layers:,} stages, as many as there are {named}"
    elif even is not None and -layers % degree > even:
        with_ends = f", or of {layers + 1:,} to {layers + even:,} with ends" if even else ""
        yield f"a divisor of {layers:,} {named}{with_ends}"
