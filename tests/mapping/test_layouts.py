"""Bounds on changes of layout against what every sharding pays."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np

from crosstack.machine.system import Parallelism
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.workload.transformer_training import Recompute

RULES = rules_named("crosstack")


def graphs(random_task, count=60):
    """Yield random graphs on four tensor-parallel chips: what all choices cost."""
    for seed in range(count):
        rng = random.Random(seed)
        workload, system = random_task(seed, 5)
        workload = replace(workload, n_layers=rng.choice([1, 2]))
        plan = make_plan(workload, system, (4,), (Parallelism.TENSOR,), 1, RULES)
        plan = replace(plan, recompute=rng.choice(list(Recompute)))
        yield rng, make_choices(workload, workload.graph, plan, 1, RULES)


def test_what_is_sure_is_never_more_than_what_is_paid(random_task):
    for rng, costs in graphs(random_task):
        index, known = costs.index, costs.conversions
        domains = [tuple(rng.sample(d, rng.randint(1, len(d)))) for d in index.domains()]
        least = known.least(index.inside(domains))
        part = known.pairwise()
        for chosen in itertools.islice(itertools.product(*domains), 200):
            codes = np.array(chosen)
            times = known.times(codes)
            assert (least <= times * (1 + 1e-12)).all()
            assert part[index.entries(codes)].sum() <= times.sum() * (1 + 1e-12)


def test_a_choice_no_dearer_for_any_need_of_others_never_costs_more(random_task):
    told = 0
    for rng, costs in graphs(random_task):
        index, known = costs.index, costs.conversions
        columns = np.stack(known.by_what_others_need(), axis=1)
        domains = index.domains()
        for i, a, b in ((i, *rng.sample(d, 2)) for i, d in enumerate(domains) if len(d) > 1):
            base = np.array([rng.choice(d) for d in domains])
            one, other = base.copy(), base.copy()
            one[i], other[i] = a, b
            beats = True
            for e in np.flatnonzero((index.source == i) | (index.target == i)).tolist():
                if index.source[e] == i:
                    rest = domains[int(index.target[e])]
                    first, second = index.table(e, (a, b), rest)
                else:
                    first, second = index.table(e, domains[int(index.source[e])], (a, b)).T
                beats &= bool((columns[first] <= columns[second]).all())
            if beats:
                told += 1
                assert known.times(one).sum() <= known.times(other).sum() * (1 + 1e-12)
    assert told > 20
