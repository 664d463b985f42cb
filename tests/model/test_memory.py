"""Memory of a chip: what a graph keeps, by hand and by the formulas of the field."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders.graphs import product_and_function

from crosstack.errors import InputError
from crosstack.machine.chip import flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.model.attention import attention_core
from crosstack.model.choices import make_choices
from crosstack.model.memory import (
    COPY_COLUMNS,
    computed_again,
    copy_memory,
    kept_tensors,
    static_size,
)
from crosstack.model.memory_account import ROWS, MemoryAccount, StageMemory, pipeline_account
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.rules import Rules, rules_named
from crosstack.model.schedule.in_flight import in_flight
from crosstack.published.dfmodel.graphs.llm import llm, llm_graph
from crosstack.published.dfmodel.rules import as_dfmodel
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.kernels import Axis, Saved, Tensor
from crosstack.workload.transformer_training import Recompute, Schedule
from crosstack.workload.workload import Workload

RULES = rules_named("crosstack")
H, S, A = 64, 16, 4  # hidden, sequence, heads
GPT = {"hidden": H, "sequence_length": S, "n_heads": A, "head_size": H // A}
WIDE, SCORES = float(S * H), float(A * S * S)  # elements of an activation, of the scores
# Tensor-parallel chips split heads and the feed-forward width; what is between is whole on each.
SPLIT = {"PROJ_GEMM": Axis.K, "FFN1": Axis.K, "FFN0": Axis.M, "GeLU": Axis.M}


def machine(sizes: tuple[int, ...]) -> System:
    return System(
        chip=replace(
            flat_chip(
                n_cores=1, lanes=1, stages=1, frequency=1.0, sram_capacity=1e12, utilization=1.0
            ),
            memories=main_memory(bandwidth=1.0),
        ),
        network=tuple(Dimension(kind=DimensionKind.RING, bandwidth=1.0, size=s) for s in sizes),
        n_chips=int(np.prod(sizes)),
    )


def planned(
    workload: Workload,
    tensor: int = 1,
    pipeline: int = 1,
    data: int = 1,
    recompute: Recompute = Recompute.NONE,
    microbatch: int = 1,
) -> MeshPlan:
    uses = (Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA)
    sizes = (tensor, pipeline, data)
    plan = make_plan(workload, machine(sizes), sizes, uses, microbatch, RULES)
    assert plan is not None
    return replace(plan, recompute=recompute)


def activations(
    plan: MeshPlan, norms: Axis = Axis.NONE, rules: Rules = RULES
) -> tuple[float, float]:
    """Bytes of one layer of one sequence: kept, and there besides while it is computed again."""
    workload = llm(**GPT, n_layers=1, global_batch_size=1)
    choices = make_choices(workload, workload.graph, plan, 1, rules)
    codes = []
    for i, kernel in enumerate(workload.graph.kernels):
        allowed = choices.index.axes(i)
        wanted = SPLIT.get(kernel.name, norms)
        axis = wanted if wanted in allowed else allowed[0]
        codes.append(int(choices.index.start[i]) + allowed.index(axis))
    return float(choices.kept[codes].sum()), float(choices.again[codes].sum())


ONE = llm(**GPT, n_layers=1, global_batch_size=1)


class TestGptLayer:
    """Equations of korthikanti2023reducing, at two bytes a number and one a dropped element."""

    def test_without_parallelism(self):  # equation 1: s b h (34 + 5 a s / h)
        assert activations(planned(ONE)) == (34 * WIDE + 5 * SCORES, 0.0)

    def test_without_dropout(self):
        # Masks of 1 after attention and after the feed-forward network, and of the scores its mask
        # and its result; without dropout the graph has none of its kernels.
        workload = llm(**GPT, n_layers=1, global_batch_size=1)
        graph = without(workload.graph, ("DropOut_1", "DropOut_2", "DropOut_3"))
        kept = kept_size(graph)
        assert kept == 32 * WIDE + 2 * SCORES

    @pytest.mark.parametrize("tensor", [2, 4])
    def test_tensor_parallel(self, tensor):  # equation 2: s b h (10 + 24 / t + 5 a s / (h t))
        kept, _ = activations(planned(ONE, tensor=tensor))
        assert kept == 10 * WIDE + (24 * WIDE + 5 * SCORES) / tensor

    @pytest.mark.parametrize("tensor", [2, 4])
    def test_tensor_and_sequence_parallel(self, tensor):  # equation 4: (34 + 5 a s / h) / t
        # What stands between products is split, too: each chip keeps its share of all.
        kept, _ = activations(planned(ONE, tensor=tensor), norms=Axis.M)
        assert kept == (34 * WIDE + 5 * SCORES) / tensor

    def test_attention_computed_again(self):  # section 5: 34 s b h
        kept, again = activations(planned(ONE, recompute=Recompute.ATTENTION))
        assert (kept, again) == (34 * WIDE, 5 * SCORES)

    def test_all_computed_again(self):  # section 5: 2 s b h
        kept, again = activations(planned(ONE, recompute=Recompute.FULL))
        assert (kept, kept + again) == (2 * WIDE, 34 * WIDE + 5 * SCORES)

    def test_several_layers_in_a_graph_keep_each_its_own(self):
        graph = llm_graph(training=True, **GPT, layers_in_graph=3)
        assert kept_size(graph) == 3 * (34 * WIDE + 5 * SCORES)
        # The graph is computed again from where it begins.
        assert kept_size(graph, Recompute.FULL) == 2 * WIDE

    def test_attention_is_scores_to_weighted_values_of_every_layer(self):
        arrays = llm_graph(training=True, **GPT, layers_in_graph=2)
        core = [
            name
            for name, inside in zip(arrays.names, attention_core(arrays), strict=True)
            if inside
        ]
        names = ("MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2")
        assert core == [f"{name}_layer_{layer}" for layer in (0, 1) for name in names]

    def test_published_rules_keep_none(self):
        assert activations(planned(ONE), rules=rules_named("dfmodel-readme")) == (0.0, 0.0)


def without(graph: KernelGraph, names: tuple[str, ...]) -> KernelGraph:
    """Return a graph without some forward kernels; their readers read what they have read."""
    feeds = {c.kernel: t.producer for t in graph.tensors for c in t.consumers}
    tensors = {t.producer: list(t.consumers) for t in graph.tensors}
    for name in names:
        readers = tensors.pop(name)
        producer = feeds[name]
        kept = [c for c in tensors[producer] if c.kernel != name]
        tensors[producer] = kept + readers
    sizes = {k.name: k.output_size for k in graph.kernels}
    return kernel_graph(
        kernels=tuple(k for k in graph.kernels if k.name not in names),
        tensors=tuple(
            Tensor(producer=p, consumers=tuple(c), size=sizes[p]) for p, c in tensors.items()
        ),
        word=graph.word,
    )


def kept_size(graph: KernelGraph, recompute: Recompute = Recompute.NONE) -> float:
    workload = Workload(graph=graph)
    plan = planned(workload, recompute=recompute)
    choices = make_choices(workload, graph, plan, 1, RULES)
    return float(choices.kept[choices.index.start[:-1]].sum())


# ---------------------------------------------------------------- by hand


def small(*, saved: Saved = Saved.NOTHING) -> KernelGraph:
    """x (from outside) -> product -> function -> result; its gradients from outside and back."""
    readers = {
        "product": [("function", 0)],
        "function_back": [("product_back", 0), ("update", 0)],
    }
    return product_and_function(readers, saved=saved)


def test_an_operand_from_outside_beside_a_gradient_is_kept():
    kept = kept_tensors(small())
    assert not (kept.output | kept.mask).any()
    # Of `update` the second operand; what `function_back` takes from outside is the gradient.
    assert np.argwhere(kept.operands).tolist() == [[4, 1]]
    assert kept_size(small()) == 64.0


@pytest.mark.parametrize(
    ("saved", "size"),
    [(Saved.INPUT, 64.0), (Saved.OUTPUT, 64.0), (Saved.MASK, 32.0), (Saved.NOTHING, 0.0)],
)
def test_a_derivative_keeps_what_it_needs(saved, size):
    assert kept_size(small(saved=saved)) == 64.0 + size


def test_a_tensor_that_several_need_is_kept_once():
    graph = small(saved=Saved.INPUT)
    product = replace(graph.kernels[0], saved=Saved.OUTPUT)
    graph = graph.listing(kernels=(product, *graph.kernels[1:]))
    assert kept_size(graph) == 64.0 + 64.0


def test_computed_again_keeps_what_goes_in():
    # The operand of `product`, and that of `update`: a graph cannot say that they are the same.
    assert kept_size(small(saved=Saved.INPUT), Recompute.FULL) == 64.0 + 64.0


def test_without_a_backward_pass_nothing_is_kept_or_computed_again():
    graph = llm_graph(training=False, **GPT)
    arrays = graph
    kept = kept_tensors(arrays)
    assert not (kept.output | kept.mask | kept.operands.any(axis=1)).any()
    assert not computed_again(arrays, Recompute.FULL).any()


# ---------------------------------------------------------------- stages


@pytest.mark.parametrize(
    ("stage", "options", "flying"),
    [
        (0, {"schedule": Schedule.GPIPE}, 8),
        (3, {"schedule": Schedule.GPIPE}, 8),
        (0, {}, 4),
        (1, {}, 3),
        (3, {}, 1),
        (0, {"interleave": 2}, 4 * (1 + 3 / 8)),  # narayanan2021megatron: 1 + (p - 1) / (p v)
        (0, {"interleave": 4}, 4 * (1 + 3 / 16)),
        (3, {"interleave": 2}, (1 + 4) / 2),
    ],
)
def test_microbatches_in_flight(stage, options, flying):
    assert in_flight(stage, stages=4, microbatches=8, **options) == flying


def test_microbatches_in_flight_of_many_stages_are_those_of_each():
    at, stages, m, v = np.array([(0, 4, 8, 1), (3, 4, 2, 1), (1, 4, 8, 2), (0, 1, 5, 1)]).T
    for schedule in Schedule:
        many = in_flight(at, stages=stages, microbatches=m, schedule=schedule, interleave=v)
        for i, kept in enumerate(many.tolist()):
            given = {"stages": int(stages[i]), "microbatches": int(m[i]), "interleave": int(v[i])}
            assert in_flight(int(at[i]), schedule=schedule, **given) == kept


def test_no_more_are_in_flight_than_there_are():
    assert [in_flight(0, stages=4, microbatches=m) for m in (1, 2, 8)] == [1, 2, 4]
    assert in_flight(0, stages=4, microbatches=4, interleave=9) == 4


def test_a_stage_is_one_of_the_pipeline():
    with pytest.raises(InputError, match=r"^stage: got 4; allowed: 0 to 3"):
        in_flight(4, stages=4, microbatches=1)


def sizes(workload: Workload, plan: MeshPlan, working: float = 0.0) -> tuple[MemoryAccount, float]:
    arrays = workload.graph
    choices = make_choices(workload, arrays, plan, 1, RULES)
    codes = choices.index.start[:-1]  # on one chip all choices are the same
    columns = {n: getattr(choices, n)[codes] for n in COPY_COLUMNS}
    memory = copy_memory(workload, arrays, plan, RULES, **columns)
    account = pipeline_account(workload, plan, memory, [working])
    return account, static_size(workload, plan, memory)


class TestPipeline:
    WORKLOAD = llm(**GPT, n_layers=6, global_batch_size=8)

    def test_stages_hold_layers_and_microbatches_in_flight(self):
        account, _ = sizes(self.WORKLOAD, planned(self.WORKLOAD, pipeline=4))
        layer = 34 * WIDE + 5 * SCORES
        # 2 2 1 1 layers, with 4 3 2 1 microbatches in flight.
        assert [s.activations for s in account.stages] == [8 * layer, 6 * layer, 2 * layer, layer]
        parameters = 12 * H * H
        assert [s.weights / parameters / 2 for s in account.stages] == [2, 2, 1, 1]
        assert account.stages[0].gradients == 2 * parameters * 2
        assert account.stages[0].optimizer_state == 12 * parameters * 2
        assert account.fullest == 0

    @pytest.mark.parametrize("recompute", list(Recompute))
    @pytest.mark.parametrize("pipeline", [1, 2, 3, 4, 8])
    def test_the_peak_is_what_the_search_counts(self, pipeline, recompute):
        plan = planned(self.WORKLOAD, pipeline=pipeline, recompute=recompute, microbatch=2)
        account, static = sizes(self.WORKLOAD, plan, working=7.0)
        assert account.peak == pytest.approx(static + 7.0, rel=1e-12)
        assert account.peak == max(stage.total for stage in account.stages)

    def test_gradients_of_weights_wait_with_what_they_read(self):
        # qi2024zero, section 2: 32 s b h a layer and no scores, whatever else is kept until then.
        for recompute, kept in (
            (Recompute.NONE, 34 * WIDE + 5 * SCORES),
            (Recompute.FULL, 2 * WIDE),
        ):
            plan = planned(self.WORKLOAD, pipeline=4, recompute=recompute)
            plan = replace(plan, schedule=Schedule.ZB_H1)
            account, _ = sizes(self.WORKLOAD, plan)
            again, waiting = 34 * WIDE + 5 * SCORES - kept, 32 * WIDE
            # 2 2 1 1 layers; p - s microbatches go back, s wait, and one more at the end of its.
            held = [
                layers * ((3 - s) * kept + s * waiting + max(kept, waiting)) + again
                for s, layers in enumerate((2, 2, 1, 1))
            ]
            assert [stage.activations for stage in account.stages] == pytest.approx(held)

    @pytest.mark.parametrize("layers", [4, 5, 6, 7])
    @pytest.mark.parametrize("recompute", list(Recompute))
    def test_the_peak_is_counted_whichever_stage_is_fullest(self, layers, recompute):
        workload = llm(**GPT, n_layers=layers, global_batch_size=8)
        plan = planned(workload, pipeline=4, recompute=recompute)
        account, static = sizes(workload, replace(plan, schedule=Schedule.ZB_H1))
        assert account.peak == pytest.approx(static, rel=1e-12)

    def test_recomputation_keeps_less_however_long_the_pipeline(self):
        for pipeline in (1, 2, 6):
            peaks = [
                sizes(self.WORKLOAD, planned(self.WORKLOAD, pipeline=pipeline, recompute=r))[0].peak
                for r in (Recompute.NONE, Recompute.ATTENTION, Recompute.FULL)
            ]
            assert peaks == sorted(peaks, reverse=True)
            assert peaks[0] > peaks[2]

    def test_one_layer_and_microbatch_gains_nothing_by_recomputation(self):
        peaks = {sizes(ONE, planned(ONE, recompute=r))[0].peak for r in Recompute}
        assert len(peaks) == 1


class TestAccount:
    LAYER = StageMemory(weights=2.0, gradients=2.0, optimizer_state=12.0, activations=10.0)

    def test_the_fullest_stage_is_the_peak_and_its_largest_row_the_kind(self):
        stages = (self.LAYER, StageMemory(weights=5.0, logits=22.0), StageMemory())
        account = MemoryAccount.of(stages)
        assert [stage.total for stage in account.stages] == [26.0, 27.0, 0.0]
        assert (account.peak, account.fullest, account.kind) == (27.0, 1, "logits")

    def test_rows_name_what_there_is(self):
        account = MemoryAccount.of((self.LAYER, StageMemory(activations=10.0)))
        rows = dict(account.rows())
        assert list(rows) == ["weights", "gradients", "optimizer_state", "activations", "total"]
        assert rows["activations"] == (10.0, 10.0)
        assert rows["total"] == (26.0, 10.0)

    def test_nothing_is_negative(self):
        with pytest.raises(InputError, match="^activations: got -1"):
            StageMemory(activations=-1.0)

    @pytest.mark.parametrize(
        "sizes",
        [
            pytest.param(((),) * len(ROWS), id="no stage"),
            pytest.param(((1.0,),) * (len(ROWS) - 1), id="a row less"),
            pytest.param(((1.0, 2.0),) + ((1.0,),) * (len(ROWS) - 1), id="a stage more"),
            pytest.param((), id="nothing"),
        ],
    )
    def test_rows_of_other_lengths_are_no_account(self, sizes):
        with pytest.raises(InputError, match=f"sizes: .*{len(ROWS)} rows of one length"):
            MemoryAccount(sizes=sizes)


def test_weights_state_and_extra_of_every_layer_are_held():
    """A forward and a backward kernel with one weight of 10 B, two layers, 5 B extra."""
    graph = small()
    kernels = tuple(
        replace(k, memory_extra=5.0 if k.name == "product" else 0.0) for k in graph.kernels
    )
    workload = Workload(graph=graph.listing(kernels=kernels), n_layers=2)
    arrays, plan = workload.graph, planned(workload)
    weight, none = np.array([10.0, 0, 0, 10.0, 0]), np.zeros(5)
    held = {}
    for once, gradients, optimizer in ((False, 0.0, 0.0), (True, 0.0, 0.0), (True, 2.0, 12.0)):
        rules = as_dfmodel(RULES).changed(
            weights_held_once=once, gradient_bytes=gradients, optimizer_bytes=optimizer
        )
        memory = copy_memory(
            workload, arrays, plan, rules,
            weight=weight, cache=none, kept=none, again=none, waiting=none,
        )  # fmt: skip
        held[once, gradients + optimizer] = static_size(workload, plan, memory)
    assert held == {(False, 0): 2 * 25, (True, 0): 2 * 15, (True, 14): 2 * (15 + 14 / 2 * 10)}
