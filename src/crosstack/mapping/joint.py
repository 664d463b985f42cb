"""A bound on fusion and sharding together: a shortest path whose states know tensors' layouts.

Fusing a load in which every kernel takes its cheapest axis ignores what layouts agree on: two
neighbours may each look free while no choice of axes makes both free. Here the layouts are part of
the path.

Sets and parameters: choices of every kernel and profiles of every ideal, as in
`crosstack.mapping.layouts`. Variables: a chain of order ideals, one choice per kernel.

(1) minimise the sum over partitions of their time, as in `crosstack.mapping.fusion`;
(2) choices of a producer and its readers go together.

A state is an ideal and a profile. The maximum over a few weighings of memory against network of
their least excess bounds a partition from below; work and SRAM are those of the cheapest axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.fusion import LONG_GRAPH, MOST_CELLS, FusionProblem, core_steps, make_problem
from crosstack.mapping.ideals import collapse_twins, enumerate_ideals, make_tables
from crosstack.mapping.large_graphs import core_of
from crosstack.mapping.layouts import Excess, LayoutChoices, Layouts, make_layouts, priced_weights
from crosstack.mapping.steps import Steps, StepTerms, scarcest
from crosstack.mapping.temporal_steps import make_steps
from crosstack.mapping.two_directions import two_directions_bound
from crosstack.workload.kernel_graph import Floats


@dataclass(frozen=True, slots=True)
class Joint:
    """A bound on every sequence and sharding [s], and the choices by kernel that reach it.

    ``partitions`` too where main memory may not hold what others leave alive.
    """

    bound: float
    codes: dict[int, int]
    partitions: tuple[int, ...] = ()


UNKNOWN = Joint(0.0, {})


def joint_bound(
    problem: FusionProblem,
    choices: LayoutChoices,
    *,
    limit: float,
    budget: Budget,
    with_codes: bool = True,
    most_ideals: int = 20_000,
) -> Joint:
    """Bound the time of any partitions under any of the choices.

    ``with_codes``: whether choices are wanted too where they cost extra. The bound is infinite
    where nothing is below ``limit`` [s], and zero where there are too many ideals or profiles to
    tell, or the ``budget`` is spent first.
    """
    load = problem.load
    if load.n > LONG_GRAPH:
        return UNKNOWN
    order = collapse_twins(load, problem.preds, [choices.label(i) for i in range(load.n)])
    bound = two_directions_bound(load, order, choices, limit=limit, budget=budget)
    if bound is not None:
        if math.isinf(bound) or not with_codes:
            return Joint(bound, {})
        # Directions apart have fewer ideals: no bound, but choices worth trying.
        apart = make_problem(load, slots=problem.slots, separate_directions=True)
        sharded = joint_bound(apart, choices, limit=1.1 * limit, budget=budget)
        return Joint(bound, sharded.codes)
    core = core_of(load, order)
    # Several kernels that nobody reads stay out: those they read would stay in every profile.
    left_out = len(core.deferrable) > 1 and bool(core.kernels)
    kernels = core.kernels if left_out else tuple(range(load.n))
    small, small_order = (core.load, core.order) if left_out else (load, order)
    ideals = enumerate_ideals(small_order, most=most_ideals)
    if ideals is None or len(ideals) * max(small.n, len(small.flows)) > MOST_CELLS:
        return UNKNOWN
    tables = make_tables(ideals, small.n, small.flows)
    steps, added = make_steps(small, tables), 0.0
    if left_out:
        steps, added = core_steps(load, order, core, tables, scarcest(load, core.deferrable))
    small_choices = choices.of(kernels)
    layouts = make_layouts(small, tables, small_choices)
    if layouts is None:
        return UNKNOWN
    found = _shortest(steps, layouts, limit - added, budget)
    if found is None:
        return UNKNOWN
    time_taken, chosen = found
    codes = {kernels[i]: int(small_choices.codes[i][choice]) for i, choice in chosen.items()}
    return Joint(time_taken + added, codes)


def _shortest(
    steps: Steps, layouts: Layouts, limit: float, budget: Budget
) -> tuple[float, dict[int, int]] | None:
    """Shortest path over ideals and profiles below ``limit``, and its choices by kernel.

    None once the budget is spent; infinite, without choices, where nothing is below the limit.
    """
    rest, last = steps.rest, len(layouts.n_profiles) - 1
    best = [np.full(count, math.inf) for count in layouts.n_profiles]
    parent = [np.full((count, 2), -1, dtype=np.int64) for count in layouts.n_profiles]
    best[0][:] = 0.0
    weights = priced_weights(steps.load)
    for j in range(last):
        live = np.nonzero(best[j] + rest[j] < limit)[0]
        if not len(live):
            continue
        now = best[j][live]
        terms = steps.terms(j, limit - float(now.min()))
        if budget.spend(CALL * (1 + len(terms.to)) + len(live) * len(terms.to)):
            return None
        excess = Excess(steps, layouts, j, live, weights)
        for time_taken, to in _times(steps, terms, excess, j, weights):
            reached = now[:, None] + time_taken
            origin = reached.argmin(axis=0)
            arrived = reached.min(axis=0)
            better = np.nonzero(arrived < best[to])[0]
            if len(better):
                best[to][better] = arrived[better]
                parent[to][better, 0] = j
                parent[to][better, 1] = live[origin[better]]
                if to == last:
                    limit = min(limit, float(arrived.min()) * (1 + 1e-12))
    end = float(best[last].min(initial=math.inf))
    if math.isinf(end):
        return end, {}
    chosen: dict[int, int] = {}
    here, profile = last, int(best[last].argmin())
    while here:
        before, start = parent[here][profile].tolist()
        excess = Excess(steps, layouts, before, np.array([start]), weights)
        weighing = int(excess.to(here)[0, profile].argmax())
        chosen |= excess.choices(0, here, profile, weighing)
        here, profile = before, start
    return end, chosen


def _times(
    steps: Steps, terms: StepTerms, excess: Excess, j: int, weights: Floats
) -> list[tuple[Floats, int]]:
    """Time of each step by (profile at the start, profile at the end), with its ideal. [s]"""
    network = terms.network
    if steps.load.network_takes_maximum:  # the excess adds to one part of the maximum
        network = steps.network[terms.to] - steps.network[j]
    base = np.stack([terms.compute, terms.memory, network], axis=1) @ weights.T
    found = []
    for position, to in enumerate(terms.to.tolist()):
        heavier = (base[position] + excess.to(to)).max(axis=2)
        whole = np.maximum(terms.time[position], heavier)
        at = slice(position, position + 1)
        found.append((steps.priced(whole, terms.part(at), j), to))
    return found
