"""Choices by the names of axes: extents and costs on a chip, and conversions on edges."""

from __future__ import annotations

import numpy as np
import pytest
from builders import named_models
from builders.twice_written import gpt_forward
from oracles.axis_choices import AxisChoices, axis_choices
from oracles.layout_steps import LayoutStep

from crosstack.io import library
from crosstack.machine.system import Dimension, DimensionKind, Parallelism
from crosstack.mapping.sharding import eliminate
from crosstack.model.choices import make_choices
from crosstack.model.collectives import Extent, Group
from crosstack.model.collectives.compose import collective_lines
from crosstack.model.collectives.layouts import Layout, layout_change
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.llm import llm_graph
from crosstack.workload.architectures import graphs
from crosstack.workload.dataflow import Graph
from crosstack.workload.kernel_graph import AXES
from crosstack.workload.kernels import Axis, Collective
from crosstack.workload.lowering import kernels_of, lowered
from crosstack.workload.passes.backward import training
from crosstack.workload.sharding import PARTIAL
from crosstack.workload.workload import Workload

CHIPS = 4
MOVES = (
    Collective.ALL_GATHER,
    Collective.ALL_REDUCE,
    Collective.ALL_TO_ALL,
    Collective.REDUCE_SCATTER,
)


def ring(chips: int = CHIPS) -> Group:
    level = Dimension(kind=DimensionKind.RING, size=chips, bandwidth=1e9, latency=1e-6)
    return Group(extents=(Extent(dimension=level, size=chips, members=chips),))


def time_of(collective: Collective, size: float, chips: int = CHIPS) -> float:
    return float(collective_lines(collective, ring(chips)).time(size))


def compiled(graph: Graph, block: str = "", mesh=(CHIPS,), n_tiles: int = 1):
    block = block or graph.blocks[0].name

    def step_time(step: LayoutStep, size: float) -> float:
        assert step.collective is not None
        return time_of(step.collective, size * step.share, mesh[step.dimension])

    kernels, arrays = kernels_of(graph, block), lowered(graph, block)
    found = axis_choices(graph, kernels, arrays, mesh=mesh, step_time=step_time, n_tiles=n_tiles)
    return found, arrays


COLUMNS = ("m", "k", "columns", "n_tiles", "work", "output_tile", "output_total", "weight")


def row(choices, i: int) -> tuple[float, ...]:
    return tuple(float(getattr(choices, name)[i]) for name in COLUMNS)


class TestColumns:
    @pytest.mark.parametrize("n_tiles", [1, 3])
    def test_what_splits_an_axis_by_place_splits_one_by_name(self, a_system, a_dimension, n_tiles):
        graph = gpt_forward(sequence=12, heads=4, head=8)
        old = llm_graph(training=False, hidden=32, sequence_length=12, n_heads=4, head_size=8)
        workload, rules = Workload(graph=old, sequence_length=12), rules_named("crosstack")
        system = a_system(network=(a_dimension(size=CHIPS),), n_chips=CHIPS)
        plan = make_plan(workload, system, (CHIPS,), (Parallelism.TENSOR,), 1, rules)
        arrays = lowered(graph, graph.blocks[0].name, work=lambda operation: 1.0)
        by_place = make_choices(workload, arrays, plan, n_tiles, rules)
        by_name, _ = compiled(graph, n_tiles=n_tiles)
        compared = 0
        for i in range(len(by_place.work)):
            kernel, axis = int(by_place.index.kernel[i]), AXES[by_place.index.axis[i]]
            if arrays.row_wise[kernel] and axis is Axis.M:
                continue  # rows that are looked at as a whole
            start, end = by_name.index.start[kernel : kernel + 2].tolist()
            same = {row(by_name, j)[:4] + row(by_name, j)[5:] for j in range(start, end)}
            assert row(by_place, i)[:4] + row(by_place, i)[5:] in same, (arrays.names[kernel], axis)
            compared += 1
        assert compared > 25

    def test_chips_share_the_work_of_what_is_split(self):
        choices, arrays = compiled(gpt_forward(sequence=16, heads=4, head=8))
        whole = choices.work[choices.index.start[:-1]]
        for i, split in enumerate(choices.splits):
            kernel = int(choices.index.kernel[i])
            ways = CHIPS if split.along not in (("",), (PARTIAL,)) else 1
            assert choices.work[i] * ways == whole[kernel], (arrays.names[kernel], split)

    @pytest.mark.slow
    def test_an_axis_over_two_dimensions_is_split_into_all_their_parts(self):
        choices, arrays = compiled(gpt_forward(sequence=16, heads=4, head=8), mesh=(2, 4))
        kernel = arrays.names.index("FFN0")
        start, end = choices.index.start[kernel : kernel + 2].tolist()
        m = {choices.splits[i].along: choices.m[i] for i in range(start, end)}
        assert m["feed_forward", "feed_forward"] == 4 * 32 // 8
        assert m["feed_forward", "hidden"] == 4 * 32 // 2


LAYERS = (
    gpt_forward(sequence=16, heads=4, head=8),
    training(named_models.gpt_layer(batch=1, sequence=16, heads=4, head=8, ff=64), "loss"),
    graphs.training(library.model("llama3-8b"), sequence=16),
)


