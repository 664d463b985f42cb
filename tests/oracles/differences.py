"""Derivatives of a graph by differences: what the derived backward pass is checked against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from crosstack.workload.dataflow import Graph
from crosstack.workload.operations import Role
from crosstack.workload.passes.backward import training
from oracles.interpreter import run

STEP = 1e-5


def gradient_errors(
    forward: Graph,
    values: Mapping[str, np.ndarray],
    *,
    loss: str = "loss",
    of: Sequence[Role] = (Role.WEIGHT, Role.INPUT),
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Slope of the loss along a random direction of each tensor: derived, and by differences."""
    graph = training(forward, loss, of=of)
    rng = np.random.default_rng(seed)
    derived = run(graph, values)
    found = {}
    for name, gradient in graph.gradients.items():
        if forward.tensor.get(name) is None or name in forward.makers:
            continue
        way = rng.normal(size=np.shape(values[name]))
        slope = float((derived[gradient] * way).sum())
        ends = [
            run(forward, {**values, name: values[name] + sign * STEP * way})[loss]
            for sign in (1, -1)
        ]
        found[name] = slope, float(ends[0] - ends[1]) / (2 * STEP)
    return found
