from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from builders.filled_rings import filled_rings, rings_of

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.plan import optimise
from crosstack.io.library import system_on
from crosstack.io.steps import job_named
from crosstack.machine.chip import Execution
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.degrees import Degrees, parse_degrees
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.network_uses import network_uses
from crosstack.mapping.parallelism import may_split, most_sharing, workload_uses
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import rules_named
from crosstack.model.tiles import divisors
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.workload.kernels import Direction
from crosstack.workload.workload import Workload

CHIPS = (1, 2, 4, 6, 12)
FREE = (None, None)


@pytest.fixture(scope="session")
def network(a_chip):
    """Return a builder of a system from (size, use) of each dimension."""

    def build(n_chips: int, *dimensions) -> System:
        return System(
            chip=replace(a_chip(), memories=main_memory(bandwidth=1e9)),
            network=tuple(
                Dimension(kind=DimensionKind.RING, bandwidth=1e9, size=size, parallelism=use)
                for size, use in dimensions
            ),
            n_chips=n_chips,
        )

    return build


RULES = rules_named("crosstack")


def one_by_one(system: System) -> System:
    """Return a machine with chips that run kernels one by one, and may share rings."""
    return replace(system, chip=replace(system.chip, execution=Execution.TEMPORAL))


def plans(workload, system, rules, microbatch_size) -> list[MeshPlan]:
    """Return every plan of every use of the network."""
    return [
        plan
        for use in workload_uses(
            workload, system, Constraints(microbatch_size=microbatch_size), rules
        )
        if use is not None
        for microbatch in use.microbatches
        for plan in use.plans(microbatch, workload, system, rules)
    ]


def divides(sizes, uses, experts: int, tokens: int = 1) -> bool:
    """Whether chips of an expert and a tensor-parallel group have as many experts each.

    And those that share a sequence as many tokens.
    """
    chips = dict.fromkeys(Parallelism, 1)
    for size, use in zip(sizes, uses, strict=True):
        chips[use] *= size
    spread, tensor = chips[Parallelism.EXPERT], chips[Parallelism.TENSOR]
    as_many = tokens % chips[Parallelism.CONTEXT] == 0
    return as_many and (spread == 1 or experts % (spread * tensor) == 0)


def every_use(system: System, experts: int = 1) -> set:
    """Return every (sizes, uses) by trying all, one chip counted as data parallel."""
    found = set()
    extents = range(1, system.n_chips + 1)
    for sizes in itertools.product(extents, repeat=len(system.network)):
        if math.prod(sizes) != system.n_chips:
            continue
        if any(d.size not in (None, s) for d, s in zip(system.network, sizes, strict=True)):
            continue
        for uses in itertools.product(Parallelism, repeat=len(sizes)):
            if all(
                use is (d.parallelism or (Parallelism.DATA if size == 1 else use))
                for d, size, use in zip(system.network, sizes, uses, strict=True)
            ) and divides(sizes, uses, experts):
                found.add((sizes, uses, ()))
        found |= every_filled_use(system, sizes, experts)
    return found


def every_filled_use(system: System, sizes: tuple[int, ...], experts: int) -> set:
    """Return every use where ranks fill rings, and what is no ring is as `every_use` has it."""
    if system.chip.execution is not Execution.TEMPORAL:
        return set()
    found, rings = set(), rings_of(system, sizes)
    others = [i for i in range(len(sizes)) if i not in rings]
    for filled in filled_rings(system, sizes):
        for own in itertools.product(Parallelism, repeat=len(others)):
            rows = [*filled, *((sizes[i], use, i) for i, use in zip(others, own, strict=True))]
            counts, uses, places = zip(*sorted(rows, key=lambda row: row[2]), strict=True)
            given = all(
                use is (system.network[i].parallelism or Parallelism.DATA)
                for i, use in zip(others, own, strict=True)
            )
            if given and divides(counts, uses, experts):
                found.add((counts, uses, places))
    return found


def every_shared_use(size: int, *, orders: int, experts: int = 1, tokens: int = 1) -> set:
    """Return every (sizes, uses, dimensions) of one level, by trying all degrees."""
    tensor, pipeline, data, expert, context = Parallelism
    found = set()
    inner = tensor, context, expert
    for order in [(*inner, pipeline, data), (*inner, data, pipeline)][:orders]:
        for degrees in itertools.product(divisors(size), repeat=5):
            if math.prod(degrees) == size:
                rows = [(n, use) for n, use in zip(degrees, order, strict=True) if n > 1]
                sizes, uses = zip(*(rows or [(1, data)]), strict=True)
                if not divides(sizes, uses, experts, tokens):
                    continue
                found.add((sizes, uses, (0,) * len(sizes) if len(sizes) > 1 else ()))
    return found


