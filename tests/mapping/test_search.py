"""The whole search against every plan, tiling, sharding and sequence of partitions."""

from __future__ import annotations

import itertools
import math
import random
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from builders.filled_rings import filled_rings, rings_of
from builders.random_mappings import prices, random_times
from builders.seeds import few_and_many

from crosstack.errors import InfeasibleError, InputError, LimitError
from crosstack.evaluate.time import evaluate
from crosstack.machine.chip import Execution, Overlap, flat_chip
from crosstack.machine.framework import Framework, Fusion
from crosstack.machine.memory import main_memory
from crosstack.machine.network import KINDS
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.fusion import fuse, make_problem
from crosstack.mapping.mapping import Constraints, Mapping, Status, Stop
from crosstack.mapping.network_uses import experts_divide
from crosstack.mapping.pipeline import make_stage_problem
from crosstack.mapping.search import Progress, search
from crosstack.mapping.slots import make_slots
from crosstack.model.alive import live_size
from crosstack.model.choices import make_choices, summing
from crosstack.model.dispatch import host_time
from crosstack.model.expert_degrees import spread
from crosstack.model.iteration import iteration
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.partition import make_load, partition_cost, relaxed_load
from crosstack.model.rules import Rules, rules_named
from crosstack.model.schedule.allowed import some_layers_again, with_recompute, zero_stages
from crosstack.model.tiles import divisors
from crosstack.published.dfmodel.graphs.builders import elementwise, join, product_of
from crosstack.workload import kernels as ops
from crosstack.workload.axes import AxisUse
from crosstack.workload.draft import Draft
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import AXIS_CODE, KernelGraph, kernel_graph
from crosstack.workload.lowering import lowered
from crosstack.workload.transformer_training import Recompute, Schedule
from crosstack.workload.workload import Workload

RULES = ["crosstack", "dfmodel-readme", "dfmodel-e4", "dfmodel-e5"]
# Kernels tiled along the sequence or not at all, as in every published graph.
SEQUENCE_TILED = (ops.Axis.N, ops.Axis.NONE, ops.Axis.NONE)
ROUNDING = 1 + 1e-9
OTHER_KINDS = (
    DimensionKind.TORUS,
    DimensionKind.MESH,
    DimensionKind.FAT_TREE,
    DimensionKind.DRAGONFLY,
    DimensionKind.RAIL_ONLY,
    DimensionKind.RAIL_OPTIMISED,
)
SHARED = (
    DimensionKind.SWITCH,
    DimensionKind.FULLY_CONNECTED,
    DimensionKind.FAT_TREE,
    DimensionKind.DRAGONFLY,
    DimensionKind.RAIL_ONLY,
    DimensionKind.RAIL_OPTIMISED,
)
NOTHING_GIVEN = Constraints(schedule=Schedule.ONE_F_ONE_B)  # as `every_plan`


# ---------------------------------------------------------------- brute force


def every_factoring(dimension: Dimension, size: int, rules: Rules, experts: int = 1) -> list:
    """Return what a dimension may be used for, as lists of (chips, use), innermost first."""
    if dimension.parallelism is not None:
        return [[(size, dimension.parallelism)]]
    some = {Parallelism.EXPERT: experts > 1, Parallelism.CONTEXT: False}  # lists have no tokens
    known = [use for use in Parallelism if some.get(use, True)]
    found = [[(size, use)] for use in known]
    if dimension.kind in SHARED and rules.collectives.share_dimensions:
        for count in range(2, len(known) + 1):
            for uses in itertools.permutations(known, count):
                if Parallelism.TENSOR in uses[1:]:
                    continue  # its chips lie next to each other
                if (
                    {*uses[: uses.index(Parallelism.EXPERT)]} - {Parallelism.TENSOR}
                    if (Parallelism.EXPERT in uses)
                    else ()
                ):
                    continue  # so do those that exchange tokens
                for sizes in itertools.product(range(2, size + 1), repeat=count):
                    if math.prod(sizes) == size:
                        found.append(list(zip(sizes, uses, strict=True)))
    return found


def fills_levels(system: System, rows: list[tuple[int, Parallelism, int]]) -> bool:
    """Whether tensor parallelism leaves no level of switches before it has all of its chips."""

    def free(level: int) -> bool:
        dimension = system.network[level]
        return dimension.parallelism is None and not KINDS[dimension.kind].by_neighbours

    tensor = Parallelism.TENSOR
    return not any(
        inner < outer and free(inner) and free(outer) and size > 1 and other > 1
        for size, use, outer in rows
        for other, inside, inner in rows
        if use is tensor and inside is not tensor
    )


def on_rings(system: System, sizes: tuple[int, ...], alone: list, rows: list):
    """Return what all levels may be used for where ranks fill the rings."""
    rings = rings_of(system, sizes)
    here = {i: [(size, use) for size, use, place in rows if place == i] for i in rings}
    return itertools.product(*([here[i]] if i in here else alone[i] for i in range(len(sizes))))


