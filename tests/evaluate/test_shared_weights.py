"""Blocks whose repetitions share one set of weights, as the words of a recurrence: by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import crosstack
from crosstack.errors import InputError
from crosstack.evaluate.blocks import BlockTable
from crosstack.evaluate.strategy_times import mapping_of, strategy_times
from crosstack.io import library
from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Mapping
from crosstack.mapping.parallelism import workload_uses
from crosstack.mapping.strategies import all_strategies
from crosstack.model.clocked import kernel_clock
from crosstack.model.collectives.part import NetworkUse
from crosstack.model.memory import recomputations
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import graphs
from crosstack.workload.axes import AxisUse
from crosstack.workload.draft import Draft
from crosstack.workload.functions import Function
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.lstm import LstmModel, language_model_graph
from crosstack.workload.passes.backward import training
from crosstack.workload.published_steps import LSTMS
from crosstack.workload.transformer_training import Zero

RULES = rules_named("crosstack")
GATES, LAYERS, BATCH, CHIPS = 4, 2, 256, 8
WHOLE = 2 * BATCH * CHIPS  # two microbatches
MODEL = replace(LSTMS["lstm-lm-40k"], projection=0, batch=WHOLE)
GRAPH = training(language_model_graph(MODEL), "loss")
WORKLOAD = workload_of(GRAPH, items="batch", name="lstm")
SYSTEM = crosstack.system("h100-dgx", chips=CHIPS)
GIVEN = Constraints(
    degrees=Degrees(tensor=1, pipeline=1, data=CHIPS),
    microbatch_size=BATCH,
    kernel_by_kernel=True,
    zero=Zero.NONE,
)
TINY = LstmModel(batch=8, sequence=5, vocabulary=32, layers=2, width=8)


@pytest.fixture(scope="module")
def answer():
    return crosstack.optimise(WORKLOAD, SYSTEM, constraints=GIVEN)


def product_time(m: int, k: int, n: int, *, adds: float = 0.0) -> float:
    """Time of a product that adds to a share ``adds`` of what it makes, for a microbatch. [s]"""
    chip = SYSTEM.chip
    shape = (np.array([float(extent)]) for extent in (m, k, n, 1))
    found = kernel_clock(chip, RULES).products(chip, WORKLOAD.graph.dtype, *shape)
    made = found.operands[0, 2] * (1 + adds)
    moved = found.operands[0, :2].sum() + made
    memory = moved / chip.main_memory.bandwidth + chip.main_memory.delay
    after = float(found.reduction_time[0])
    return chip.launch_overhead + after + max(float(found.work_time[0]), float(memory))


def words_time(elements: int, tensors: int) -> float:
    """Time of a function that reads and writes ``tensors``, bound by main memory. [s]"""
    chip = SYSTEM.chip
    moved = tensors * elements * 2 / chip.main_memory.bandwidth
    return chip.launch_overhead + moved + chip.main_memory.latency


def all_reduce_time(elements: int) -> float:
    """Time of summing a gradient over all chips. [s]"""
    use = NetworkUse.of(SYSTEM, (CHIPS,), (Parallelism.DATA,), WORKLOAD.graph.dtype)
    return float(RULES.collectives.gradients(use).time(elements * 2.0))


class TestByHand:
    def test_a_word_takes_its_kernels(self, answer):
        width, words = MODEL.width, MODEL.sequence
        forward = product_time(width, width, BATCH)
        # Of two microbatches of twenty words, all but the first word add to what is there.
        gradient = product_time(width, BATCH, width, adds=1 - 1 / (2 * words))
        one, two = (words_time(BATCH * width, tensors) for tensors in (2, 3))
        # Gates and tanh read one tensor; their sums, and the state's four, two.
        kernels = GATES * (forward + one + two) + one + 4 * two
        # Derivatives read two: of gates and tanh, both of three products, four sums of gradients
        # to the state before, one each to the state and to the output.
        kernels += GATES * (forward + gradient + two) + two + 6 * two + (GATES - 1) * two + 2 * two
        assert answer.evaluation.layer_time * BATCH == pytest.approx(kernels, rel=1e-9)

    def test_cells_that_are_an_end_take_the_same(self, answer):
        cells = next(end for end in answer.evaluation.ends if end.name == "cells_2")
        assert cells.count == MODEL.sequence
        assert cells.time == pytest.approx(answer.evaluation.layer_time, rel=1e-12)

    @pytest.mark.slow
    def test_cells_are_fused_as_well_in_an_end_as_in_the_layers(self, answer):
        free = replace(GIVEN, kernel_by_kernel=False)
        found = crosstack.optimise(WORKLOAD, SYSTEM, constraints=free).evaluation
        cells = next(end for end in found.ends if end.name == "cells_2")
        assert cells.time == pytest.approx(found.layer_time, rel=1e-12)
        assert found.layer_time < 0.75 * answer.evaluation.layer_time

    def test_an_iteration_is_the_sum_of_all(self, answer):
        found = answer.evaluation
        ends = sum(end.count * end.time for end in found.ends)
        each = (MODEL.sequence * found.layer_time + ends) * BATCH
        ended = found.sums_time + found.update_time
        assert found.time == pytest.approx(2 * each + ended, rel=1e-9)
        assert answer.certificate.objective == pytest.approx(found.time, rel=1e-12)
        assert found.time == pytest.approx(2 * 41e-3, rel=0.1)

    def test_gradients_are_summed_over_chips_once_an_iteration(self, answer):
        found, width = answer.evaluation, MODEL.width
        assert sum(p.network_time for p in found.partitions) == 0
        # All words have one set of weights, whose gradients are known once all are through.
        matrix, words = GATES * width**2, MODEL.vocabulary * width
        before = matrix + GATES * width + words
        behind = 2 * matrix + GATES * width + words + MODEL.vocabulary
        parts = (matrix, before, behind)
        assert found.sums_time == pytest.approx(sum(map(all_reduce_time, parts)), rel=1e-9)

    def test_weights_their_gradients_and_optimizer_state_are_there_once(self, answer):
        memory = answer.evaluation.memory.stage(0)
        # Biases are no operands of products, and are left out.
        parameters = 2 * MODEL.vocabulary * MODEL.width + 2 * LAYERS * GATES * MODEL.width**2
        assert parameters == pytest.approx(GRAPH.n_parameters, rel=1e-3)
        assert memory.weights == pytest.approx(2 * parameters, rel=1e-12)
        rules = RULES.memory
        assert memory.gradients == pytest.approx(rules.gradient_bytes * parameters, rel=1e-12)
        assert memory.optimizer_state == pytest.approx(rules.optimizer_bytes * parameters)


class TestWork:
    def test_no_work_of_products_is_lost_and_what_is_added_in_place_takes_none(self):
        graph, workload = GRAPH, WORKLOAD
        pairs = [
            (graph.work(graph.nest(block, o)) * graph.repeats(block), o)
            for block in graph.blocks
            for o in block.operations
        ]
        blocks = [(workload.graph, workload.n_layers), *((e.graph, e.count) for e in workload.ends)]
        products = sum(float(g.work[g.gemm].sum()) * count for g, count in blocks)
        multiplied = sum(work for work, o in pairs if o.multiplies)
        assert products * workload.global_batch_size == pytest.approx(multiplied, rel=1e-12)
        assert workload.work == pytest.approx(graph.total_work, rel=1e-3)
        names = {name for g, _ in blocks for name in g.names}
        sums = {o.name for _, o in pairs if o.function is Function.ADD and "_sum_of_" in o.name}
        assert len(sums) == LAYERS * GATES
        assert not sums & names

    def test_a_weight_that_two_products_of_a_word_read_is_added_up_by_both(self):
        made = _tied()
        kernels = workload_of(made, block="cells").graph
        summing = np.flatnonzero(kernels.periodic_size)
        assert kernels.gemm[summing].all()
        assert len(summing) == 2
        assert kernels.sharers[kernels.gemm].tolist() == [6] * 6
        assert not any("sum_of" in name for name in kernels.names)

    def test_layers_that_have_weights_of_their_own_share_none(self):
        for name in ("gpt3-175b", "deepseek-v2"):
            workload = workload_of(graphs.training(library.model(name), sequence=64))
            assert not workload.graph.shares_weights
            assert not any(end.graph.shares_weights for end in workload.ends)


def _tied():
    """Return six words, and back, of a cell in which one weight is read twice."""
    draft = Draft(dtype=WORKLOAD.graph.dtype)
    draft.axis(AxisUse.TOKEN, sequence=6, batch=4)
    draft.axis(width=16, width_in=16)
    weight = draft.weight("U", "width_in width")
    before = draft.tensor("start", "batch width")
    with draft.repeated("cells", "sequence", ("start", "last")):
        seen = draft.seen(before, "batch width_in")
        once = draft.product("once", seen, weight, "batch width")
        bent = draft.make("bent", Function.TANH, once)
        again = draft.product("again", draft.seen(bent, "batch width_in"), weight, "batch width")
        draft.make("last", Function.TANH, again)
    draft.reduced("loss", Function.MEAN, "last", over="batch width")
    return training(draft.graph(), "loss")


class TestStages:
    def test_degrees_with_a_pipeline_are_refused(self):
        given = replace(GIVEN, degrees=Degrees(tensor=1, pipeline=2, data=4))
        with pytest.raises(InputError, match="constraints.degrees: .*allowed: pp=1.*share weights"):
            crosstack.optimise(WORKLOAD, SYSTEM, constraints=given)

    def test_a_network_that_is_a_pipeline_is_refused(self):
        network = tuple(replace(d, parallelism=Parallelism.PIPELINE) for d in SYSTEM.network)
        with pytest.raises(InputError, match=r"network\[0\].parallelism: .*tensor or data"):
            crosstack.optimise(WORKLOAD, replace(SYSTEM, network=network))

    def test_a_mapping_with_a_pipeline_is_refused(self, answer):
        mapping = replace(answer.mapping, parallelism=(Parallelism.PIPELINE,))
        with pytest.raises(InputError, match=r"mapping.parallelism: got 8 stages; allowed: 1"):
            crosstack.evaluate(WORKLOAD, SYSTEM, mapping)

    def test_none_is_tried_where_degrees_are_free(self):
        uses = workload_uses(WORKLOAD, SYSTEM, Constraints(), RULES)
        found = {use for each in uses if each is not None for use in each.parallelism}
        assert found == {Parallelism.TENSOR, Parallelism.DATA}


def test_many_strategies_take_what_each_takes_alone():
    workload = workload_of(training(language_model_graph(TINY), "loss"), block="cells_2",
                           items="batch")  # fmt: skip
    table = BlockTable(workload=workload, system=SYSTEM, rules=RULES, work_limit=1e3)
    strategies = all_strategies(workload, SYSTEM, RULES)
    found = strategy_times(strategies, table)
    for i in range(len(strategies)):
        mapping = mapping_of(strategies, i, table)
        assert mapping is not None
        alone = crosstack.evaluate(workload, SYSTEM, mapping)
        for name in ("time", "memory_used"):
            assert getattr(found, name)[i] == pytest.approx(getattr(alone, name), rel=1e-12)


@pytest.mark.parametrize("trains", [True, False])
def test_no_mapping_beats_the_answer(trains):
    graph = language_model_graph(TINY)
    workload = workload_of(training(graph, "loss") if trains else graph, items="batch")
    system = System(
        chip=flat_chip(
            n_cores=4, lanes=2, stages=2, frequency=1e3, sram_capacity=1e5, utilization=0.5,
            overlap=Overlap.NONE, memories=main_memory(bandwidth=1e5),
        ),
        network=(Dimension(kind=DimensionKind.RING, bandwidth=1e4, size=4),),
        n_chips=4,
    )  # fmt: skip
    # One stage of one chip a sequence: shardings, each of three kinds, are no decision.
    given = Constraints(degrees=Degrees(tensor=1), kernel_by_kernel=True, n_tiles=1)
    answer = crosstack.optimise(workload, system, constraints=given)
    assert answer.certificate.status == "optimal"
    best = math.inf
    for use in workload_uses(workload, system, given, RULES):
        for size in use.microbatches if use is not None else ():
            for again in recomputations(workload.graph, RULES):
                mapping = replace(answer.mapping, microbatch_size=size, recompute=again)
                assert isinstance(mapping, Mapping)
                best = min(best, crosstack.evaluate(workload, system, mapping).time)
    assert answer.certificate.objective == pytest.approx(best, rel=1e-12)