@pytest.mark.parametrize("n_chips", CHIPS)
@pytest.mark.parametrize(
    "dimensions",
    [
        (FREE,),
        (FREE, FREE),
        (FREE, FREE, FREE),
        ((None, Parallelism.TENSOR), FREE),
        ((1, None), FREE),
        ((None, Parallelism.PIPELINE), (None, Parallelism.DATA)),
    ],
    ids=str,
)
class TestNetworkUses:
    @pytest.mark.parametrize("experts", [1, 6, 8])
    def test_they_are_all_there_are(self, network, n_chips, dimensions, experts):
        system = network(n_chips, *dimensions)
        found = set(network_uses(system, shared=True, experts=experts))
        assert found == every_use(system, experts)

    @pytest.mark.parametrize("experts", [1, 6, 8])
    def test_chips_that_run_kernels_one_by_one_fill_rings(
        self, network, n_chips, dimensions, experts
    ):
        system = one_by_one(network(n_chips, *dimensions))
        uses = list(network_uses(system, shared=True, experts=experts))
        assert len(uses) == len(set(uses))
        assert set(uses) == every_use(system, experts)
        assert {use[:2] for use in network_uses(network(n_chips, *dimensions), shared=True)} == {
            use[:2] for use in network_uses(system, shared=False)
        }

    def test_none_comes_twice(self, network, n_chips, dimensions):
        uses = list(network_uses(network(n_chips, *dimensions), shared=True))
        assert len(uses) == len(set(uses))


@pytest.mark.parametrize("n_chips", [1, 2, 6, 8, 12])
@pytest.mark.parametrize(
    ("kind", "more", "orders"),
    [
        (DimensionKind.SWITCH, {}, 1),
        (DimensionKind.FULLY_CONNECTED, {}, 1),
        (DimensionKind.RAIL_ONLY, {}, 1),
        (DimensionKind.FAT_TREE, {}, 1),
        (DimensionKind.FAT_TREE, {"oversubscription": 2.0, "pod_size": 2}, 2),
        (DimensionKind.DRAGONFLY, {}, 2),
    ],
)
class TestSharedDimensions:
    def system(self, network, n_chips, kind, more) -> System:
        plain = network(n_chips, (n_chips, None))
        level = Dimension(kind=kind, bandwidth=1e9, size=n_chips, **more)
        return replace(plain, network=(level,))

    def test_they_are_all_there_are_once(self, network, n_chips, kind, more, orders):
        uses = list(network_uses(self.system(network, n_chips, kind, more), shared=True))
        assert len(uses) == len(set(uses))
        assert set(uses) == every_shared_use(n_chips, orders=orders)

    @pytest.mark.parametrize("tokens", [4, 6])
    def test_chips_that_share_sequences_are_next_to_tensor_parallel_ones(
        self, network, n_chips, kind, more, orders, tokens
    ):
        uses = list(
            network_uses(self.system(network, n_chips, kind, more), shared=True, tokens=tokens)
        )
        assert len(uses) == len(set(uses))
        assert set(uses) == every_shared_use(n_chips, orders=orders, tokens=tokens)

    def test_none_is_shared_where_the_rules_forbid_it(self, network, n_chips, kind, more, orders):
        system = self.system(network, n_chips, kind, more)
        assert set(network_uses(system, shared=False)) == every_use(system)

    def test_a_given_use_is_not_shared(self, network, n_chips, kind, more, orders):
        system = self.system(network, n_chips, kind, more)
        given = replace(system.network[0], parallelism=Parallelism.PIPELINE)
        uses = set(network_uses(replace(system, network=(given,)), shared=True))
        assert uses == {((n_chips,), (Parallelism.PIPELINE,), ())}