def every_plan(workload: Workload, system: System, rules: Rules) -> list[MeshPlan]:
    found = []
    n = system.n_chips
    for sizes in itertools.product(range(1, n + 1), repeat=len(system.network)):
        if math.prod(sizes) != n:
            continue
        if any(d.size not in (None, s) for d, s in zip(system.network, sizes, strict=True)):
            continue
        levels = zip(system.network, sizes, strict=True)
        experts = spread(workload, rules)
        alone = [every_factoring(d, size, rules, experts) for d, size in levels]
        ways = [itertools.product(*alone)]
        if rules.collectives.share_dimensions and system.chip.execution is Execution.TEMPORAL:
            ways += [on_rings(system, sizes, alone, rows) for rows in filled_rings(system, sizes)]
        for each in itertools.chain(*ways):
            rows = [(size, use, i) for i, some in enumerate(each) for size, use in some]
            counts, uses, places = map(tuple, zip(*rows, strict=True))
            if not experts_divide(counts, uses, experts):
                continue
            if rules.collectives.share_dimensions and not fills_levels(system, rows):
                continue
            for microbatch in range(1, workload.global_batch_size + 1):
                where = places if len(places) > len(sizes) else ()
                plan = make_plan(workload, system, counts, uses, microbatch, rules, where)
                found += [] if plan is None else [plan]
    kinds = Recompute if workload.training and rules.memory.keeps_activations else (Recompute.NONE,)
    found = [with_recompute(plan, workload.graph, again) for plan in found for again in kinds]
    if workload.training and rules.iteration.has_schedules and system.chip.overlap is Overlap.ALL:
        found += [
            replace(plan, interleave=pieces)
            for plan in found
            for pieces in range(2, workload.n_layers + 1)
            if plan.pipeline > 1
            and plan.n_microbatches % plan.pipeline == 0
            and workload.graph_repetitions % (plan.pipeline * pieces) == 0
        ]
    if workload.training and some_layers_again(system.chip, rules):
        found += [
            with_recompute(plan, workload.graph, plan.recompute, layers / whole)
            for plan in found
            if plan.recompute is not Recompute.NONE
            for whole in [plan.layers_per_stage // plan.interleave]
            for layers in range(1, whole)
        ]
    if workload.training:
        found = [
            replace(plan, zero=zero.number) for plan in found for zero in zero_stages(plan, rules)
        ]
    return found


def every_sharding(choices, plan: MeshPlan, rules: Rules) -> list[np.ndarray]:
    codes = [np.array(codes) for codes in itertools.product(*choices.index.domains())]
    if plan.tensor == 1:
        return codes[:1]
    if not rules.decisions.before_time:
        return codes
    moved = [
        choices.bytes_moved[c].sum() + choices.edge_bytes[choices.index.entries(c)].sum()
        for c in codes
    ]
    return [c for c, size in zip(codes, moved, strict=True) if size <= min(moved) * ROUNDING]


def named_functions(workload, seed, dispatch):
    """Return a workload whose kernels have functions, and a framework that fuses some of them."""
    rng, graph = random.Random(seed), workload.graph
    words = ["product" if x else rng.choice(["add", "gelu", "dropout"]) for x in graph.gemm]
    framework = Framework(
        fusions=tuple(each for each in Fusion if rng.random() < 0.3),
        chains=("product bias", "bias gelu", "gelu dropout add", "product gelu dropout"),
        dispatch=dispatch,
    )
    named = replace(
        graph,
        functions=tuple(words),
        messages=((),) * graph.n,
        periodic_size=0.0 * graph.periodic_size,  # what is summed once an iteration is no layer's
    )
    return replace(workload, graph=named), framework


def brute_search(
    workload, system, rules, brute_fuse, brute_split, plans=None, tensor=None
) -> float:
    """Return the least time of an iteration, of all that ``tensor`` leaves, or of ``plans``. [s]"""
    arrays, least = workload.graph, math.inf
    separate = rules.decisions.parts_directions([workload.training], None)
    tiles = range(1, workload.sequence_length + 1)
    if getattr(rules.decisions, "tiles_divide", False):
        tiles = divisors(workload.sequence_length)
    if system.chip.execution is Execution.TEMPORAL:
        tiles = [1]
    if plans is None:
        plans = [p for p in every_plan(workload, system, rules) if tensor in (None, p.tensor)]
    for plan, n_tiles in itertools.product(plans, tiles):
        choices = make_choices(workload, arrays, plan, n_tiles, rules, system.chip)
        for codes in every_sharding(choices, plan, rules):
            load = make_load(workload, system, arrays, plan, choices, codes, rules)
            if plan.graph_stages > 1:
                capacity = system.chip.main_memory.capacity or math.inf
                problem = make_stage_problem(make_problem(load), plan, rules, capacity=capacity)
                least = min(least, brute_split(problem))
                continue
            layer = brute_fuse(load, None, separate)
            if math.isfinite(layer):
                ended = summing(plan, arrays, choices, codes)
                least = min(least, iteration(ended, layer, system.chip.overlap, rules).time)
    return least


@pytest.fixture(scope="session")
def tiny_task(random_task):
    """Return a builder of a random problem small enough to try everything."""

    def build(seed: int, n: int = 3, *, memory: float | None = None, **how):
        rng = random.Random(seed)
        how = {"tilings": SEQUENCE_TILED, "dimensions": 2, "length": 4, **how}
        workload, system = random_task(seed, n, **how)
        first, second = system.network
        if seed % 2:
            first = replace(first, size=2)
        if seed % 3 == 0:
            first = replace(first, parallelism=Parallelism.TENSOR)
        sram = rng.choice([60.0, 100.0, 200.0, 400.0, 1e6])
        system = replace(
            system,
            chip=replace(
                system.chip.with_level(0, capacity=sram),
                memories=system.chip.with_memory(capacity=memory).memories,
            ),
            network=(first, second),
        )
        return replace(workload, global_batch_size=4), system

    return build


def least_time(workload, system, rules, constraints=NOTHING_GIVEN) -> float:
    try:
        return search(workload, system, constraints, rules)[1].objective
    except InfeasibleError:
        return math.inf


# ---------------------------------------------------------------- exactness


class TestAgainstEverything:
    @pytest.mark.parametrize("name", RULES)
    @pytest.mark.parametrize(
        "how",
        [{}, {"utilization": False}, {"memory": 800.0}, {"counted": True}, {"temporal": True}],
        ids=str,
    )
    def test_search_finds_the_best_mapping(self, tiny_task, brute_fuse, brute_split, name, how):
        rules = rules_named(name)
        for seed in range(2 if name == "crosstack" else 1):
            workload, system = tiny_task(seed, **how)
            least = brute_search(workload, system, rules, brute_fuse, brute_split)
            assert least_time(workload, system, rules) == pytest.approx(least, rel=1e-9), seed

    @pytest.mark.slow
    @pytest.mark.parametrize("seeds", few_and_many(4, 12), ids=len)
    @pytest.mark.parametrize("dispatch", [None, 3e-5])
    def test_search_finds_the_best_mapping_that_a_framework_runs(
        self, tiny_task, brute_fuse, brute_split, dispatch, seeds
    ):
        rules, waited = rules_named("crosstack"), 0
        for seed in seeds:
            workload, system = tiny_task(seed, 4, temporal=True)
            workload, framework = named_functions(workload, seed, dispatch)
            system = system.driven_by(framework)
            plans = [
                plan
                for plan in every_plan(workload, system, rules)
                if plan.pipeline <= workload.graph_repetitions
                and workload.graph_repetitions % plan.pipeline == 0
            ]
            host = [
                replace(plan, host=host_time(workload.graph, system.chip, plan.recompute))
                for plan in plans
            ]
            least = brute_search(workload, system, rules, brute_fuse, brute_split, host)
            assert least_time(workload, system, rules) == pytest.approx(least, rel=1e-9), seed
            replayed = system.driven_by(replace(framework, dispatch=None))
            waited += least_time(workload, replayed, rules) < least * (1 - 1e-9)
        assert (waited > 0) == (dispatch is not None)

    @pytest.mark.parametrize("kind", ["ring", "mesh"])
    @pytest.mark.parametrize("seed", [1, 4])
    def test_search_finds_the_best_mapping_on_rings_that_are_shared(
        self, tiny_task, brute_fuse, brute_split, kind, seed
    ):
        rules = rules_named("crosstack")
        workload, system = tiny_task(seed, 4, temporal=True)
        first, second = system.network
        level = {"kind": DimensionKind(kind), "parallelism": None}
        network = replace(first, size=2, **level), replace(second, size=4, **level)
        system = replace(system, network=network, n_chips=8)
        workload = replace(workload, global_batch_size=8)
        least = brute_search(workload, system, rules, brute_fuse, brute_split)
        assert least_time(workload, system, rules) == pytest.approx(least, rel=1e-9)

    @pytest.mark.slow
    @pytest.mark.parametrize("seeds", few_and_many(3, 6), ids=len)
    @pytest.mark.parametrize("kinds", [OTHER_KINDS[:3], OTHER_KINDS[3:]], ids=str)
    def test_search_finds_the_best_mapping_on_any_network(
        self, tiny_task, brute_fuse, brute_split, kinds, seeds
    ):
        rules = rules_named("crosstack")
        for seed in seeds:
            workload, system = tiny_task(seed, kinds=kinds)
            least = brute_search(workload, system, rules, brute_fuse, brute_split)
            assert least_time(workload, system, rules) == pytest.approx(least, rel=1e-9), seed

    @pytest.mark.slow
    @pytest.mark.parametrize("name", RULES)
    @pytest.mark.parametrize(
        "how",
        [
            {},
            {"utilization": False},
            {"memory": 800.0},
            {"counted": True},
            {"n": 4, "star": True},
            {"twins": True},
            {"temporal": True, "n": 4},
            {"temporal": True, "utilization": False, "twins": True},
        ],
        ids=str,
    )
    def test_search_finds_the_best_of_many(self, tiny_task, brute_fuse, brute_split, name, how):
        rules = rules_named(name)
        for seed in (0, 100, 102):
            workload, system = tiny_task(seed, **how)
            least = brute_search(workload, system, rules, brute_fuse, brute_split)
            assert least_time(workload, system, rules) == pytest.approx(least, rel=1e-9), seed

    @pytest.mark.parametrize("seed", range(6))
    def test_a_free_schedule_is_as_good_as_the_best_of_all(self, tiny_task, seed):
        rules, (workload, system) = rules_named("crosstack"), tiny_task(seed, twins=True)
        given = {}
        for order in (order for order in Schedule if order.searched):
            with suppress(InputError):
                given[order] = least_time(workload, system, rules, Constraints(schedule=order))
        free = least_time(workload, system, rules, Constraints())
        assert free == pytest.approx(min(given.values()), rel=1e-9)
        assert free <= given[Schedule.ONE_F_ONE_B]

    @pytest.mark.parametrize("name", ["crosstack", "dfmodel-readme"])
    @pytest.mark.parametrize("seed", [111])
    def test_a_kernel_may_be_tiled_along_another_extent(
        self, tiny_task, brute_fuse, brute_split, name, seed
    ):
        workload, system = tiny_task(
            seed, tilings=(ops.Axis.N, ops.Axis.N, ops.Axis.N, ops.Axis.M, ops.Axis.NONE)
        )
        rules = rules_named(name)
        least = brute_search(workload, system, rules, brute_fuse, brute_split)
        assert least_time(workload, system, rules) == pytest.approx(least, rel=1e-9)


@pytest.fixture(scope="session")
def expert_task(tiny_task):
    """Return a builder of a tiny layer of experts on four or eight chips.

    Tokens are taken to their experts, multiplied and brought back; with its backward pass, the
    gradients of both ways and that of the weight.
    """

    def build(seed: int, *, training: bool = False, n_chips: int = 4, **how):
        rng = random.Random(seed)
        _, system = tiny_task(seed, n_chips=n_chips, **how)
        network = tuple(replace(d, parallelism=None) for d in system.network)
        experts, k, m, n = rng.choice([2, 4]), rng.choice([2, 6]), rng.choice([5, 8]), 2
        axis, backward = ops.Axis, {"direction": ops.Direction.BACKWARD}
        own = {"outer": experts, "n": n, "tiling": ops.Axis.N}
        elements = {"kind": ops.KernelKind.ELEMENTWISE, "unit": ops.ComputeUnit.SIMD, **own}
        product = {
            "kind": ops.KernelKind.GEMM_WEIGHT, "unit": ops.ComputeUnit.SYSTOLIC, **own,
            "weight_size": 2.0 * experts * m * k,
        }  # fmt: skip
        read, made = 2.0 * experts * k * n, 2.0 * experts * m * n
        kernels = [
            ops.Kernel(name="taken", m=k, output_size=read, input_sizes=(8.0 * k,), **elements),
            ops.Kernel(name="up", m=m, k=k, output_size=made, input_sizes=(read,), **product),
            ops.Kernel(name="back", m=m, output_size=made, input_sizes=(made,), **elements),
        ]
        edges = [("taken", "up", 0), ("up", "back", 0)]
        if training:
            whole = 2.0 * experts * m * k
            summed = ops.Communication(
                collective=ops.Collective.ALL_REDUCE, size=whole, periodic=True
            )
            gradient = {"m": m, "k": n, "n": k, "outer": experts, "communications": (summed,)}
            kernels += [
                ops.Kernel(
                    name="back_bwd", m=m, output_size=made, input_sizes=(made,),
                    **elements, **backward,
                ),
                ops.Kernel(
                    name="gradient", kind=ops.KernelKind.GEMM, unit=ops.ComputeUnit.SYSTOLIC,
                    output_size=whole, input_sizes=(read, made), tiling=axis.K,
                    **gradient, **backward,
                ),
            ]  # fmt: skip
            edges += [("taken", "gradient", 0), ("back_bwd", "gradient", 1)]
        sizes = {kernel.name: kernel.output_size for kernel in kernels}
        tensors = {maker: [] for maker, *_ in edges}
        for maker, reader, operand in edges:
            tensors[maker].append(ops.Consumer(kernel=reader, operand=operand))
        graph = kernel_graph(
            kernels=tuple(kernels),
            tensors=tuple(
                ops.Tensor(producer=maker, consumers=tuple(readers), size=sizes[maker])
                for maker, readers in tensors.items()
            ),
            word=2,
        )
        summing = np.array([kernel.name == "gradient" for kernel in kernels])
        graph = replace(
            graph,
            experts=np.full(graph.n, experts),
            places=np.where(summing, AXIS_CODE[axis.K], AXIS_CODE[axis.N]),
            exchanged=np.array([k.name in ("taken", "back", "back_bwd") for k in kernels]),
        )
        workload = Workload(graph=graph, global_batch_size=4, sequence_length=n)
        return workload, replace(system, network=network)

    return build


class TestExperts:
    """Against every use of the network, those that spread experts over data-parallel chips too."""

    @pytest.mark.parametrize("tensor", [1, None])
    @pytest.mark.parametrize(
        "how",
        [{}, {"temporal": True}, pytest.param({"training": True}, marks=pytest.mark.slow)],
        ids=str,
    )
    def test_search_finds_the_best_mapping(self, expert_task, brute_fuse, brute_split, how, tensor):
        rules, spread_over = rules_named("crosstack"), set()
        given = Constraints(degrees=Degrees(tensor=tensor))
        for seed in range(1 if how.get("training") and tensor is None else 2):
            workload, system = expert_task(seed, **how)
            parts = rules, brute_fuse, brute_split
            least = brute_search(workload, system, *parts, tensor=tensor)
            try:
                mapping, certificate = search(workload, system, given, rules)
            except (InfeasibleError, InputError):
                assert math.isinf(least)
                continue
            assert certificate.objective == pytest.approx(least, rel=1e-9), seed
            found = evaluate(workload, system, mapping, rules)
            assert found.time == pytest.approx(certificate.objective, rel=1e-9)
            spread_over.add(mapping.degree(Parallelism.EXPERT))
        assert tensor is None or max(spread_over) > 1


@pytest.fixture(scope="session")
def forward_task(tiny_task):
    """Return a builder of a random forward graph of one or two copies on a pipeline of four."""

    def build(seed: int, n: int = 4, *, tensor: int | None = 1, **how):
        workload, system = tiny_task(seed, n, n_chips=4 * (tensor or 1), **how)
        if seed % 2:  # slow enough for work to count more than transfers
            system = replace(system, chip=system.chip.with_compute(frequency=1e4))
        graph = workload.graph
        kernels = tuple(replace(k, direction=ops.Direction.FORWARD) for k in graph.kernels)
        workload = replace(
            workload, graph=graph.listing(kernels=kernels), n_layers=1 if seed % 3 else 2
        )
        first, second = system.network
        first = replace(first, size=tensor, parallelism=Parallelism.TENSOR if tensor else None)
        second = replace(second, size=4 if tensor else None, parallelism=Parallelism.PIPELINE)
        return workload, replace(system, network=(first, second))

    return build


class TestStages:
    @pytest.mark.parametrize("seeds", few_and_many(4, 8), ids=len)
    @pytest.mark.parametrize("name", RULES)
    @pytest.mark.parametrize("how", [{}, {"utilization": False}, {"memory": 600.0}], ids=str)
    def test_search_finds_the_best_stages(
        self, forward_task, brute_fuse, brute_split, name, how, seeds
    ):
        rules = rules_named(name)
        for seed in seeds:
            workload, system = forward_task(seed, **how)
            least = brute_search(workload, system, rules, brute_fuse, brute_split)
            assert least_time(workload, system, rules) == pytest.approx(least, rel=1e-9), seed

    @pytest.mark.parametrize("name", ["crosstack", "dfmodel-readme"])
    def test_together_with_sharding(self, forward_task, brute_fuse, brute_split, name):
        rules = rules_named(name)
        for seed in range(6 if name == "crosstack" else 3):
            workload, system = forward_task(seed, 3, tensor=2)
            least = brute_search(workload, system, rules, brute_fuse, brute_split)
            assert least_time(workload, system, rules) == pytest.approx(least, rel=1e-9), seed

    @pytest.mark.parametrize("seed", range(12))
    @pytest.mark.parametrize(
        "given",
        [{}, {"max_partitions": 3}, {"kernel_by_kernel": True}, {"partitions": (("k0", 1),)}],
        ids=str,
    )
    def test_the_mapping_costs_the_objective(self, forward_task, seed, given):
        rules = rules_named("crosstack")
        workload, system = forward_task(seed, 6, utilization=seed % 2 == 0)
        try:
            mapping, certificate = search(workload, system, Constraints(**given), rules)
        except InfeasibleError:
            return
        kernels = workload.graph.index
        assert all(mapping.partitions[kernels[k]] == p for k, p in given.get("partitions", ()))
        found = evaluate(workload, system, mapping, rules)
        assert mapping.stages is not None
        assert found.time == pytest.approx(certificate.objective, rel=1e-9)
        assert len(found.stages) == max(mapping.stages) + 1
        assert found.stage_time == max(stage.time for stage in found.stages)

    def test_a_training_graph_is_cut_along_whole_copies_only(self, forward_task):
        workload, system = forward_task(1)
        system = replace(system, chip=system.chip.with_level(0, capacity=1e6))
        graph = workload.graph
        last = replace(graph.kernels[graph.order[-1]], direction=ops.Direction.BACKWARD)
        kernels = tuple(last if k.name == last.name else k for k in graph.kernels)
        workload = replace(workload, graph=graph.listing(kernels=kernels))
        mapping, _ = search(workload, system, Constraints(), rules_named("crosstack"))
        assert mapping.stages is None


class TestNumberOfTiles:
    def test_few_tiles_win_where_every_larger_number_pads_more(self, a_kernel):
        # 580 rows: 582, 291, 194, 97 and 6 tiles pad them to 582, two tiles or one do not
        rows = a_kernel("rows", m=580, n=1, size=1160.0, tiling=ops.Axis.M)
        graph = kernel_graph(kernels=(rows,), tensors=(), word=2)
        chip = flat_chip(
            n_cores=1, lanes=1, stages=1, frequency=1e3, sram_capacity=1e9, utilization=1.0
        )
        one = Dimension(kind=DimensionKind.RING, bandwidth=1e9, size=1)
        system = System(
            chip=replace(chip, memories=main_memory(bandwidth=1e12)), network=(one,), n_chips=1
        )
        workload = Workload(graph=graph, sequence_length=582)
        found = least_time(workload, system, rules_named("dfmodel-e4"))
        assert found == pytest.approx(580 / 2e3)


def shared_conversion() -> tuple[Workload, System]:
    """P, split by rows, is read by A, which needs all of it, and by B, which may need columns."""

    def kernel(name: str, m: int) -> ops.Kernel:
        return ops.Kernel(
            name=name,
            kind=ops.KernelKind.ELEMENTWISE,
            m=m,
            n=4,
            output_size=m * 8.0,
            input_sizes=(32.0,),
            unit=ops.ComputeUnit.SIMD,
            tiling=ops.Axis.NONE,
        )

    readers = (ops.Consumer(kernel="A"), ops.Consumer(kernel="B"))
    graph = kernel_graph(
        kernels=(kernel("P", 4), kernel("A", 4), kernel("B", 1)),
        tensors=(ops.Tensor(producer="P", consumers=readers, size=32.0),),
        word=2,
    )
    ring = Dimension(kind=DimensionKind.RING, bandwidth=1e3, size=4, parallelism=Parallelism.TENSOR)
    chip = flat_chip(
        n_cores=4, lanes=2, stages=2, frequency=1e9, sram_capacity=1e6, utilization=0.9
    )
    system = System(
        chip=replace(chip, memories=main_memory(bandwidth=1e12)), network=(ring,), n_chips=4
    )
    return Workload(graph=graph, sequence_length=4), system


class TestSharedConversions:
    def test_a_reader_uses_the_conversion_another_pays_for(self):
        # all-gather once: 24 B over two links of 1 kB/s; B along n cuts its columns out of that
        workload, system = shared_conversion()
        for axis in (ops.Axis.NONE, ops.Axis.N):
            given = Constraints(sharding=(("P", ops.Axis.M), ("A", ops.Axis.NONE), ("B", axis)))
            _, certificate = search(workload, system, given, rules_named("crosstack"))
            assert certificate.objective == pytest.approx(0.012)


def added_products(rng: random.Random, temporal: bool) -> tuple[Workload, System]:
    """Return two products, or three, whose results are added up and read, on four chips."""
    count, rows, word = rng.choice((2, 3)), rng.choice((1, 1, 8)), 2
    sizes = {"input_sizes": (64.0,), "weight_size": rows * 16.0}
    product = product_of("product", (1, rows, 8, 4), word=word, **sizes)
    added = elementwise("sum", rows, 4, word=word, inputs=2)
    added = replace(added, tiling=rng.choice((ops.Axis.N, ops.Axis.NONE)))
    kernels = [replace(product, name=f"product_{i}") for i in range(count)]
    kernels += [replace(added, name=f"sum_{i}") for i in range(count - 1)]
    edges = [(1, count + 1, 0), (2, count + 1, 1)]
    if count == 3:
        edges += [(3, 5, 0), (4, 5, 1)]
    graph = join(kernels, edges, word)
    graph = replace(graph, adds=np.array([k.kind is ops.KernelKind.ELEMENTWISE_2 for k in kernels]))
    chip = flat_chip(n_cores=8, lanes=2, stages=2, frequency=1e6, sram_capacity=1e6,
                     utilization=0.9, overlap=rng.choice(list(Overlap)))  # fmt: skip
    if temporal:
        chip = replace(chip, execution=Execution.TEMPORAL, launch_overhead=1e-6)
    bandwidth = rng.choice((1e5, 1e6, 1e7))
    ring = Dimension(kind=DimensionKind.RING, bandwidth=bandwidth, size=4,
                     latency=rng.choice((0.0, 1e-5)), parallelism=Parallelism.TENSOR)  # fmt: skip
    chip = replace(chip, memories=main_memory(bandwidth=rng.choice((1e6, 1e8))))
    workload = Workload(graph=graph, sequence_length=4, n_layers=rng.choice((1, 2)))
    return workload, System(chip=chip, network=(ring,), n_chips=4)


def residual_layers() -> KernelGraph:
    """Return layers of a norm, columns and rows of a network, and the sum with what came in."""
    draft = Draft()
    draft.axis(AxisUse.TOKEN, batch=1, sequence=4)
    draft.axis(layer=2, hidden=4, wide=8)
    x = draft.tensor("x", "batch sequence hidden")
    with draft.repeated("layers", "layer", ("x", "out")):
        scale = draft.weight("scale", "layer hidden")
        normed = draft.rows("norm", Function.RMS_NORM, x, scale, over="hidden")
        first = draft.weight("first", "layer hidden wide")
        second = draft.weight("second", "layer wide hidden")
        inside = draft.product("up", normed, first, "batch sequence wide")
        made = draft.product("down", inside, second, "batch sequence hidden")
        draft.make("out", Function.ADD, made, x)
    return lowered(draft.graph(), "layers")


JOBS = 6  # of each set of rules; 24 were tried once


@pytest.mark.slow
class TestRandomMappings:
    """10,000 of every job: a hundred that fit of a hundred plans, tilings and shardings."""

    @pytest.mark.parametrize(
        ("name", "temporal"), [*((name, False) for name in RULES), ("crosstack", True)]
    )
    def test_none_beats_a_proof(self, tiny_task, brute_step, name, temporal):
        rules = rules_named(name)
        for seed in range(JOBS):
            how = {"training": seed % 3 == 0, "dimensions": 2, "utilization": seed % 4 != 1}
            workload, system = tiny_task(seed, 3, temporal=temporal, **how)
            least, rng = least_time(workload, system, rules), random.Random(seed)
            separate = rules.decisions.parts_directions([workload.training], None)
            plans = [p for p in every_plan(workload, system, rules) if p.graph_stages == 1]
            tried = 0
            for number in range(300 if plans else 0):
                plan = rng.choice(plans)
                tiles = 1 if temporal else rng.choice(divisors(workload.sequence_length))
                choices = make_choices(workload, workload.graph, plan, tiles, rules, system.chip)
                codes = rng.choice(every_sharding(choices, plan, rules))
                load = make_load(workload, system, workload.graph, plan, choices, codes, rules)
                problem = make_problem(load, separate_directions=separate)
                price = prices(problem.load, brute_step)
                if tried == 100 or not np.isfinite(price[1 << np.arange(load.n)]).all():
                    continue
                tried += 1
                layers = random_times(problem.preds, price, 100, np.random.default_rng(number))
                ended = summing(plan, workload.graph, choices, codes)
                time = iteration(ended, layers.min(), system.chip.overlap, rules).time
                assert time * ROUNDING >= least, (seed, plan)


class TestSumsOfParts:
    RULES = rules_named("crosstack")

    @pytest.mark.parametrize("temporal", [False, True])
    @pytest.mark.parametrize("seeds", few_and_many(6, 20), ids=len)
    def test_search_finds_the_best_mapping(self, brute_fuse, brute_split, seeds, temporal):
        later = 0
        for seed in seeds:
            workload, system = added_products(random.Random(seed), temporal)
            least = brute_search(workload, system, self.RULES, brute_fuse, brute_split)
            mapping, certificate = search(workload, system, NOTHING_GIVEN, self.RULES)
            assert certificate.objective == pytest.approx(least, rel=1e-9), seed
            found = evaluate(workload, system, mapping).time
            assert found == pytest.approx(certificate.objective, rel=1e-9)
            later += ops.Axis.PARTIAL in mapping.sharding
        assert later > 0

    @pytest.mark.parametrize("seeds", few_and_many(8, 14), ids=len)
    @pytest.mark.parametrize("temporal", [False, True])
    def test_search_finds_the_best_split_along_named_axes(
        self, brute_fuse, brute_split, temporal, seeds
    ):
        found = set()
        for seed in seeds:
            _, system = added_products(random.Random(seed), temporal)
            graph = residual_layers()
            workload = Workload(graph=graph, sequence_length=4, n_layers=1 + seed % 2)
            least = brute_search(workload, system, self.RULES, brute_fuse, brute_split)
            mapping, certificate = search(workload, system, NOTHING_GIVEN, self.RULES)
            assert certificate.objective == pytest.approx(least, rel=1e-9), seed
            time = evaluate(workload, system, mapping).time
            assert time == pytest.approx(certificate.objective, rel=1e-9)
            found.add(mapping.sharding)
        assert len(found) > 1

    def test_releases_add_up_what_they_make(self):
        workload, system = added_products(random.Random(0), temporal=False)
        given = Constraints(sharding=(("sum_0", ops.Axis.PARTIAL),))
        search(workload, system, given, self.RULES)
        with pytest.raises(InputError, match=r"sharding\.sum_0: got partial"):
            search(workload, system, given, rules_named("dfmodel-e4"))


class TestGivenDecisions:
    RULES = rules_named("crosstack")

    @pytest.mark.slow
    @pytest.mark.parametrize("seeds", few_and_many(4, 8), ids=len)
    def test_they_never_make_it_faster(self, tiny_task, seeds):
        for seed in seeds:
            workload, system = tiny_task(seed)
            free = least_time(workload, system, self.RULES)
            for given in (
                {"n_tiles": 2},
                {"tile_size": 2},
                {"microbatch_size": 2},
                {"max_partitions": 2},
                {"separate_directions": True},
                {"kernel_by_kernel": True},
                {"partitions": (("k0", 1),)},
            ):
                tied = least_time(workload, system, self.RULES, Constraints(**given))
                assert free <= tied * ROUNDING, (seed, given)

    @pytest.mark.parametrize("seed", range(4))
    def test_a_tile_is_as_long_as_given_where_tiles_divide_the_sequence(self, tiny_task, seed):
        """``dfmodel_code``, release E4: ``tile_size x num_tile = seq_len``."""
        workload, system = tiny_task(seed)
        system = replace(system, chip=system.chip.with_level(0, capacity=1e6))
        length, rules = workload.sequence_length, rules_named("dfmodel-e4")
        for size in range(1, length + 1):
            given = Constraints(tile_size=size)
            if length % size:
                says = f"tile_size: got {size}; allowed: a divisor of sequence_length = {length}"
                with pytest.raises(InputError, match=says):
                    search(workload, system, given, rules)
            else:
                assert search(workload, system, given, rules)[0].n_tiles == length // size

    def test_a_pinned_kernel_is_where_it_is_pinned(self, tiny_task):
        workload, system = tiny_task(1)
        given = Constraints(partitions=(("k2", 1),), max_partitions=2)
        mapping, _ = search(workload, system, given, self.RULES)
        names = [k.name for k in workload.graph.kernels]
        assert mapping.partitions[names.index("k2")] == 1

    def test_a_pin_and_kernel_by_kernel_are_both_kept_or_refused(self):
        workload, system = shared_conversion()
        given = Constraints(kernel_by_kernel=True, partitions=(("P", 0), ("A", 0)))
        try:
            mapping, _ = search(workload, system, given, self.RULES)
        except (InfeasibleError, InputError):
            return
        assert mapping.partitions[:2] == (0, 0)

    def test_kernel_by_kernel_keeps_to_the_main_memory(self):
        workload, system = shared_conversion()
        small = replace(
            system,
            chip=system.chip.with_memory(capacity=5.0),
        )
        with pytest.raises(InfeasibleError):
            search(workload, small, Constraints(kernel_by_kernel=True), self.RULES)

    @pytest.mark.parametrize("count", [4, 5, 8, 9, 2**40])
    def test_a_half_of_the_partitions_is_that_of_the_limit(self, tiny_task, count):
        # Four forward kernels may use the first half of all that are asked for, not of four.
        workload, _ = tiny_task(3, 5)
        kernels = [
            replace(k, direction=ops.Direction.FORWARD if i < 4 else ops.Direction.BACKWARD)
            for i, k in enumerate(workload.graph.kernels)
        ]
        graph = workload.graph.listing(kernels=tuple(kernels))
        given = Constraints(max_partitions=count)
        slots, _ = make_slots(graph, given, rules_named("dfmodel-readme"))
        half = count // 2 + count % 2
        assert min(slots.last[0] + 1, 5) == min(half, 5)
        assert min(slots.count - slots.first[4], 5) == min(half, 5)
        assert slots.count % 2 == count % 2  # the middle one is shared

    def test_a_pin_past_half_the_kernels_is_kept(self, tiny_task):
        workload, _ = tiny_task(3, 3)
        kernels = [
            replace(k, direction=ops.Direction.FORWARD if i < 2 else ops.Direction.BACKWARD)
            for i, k in enumerate(workload.graph.kernels)
        ]
        graph = workload.graph.listing(kernels=tuple(kernels))
        given = Constraints(max_partitions=6, partitions=((kernels[0].name, 2),))
        slots, _ = make_slots(graph, given, rules_named("dfmodel-readme"))
        assert (slots.count, slots.first[0], slots.last[0]) == (6, 2, 2)

    def test_an_unknown_pinned_kernel_is_named(self):
        workload, system = shared_conversion()
        with pytest.raises(InputError, match='no kernel is called "Q"'):
            search(workload, system, Constraints(partitions=(("Q", 0),)), self.RULES)

    def test_too_little_sram_is_named(self):
        workload, system = shared_conversion()
        small = replace(system, chip=system.chip.with_level(0, capacity=1.0))
        with pytest.raises(InfeasibleError, match="SRAM"):
            search(workload, small, Constraints(), self.RULES)

    def test_pins_against_the_order_of_kernels_are_refused(self):
        workload, system = shared_conversion()
        with pytest.raises(InputError, match=r"constraints\.partitions\.A: got 0.*allowed: 1 or"):
            search(workload, system, Constraints(partitions=(("P", 1), ("A", 0))), self.RULES)


# ---------------------------------------------------------------- certificate and physics


few_or_all = pytest.mark.parametrize("seeds", few_and_many(4, 8), ids=len)


@pytest.mark.parametrize("name", RULES)
class TestCertificate:
    @few_or_all
    def test_the_mapping_costs_the_objective(self, tiny_task, name, seeds):
        rules = rules_named(name)
        for seed in seeds:
            workload, system = tiny_task(seed, 5, utilization=seed % 2 == 0)
            try:
                mapping, certificate = search(workload, system, Constraints(), rules)
            except InfeasibleError:
                continue
            time = evaluate(workload, system, mapping, rules).time
            assert time == pytest.approx(certificate.objective, rel=1e-9), seed

    def test_an_unlimited_search_is_proved(self, name):
        workload, system = shared_conversion()
        _, certificate = search(workload, system, Constraints(), rules_named(name))
        assert certificate.status is Status.OPTIMAL

    @few_or_all
    def test_a_gap_is_kept(self, tiny_task, name, seeds):
        rules = rules_named(name)
        for seed in seeds:
            workload, system = tiny_task(seed, 4)
            least = least_time(workload, system, rules)
            if math.isfinite(least):
                _, loose = search(workload, system, Constraints(), rules, gap=0.2)
                assert loose.bound * (1 - 1e-9) <= least <= loose.objective * ROUNDING, seed
                assert loose.gap <= 0.2 + 1e-9, seed

    @few_or_all
    def test_no_random_mapping_of_the_same_kind_is_faster(self, tiny_task, name, seeds):
        rules = rules_named(name)
        for seed in seeds:
            workload, system = tiny_task(seed, 4)
            least = least_time(workload, system, rules)
            for time in random_mappings(workload, system, rules, random.Random(seed)):
                assert least <= time * ROUNDING, seed


def random_mappings(workload, system, rules, rng: random.Random) -> list[float]:
    """Return the times of random mappings that are allowed and fit."""
    arrays, times = workload.graph, []
    plans = every_plan(workload, system, rules)
    for _ in range(25):
        plan = rng.choice(plans)
        n_tiles = rng.choice([1, 2, 4])
        choices = make_choices(workload, arrays, plan, n_tiles, rules)
        codes = rng.choice(every_sharding(choices, plan, rules))
        position = {kernel: p for p, kernel in enumerate(arrays.order)}
        mapping = Mapping(
            sizes=plan.sizes,
            parallelism=plan.parallelism,
            dimensions=plan.dimensions,
            microbatch_size=plan.microbatch_size,
            n_tiles=n_tiles,
            sharding=choices.index.sharding(codes),
            partitions=tuple(position[i] for i in range(arrays.n)),
        )
        try:
            times.append(evaluate(workload, system, mapping, rules).time)
        except InfeasibleError:
            continue
    return times


@cache
def time_of_tiny_task(tiny_task, seed: int, **how: Any) -> float:
    return least_time(*tiny_task(seed, 4, **how), rules_named("crosstack"))


class TestFasterHardware:
    RULES = rules_named("crosstack")
    SEEDS = range(4)

    def never_slower(self, tiny_task, better, **how) -> None:
        for seed in self.SEEDS:
            workload, system = tiny_task(seed, 4, **how)
            after = least_time(workload, better(system), self.RULES)
            assert after <= time_of_tiny_task(tiny_task, seed, **how) * ROUNDING, seed

    def test_a_faster_clock_is_never_slower(self, tiny_task):
        def better(s):
            return replace(s, chip=s.chip.with_compute(frequency=s.chip.compute.frequency * 2))

        self.never_slower(tiny_task, better)

    def test_faster_memory_is_never_slower(self, tiny_task):
        def better(s):
            return replace(
                s,
                chip=s.chip.with_memory(bandwidth=s.chip.main_memory.bandwidth * 2),
            )

        self.never_slower(tiny_task, better)

    def test_faster_links_are_never_slower(self, tiny_task):
        def better(s):
            lines = tuple(replace(d, bandwidth=d.bandwidth * 2) for d in s.network)
            return replace(s, network=lines)

        self.never_slower(tiny_task, better)

    def test_shorter_latency_is_never_slower(self, tiny_task):
        def better(s):
            return replace(s, network=tuple(replace(d, latency=0.0) for d in s.network))

        self.never_slower(tiny_task, better)

    def test_more_sram_is_never_slower(self, tiny_task):
        def better(s):
            return replace(s, chip=s.chip.with_level(0, capacity=s.chip.on_chip_capacity * 2))

        self.never_slower(tiny_task, better)

    def test_more_memory_is_never_slower(self, tiny_task):
        def better(s):
            return replace(
                s,
                chip=s.chip.with_memory(capacity=s.chip.main_memory.capacity * 2),
            )

        self.never_slower(tiny_task, better, memory=900.0)

    def test_more_cores_are_never_slower(self, tiny_task):
        def better(s):
            return replace(
                s,
                chip=s.chip.with_compute(
                    n_units=s.chip.compute.n_units + 4, n_multiprocessors=s.chip.compute.n_units + 4
                ),
            )

        self.never_slower(tiny_task, better, utilization=False)

    def test_more_overlap_is_never_slower(self, tiny_task):
        def better(s):
            return replace(s, chip=replace(s.chip, overlap=Overlap.ALL))

        self.never_slower(tiny_task, better)


@cache
def relaxed_beside_loads(tiny_task, name: str, utilization: bool) -> list[tuple[Any, Any]]:
    """Return loads of some shardings, each beside the relaxed one of its plan."""
    rules, found = rules_named(name), []
    for seed in range(10):
        workload, system = tiny_task(seed, 4, utilization=utilization, star=seed % 2 == 0)
        arrays = workload.graph
        plan = make_plan(
            workload, system, (2, 2), (Parallelism.TENSOR, Parallelism.TENSOR), 1, rules
        )
        choices = make_choices(workload, arrays, plan, 2, rules)
        domains = choices.index.domains()
        relaxed = relaxed_load(workload, system, arrays, plan, choices, domains, rules)
        for choice in itertools.islice(itertools.product(*domains), 40):
            codes = np.array(choice)
            load = make_load(workload, system, arrays, plan, choices, codes, rules)
            found.append((relaxed, load))
    return found


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("utilization", [True, False])
class TestRelaxedLoad:
    TERMS = (
        "compute", "network", "data", "own_memory", "entering", "leaving", "weight_time", "sram",
        "weight",
    )  # fmt: skip

    def test_no_term_is_above_that_of_a_sharding(self, tiny_task, name, utilization):
        for relaxed, load in relaxed_beside_loads(tiny_task, name, utilization):
            for term in self.TERMS:
                low, value = np.array(getattr(relaxed, term)), np.array(getattr(load, term))
                assert (low <= value * ROUNDING).all(), term

    def test_no_tensor_is_larger_than_that_of_a_sharding(self, tiny_task, name, utilization):
        for relaxed, load in relaxed_beside_loads(tiny_task, name, utilization):
            for low, flow in zip(relaxed.flows, load.flows, strict=True):
                assert low.tile <= flow.tile
                assert low.total <= flow.total

    def test_its_main_memory_limit_is_no_tighter(self, tiny_task, name, utilization):
        for relaxed, load in relaxed_beside_loads(tiny_task, name, utilization):
            assert relaxed.memory_limit >= load.memory_limit

    def test_no_partition_is_slower(self, tiny_task, name, utilization):
        for relaxed, load in relaxed_beside_loads(tiny_task, name, utilization):
            for mask in (1, 2, 3, 6, 12, 15):
                low, cost = partition_cost(relaxed, mask), partition_cost(load, mask)
                assert not cost.fits or (low.fits and low.time <= cost.time * ROUNDING)

    def test_its_best_fusion_bounds_that_of_a_sharding(self, tiny_task, name, utilization):
        for relaxed, load in itertools.islice(
            relaxed_beside_loads(tiny_task, name, utilization), 60
        ):
            found = fuse(make_problem(load))
            if found is not None:
                bound = fuse(make_problem(relaxed))
                assert bound is not None
                assert bound.time <= found.time * ROUNDING


def test_nothing_is_alive_when_everything_runs_together(random_load):
    load = random_load(0, 6)
    assert live_size(load, 0, load.everything) == 0


class TestManyPlans:
    """Ten million plans: 65,536 chips in four free dimensions, a batch with 246 divisors."""

    @pytest.fixture
    def huge(self, tiny_task) -> tuple[Workload, System]:
        workload, system = tiny_task(1, 3)
        workload = replace(workload, global_batch_size=2**40 * 3**5)
        free = replace(system.network[0], size=None, parallelism=None)
        return workload, replace(system, network=(free,) * 4, n_chips=2**16)

    @pytest.mark.slow
    def test_they_are_made_as_they_are_needed(self, huge):
        seen: list[Progress] = []
        search(*huge, Constraints(), rules_named("crosstack"), work_limit=2e4, progress=seen.append)
        assert max(p.nodes_waiting for p in seen) < 100_000

    def test_a_limit_holds_while_they_are_made(self, huge):
        mapping, found = search(*huge, Constraints(), rules_named("crosstack"), time_limit=0.0)
        assert (found.status, found.stopped) == (Status.LIMIT, Stop.TIME_LIMIT)
        assert 0 < found.bound < found.objective
        cost = evaluate(*huge, mapping, rules_named("crosstack"))
        assert cost.time == pytest.approx(found.objective, rel=1e-9)

    @pytest.mark.slow
    def test_their_bound_holds_for_any_of_them(self, huge):
        rules = rules_named("crosstack")
        _, found = search(*huge, Constraints(), rules, time_limit=0.0)
        workload, system = huge
        for microbatch in (1, 2**10, 2**30):
            given = Constraints(microbatch_size=microbatch)
            sized = tuple(replace(d, size=16) for d in system.network)
            _, one = search(workload, replace(system, network=sized), given, rules, work_limit=1e4)
            assert found.bound <= one.objective

    def test_processes_share_them(self, huge):
        _, found = search(*huge, Constraints(), rules_named("crosstack"), time_limit=0.0, jobs=2)
        assert found.status is Status.LIMIT


class TestNoAnswerInTime:
    def test_it_is_not_called_infeasible(self, random_task):
        # Thirty kernels that have to share two partitions: no cheap mapping does.
        workload, system = random_task(0, 30, n_chips=1, star=True)
        given = Constraints(max_partitions=2, n_tiles=1, microbatch_size=1)
        with pytest.raises((LimitError, InfeasibleError)) as raised:
            search(workload, system, given, rules_named("crosstack"), work_limit=0)
        assert isinstance(raised.value, LimitError)
        assert "none is ruled out" in str(raised.value)


def test_a_search_that_has_nothing_left_to_try_says_that_the_method_ended(random_task):
    # Thirty kernels that read one: more order ideals than can be listed.
    workload, system = random_task(0, 30, n_chips=1, star=True)
    chip = system.chip.with_level(0, capacity=600.0)
    system = replace(system, chip=replace(chip, memories=main_memory(bandwidth=1e6)))
    given = Constraints(n_tiles=1, microbatch_size=1)
    _, found = search(workload, system, given, rules_named("crosstack"))
    assert (found.status, found.stopped) == (Status.LIMIT, Stop.METHOD)


def test_a_proof_was_not_stopped(tiny_task):
    _, found = search(*tiny_task(1, 3), Constraints(), rules_named("crosstack"))
    assert (found.status, found.stopped) == (Status.OPTIMAL, None)


def test_what_is_proved_cannot_have_been_stopped(tiny_task):
    _, found = search(*tiny_task(1, 3), Constraints(), rules_named("crosstack"))
    with pytest.raises(InputError, match="stopped: got 'time_limit'; allowed: none"):
        replace(found, stopped=Stop.TIME_LIMIT)


@pytest.mark.parametrize("seed", [104, 107])
def test_a_microbatch_of_the_whole_batch_costs_what_it_is_evaluated_to(tiny_task, seed):
    # It adds its gradients to none; what all plans share when they are bounded is no plan.
    workload, system = tiny_task(seed)
    rules = rules_named("crosstack")
    mapping, certificate = search(workload, system, NOTHING_GIVEN, rules)
    assert mapping.microbatch_size == workload.global_batch_size
    time = evaluate(workload, system, mapping, rules).time
    assert time == pytest.approx(certificate.objective, rel=1e-9)
