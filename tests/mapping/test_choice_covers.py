"""Claims about the least of choices and partitions together, of chips that run kernels in turn."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from crosstack.io import library
from crosstack.machine.chip import Overlap
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping import group_covers
from crosstack.mapping.budget import Budget
from crosstack.mapping.choice_covers import least_of_choices
from crosstack.mapping.covering import in_sequence, least_cover
from crosstack.mapping.fusion import fuse, make_problem
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.room_conflicts import Held
from crosstack.mapping.search import search_state
from crosstack.mapping.search_problem import SearchNode
from crosstack.model.alive import live_sizes
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import make_load, partition_cost, relaxed_load, temporal_choices
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.serving import prefill

RULES = rules_named("crosstack")
GPT = {"hidden": 256, "n_heads": 4, "head_size": 64, "sequence_length": 128, "n_layers": 1}
LAYERS = {
    "forward": llm(**GPT, global_batch_size=4, training=False),
    "training": llm(**GPT, global_batch_size=4),
    "prompts": prefill(library.model("llama-68m"), tokens=256, global_batch_size=4),
}
MOST_SHARDINGS = 60


class Layer:
    """A layer on four A100 on a ring that split its tensors."""

    def __init__(self, name, overlap=Overlap.COMPUTE_MEMORY):
        chip = replace(library.chip("a100-sxm-80gb"), overlap=overlap)
        ring = Dimension(kind=DimensionKind.RING, size=4, bandwidth=3e11, latency=1e-6)
        system = System(chip=chip, network=(ring,), n_chips=4)
        workload = LAYERS[name]
        plan = make_plan(workload, system, (4,), (Parallelism.TENSOR,), 1, RULES)
        choices = make_choices(workload, workload.graph, plan, 1, RULES, chip)
        self.given = workload, system, workload.graph, plan, choices
        self.choices, self.plan = choices, plan

    def load(self, codes):
        return make_load(*self.given, codes, RULES)

    def least(self, domains, held=None, known=None):
        load = relaxed_load(*self.given, domains, RULES)
        order = make_problem(load).order

        def loads(shardings, legality):
            return temporal_choices(*self.given, shardings, legality, RULES)

        graph = self.plan.graph(self.given[2])
        given = load, order, self.choices, domains, graph, self.plan, loads
        return least_of_choices(*given, held=held, known=known)

    def few(self, rng):
        """Return choices of which there are few shardings."""
        domains = [(rng.choice(d),) for d in self.choices.index.domains()]
        for i in rng.sample(range(len(domains)), len(domains)):
            whole = self.choices.index.domains()[i]
            if math.prod(map(len, domains)) * len(whole) <= MOST_SHARDINGS:
                domains[i] = tuple(rng.sample(whole, len(whole)))
        return domains


@pytest.mark.parametrize("overlap", [Overlap.COMPUTE_MEMORY, Overlap.NONE])
@pytest.mark.parametrize("name", LAYERS)
def test_it_is_the_least_of_all_shardings_and_partitions(name, overlap):
    layer, rng, exact = Layer(name, overlap), random.Random(7), 0
    for _ in range(6):
        domains = layer.few(rng)
        found, best = layer.least(domains), math.inf
        for codes in itertools.product(*domains):
            load = layer.load(np.array(codes))
            best = min(best, least_cover(load, make_problem(load).order).bound)
        assert found.bound <= best * (1 + 1e-12)
        exact += found.bound >= best * (1 - 1e-12)
    assert exact >= 4  # elsewhere sets wait for one another


@pytest.mark.parametrize("name", LAYERS)
def test_its_choices_take_as_much(name):
    layer = Layer(name)
    domains = layer.choices.index.domains()
    found = layer.least(domains)
    load = layer.load(found.codes)
    order = make_problem(load).order
    cover = least_cover(load, order)
    assert all(code in domain for code, domain in zip(found.codes, domains, strict=True))
    assert found.bound <= cover.bound * (1 + 1e-12)
    if cover.partitions and in_sequence(cover.partitions, order)[0]:
        taken = sum(partition_cost(load, mask).time for mask in cover.partitions)
        assert taken == pytest.approx(cover.bound, rel=1e-12)


def test_with_fewer_choices_it_is_no_less():
    layer, rng = Layer("training"), random.Random(3)
    domains = list(layer.choices.index.domains())
    before = layer.least(domains).bound
    for i in rng.sample(range(len(domains)), len(domains)):
        domains[i] = (rng.choice(domains[i]),)
        after = layer.least(domains).bound
        assert after >= before * (1 - 1e-12)
        before = after


def test_it_is_not_known_of_many_covers_nor_where_chips_hide_what_they_send(monkeypatch):
    domains = Layer("training").choices.index.domains()
    assert Layer("training", Overlap.ALL).least(domains) is None
    monkeypatch.setattr(group_covers, "MOST_COVERS", 3)
    known = group_covers.covers_of_groups, group_covers._covers_of_group
    for one in known:
        one.cache_clear()
    assert Layer("training").least(domains) is None
    for one in known:
        one.cache_clear()


def test_plans_whose_choices_are_alike_have_main_memory_of_their_own():
    """A load of one was taken for another's, whose memory does hold what that one's does not."""
    layer = Layer("training")
    workload, system, _, plan, _ = layer.given
    state = search_state(workload, system, Constraints(), RULES)
    other = replace(plan, layers_per_stage=7)
    nodes = [SearchNode(one, 1, layer.choices.index.domains()) for one in (plan, other)]
    assert state.table(plan, 1) is state.table(other, 1)
    before, after = (state.relaxed(node) for node in nodes)
    alone = search_state(workload, system, Constraints(), RULES).relaxed(nodes[1])
    assert after.memory_static == alone.memory_static
    assert after.memory_static > before.memory_static == state.relaxed(nodes[0]).memory_static


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_no_choices_that_keep_to_their_room_take_less(share):
    layer, rng = Layer("training"), random.Random(11)
    for _ in range(4):
        domains = layer.few(rng)
        sizes = np.array([rng.random() for _ in layer.choices.network_time])
        every = [np.array(codes) for codes in itertools.product(*domains)]
        kept = [float(sizes[codes].sum()) for codes in every]
        room = min(kept) + share * (max(kept) - min(kept))
        found = layer.least(domains, Held(sizes, room * (1 + 1e-12), (1.0, 0.0)))
        loads = [layer.load(codes) for codes, size in zip(every, kept, strict=True) if size <= room]
        best = min(least_cover(load, make_problem(load).order).bound for load in loads)
        assert found.bound <= best * (1 + 1e-12)
        if share == 1:
            assert found.bound == layer.least(domains).bound


def test_where_the_least_of_all_keeps_too_much_nothing_is_below_a_limit():
    layer = Layer("training")
    domains = layer.choices.index.domains()
    found = layer.least(domains, Held(np.ones(len(layer.choices.network_time)), -1.0, (1.0, 0.0)))
    assert math.isinf(found.bound)


def test_what_is_known_of_another_room_changes_nothing_and_saves_work():
    layer, rng, known = Layer("training"), random.Random(5), {}
    domains = layer.choices.index.domains()
    sizes = np.array([rng.random() for _ in layer.choices.network_time])
    counts = []
    for room in (6.0, 7.0, 6.5):
        held = Held(sizes, room, (1.0, 0.0))
        found, alone = layer.least(domains, held, known), layer.least(domains, held)
        assert found.bound == alone.bound
        assert (found.codes == alone.codes).all()
        counts.append(len(known))
    own: dict = {}
    layer.least(domains, Held(sizes, 6.5, (1.0, 0.0)), own)
    assert counts[2] - counts[1] < len(own)


@pytest.mark.parametrize("name", ["training", "prompts"])
def test_no_choices_and_sequences_that_main_memory_holds_take_less(name):
    """Against the best sequence that fits, of every sharding, as the room gets less."""
    layer, rng, exact, sharper = Layer(name), random.Random(2), 0, 0
    for share in (0.7, 0.9, 1.0, 1.1, 1.3) * 2:
        domains = layer.few(rng)
        results = layer.choices.output_total
        sizes = np.array([rng.choice([0.0, 0.0, 1e5]) for _ in results])
        sizes -= layer.choices.index.least(sizes, layer.choices.index.inside(domains))[
            layer.choices.index.kernel
        ]
        load = layer.load(layer.least(domains).codes)
        cover = least_cover(load, make_problem(load).order)
        room = share * max(live_sizes(load, cover.partitions))
        best = math.inf
        for codes in map(np.array, itertools.product(*domains)):
            own = replace(layer.load(codes), memory_limit=room - sizes[codes].sum())
            found = fuse(make_problem(own), math.inf, {}, Budget())
            best = best if found is None else min(best, found.time)
        held = Held(sizes, room * (1 + 1e-12), (1.0, 0.0), 0.0, results)
        found = layer.least(domains, held)
        assert found.bound <= best * (1 + 1e-12)
        exact += found.bound >= best * (1 - 1e-12)
        sharper += found.bound > layer.least(domains).bound
    assert exact >= 5
    assert sharper