def test_levels_are_shared_each_on_its_own(network):
    inner = Dimension(kind=DimensionKind.SWITCH, bandwidth=1e9, size=2)
    outer = Dimension(kind=DimensionKind.SWITCH, bandwidth=1e8, size=4)
    system = replace(network(8, (8, None)), network=(inner, outer))
    uses = set(network_uses(system, shared=True))
    # Outside two of 2, or one of 4: with tensor parallelism only if it is all that is inside.
    assert len(uses) == 2 * (1 + 2) + 1 * (3 + 3)
    tensor, pipeline, data, *_ = Parallelism
    assert ((2, 2, 2), (tensor, pipeline, data), (0, 1, 1)) in uses
    assert ((2, 4), (tensor, tensor), ()) in uses
    assert ((2, 4), (data, tensor), ()) not in uses


def test_levels_whose_use_is_given_are_used_as_they_are(network):
    tensor, _, data, *_ = Parallelism
    inner = Dimension(kind=DimensionKind.SWITCH, bandwidth=1e9, size=2, parallelism=data)
    outer = Dimension(kind=DimensionKind.SWITCH, bandwidth=1e8, size=4)
    system = replace(network(8, (8, None)), network=(inner, outer))
    assert ((2, 4), (data, tensor), ()) in set(network_uses(system, shared=True))


def test_a_ring_is_shared_beside_switches(network):
    ring = Dimension(kind=DimensionKind.RING, bandwidth=1e9, size=4)
    switch = Dimension(kind=DimensionKind.SWITCH, bandwidth=1e8, size=2)
    system = one_by_one(replace(network(8, (8, None)), network=(ring, switch)))
    uses = set(network_uses(system, shared=True))
    tensor, pipeline, data, *_ = Parallelism
    assert len(uses) == (3 + 4) * 3  # two of 2 on the ring: in the order of ranks, either one
    assert ((2, 2, 2), (tensor, data, pipeline), (0, 0, 1)) in uses
    assert ((2, 2, 2), (data, tensor, pipeline), (0, 0, 1)) not in uses


class TestDegrees:
    """Degrees that are given leave the uses of the network that have them, and no other."""

    GIVEN = (
        Degrees(tensor=2), Degrees(pipeline=3), Degrees(data=1), Degrees(tensor=2, data=3),
        Degrees(tensor=1, pipeline=2, data=6), Degrees(tensor=5), Degrees(tensor=12, data=1),
        Degrees(expert=2), Degrees(data=6, expert=3), Degrees(tensor=2, expert=1),
    )  # fmt: skip

    @pytest.mark.parametrize("given", GIVEN, ids=str)
    @pytest.mark.parametrize("kind", [DimensionKind.RING, DimensionKind.SWITCH])
    def test_what_is_left_of_all_uses_has_them(self, network, given, kind):
        plain = one_by_one(network(12, FREE, FREE))
        system = replace(plain, network=tuple(replace(d, kind=kind) for d in plain.network))
        left = list(network_uses(system, shared=True, degrees=given, experts=12))
        every = network_uses(system, shared=True, experts=12)
        assert left == [use for use in every if given.are_those_of(use[0], use[1])]

    def test_a_mapping_has_them_and_is_no_faster(self, random_task):
        workload, system = random_task(3, dimensions=2)
        best = optimise(workload, system)
        for tensor in divisors(system.n_chips):
            given = Constraints(degrees=Degrees(tensor=tensor))
            try:
                found = optimise(workload, system, constraints=given)
            except InfeasibleError:
                continue
            except InputError:  # no dimension has so many chips
                assert tensor not in {math.prod(s) for s in every_product(system)}
                continue
            assert found.mapping.degree(Parallelism.TENSOR) == tensor
            assert found.certificate.objective >= best.certificate.objective * (1 - 1e-9)
            assert f"degrees tp={tensor}" in found.certificate.given

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            (Degrees(tensor=3), "a divisor of 4, the number of chips"),
            (Degrees(tensor=2, pipeline=1, data=1), "whose product is 4, the number of chips"),
            (Degrees(tensor=2), "degrees that the dimensions of the network, 4, can be used for"),
        ],
        ids=str,
    )
    def test_degrees_that_cannot_be_are_refused(self, random_task, given, said):
        workload, plain = random_task(3)  # 4 chips
        ring = replace(plain.network[0], kind=DimensionKind.RING, size=4)
        system = replace(plain, network=(ring,))
        with pytest.raises(InputError, match=said):
            optimise(workload, system, constraints=Constraints(degrees=given))

    def test_a_start_that_has_others_is_refused(self, random_task):
        workload, system = random_task(3)
        found = optimise(workload, system).mapping
        other = 1 if found.degree(Parallelism.TENSOR) > 1 else system.n_chips
        with pytest.raises(InputError, match="degrees: the mapping to start from"):
            optimise(
                workload,
                system,
                start=found,
                constraints=Constraints(degrees=Degrees(tensor=other)),
            )

    def test_they_are_read_as_they_are_printed(self):
        given = Degrees(tensor=8, data=16)
        assert str(given) == "tp=8,dp=16"
        assert parse_degrees(" TP=8, dp=16") == given
        assert str(parse_degrees("ep=8,pp=4,dp=16")) == "pp=4,dp=16,ep=8"
        assert parse_degrees("tp=2,pp=4,ep=8,dp=16").n_chips == 2 * 4 * 16

    def test_chips_with_parts_of_the_experts_are_data_parallel_ones(self):
        with pytest.raises(InputError, match="a divisor of the data-parallel degree, 4"):
            parse_degrees("dp=4,ep=8")

    @pytest.mark.parametrize("text", ["", "8", "tp=0", "tp=2,tp=4", "RC-1-8-d8-p8", "tp=8;pp=2"])
    def test_a_text_that_is_none_is_refused(self, text):
        with pytest.raises(InputError, match="degrees"):
            parse_degrees(text)


