"""Experts that tensor-parallel chips cut, or have some of each, and what tokens are sent in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders.small_models import SMALL

from crosstack.errors import InputError
from crosstack.evaluate.plan import optimise
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.evaluate.time import evaluate
from crosstack.io import library
from crosstack.io.library.machines import system_on
from crosstack.machine.system import Parallelism
from crosstack.mapping.degrees import degree_of, parse_degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.parallelism import workload_uses
from crosstack.mapping.search import search
from crosstack.mapping.strategy import parse_strategy
from crosstack.model.choice_index import choice_index
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.model.runnable import unrunnable
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind
from crosstack.workload.kernels import Axis
from crosstack.workload.passes.expert_parallel import cut_experts
from crosstack.workload.transformer_training import Schedule, Zero
from tests.model.test_expert_parallel import levels, trained

RULES = rules_named("crosstack")
TENSOR, PIPELINE, DATA, EXPERT, _ = Parallelism
MODEL = SMALL["mixtral"]  # 4 experts, two of a token, of 3 x 6
# As Megatron cuts them: columns of what comes in, rows of what goes out, places of own tokens.
CUT = (
    ("taken", "capacity"), ("expert_up", "expert_width"), ("expert_gate", "expert_width"),
    ("expert_gated", "expert_width"), ("expert_down", "expert_width"), ("weighted", "capacity"),
    ("weighted_bwd1_0", "capacity"), ("routed", "sequence"),
)  # fmt: skip


def planned(said: str, model=MODEL, **given):
    """Return a mapping of a small mixture by degrees, what it costs, and its certificate."""
    degrees = parse_degrees(said)
    workload = Job(model=model, kind=JobKind.TRAIN, batch=8, sequence=8).workload
    system = levels(degrees.n_chips)
    asked = Constraints(
        degrees=degrees, zero=Zero.NONE, microbatch_size=1, kernel_by_kernel=True, **given
    )
    mapping, certificate = search(workload, system, asked, RULES, work_limit=2e4)
    found = evaluate(workload, system, mapping, RULES)
    assert found.time == pytest.approx(certificate.objective, rel=1e-9)
    return mapping, found, certificate


# ---------------------------------------------------------------- how it is said


class TestDegrees:
    @pytest.mark.parametrize(
        ("said", "chips"),
        [
            ("tp=8,dp=16,ep=8", 8),  # of the 16, whatever the eight tensor-parallel chips do
            ("tp=8,dp=16,ep=8,etp=8", 8),  # the same
            ("tp=8,dp=16,ep=64,etp=1", 8),  # 64 parts, eight of them on tensor-parallel chips
            ("tp=8,dp=1,ep=8,etp=1", 1),
            ("tp=8,dp=16,ep=32,etp=2", 8),  # four groups of two tensor-parallel chips each
            ("tp=8,dp=16,ep=16,etp=4", 8),
            ("tp=8,dp=1,ep=4,etp=2", 1),
        ],
    )
    def test_ep_times_etp_chips_have_all_experts(self, said, chips):
        degrees = parse_degrees(said)
        assert degrees.expert_chips == chips
        assert parse_degrees(str(degrees)) == degrees
        strategy = parse_strategy(said)
        assert (strategy.expert_chips, parse_strategy(str(strategy))) == (chips, strategy)

    @pytest.mark.parametrize(
        ("said", "words"),
        [
            ("tp=8,dp=8,ep=8,etp=3", "etp|expert_tensor: got 3; .* of tp=8, .*: etp=2 or etp=4"),
            ("tp=8,dp=8,ep=8,etp=16", "got 16; .* nearest: etp=8$"),
            ("tp=8,dp=8,ep=6,etp=2", "a multiple of tp/etp=4 with etp=2, .*: ep=4 or ep=8"),
            ("tp=8,dp=8,ep=2,etp=2", "each 2 of those chips .*nearest: ep=4$"),
            ("tp=4,dp=4,ep=16,etp=2", "degree, 4, times tp/etp=2 with etp=2"),
            ("tp=8,dp=8,ep=12,etp=1", "a multiple of tp=8 .*nearest: ep=8 or ep=16"),
            ("tp=8,dp=8,ep=4,etp=1", "nearest: ep=8$"),
            ("tp=2,dp=4,ep=16,etp=1", "the data-parallel degree, 4, times tp=2 with etp=1"),
        ],
    )
    def test_what_no_chips_have_is_refused_with_the_nearest(self, said, words):
        for read in (parse_degrees, parse_strategy):
            with pytest.raises(InputError, match=words.replace("$", r"\.$")):
                read(said)

    @pytest.mark.parametrize(("etp", "parts"), [(1, 8), (2, 4), (4, 2), (8, 1)])
    def test_an_etp_alone_has_the_fewest_parts_there_are(self, etp, parts):
        assert parse_strategy(f"tp=8,dp=2,etp={etp}").ep == parts

    def test_degrees_are_those_of_chips_that_have_them(self):
        sizes, uses = (8, 2, 4), (TENSOR, EXPERT, DATA)
        for said, same in (
            ("ep=2", True), ("ep=16,etp=1", True), ("ep=2,etp=8", True), ("ep=2,etp=1", False),
            ("ep=16,etp=8", False), ("ep=2,etp=4", False), ("ep=4,etp=4", True),
            ("ep=8,etp=2", True), ("ep=8,etp=4", False), ("ep=8,etp=3", False), ("etp=4", True),
        ):  # fmt: skip
            assert parse_degrees(said).are_those_of(sizes, uses) is same, said


def uses_of(name: str, chips: int, said: str, **given) -> set[tuple[int, int, int]]:
    """Return tensor-parallel chips, those of experts and those that cut each, of all uses."""
    asked = Constraints(degrees=parse_degrees(said), **given)
    found = workload_uses(trained(name), levels(chips), asked, RULES)
    uses = (use for use in found if use is not None)
    return {
        (*(degree_of(of, u.sizes, u.parallelism) for of in (TENSOR, EXPERT)), u.expert_tensor)
        for u in uses
    }


class TestUses:
    def test_experts_are_cut_where_they_do_not_divide(self):
        # 8 experts on 16 chips: of ep x tp = 16, one expert is on two chips
        assert uses_of("mixtral-8x22b", 16, "tp=2,pp=1,dp=8,ep=8") == {(2, 8, 2)}
        assert uses_of("mixtral-8x22b", 16, "tp=2,pp=1,dp=8,ep=4") == {(2, 4, 1)}

    def test_they_are_cut_over_as_few_chips_as_divide_them(self):
        # Of 8 experts on 4 x 4 chips, whole ones would be 16 and those of pairs are 8.
        assert uses_of("mixtral-8x22b", 16, "tp=4,pp=1,dp=4,ep=4") == {(4, 4, 2)}

    @pytest.mark.parametrize(("etp", "ep"), [(1, 8), (2, 4), (4, 2), (8, 1)])
    def test_any_divisor_is_searched_where_it_is_given(self, etp, ep):
        found = uses_of("mixtral-8x22b", 16, f"tp=8,pp=1,dp=2,ep={ep},etp={etp}")
        assert found == {(8, 1, etp)}
        assert {use[2] for use in uses_of("mixtral-8x22b", 16, f"etp={etp}")} == {etp}

    @pytest.mark.parametrize(("etp", "ep"), [(1, 8), (2, 4)])
    def test_either_is_searched_where_it_is_given(self, etp, ep):
        found = uses_of("mixtral-8x22b", 16, f"tp=2,pp=1,dp=8,ep={ep},etp={etp}")
        assert found == {(2, 4, etp)}

    def test_a_framework_cuts_experts_into_equal_parts(self):
        workload, megatron = trained("qwen3-235b-a22b"), library.framework("megatron")
        problem = unrunnable(workload, megatron, tensor=1, pipeline=1, expert_tensor=5)
        assert problem is not None
        assert "a divisor of 1,536 columns of an expert. Nearest: etp=4 or etp=6" in str(problem)

    def test_a_given_sharding_of_cut_experts_is_of_no_whole_ones(self):
        assert uses_of("mixtral", 4, "tp=2,pp=1,dp=2,ep=2", sharding=CUT[1:2]) == {(2, 2, 2)}
        with pytest.raises(InputError, match="expert_up: got expert_width"):
            uses_of("mixtral", 4, "tp=2,pp=1,dp=2,ep=4,etp=1", sharding=CUT[1:2])


# ---------------------------------------------------------------- what a chip has and sends


class TestCutExperts:
    def test_no_kernel_of_experts_is_split_along_them(self):
        graph = cut_experts(trained("mixtral-8x22b").graph)
        index = choice_index(graph, named=True)
        for i in np.flatnonzero(graph.experts > 0).tolist():
            assert Axis.OUTER not in index.axes(i), graph.names[i]

    def test_products_are_split_along_the_width_inside(self):
        graph = cut_experts(trained("mixtral-8x22b").graph)
        for name in ("expert_up", "expert_down"):
            index = choice_index(graph, named=True)
            assert index.axes(graph.index[name]) == (Axis.M, Axis.K)

    def test_a_graph_without_experts_is_as_it_was(self):
        graph = trained("llama3-8b").graph
        assert cut_experts(graph) is graph

    def test_half_of_each_expert_weighs_what_half_of_the_experts_do(self):
        workload = trained("mixtral-8x22b")
        system = levels(2)
        held = []
        for cut, along in ((1, Axis.OUTER), (2, Axis.M)):
            plan = make_plan(workload, system, (2,), (TENSOR,), 1, RULES, expert_tensor=cut)
            assert plan is not None
            choices = make_choices(workload, workload.graph, plan, 1, RULES)
            up = workload.graph.index["expert_up"]
            code = choices.index.start[up] + choices.index.axes(up).index(along)
            held.append((choices.weight[code], choices.work[code]))
        assert held[0] == held[1]
        assert held[0][0] == 8 * 6144 * 16384 * 2 / 2  # bytes of half of eight experts


class TestTime:
    def test_a_chip_reads_the_tokens_of_each_expert_that_it_has_a_part_of(self):
        """A part of 128 experts of 2,048 x 768, each with its own 256 of 4,096 x 8 tokens."""
        workload, system = trained("qwen3-30b-a3b"), system_on("h100-dgx", chips=2)
        plan = make_plan(workload, system, (2,), (TENSOR,), 1, RULES, expert_tensor=2)
        assert plan is not None
        choices = make_choices(workload, workload.graph, plan, 1, RULES, system.chip)
        clocked, up = choices.clocked, workload.graph.index["expert_up"]
        assert clocked is not None
        code = choices.index.start[up] + choices.index.axes(up).index(Axis.M)
        assert clocked.own[code] == pytest.approx(2 * 128 * 2048 * 384)  # weights
        assert clocked.first[code] == pytest.approx(2 * 128 * 256 * 2048)  # tokens
        shape = [np.array([float(n)]) for n in (384, 2048, 256, 128)]
        alone = RULES.clock.kernels.products(system.chip, Dtype.BF16, *shape)
        assert clocked.work[code] == pytest.approx(float(alone.work_time[0]), rel=1e-9)

    def test_chips_that_cut_experts_gather_tokens_and_add_up_what_comes(self):
        _, found, _ = planned("tp=2,pp=1,dp=1,ep=1,etp=2", sharding=CUT)
        network = {kernel.name: kernel.network_time for kernel in found.kernels}
        size = 2 * 8 * 6 * 2  # bytes of two copies of eight tokens of six numbers
        once = 1e-6 + size / 2 / 4e11  # of two chips, each is sent what the other one has
        assert network["taken"] == pytest.approx(once, rel=1e-12)
        assert network["expert_down"] == pytest.approx(once, rel=1e-12)
        for name in ("expert_up", "expert_gate", "expert_gated", "weighted", "routed"):
            assert network[name] == 0, name

    def test_between_chips_of_experts_each_sends_tokens_of_its_own(self):
        _, found, _ = planned("tp=2,pp=1,dp=2,ep=2,etp=2", sharding=CUT)
        network = {kernel.name: kernel.network_time for kernel in found.kernels}
        size = 2 * 8 * 6 * 2
        gathered = 1e-6 + size / 2 / 4e11
        # Of its half of the tokens half of two copies go to the other chip, both as one: 3/4.
        sent = 1e-6 + 3 / 4 * size / 2 / 2 / 4e11
        assert network["taken"] == pytest.approx(gathered + sent, rel=1e-12)
        assert network["weighted"] == pytest.approx(sent, rel=1e-12)

    @pytest.mark.parametrize("etp", [1, 2])
    def test_gradients_are_summed_by_chips_that_hold_the_same(self, etp):
        mapping, _, _ = planned(f"tp=2,pp=1,dp=4,ep={4 // etp},etp={etp}")
        workload, system = trained("mixtral", batch=8, sequence=8), levels(8)
        use = mapping.sizes, mapping.parallelism, 1
        plan = make_plan(workload, system, *use, RULES, mapping.dimensions, expert_tensor=etp)
        assert plan is not None
        # 8 chips over pp ep etp = 4
        assert (plan.replicas.chips, plan.data, plan.expert, plan.expert_tensor) == (2, 4, 2, etp)

    def test_memory_of_experts_is_a_share_of_them_either_way(self):
        whole, cut, alone = (
            planned(said)[1].memory.stage(0)
            for said in (
                "tp=2,pp=1,dp=2,ep=4,etp=1", "tp=2,pp=1,dp=2,ep=2,etp=2", "tp=2,pp=1,dp=2,ep=1",
            )
        )  # fmt: skip
        experts = MODEL.layers * 4 * 3 * 3 * 6  # weights: up, gate and down of each
        for row, size in (("gradients", 2), ("optimizer_state", 12)):
            for found in (whole, cut):
                saved = getattr(alone, row) - getattr(found, row)
                assert saved == pytest.approx(size * experts / 2 / 2, abs=size * 2 * 6 * 4)

    def test_a_saved_answer_is_read_again(self):
        workload, system = trained("mixtral", batch=8, sequence=8), levels(4)
        degrees = parse_degrees("tp=2,pp=1,dp=2,ep=2,etp=2")
        given = Constraints(degrees=degrees, schedule=Schedule.ONE_F_ONE_B)
        task = Task(workload=workload, system=system, constraints=given)
        answer = optimise(task, work_limit=1e4)
        assert answer.mapping.expert_tensor == 2
        assert "etp=2" in str(answer.degrees)
        again = saved_plan(answer.to_dict(), task)
        assert again.mapping == answer.mapping
        assert again.evaluation.time == answer.evaluation.time

    def test_a_mapping_of_cut_experts_needs_some(self):
        mapping, _, _ = planned("tp=2,pp=1,dp=1,ep=1,etp=2")
        with pytest.raises(InputError, match="expert_tensor: got 4; .* tp=2, .*nearest: etp=2"):
            replace(mapping, expert_tensor=4)


# ---------------------------------------------------------------- what tokens are sent in


class TestDispatch:
    @pytest.mark.parametrize(
        ("said", "size"),
        [
            ({"dtype": "fp8-blocks"}, 1 + 4 / 128),  # deepseek2024v3, section 3.3
            ({"dtype": "fp8-blocks", "expert_dispatch": "bf16"}, 2.0),
            ({"dtype": "fp8"}, 2.0),
            ({"dtype": "fp8", "expert_dispatch": "fp8"}, 1.0),
            ({"expert_dispatch": "mxfp8"}, 1 + 1 / 32),
            ({}, 2.0),
        ],
    )
    def test_tokens_go_in_few_bits_and_come_back_in_bf16(self, said, size):
        graph = trained("deepseek-v3", **said).graph
        sent = {graph.names[i]: graph.sent_element[i] for i in np.flatnonzero(graph.exchanged)}
        there, back = ("expert_taken", "expert_routed_bwd0"), (
            "expert_weighted", "expert_taken_gradient",
        )  # fmt: skip
        assert [sent[name] for name in there] == [size, size]
        assert [sent[name] for name in back] == [2.0, 2.0]

    def test_what_is_exchanged_takes_as_long_as_its_bytes(self):
        system = levels(8)
        taken = []
        for said in ("bf16", "fp8"):
            workload = trained("mixtral-8x22b", expert_dispatch=said)
            plan = make_plan(workload, system, (8,), (EXPERT,), 1, RULES)
            assert plan is not None
            choices = make_choices(workload, workload.graph, plan, 1, RULES)
            first = choices.index.start[:-1]
            taken.append(float(choices.exchange_time[first].sum()))
        size = 2 * 4096 * 6144  # numbers that a chip sends, an eighth of them to itself
        size *= 8 * (1 - (7 / 8) ** 2) / 2  # two copies for one chip are sent once
        saved = 2 * size * 7 / 8 / 4e11  # a byte of each, forward and backward
        assert taken[0] - taken[1] == pytest.approx(saved, rel=1e-12)
        assert taken[0] == pytest.approx(4 * (7e-6 + 2 * size * 7 / 8 / 4e11), rel=1e-12)

    def test_ends_with_experts_send_the_same(self):
        workload = trained("deepseek-v3", dtype="fp8-blocks")
        sent = [end.graph.dispatched for end in workload.ends if end.graph.exchanged.any()]
        assert sent == [1 + 4 / 128]

    @pytest.mark.parametrize(
        ("name", "kind", "said", "words"),
        [
            ("llama3-8b", JobKind.TRAIN, "fp8", "none: Llama 3 8B has no experts"),
            ("mixtral-8x22b", JobKind.TRAIN, "int8", "tokens are sent in"),
            ("mixtral-8x22b", JobKind.PREFILL, "fp8", "none to prefill"),
        ],
    )
    def test_what_nothing_is_sent_in_is_refused(self, name, kind, said, words):
        with pytest.raises(InputError, match=words):
            Job(model=library.model(name), kind=kind, batch=8, sequence=8, expert_dispatch=said)
