"""Fronts of time and memory of random small trainings are those of all mappings there are."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from builders.seeds import few_and_many

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.memory_front import memory_front
from crosstack.evaluate.time import evaluate
from crosstack.explore.pareto import pareto_rows
from crosstack.machine.chip import Overlap
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.incumbent import numbers_of
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.mapping.search import search, search_state
from crosstack.mapping.search_problem import SearchNode
from crosstack.mapping.sharding import with_given
from crosstack.model.alive import live_size
from crosstack.model.partition import partition_cost
from crosstack.model.rules import rules_named
from crosstack.workload.transformer_training import Recompute, Schedule, Zero

RULES = rules_named("crosstack")
MOST_SHARDINGS = 48
GIVEN = {
    "degrees": Degrees(tensor=2, pipeline=1),
    "microbatch_size": 1,
    "schedule": Schedule.ONE_F_ONE_B,
    "zero": Zero.NONE,
}


def a_task(random_task, seed: int) -> Task:
    """Six kernels of a training on chips that run them in turn, some of their shardings given."""
    workload, system = random_task(seed, 6, temporal=True, training=True, dimensions=2, length=4)
    system = replace(system, chip=replace(system.chip, overlap=Overlap.COMPUTE_MEMORY))
    rng = random.Random(seed)
    state = search_state(workload, system, Constraints(**GIVEN), RULES)
    index, given = state.index, []
    domains = [list(domain) for domain in index.domains()]
    for i in rng.sample(range(len(domains)), len(domains)):
        if np.prod([len(domain) for domain in domains]) > MOST_SHARDINGS:
            domains[i] = [rng.choice(domains[i])]
            codes = np.array([domain[0] for domain in domains])
            given.append((workload.graph.names[i], index.sharding(codes)[i].value))
    known = Constraints(**GIVEN, sharding=tuple(given))
    return Task(workload=workload, system=system, constraints=known)


def sequences(load) -> list[tuple[float, float, tuple[int, ...]]]:
    """Return time, what is alive and partitions of sequences that no other beats in both."""
    found = {0: [(0.0, 0.0, ())]}
    for done in range(load.everything):
        for time, peak, masks in found.get(done, ()):
            for inside in range(1, load.everything + 1):
                before = 0
                for i in range(load.n):
                    before |= load.preds[i] if inside >> i & 1 else 0
                if inside & done or before & ~(done | inside):
                    continue
                if not load.temporal.legality.allows(inside):
                    continue
                cost = partition_cost(load, inside)
                if not cost.fits:
                    continue
                alive = max(peak, live_size(load, done, inside))
                label = time + cost.time, alive, (*masks, inside)
                own = found.setdefault(done | inside, [])
                if not any(a <= label[0] and b <= label[1] for a, b, _ in own):
                    own[:] = [x for x in own if not (label[0] <= x[0] and label[1] <= x[1])]
                    own.append(label)
    return found.get(load.everything, [])


def every_point(task: Task) -> list[tuple[float, float]]:
    """Return memory and time of every mapping that no other of its sharding and strategy beats."""
    workload, system = task.workload, task.system
    state, found = search_state(workload, system, task.constraints, RULES), []
    layers = workload.n_layers
    again = [(Recompute.NONE, None)]
    again += [(Recompute.FULL, n if n < layers else None) for n in range(1, layers + 1)]
    for use, (kind, some) in itertools.product(filter(None, state.uses()), again):
        decided = {"sizes": use.sizes, "parallelism": use.parallelism, "microbatch_size": 1}
        decided |= {"dimensions": use.dimensions, "n_tiles": 1}
        decided |= {"recompute": kind, "recompute_layers": some}
        index = state.index
        for codes in map(np.array, itertools.product(*with_given(index, state.given))):
            one = Mapping(**decided, sharding=index.sharding(codes), partitions=(0,) * index.n)
            node = SearchNode(state.plan_of(one), 1, None)
            for _, _, masks in sequences(replace(state.load(node, codes), memory_limit=np.inf)):
                mapping = replace(one, partitions=numbers_of(masks, index.n))
                try:
                    priced = evaluate(workload, system, mapping, RULES)
                except (InfeasibleError, InputError):
                    continue
                found.append((priced.memory_used, priced.time))
    return found


@pytest.mark.parametrize("seeds", few_and_many(4, 32), ids=len)
def test_the_front_is_that_of_all_mappings(random_task, seeds):
    sizes = []
    for seed in seeds:
        task = a_task(random_task, seed)
        mapping, certificate = search(task.workload, task.system, task.constraints, RULES)

        def find(system, best, known, task=task):
            given = task.workload, system, task.constraints, RULES
            return *search(*given, start=best), None

        first = mapping, certificate.bound, None
        front = memory_front(task, RULES, find, first, metrics=("time", "memory"))
        assert front.exact, seed
        assert all(point.proved for point in front.points), seed
        every = np.unique(np.array(every_point(task)), axis=0)
        best = np.unique(every[pareto_rows(every)], axis=0)
        mine = np.array([(point.memory, point.value) for point in front.points])
        # Times that differ by rounding are one point, of the least memory.
        kept = [row for i, row in enumerate(best) if not i or row[1] < best[i - 1][1] * (1 - 1e-9)]
        np.testing.assert_allclose(mine, np.array(kept), rtol=1e-9, err_msg=str(seed))
        sizes.append(len(mine))
    assert sum(sizes) > 2 * len(sizes)