def every_product(system: System) -> list[list[int]]:
    """Return the sizes of every set of dimensions of a machine."""
    sizes = [d.size or 1 for d in system.network]
    return [list(some) for n in range(len(sizes) + 1) for some in itertools.combinations(sizes, n)]


class TestPlans:
    @pytest.mark.parametrize("seed", range(10))
    def test_every_plan_covers_the_batch(self, random_task, seed):
        workload, system = random_task(seed, dimensions=2)
        for plan in plans(workload, system, rules_named("crosstack"), None):
            sequences = plan.data * plan.n_microbatches * plan.microbatch_size
            assert sequences == workload.global_batch_size

    @pytest.mark.parametrize("seed", range(10))
    def test_every_plan_uses_every_chip(self, random_task, seed):
        workload, system = random_task(seed, dimensions=2)
        for plan in plans(workload, system, rules_named("crosstack"), None):
            assert plan.tensor * plan.pipeline * plan.data == system.n_chips

    def test_a_free_microbatch_takes_every_divisor(self, random_task):
        workload, system = random_task(3)  # 4 or 8 sequences, one dimension of 4 chips
        found = {
            p.microbatch_size
            for p in plans(workload, system, rules_named("crosstack"), None)
            if p.tensor == system.n_chips
        }
        batch = workload.global_batch_size
        assert found == {m for m in range(1, batch + 1) if batch % m == 0}

    def test_a_given_microbatch_is_kept(self, random_task):
        workload, system = random_task(3)
        found = {p.microbatch_size for p in plans(workload, system, rules_named("crosstack"), 2)}
        assert found == {2}


class TestLongPipelines:
    """24 chips in two free dimensions, and a graph of four kernels that stands twice."""

    def degrees(self, network, a_graph, *, backward: bool = False, given: bool = False) -> set:
        graph = a_graph(4, [(0, 1), (1, 2), (2, 3)])
        if backward:
            last = replace(graph.kernels[-1], direction=Direction.BACKWARD)
            graph = graph.listing(kernels=(*graph.kernels[:-1], last))
        workload = Workload(graph=graph, n_layers=2, global_batch_size=24, sequence_length=2)
        dimensions = ((24, Parallelism.PIPELINE),) if given else (FREE, FREE)
        found = plans(workload, network(24, *dimensions), rules_named("crosstack"), 1)
        return {(p.pipeline, p.graph_stages) for p in found}

    def test_a_forward_graph_is_split_into_at_most_a_stage_a_kernel(self, network, a_graph):
        expected = {(1, 1), (2, 1), (3, 1), (4, 2), (6, 3), (8, 4), (12, 4), (24, 4)}
        assert self.degrees(network, a_graph) == expected

    def test_stages_of_a_training_graph_hold_whole_copies_or_idle(self, network, a_graph):
        found = self.degrees(network, a_graph, backward=True)
        assert found == {(stages, 1) for stages in (1, 2, 3, 4, 6, 8, 12, 24)}

    def test_what_can_be_given_is_in_the_free_space(self, network, a_graph):
        for backward in (False, True):
            given = self.degrees(network, a_graph, given=True, backward=backward)
            assert given <= self.degrees(network, a_graph, backward=backward)