class TestEdges:
    def test_times_are_those_of_changes_of_layout_on_the_same_chips(self):
        graph = gpt_forward(sequence=16, heads=4, head=8)
        choices, arrays = compiled(graph)
        index = choices.index
        for entry, e in enumerate(index.edge.tolist()):
            before, after = index.before[entry], index.after[entry]
            reader = kernels_of(graph, graph.blocks[0].name)[int(index.kernel[after])]
            place = reader.operands[int(arrays.operand[e])]
            start, end = choices.splits[before].output[0], choices.splits[after].inputs[place][0]
            found = choices.edge_time[entry]
            if end == PARTIAL:
                assert found == (0.0 if start == PARTIAL else np.inf)
                continue
            first = {"": Layout.REPLICATED, PARTIAL: Layout.PARTIAL}.get(start, Layout.ROWS)
            last = {"": Layout.REPLICATED, start: first}.get(end, Layout.COLUMNS)
            size = float(arrays.output_size[arrays.source[e]])
            prices = {c: collective_lines(c, ring()) for c in MOVES}
            change = layout_change(first, frozenset({last}), prices)
            assert found == pytest.approx(0.0 if first is last else float(change.lines.time(size)))

    @pytest.mark.parametrize("graph", LAYERS, ids=["gpt", "gpt trained", "llama trained"])
    def test_the_search_pays_for_the_same_changes(self, a_system, a_dimension, graph):
        """Choices of the search split one axis of each group; readers apart, changes are the same.

        But that what is not partial may be added to parts, which conversions by steps do not know.
        """
        rules, names = rules_named("crosstack"), [block.name for block in graph.blocks]
        block = "layers" if "layers" in names else names[0]
        by_name, arrays = compiled(graph, block)
        system = a_system(network=(a_dimension(size=CHIPS, kind=DimensionKind.RING, bandwidth=1e9,
                                               latency=1e-6),), n_chips=CHIPS)  # fmt: skip
        workload = Workload(graph=arrays, sequence_length=16)
        plan = make_plan(workload, system, (CHIPS,), (Parallelism.TENSOR,), 1, rules)
        by_place = make_choices(workload, arrays, plan, 1, rules)
        places, same = by_place.index, same_choices(graph, block, by_place, by_name)
        compared = 0
        for entry, e in enumerate(places.edge.tolist()):
            before, after = same[places.before[entry]], same[places.after[entry]]
            time = float(by_name.edge_time[by_name.index.table(e, (before,), (after,))[0, 0]])
            expected = 0.0 if np.isinf(time) else time
            assert by_place.conversions.edge_time[entry] == pytest.approx(expected), (
                arrays.names[places.source[e]], by_name.splits[before],
                arrays.names[places.target[e]], by_name.splits[after],
            )  # fmt: skip
            compared += time > 0
        assert compared > 20

    def test_least_communication_with_split_weights_is_columns_then_rows(self):
        """Heads, then the width inside, then parts of sums: ``shoeybi2019megatron``."""
        graph = gpt_forward(sequence=16, heads=4, head=8)
        choices, arrays = compiled(graph)
        best, time = cheapest(choices, arrays)
        along = {arrays.names[i]: choices.splits[c].along[0] for i, c in enumerate(best)}
        assert {along[name] for name in ("Q", "K", "V", "MHA_GEMM_1", "MHA_GEMM_2")} == {"heads"}
        # Parts of sums, or gathering before and after: the same bytes.
        assert along["PROJ_GEMM"] in ("heads", "head_size", "hidden")
        assert {along[name] for name in ("FFN0", "GeLU", "FFN1")} == {"feed_forward"}
        # Sums are added up on the way to their tokens; once all need all of them again.
        size = 32 * 16 * 2.0
        adds = 2 * time_of(Collective.REDUCE_SCATTER, size)
        assert time == pytest.approx(adds + time_of(Collective.ALL_GATHER, size))

    def test_a_layer_in_training_has_choices_without_limit_on_no_edge(self):
        graph = training(
            named_models.gpt_layer(batch=1, sequence=16, heads=4, head=8, ff=64), "loss"
        )
        choices, arrays = compiled(graph)
        assert arrays.backward.any()
        _, time = cheapest(choices, arrays)
        assert 0 < time < np.inf


def same_choices(graph: Graph, block: str, by_place, by_name: AxisChoices) -> list[int]:
    """Return the choice by name that every choice by place is."""
    groups, found = {Axis.OUTER: "outer", Axis.M: "m", Axis.K: "k", Axis.N: "n"}, []
    kernels = kernels_of(graph, block)
    for i, code in zip(by_place.index.kernel.tolist(), by_place.index.axis.tolist(), strict=True):
        own = range(*by_name.index.start[i : i + 2].tolist())
        along = {by_name.splits[j].along[0]: j for j in own}
        axis = AXES[code]
        names = {Axis.NONE: ("",), Axis.PARTIAL: (PARTIAL,)}.get(axis)
        names = names or getattr(kernels[i].product, groups[axis])
        found.append(next(along[name] for name in names if name in along))
    return found


def cheapest(choices: AxisChoices, arrays) -> tuple[list[int], float]:
    """The least time on the network where every product with a weight is split along it."""
    index = choices.index
    domains = []
    for kernel in range(arrays.n):
        own = range(*index.start[kernel : kernel + 2].tolist())
        least = min(choices.weight[i] for i in own)
        domains.append(tuple(i for i in own if choices.weight[i] == least))
    found = eliminate(domains, choices.network_time, index, choices.edge_time)
    assert found.exact
    return found.best().tolist(), found.bound
