"""Claims about the steps of fusion on chips that run kernels one after the other."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from builders.seeds import few_and_many

from crosstack.machine.system import Parallelism
from crosstack.mapping import temporal_steps
from crosstack.mapping.fusion import all_ideals, make_problem
from crosstack.mapping.temporal_steps import make_steps
from crosstack.model.choices import make_choices
from crosstack.model.legality import possible_partitions
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import make_load, partition_cost
from crosstack.model.rules import rules_named
from crosstack.workload.kernels import Axis

RULES = rules_named("crosstack")
SEQUENCE_TILED = (Axis.N, Axis.NONE, Axis.NONE)


@pytest.fixture
def load(random_task):
    """Return a builder of a random load of a temporal chip."""

    def build(seed: int, n: int = 7):
        workload, system = random_task(
            seed, n, temporal=True, dimensions=2, length=4, tilings=SEQUENCE_TILED
        )
        rng = random.Random(seed)
        arrays, uses = workload.graph, (Parallelism.TENSOR, Parallelism.DATA)
        plan = make_plan(workload, system, (4, 1), tuple(rng.sample(uses, 2)), 1, RULES)
        choices = make_choices(workload, arrays, plan, 1, RULES, system.chip)
        codes = np.array([rng.choice(domain) for domain in choices.index.domains()])
        return make_load(workload, system, arrays, plan, choices, codes, RULES)

    return build


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("seeds", few_and_many(20, 80), ids=len)
def test_steps_are_all_pairs_of_ideals_with_a_legal_partition_between(
    load, seeds, listed, monkeypatch
):
    if not listed:
        monkeypatch.setattr(temporal_steps, "MOST_SETS", 0)
        monkeypatch.setattr(temporal_steps, "FEW_IDEALS", 0)
    several = 0
    for seed in seeds:
        problem = make_problem(load(seed), separate_directions=seed % 2 == 0)
        tables = all_ideals(problem, 10_000, {})
        groups, legality = problem.load.unmixed, problem.load.temporal.legality
        steps = make_steps(problem.load, tables)
        assert (steps.whole is not None) == listed
        steps.expect(range(0, len(tables.masks), 2))  # the others are made as they are asked for
        for j, start in enumerate(tables.masks):
            expected = {
                k: mask ^ start
                for k, mask in enumerate(tables.masks)
                if mask & start == start and mask != start
                if legality.allows(mask ^ start)
                and not any((mask ^ start) & group not in (0, mask ^ start) for group in groups)
            }
            to, taken = steps.leave(j, np.inf)
            assert set(to.tolist()) == set(expected), seed
            for k, time in zip(to.tolist(), taken.tolist(), strict=True):
                alone = partition_cost(problem.load, expected[k])
                assert time == pytest.approx(alone.cost, rel=1e-12)
            several += sum(inside.bit_count() > 1 for inside in expected.values())
    assert several > 3 * len(seeds)


def test_possible_partitions_are_all_sets_that_are_allowed(load):
    for seed in range(10):
        legality = load(seed).temporal.legality
        allowed = tuple(s for s in range(1, legality.everything + 1) if legality.allows(s))
        assert possible_partitions(legality, 4096) == allowed
        assert possible_partitions(legality, len(allowed) - 1) is None


@pytest.mark.parametrize("seed", range(4))
def test_sums_by_bytes_are_those_of_flags(load, seed):
    """Seven to 19 kernels are one to three bytes; integers add up to the same in any order."""
    problem = make_problem(load(seed, 7 + 4 * seed), separate_directions=False)
    tables = all_ideals(problem, 100_000, {})
    rng = np.random.default_rng(seed)
    for table in ("member", "live"):
        flags = getattr(tables, table)
        values = rng.integers(0, 1000, (flags.shape[1], 2)).astype(float)
        assert (tables.sums(table, values) == flags @ values).all()
        assert (tables.sums(table, values[:, 0]) == flags @ values[:, 0]).all()
        one, other = rng.integers(0, len(flags), (2, 50))
        either = tables.sums_of_either(table, values[:, 0], one, other)
        assert (either == (flags[one] | flags[other]) @ values[:, 0]).all()


@pytest.mark.parametrize("seed", range(6))
def test_what_fits_between_ideals_is_what_its_tensors_take(load, seed):
    problem = make_problem(load(seed, 8), separate_directions=False)
    tables = all_ideals(problem, 10_000, {})
    held = np.array([flow.held for flow in problem.load.flows])
    for share in (0.3, 0.6, 0.9):
        limited = replace(problem.load, memory_limit=share * held.sum())
        steps = make_steps(limited, tables)
        one, other = np.random.default_rng(seed).integers(0, len(tables.masks), (2, 200))
        alive = (tables.live[one] | tables.live[other]) @ held
        assert (steps._rooms(one, other) == (alive <= limited.memory_limit * (1 + 1e-12))).all()