class TestUses:
    def test_every_microbatch_size_is_tried_once(self, random_task):
        workload, system = random_task(3)
        for use in workload_uses(workload, system, Constraints(), RULES):
            if use is not None:
                data = math.prod(
                    size
                    for size, what in zip(use.sizes, use.parallelism, strict=True)
                    if what is Parallelism.DATA
                )
                expected = divisors(workload.global_batch_size // data)
                assert sorted(use.microbatches) == list(expected)

    @pytest.mark.parametrize(("batch", "tried"), [(4, [1]), (8, [1, 2]), (24, [1, 2, 3, 6])])
    def test_a_batch_over_all_chips_is_cut_into_what_divides_each_chips_share(
        self, a_system, a_dimension, batch, tried
    ):
        workload = dlrm(
            width=8, n_bottom=1, n_top=1, n_tables=4, rows=10, embedding_size=4, samples=4,
            global_batch_size=batch, training=False,
        )  # fmt: skip
        system = a_system(network=(a_dimension(size=4),), n_chips=4)
        (use,) = workload_uses(workload, system, Constraints(), RULES)
        assert sorted(use.microbatches) == tried

    @pytest.mark.parametrize(("n", "may"), [(1, False), (2, True), (3, True)])
    def test_two_kernels_are_enough_to_split_a_graph(self, a_graph, a_system, a_dimension, n, may):
        chain = a_graph(n, [(i, i + 1) for i in range(n - 1)])
        workload = Workload(graph=chain, sequence_length=8)
        two = a_dimension(size=2, parallelism=Parallelism.PIPELINE)
        assert may_split(workload, a_system(network=(two,), n_chips=2)) is may

    @pytest.mark.parametrize(("layers", "may"), [(1, True), (2, False)])
    def test_stages_are_the_chips_that_given_dimensions_leave(
        self, a_graph, a_system, a_dimension, layers, may
    ):
        workload = Workload(graph=a_graph(2, [(0, 1)]), sequence_length=8, n_layers=layers)
        network = (
            a_dimension(size=4, parallelism=Parallelism.TENSOR),
            a_dimension(size=None, parallelism=Parallelism.PIPELINE),
        )
        assert may_split(workload, a_system(network=network, n_chips=8)) is may

    @pytest.mark.parametrize("seed", range(8))
    @pytest.mark.parametrize("backward", [False, True])
    @pytest.mark.parametrize("n_layers", [1, 2, 6])
    def test_graphs_may_be_split_where_some_plan_does(self, random_task, seed, backward, n_layers):
        workload, system = random_task(seed)
        direction = Direction.BACKWARD if backward else Direction.FORWARD
        kernels = tuple(replace(k, direction=direction) for k in workload.graph.kernels)
        graph = workload.graph.listing(kernels=kernels)
        workload = replace(workload, graph=graph, n_layers=n_layers, layers_in_graph=1)
        workload = replace(workload, global_batch_size=system.n_chips)
        found = plans(workload, system, rules_named("crosstack"), None)
        assert may_split(workload, system) == any(plan.graph_stages > 1 for plan in found)


@pytest.mark.parametrize("number", [1, 2, 12, 97, 1009**2, 2**40 * 3**5, 9007199254740881])
def test_divisors_divide_in_pairs(number):
    found = divisors(number)
    assert [a * b for a, b in zip(found, reversed(found), strict=True)] == [number] * len(found)
    assert list(found) == sorted(set(found))
    assert all(d in found for d in range(1, 200) if number % d == 0)


@pytest.mark.parametrize(
    ("tokens", "given", "most"),
    [
        (4096, Degrees(), 1), (8192, Degrees(), 4), (131072, Degrees(tensor=8), 64),
        (4096, Degrees(context=4), math.inf),
        (4096, Degrees(tensor=2, pipeline=1, data=2), math.inf),  # cp follows
    ],
)  # fmt: skip
def test_free_chips_share_long_sequences(tokens, given, most):
    workload = job_named("llama3-8b", "train", batch=16, sequence=tokens).workload
    system = system_on("h100-dgx", chips=16)
    assert most_sharing(workload, system, given) == most
    uses = workload_uses(workload, system, Constraints(degrees=given), RULES)
    degrees = {
        math.prod(
            size for size, use in zip(one.sizes, one.parallelism, strict=True)
            if use is Parallelism.CONTEXT
        )
        for one in uses if one is not None
    }  # fmt: skip
    assert max(degrees) == {math.inf: 4, 64: 2}.get(most, most)
