"""Groups of tensor-parallel chips that cut experts: where they lie, what they have and send."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest
from builders.small_models import SMALL

from crosstack.errors import InputError
from crosstack.evaluate.plan import optimise
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.evaluate.time import evaluate
from crosstack.machine.system import DimensionKind, Parallelism
from crosstack.mapping.checks import check_given
from crosstack.mapping.degrees import parse_degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.choice_index import choice_index
from crosstack.model.choices import Choices, make_choices
from crosstack.model.collectives import NetworkUse
from crosstack.model.energy import energy_rates
from crosstack.model.expert_cut import expert_cut, inside_experts
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.rules import rules_named
from crosstack.model.tokens import tokens_of, with_tokens
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind
from crosstack.workload.kernels import Axis
from crosstack.workload.passes.expert_parallel import cut_experts
from crosstack.workload.transformer_training import Schedule
from tests.model.test_expert_parallel import levels, powered, trained
from tests.model.test_expert_tensor import CUT, planned

RULES = rules_named("crosstack")
TENSOR, PIPELINE, DATA, EXPERT, CONTEXT = Parallelism
SIZE = 2 * 8 * 6 * 2  # bytes of two copies of eight tokens of six numbers
MODEL = SMALL["mixtral"]
EVEN = replace(MODEL, experts=replace(MODEL.experts, feed_forward=8))  # of 4 parts, as wide each


def trained_of(model, sequence: int = 8):
    return Job(model=model, kind=JobKind.TRAIN, batch=8, sequence=sequence).workload


def plan_of(workload, system, sizes, uses, etp, places=()) -> MeshPlan:
    plan = make_plan(workload, system, sizes, uses, 1, RULES, places, expert_tensor=etp)
    assert plan is not None
    return plan


def choices_of(workload, plan) -> Choices:
    return make_choices(workload, workload.graph, plan, 1, RULES)


def column(choices: Choices, workload, name: str, axis: Axis, what: str) -> float:
    """Return what a kernel has of a column where it is split along an axis."""
    i = workload.graph.index[name]
    place = choices.index.start[i] + choices.index.axes(i).index(axis)
    return float(getattr(choices, what)[place])


# ---------------------------------------------------------------- where groups lie


class TestNetwork:
    @pytest.mark.parametrize(
        ("sizes", "uses", "places", "etp", "rows"),
        [
            ((8,), (TENSOR,), (), 2, [(2, TENSOR, 0), (4, EXPERT, 0)]),
            ((8,), (TENSOR,), (), 1, [(8, EXPERT, 0)]),
            ((8,), (TENSOR,), (), 8, [(8, TENSOR, 0)]),
            # Of one level with chips of experts, past those that share a sequence.
            (
                (4, 2, 3), (TENSOR, CONTEXT, EXPERT), (0, 0, 0), 2,
                [(2, TENSOR, 0), (2, CONTEXT, 0), (6, EXPERT, 0)],
            ),
            (
                (4, 4), (TENSOR, EXPERT), (0, 1), 2,
                [(2, TENSOR, 0), (2, EXPERT, 0), (4, EXPERT, 1)],
            ),
            # Across servers: groups of a server each, and of two servers.
            ((4, 4), (TENSOR, TENSOR), (0, 1), 4, [(4, TENSOR, 0), (4, EXPERT, 1)]),
            (
                (4, 4), (TENSOR, TENSOR), (0, 1), 8,
                [(4, TENSOR, 0), (2, TENSOR, 1), (2, EXPERT, 1)],
            ),
        ],
    )  # fmt: skip
    def test_the_nearest_chips_are_a_group_and_groups_are_chips_of_experts(
        self, sizes, uses, places, etp, rows
    ):
        system = levels(24, 4) if places else levels(8)
        found = NetworkUse.of(system, sizes, uses, Dtype.BF16, places).with_groups(etp)
        assert found is not None
        assert list(found.rows) == rows

    def test_a_group_that_would_be_torn_is_none(self):
        network = NetworkUse.of(levels(6, 2), (6, 2), (TENSOR, TENSOR), Dtype.BF16)
        assert network.with_groups(4) is None
        assert network.with_groups(3) is not None

    @pytest.mark.parametrize("etp", [1, 2, 4, 8])
    def test_levels_of_neighbours_are_of_one_group_whole(self, etp):
        system = levels(4, 2)
        ring = replace(system.network[0], kind=DimensionKind.RING)
        system = replace(system, network=(ring, system.network[1]))
        network = NetworkUse.of(system, (4, 2), (TENSOR, TENSOR), Dtype.BF16)
        assert (network.with_groups(etp) is None) is (etp == 2)

    def test_what_the_network_has_no_groups_for_is_refused_with_the_nearest(self):
        workload, system = trained("mixtral", batch=8, sequence=8), levels(8)
        ring = replace(system.network[0], kind=DimensionKind.RING)
        system = replace(system, network=(ring,))
        given = Constraints(degrees=parse_degrees("tp=8,pp=1,dp=1,etp=4,ep=2"))
        with pytest.raises(InputError, match="etp=4'; allowed: an etp of chips .*etp=1 or etp=8"):
            check_given(workload, system, given, RULES)
        with pytest.raises(InputError, match="expert_tensor: got 4; allowed: an etp of chips"):
            make_plan(workload, system, (8,), (TENSOR,), 1, RULES, expert_tensor=4)

    def test_experts_that_divide_by_no_groups_are_refused(self):
        workload = trained("mixtral", batch=8, sequence=8)  # four experts
        given = Constraints(degrees=parse_degrees("tp=16,pp=1,dp=1,etp=2"))
        with pytest.raises(InputError, match="groups as divide the 4 experts; nearest: .* etp=4"):
            check_given(workload, levels(16), given, RULES)


# ---------------------------------------------------------------- limits


class TestLimits:
    """Groups of all tensor-parallel chips, or of one, are what there is without groups."""

    def forced(self, workload, system, sizes, uses, chips) -> MeshPlan:
        """Return a plan whose chips cut experts in groups of so many, all and one, too."""
        plan = plan_of(workload, system, sizes, uses, 4)
        cut = expert_cut(workload, system, RULES, sizes, uses, (), chips)
        return replace(plan, cut_over=cut)

    @pytest.mark.parametrize("spread", [1, 2])
    def test_one_group_of_all_is_all_of_them(self, spread):
        workload, system = trained("mixtral-8x22b"), levels(4, spread)
        use = (4, spread), (TENSOR, EXPERT)
        one, known = self.forced(workload, system, *use, 4), plan_of(workload, system, *use, 4)
        found, same = choices_of(workload, one), choices_of(workload, known)
        for name in (f.name for f in fields(Choices)):
            value, other = getattr(found, name), getattr(same, name)
            if isinstance(value, np.ndarray):
                assert np.array_equal(value, other), name
        assert np.array_equal(found.conversions.table, same.conversions.table)

    def test_groups_of_one_have_what_whole_experts_have(self):
        workload, system = trained("mixtral-8x22b"), levels(4, 2)
        use = (4, 2), (TENSOR, EXPERT)
        groups = choices_of(workload, self.forced(workload, system, *use, 1))
        whole = choices_of(workload, plan_of(workload, system, *use, 1))
        for name in ("weight", "work", "output_total", "kept", "summed", "expert_summed"):
            for kernel in ("expert_up", "expert_gate", "expert_down"):
                one = column(groups, workload, kernel, Axis.M, name)
                assert one == column(whole, workload, kernel, Axis.OUTER, name), (kernel, name)
        # Where every chip has all tokens, each takes those of its own experts and sends them on.
        one = column(groups, workload, "taken", Axis.NONE, "exchange_time")
        assert one == column(whole, workload, "taken", Axis.OUTER, "exchange_time") > 0


# ---------------------------------------------------------------- what a chip has


class TestShares:
    @pytest.mark.parametrize("etp", [1, 2, 4, 8])
    def test_a_chip_has_as_many_weights_and_as_much_work_however_experts_are_cut(self, etp):
        workload, system = trained("mixtral-8x22b"), levels(8)
        choices = choices_of(workload, plan_of(workload, system, (8,), (TENSOR,), etp))
        axis = Axis.OUTER if etp == 1 else Axis.M
        up = workload.graph.index["expert_up"]
        assert column(choices, workload, "expert_up", axis, "weight") == 6144 * 16384 * 2
        work = column(choices, workload, "expert_up", axis, "work")
        assert work == workload.graph.work[up] / 8

    def test_a_group_works_on_the_places_of_its_own_experts(self):
        workload, system = trained("mixtral-8x22b"), levels(8)
        choices = choices_of(workload, plan_of(workload, system, (8,), (TENSOR,), 2))
        tokens = 2 * 4096  # two copies of each
        # A quarter of the experts, and half of the columns of each; all places of those.
        made = column(choices, workload, "expert_up", Axis.M, "output_total")
        assert made == tokens * 16384 * 2 / 4 / 2
        places = column(choices, workload, "taken", Axis.N, "output_total")
        assert places == tokens * 6144 * 2 / 8
        assert column(choices, workload, "taken", Axis.NONE, "output_total") == 2 * places

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("said", "same"),
        [
            ("tp=4,pp=1,dp=2,ep=2,etp=2", "tp=4,pp=1,dp=2,ep=4,etp=1"),
            pytest.param(
                "tp=4,pp=1,dp=2,ep=2,etp=2", "tp=4,pp=1,dp=2,ep=1,etp=4", marks=pytest.mark.slow
            ),
            ("tp=4,pp=1,dp=2,ep=4,etp=2", "tp=4,pp=1,dp=2,ep=2,etp=4"),
        ],
    )
    def test_memory_of_experts_is_what_ep_times_etp_say(self, said, same):
        found, other = (planned(one, EVEN)[1].memory.stage(0) for one in (said, same))
        for row in ("weights", "gradients", "optimizer_state"):
            assert getattr(found, row) == getattr(other, row), row

    def test_twice_as_many_parts_are_half_of_the_weights(self):
        few, many = (
            planned(f"tp=4,pp=1,dp=2,ep={ep},etp=2", EVEN)[1].memory.stage(0) for ep in (2, 4)
        )
        experts = EVEN.layers * 4 * 3 * EVEN.hidden * 8  # experts, and weights of each
        for row, size in (("gradients", 2), ("optimizer_state", 12)):
            saved = getattr(few, row) - getattr(many, row)
            assert saved == size * experts * (1 / 4 - 1 / 8), row

    @pytest.mark.parametrize(("ep", "etp"), [(4, 2), (2, 4)])
    def test_gradients_are_summed_by_chips_that_hold_the_same(self, ep, etp):
        mapping, _, _ = planned(f"tp=4,pp=1,dp=4,ep={ep},etp={etp}")
        workload, system = trained("mixtral", batch=8, sequence=8), levels(16)
        plan = plan_of(
            workload, system, mapping.sizes, mapping.parallelism, etp, mapping.dimensions
        )
        # 16 chips over ep etp = 8
        assert (plan.replicas.chips, plan.data, plan.expert) == (2, 4, 2)


# ---------------------------------------------------------------- what is sent


class TestTime:
    def test_tokens_go_to_the_groups_which_gather_and_add_up_what_comes(self):
        _, found, _ = planned("tp=4,pp=1,dp=1,ep=2,etp=2", sharding=CUT)
        network = {kernel.name: kernel.network_time for kernel in found.kernels}
        # A quarter of the copies lie on a chip; half go to the other group, both as one: 3/4.
        sent = 1e-6 + 3 / 4 * SIZE / 4 / 2 / 4e11
        gathered = 1e-6 + SIZE / 2 / 2 / 4e11  # of the half that is of a group, a chip has half
        assert network["taken"] == pytest.approx(gathered + sent, rel=1e-12)
        assert network["expert_down"] == pytest.approx(gathered, rel=1e-12)
        assert network["weighted"] == pytest.approx(sent, rel=1e-12)
        for name in ("expert_up", "expert_gate", "expert_gated", "routed"):
            assert network[name] == 0, name

    def test_groups_of_other_data_parallel_chips_are_of_one_exchange_with_them(self):
        _, found, _ = planned("tp=4,pp=1,dp=2,ep=4,etp=2", sharding=CUT)
        network = {kernel.name: kernel.network_time for kernel in found.kernels}
        # Among four chips with the same place in their groups: 7/8 of the copies are distinct.
        sent = 3e-6 + 7 / 8 * SIZE / 4 * 3 / 4 / 4e11
        gathered = 1e-6 + SIZE / 2 / 2 / 4e11
        assert network["taken"] == pytest.approx(gathered + sent, rel=1e-12)
        assert network["weighted"] == pytest.approx(sent, rel=1e-12)

    @pytest.mark.parametrize(("tensor", "spread", "etp"), [(4, 1, 2), (4, 2, 2), (8, 1, 4)])
    def test_chips_send_and_get_what_tokens_that_are_dealt_one_by_one_do(self, tensor, spread, etp):
        model = replace(EVEN, experts=replace(EVEN.experts, active=1))
        workload, system = trained_of(model, 32), levels(tensor * spread)
        uses = (TENSOR, EXPERT)
        plan = plan_of(workload, system, (tensor, spread), uses, etp, places=(0, 0))
        groups, chips = tensor // etp, list(itertools.product(range(spread), range(tensor)))
        left, got = dict.fromkeys(chips, 0.0), dict.fromkeys(chips, 0.0)
        for (data, place), there in itertools.product(chips, range(groups * spread)):
            # Of the tokens of a chip as many go to each group: to the chip that has its place.
            size = 32 / tensor * model.hidden * 2 / (groups * spread)
            to = there // groups, there % groups * etp + place % etp
            left[data, place] += size * (to != (data, place))
            got[to] += size
        choices = choices_of(workload, plan)
        sent = column(choices, workload, "taken", Axis.N, "exchange_time")
        places = column(choices, workload, "taken", Axis.N, "output_total")
        latency = (groups * spread - 1) * 1e-6
        for chip in chips:
            assert left[chip] == pytest.approx((sent - latency) * 4e11, rel=1e-6)
            assert got[chip] == pytest.approx(places, rel=1e-12)
        # A group has what all its chips got.
        assert column(choices, workload, "taken", Axis.NONE, "output_total") == etp * places

    def test_between_servers_each_level_has_its_part_at_the_same_time(self):
        workload, system = trained("mixtral-8x22b"), levels(4, 2)
        plan = plan_of(workload, system, (4, 2), (TENSOR, EXPERT), 2)
        size = 2 * 4096 * 6144 * 2 / 4
        chips, servers = 4 * (1 - (3 / 4) ** 2) / 2, 2 * (1 - (1 / 2) ** 2) / 2
        # Half goes to the other group of the server, half to the other server.
        taken = max(size * chips / 2 / 4e11, size * servers / 2 / 5e10)
        choices = choices_of(workload, plan)
        for name, axis in (("taken", Axis.N), ("taken", Axis.M), ("weighted", Axis.N)):
            found = column(choices, workload, name, axis, "exchange_time")
            assert found == pytest.approx(2e-6 + taken, rel=1e-9), (name, axis)

    def test_tokens_that_all_chips_have_go_to_other_data_parallel_chips_alone(self):
        workload, system = trained("mixtral-8x22b"), levels(4, 2)
        plan = plan_of(workload, system, (4, 2), (TENSOR, EXPERT), 2)
        size = 2 * 4096 * 6144 * 2 / 2  # of the copies those of the experts of a group
        choices = choices_of(workload, plan)
        there = column(choices, workload, "taken", Axis.NONE, "exchange_time")
        assert there == plan.exchange.time(size)
        # Sums that are not added up yet go back the same way, and are added up over all four.
        back = column(choices, workload, "taken_gradient", Axis.PARTIAL, "exchange_time")
        assert back == plan.exchange.time(size)
        # What a group has added up comes back to every chip: all copies of all tokens.
        assert plan.cut_over is not None
        whole = column(choices, workload, "weighted", Axis.NONE, "exchange_time")
        assert whole == plan.cut_over.exchange.time(2 * size)

    def test_without_other_data_parallel_chips_those_are_not_sent(self):
        workload = trained("mixtral-8x22b")
        choices = choices_of(workload, plan_of(workload, levels(4), (4,), (TENSOR,), 2))
        assert column(choices, workload, "taken", Axis.NONE, "exchange_time") == 0
        assert column(choices, workload, "taken", Axis.N, "exchange_time") > 0

    def test_what_other_kernels_read_lies_on_all_tensor_parallel_chips(self):
        graph = cut_experts(trained("mixtral-8x22b").graph)
        outside = np.flatnonzero((graph.experts > 0) & ~inside_experts(graph))
        names = {graph.names[i] for i in outside}
        assert names == {"weighted", "weighted_bwd1", "taken_gradient"}

    @pytest.mark.parametrize("etp", [2, 4])
    def test_what_tokens_take_at_least_and_at_most_holds_for_every_sharding(self, etp):
        workload, system = trained("mixtral-8x22b"), levels(8, 2)
        plan = plan_of(workload, system, (8, 2), (TENSOR, EXPERT), etp)
        bounds = with_tokens(plan, workload.graph, 0).tokens
        choices, graph = choices_of(workload, plan), plan.graph(workload.graph)
        index, rng = choice_index(plan.cut(workload.graph), named=True), np.random.default_rng(0)
        for _ in range(200):
            codes = rng.integers(index.start[:-1], index.start[1:])
            taken = tokens_of(plan, graph, choices, codes).tokens[0]
            assert bounds[0] * (1 - 1e-12) <= taken <= bounds[1] * (1 + 1e-12)

    def test_links_between_groups_draw_power(self):
        workload = trained("mixtral-8x22b")
        whole, cut = (plan_of(workload, powered(8), (8,), (TENSOR,), etp) for etp in (8, 2))
        assert energy_rates(powered(8), whole).expert == 0 < energy_rates(powered(8), cut).expert


class TestAnswers:
    def test_a_saved_answer_is_read_again(self):
        workload, system = trained("mixtral", batch=8, sequence=8), levels(8)
        degrees = parse_degrees("tp=4,pp=1,dp=2,ep=4,etp=2")
        given = Constraints(degrees=degrees, schedule=Schedule.ONE_F_ONE_B)
        task = Task(workload=workload, system=system, constraints=given)
        answer = optimise(task, work_limit=1e4)
        assert answer.mapping.expert_tensor == 2
        assert "ep=4" in str(answer.degrees)
        assert "etp=2" in str(answer.degrees)
        assert "experts spread over 2 of data and 2 groups of tensor" in str(answer)
        again = saved_plan(answer.to_dict(), task)
        assert again.mapping == answer.mapping
        assert again.evaluation.time == answer.evaluation.time

    @pytest.mark.parametrize("etp", [2, 4])
    def test_tokens_of_a_saved_answer_may_come_back_split_along_sequences(self, etp):
        workload, system = trained_of(EVEN), levels(4)
        degrees = parse_degrees(f"tp=4,pp=1,dp=1,ep={4 // etp},etp={etp}")
        given = Constraints(
            degrees=degrees, schedule=Schedule.ONE_F_ONE_B, sharding=(("routed", "sequence"),)
        )
        task = Task(workload=workload, system=system, constraints=given)
        answer = optimise(task, work_limit=1e4)
        saved = answer.to_dict()
        assert {row["name"]: row["sharding"] for row in saved["kernels"]}["routed"] == "sequence"
        assert saved_plan(saved, task).mapping == answer.mapping

    @pytest.mark.parametrize(
        "said",
        [
            "tp=4,pp=1,dp=1,ep=2,etp=2",
            pytest.param("tp=4,pp=1,dp=2,ep=4,etp=2", marks=pytest.mark.slow),
            pytest.param("tp=8,pp=1,dp=1,ep=2,etp=4", marks=pytest.mark.slow),
        ],
    )
    def test_no_sharding_that_is_drawn_beats_what_is_proved(self, said):
        mapping, found, certificate = planned(said, EVEN)
        workload, system = trained_of(EVEN), levels(parse_degrees(said).n_chips)
        index = choice_index(cut_experts(workload.graph), named=True)
        best, rng = index.codes(mapping.sharding), np.random.default_rng(1)
        for changed in (0.02, 0.1, 1.0):  # of all kernels
            for _ in range(50):
                drawn = rng.integers(index.start[:-1], index.start[1:])
                codes = np.where(rng.random(index.n) < changed, drawn, best)
                one = replace(mapping, sharding=index.sharding(codes))
                time = evaluate(workload, system, one, RULES).time
                assert certificate.bound * (1 - 1e-9) <= time
                assert found.time <= time * (1 + 1e-9)

    def test_fewer_chips_that_cut_experts_send_less(self):
        two, all_ = (planned(f"tp=4,pp=1,dp=1,ep={4 // n},etp={n}")[1].time for n in (2, 4))
        assert two < all_
