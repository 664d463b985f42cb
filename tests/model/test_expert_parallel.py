"""Experts spread over data-parallel chips: what a chip has, sends, sums and keeps, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.evaluate.plan import optimise
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.evaluate.time import evaluate
from crosstack.io import library
from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, Prices, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.search import search
from crosstack.model.choices import index_of, least_summing, make_choices
from crosstack.model.collectives import LeastTime, NetworkUse, TokenRoute
from crosstack.model.conversions import edges_of
from crosstack.model.energy import energy_rates
from crosstack.model.expert_degrees import spread
from crosstack.model.memory import STATE
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.objective import Objective
from crosstack.model.rules import rules_named
from crosstack.model.state import state_held
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind
from crosstack.workload.kernels import Axis
from crosstack.workload.passes.expert_parallel import expert_gradients, spread_experts
from crosstack.workload.transformer_training import Schedule, Zero
from crosstack.workload.workload import Workload
from tests.builders.small_models import SMALL

RULES = rules_named("crosstack")
TENSOR, PIPELINE, DATA, EXPERT, _ = Parallelism
V3 = 3 * 7168 * 2048  # weights of an expert of DeepSeek-V3
NAMES = ("deepseek-v3", "mixtral-8x22b", "qwen3-235b-a22b")


def trained(name: str, *, batch: int = 64, sequence: int = 4096, **changes) -> Workload:
    model = SMALL[name] if name == "mixtral" else library.model(name)
    return Job(model=model, kind=JobKind.TRAIN, batch=batch, sequence=sequence, **changes).workload


def levels(*sizes: int, speeds: tuple[float, ...] = (4e11, 5e10), **chip: float) -> System:
    """Spatial chips, which take nothing for what arrives, on switches."""
    own = flat_chip(
        n_cores=64, lanes=32, stages=8, frequency=1e9, sram_capacity=1e9, utilization=0.9,
        overlap=Overlap.ALL, memories=main_memory(bandwidth=2e12, capacity=1e15), **chip,
    )  # fmt: skip
    network = tuple(
        Dimension(kind=DimensionKind.SWITCH, bandwidth=speed, latency=1e-6, size=size)
        for size, speed in zip(sizes, speeds, strict=False)
    )
    return System(chip=own, network=network, n_chips=int(np.prod(sizes)))


def plan_of(workload, system, sizes, uses, places=(), **changes) -> MeshPlan:
    plan = make_plan(workload, system, sizes, uses, 1, RULES, places)
    assert plan is not None
    return replace(plan, **changes)


# ---------------------------------------------------------------- what a chip has of a graph


class TestGraphOfAChip:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("degree", [2, 8])
    def test_work_and_what_is_kept_stay(self, name, degree):
        graph = trained(name).graph
        one = spread_experts(graph, degree)
        assert one.work.tolist() == pytest.approx(graph.work.tolist(), rel=1e-12)
        summed = graph.periodic_size > 0
        assert np.array_equal(one.output_size[~summed], graph.output_size[~summed])
        assert np.array_equal(one.input_sizes, graph.input_sizes)
        same = ("names", "order", "preds", "succs", "levels", "tiling", "source", "target")
        for column in same:
            assert np.array_equal(getattr(one, column), getattr(graph, column))

    def test_experts_of_deepseek_v3_are_one_of_64_on_each_of_64_chips(self):
        graph = spread_experts(trained("deepseek-v3").graph, 64)
        experts = (graph.experts > 0) & ~graph.backward
        assert graph.parameters[experts].sum() == 256 * V3 / 64
        places = graph.columns[graph.index["expert_expert_up"]]
        assert places == 64 * 4096 * 8 / 256  # of each of four experts
        assert graph.outer[graph.index["expert_expert_up"]] == 4

    @pytest.mark.parametrize("name", NAMES)
    def test_where_choices_and_edges_are_alike_they_are_one_record(self, name):
        workload = trained(name)
        ones = [spread_experts(workload.graph, degree) for degree in (2, 4)]
        indices = [index_of(workload, one, RULES) for one in ones]
        assert indices[0] is indices[1]
        edges = [edges_of(one, i, RULES.traffic) for one, i in zip(ones, indices, strict=True)]
        assert edges[0] is edges[1]

    @pytest.mark.parametrize("name", NAMES)
    def test_one_chip_has_the_graph_itself(self, name):
        graph = trained(name).graph
        assert spread_experts(graph, 1) is graph

    def test_gradients_of_experts_shrink_and_those_beside_them_stay(self):
        graph = trained("deepseek-v3").graph
        one, count = spread_experts(graph, 8), 256 * V3
        assert expert_gradients(one).sum() == 2 * count / 8
        lost = graph.periodic_size.sum() - one.periodic_size.sum()
        assert lost == pytest.approx(2 * count * 7 / 8, rel=1e-12)
        assert not expert_gradients(graph).any()

    def test_four_results_a_layer_are_exchanged_of_k_copies_of_every_token(self):
        graph = trained("mixtral-8x22b").graph
        sent = [graph.names[i] for i in np.flatnonzero(graph.exchanged)]
        assert sent == ["taken", "weighted", "routed_bwd0", "taken_gradient"]
        assert set(graph.output_size[graph.exchanged]) == {2 * 2 * 4096 * 6144}

    def test_an_uneven_load_is_exchanged_too(self):
        graph = trained("mixtral-8x22b", expert_imbalance=1.5).graph
        assert set(graph.output_size[graph.exchanged]) == {1.5 * 2 * 2 * 4096 * 6144}

    def test_a_number_that_does_not_divide_is_refused(self):
        graph = trained("mixtral-8x22b").graph
        with pytest.raises(InputError, match="expert_degree: got 3; allowed: a divisor of .* 8"):
            spread_experts(graph, 3)

    def test_experts_that_decode_for_many_are_spread_too(self):
        model = library.model("mixtral-8x22b")
        workload = Job(model=model, kind=JobKind.DECODE, batch=64, context=1024).workload
        one = spread_experts(workload.graph, 8)
        up = one.index["expert_up"]
        assert (one.outer[up], one.columns[up], one.routing[up, 1]) == (1, 8, 8)

    def test_layers_without_experts_have_none_to_spread(self):
        assert trained("llama3-8b").experts == 1
        assert [trained(name).experts for name in NAMES] == [256, 8, 128]
        assert spread(trained("mixtral-8x22b"), rules_named("dfmodel-readme")) == 1


# ---------------------------------------------------------------- tokens on their way


class TestTokens:
    def use(self, system, sizes, uses, places=()) -> NetworkUse:
        return NetworkUse.of(system, sizes, uses, Dtype.BF16, places)

    def test_in_one_server_a_chip_sends_what_is_not_its_own(self):
        network = self.use(levels(8), (8,), (EXPERT,))
        line = LeastTime().tokens(network, TokenRoute())
        assert float(line.time(8e9)) == pytest.approx(7e-6 + 8e9 * 7 / 8 / 4e11, rel=1e-12)

    def test_between_servers_the_slowest_level_counts(self):
        network = self.use(levels(8, 4), (8, 4), (EXPERT, EXPERT))
        line = LeastTime().tokens(network, TokenRoute())
        taken = max(8e9 * 7 / 8 / 4e11, 8e9 * 3 / 4 / 5e10)
        assert float(line.time(8e9)) == pytest.approx(10e-6 + taken, rel=1e-12)

    def test_of_eight_copies_to_four_nodes_half_pass_between_servers(self):
        network = self.use(levels(8, 8), (8, 8), (EXPERT, EXPERT))
        line = LeastTime().tokens(network, TokenRoute(copies=8, nodes=8, reached=4))
        taken = max(8e9 * 7 / 8 / 4e11, 8e9 * 7 / 8 / 5e10 * 4 / 8)
        assert float(line.time(8e9)) == pytest.approx(14e-6 + taken, rel=1e-12)

    @pytest.mark.parametrize(
        ("servers", "share"), [(1, 1 / 8), (2, 2 / 8), (4, 4 / 8), (8, 4 / 8), (16, 1), (32, 1)]
    )
    def test_a_token_goes_once_to_every_server_that_it_reaches(self, servers, share):
        assert TokenRoute(copies=8, nodes=8, reached=4).crossing(servers) == share
        assert TokenRoute(copies=8).crossing(servers) == 1

    @pytest.mark.parametrize("places", [1, 2, 8, 64])
    def test_of_copies_that_go_anywhere_the_distinct_ones_are_what_drawing_them_gives(self, places):
        rng = np.random.default_rng(3)
        drawn = rng.integers(places, size=(20_000, 6))
        mean = float(np.mean([len(set(row)) for row in drawn.tolist()]))
        route = TokenRoute(copies=6, once=True)
        assert 6 * route.distinct(places) == pytest.approx(mean, rel=0.01)
        assert TokenRoute(copies=6).distinct(places) == 1

    def test_copies_for_one_chip_are_sent_once(self):
        network = self.use(levels(8, 4), (8, 4), (EXPERT, EXPERT))
        line = LeastTime().tokens(network, TokenRoute(copies=8, once=True))
        chips, servers = 32 * (1 - (31 / 32) ** 8) / 8, 4 * (1 - (3 / 4) ** 8) / 8
        taken = max(8e9 * chips * 7 / 8 / 4e11, 8e9 * servers * 3 / 4 / 5e10)
        assert float(line.time(8e9)) == pytest.approx(10e-6 + taken, rel=1e-9)

    def test_choices_take_it_with_their_part_of_the_tokens(self):
        workload, system = trained("mixtral-8x22b"), levels(8, 4)
        whole = plan_of(workload, system, (8, 4), (EXPERT, DATA))
        halved = plan_of(workload, levels(2, 4), (2, 4), (TENSOR, EXPERT))
        size = 2 * 2 * 4096 * 6144
        for plan, own in ((whole, size), (halved, size / 2)):
            choices = make_choices(workload, workload.graph, plan, 1, RULES)
            taken = workload.graph.index["taken"]
            ways = slice(*choices.index.start[taken : taken + 2])
            outer = choices.index.axes(taken).index(Axis.OUTER)
            assert choices.exchange_time[ways][outer] == plan.exchange.time(own)
            assert (choices.exchange_time > 0).sum() == (
                workload.graph.exchanged[choices.index.kernel].sum()
            )

    def test_a_graph_in_which_no_expert_is_spread_sends_none(self):
        workload, system = trained("mixtral-8x22b"), levels(8, 4)
        plan = plan_of(workload, system, (8, 4), (DATA, DATA))
        assert not make_choices(workload, workload.graph, plan, 1, RULES).exchange_time.any()


# ---------------------------------------------------------------- sums and shares


class TestReplicas:
    workload = trained("mixtral-8x22b")

    def plans(self) -> tuple[MeshPlan, MeshPlan]:
        """On 8 chips: four that experts are spread over, twice; and all data-parallel."""
        system = levels(8)
        spread_ = plan_of(self.workload, system, (4, 2), (EXPERT, DATA), (0, 0))
        return spread_, plan_of(self.workload, system, (8,), (DATA,))

    def test_all_data_parallel_chips_sum_what_is_not_of_experts(self):
        some, none = self.plans()
        assert (some.data, some.expert, some.replicas.chips) == (8, 4, 2)
        assert (none.data, none.expert, none.replicas.chips) == (8, 1, 1)
        for name in ("periodic", "scatter", "gather"):
            assert getattr(some, name) == getattr(none, name)

    @pytest.mark.parametrize("zero", [Zero.NONE, Zero.STATE], ids=str)
    def test_gradients_of_experts_are_summed_by_chips_with_the_same(self, zero):
        some, none = (replace(plan, zero=zero.number) for plan in self.plans())
        two = plan_of(self.workload, levels(2), (2,), (DATA,), zero=zero.number)
        taken = some.summing_time(9e8, 6e8)
        assert taken == pytest.approx(none.summing_time(3e8) + two.summing_time(6e8), rel=1e-12)
        sent = some.gathering_time(9e8, 6e8)
        assert sent == pytest.approx(none.gathering_time(3e8) + two.gathering_time(6e8), rel=1e-12)

    def test_experts_on_every_data_parallel_chip_alone_are_not_summed(self):
        plan = plan_of(self.workload, levels(8), (8,), (EXPERT,))
        assert plan.replicas.chips == 1
        assert plan.summing_time(6e8, 6e8) == 0

    def test_shares_are_among_chips_that_hold_the_same(self):
        some, _ = self.plans()
        held = {
            zero: state_held(replace(some, zero=zero.number), 80.0, 160.0, 480.0, 16.0, 32.0, 96.0)
            for zero in (Zero.NONE, Zero.STATE, Zero.GRADIENTS, Zero.WEIGHTS)
        }
        assert held[Zero.NONE] == (80, 160, 480)
        assert held[Zero.STATE] == (80, 160, 384 / 8 + 96 / 2)
        assert held[Zero.GRADIENTS] == (80, 128 / 8 + 32 / 2, 384 / 8 + 96 / 2)
        assert held[Zero.WEIGHTS] == (64 / 8 + 16 / 2, 128 / 8 + 32 / 2, 384 / 8 + 96 / 2)

    def test_hybrid_shares_of_experts_are_inside_a_server(self):
        system = levels(8, 4)
        plan = plan_of(self.workload, system, (4, 2, 4), (EXPERT, DATA, DATA), (0, 0, 1))
        assert (plan.near.chips, plan.replicas.near.chips) == (8, 2)
        apart = plan_of(self.workload, system, (8, 4), (EXPERT, DATA), zero=Zero.HYBRID.number)
        assert (apart.near.chips, apart.replicas.near.chips) == (8, 1)
        # Each server has all experts once: the same ones are summed by the chips of four servers.
        four = plan_of(self.workload, levels(4, speeds=(5e10,)), (4,), (DATA,))
        assert apart.summing_time(8e8, 8e8) == pytest.approx(four.summing_time(8e8), rel=1e-12)

    def test_a_plan_sums_at_least_what_no_choice_is_below(self):
        some, none = (least_summing(self.workload.graph, plan) for plan in self.plans())
        experts = 2 * 8 * 3 * 6144 * 16384
        assert none.expert_summed == 0
        assert some.expert_summed == experts / 4
        assert some.summed == pytest.approx(none.summed - experts * 3 / 4, rel=1e-12)

    def test_links_to_other_experts_draw_power(self):
        some = plan_of(self.workload, powered(8), (4, 2), (EXPERT, DATA), (0, 0))
        rates = energy_rates(powered(8), some)
        assert rates.tensor == 0 < rates.expert


def powered(*sizes: int) -> System:
    """Chips, links and memories that say what they draw."""
    plain = levels(*sizes)
    prices = Prices(memory_power=1e-11, switch_power=1e-9)
    network = tuple(replace(d, link_power=1e-9) for d in plain.network)
    chip = replace(plain.chip, power=300.0, idle_power=80.0)
    return replace(plain, chip=chip, network=network, prices=prices)


# ---------------------------------------------------------------- mappings


def mapped(workload: Workload, system: System, **degrees: int):
    given = Constraints(
        degrees=Degrees(**degrees),
        zero=Zero.NONE,
        microbatch_size=1,
        schedule=Schedule.ONE_F_ONE_B,
    )
    mapping, certificate = search(workload, system, given, RULES, work_limit=2e4)
    return evaluate(workload, system, mapping, RULES), mapping, certificate


class TestMappings:
    def test_a_chip_keeps_one_in_so_many_experts_with_their_state(self):
        workload = trained("mixtral", batch=8, sequence=8)
        model = SMALL["mixtral"].experts
        assert model is not None
        count = model.count * 3 * model.feed_forward * SMALL["mixtral"].hidden
        layers = workload.n_layers
        found = {
            degree: mapped(workload, levels(4), tensor=1, pipeline=1, data=4, expert=degree)[0]
            for degree in (1, 2, 4)
        }
        sizes = dict(zip(STATE, (2, 2, 12), strict=True))
        sizes["gradients"] = RULES.memory.gradient_bytes
        sizes["optimizer_state"] = RULES.memory.optimizer_bytes
        for degree in (2, 4):
            for row, size in sizes.items():
                saved = getattr(found[1].memory.stage(0), row) - getattr(
                    found[degree].memory.stage(0), row
                )
                copies = 2 if row == "weights" and RULES.memory.weights(1.0, 1.0) == 2 else 1
                assert saved == pytest.approx(
                    copies * layers * size * count * (1 - 1 / degree), rel=1e-9
                )

    @pytest.mark.parametrize("degrees", [(1, 4), (2, 2), (1, 2)])
    def test_a_mapping_takes_what_the_search_says(self, degrees):
        tensor, expert = degrees
        workload = trained("mixtral", batch=8, sequence=8)
        given = {"tensor": tensor, "pipeline": 1, "data": 8 // tensor, "expert": expert}
        found, mapping, certificate = mapped(workload, levels(4, 2), **given)
        assert mapping.degree(EXPERT) == expert
        assert mapping.degree(DATA) == 8 // tensor
        assert found.time == pytest.approx(certificate.objective, rel=1e-9)

    def test_a_search_for_energy_finds_what_a_mapping_draws(self):
        task = Task(
            workload=trained("mixtral", batch=8, sequence=8),
            system=powered(4, 2),
            constraints=Constraints(degrees=Degrees(tensor=1, pipeline=1, data=8, expert=4)),
        )
        answer = optimise(task, objective=Objective.ENERGY, work_limit=2e4)
        assert answer.evaluation.energy is not None
        assert answer.certificate.objective == pytest.approx(
            answer.evaluation.energy.total, rel=1e-9
        )

    def test_a_saved_answer_is_read_again(self):
        task = Task(
            workload=trained("mixtral", batch=8, sequence=8),
            system=levels(4, 2),
            constraints=Constraints(degrees=Degrees(tensor=1, pipeline=1, expert=4)),
        )
        answer = optimise(task, work_limit=2e4)
        data = answer.to_dict()
        assert data["parallelism"] == {"tp": 1, "pp": 1, "dp": 8, "ep": 4, "cp": 1}
        assert "experts spread over 4 of data" in " ".join(str(answer).split())
        again = saved_plan(data, task)
        assert again.mapping == answer.mapping
        assert again.evaluation.time == answer.evaluation.time

    def test_an_answer_of_a_model_without_experts_names_none(self):
        dense = Job(model=SMALL["llama"], kind=JobKind.TRAIN, batch=4, sequence=8)
        answer = optimise(dense, levels(2), work_limit=1e4)
        assert "ep" not in answer.to_dict()["parallelism"]
        assert "experts" not in str(answer)

    @pytest.mark.parametrize(
        ("name", "degrees", "said"),
        [
            ("mixtral-8x22b", {"expert": 3}, "ep=1, or a divisor of the 8 experts"),
            ("mixtral-8x22b", {"expert": 3}, "nearest: ep=2 or ep=4"),
            ("mixtral-8x22b", {"expert": 16, "tensor": 2, "expert_tensor": 1}, "nearest: ep=8.$"),
            (
                "llama3-8b",
                {"tensor": 2, "expert_tensor": 2},
                "etp=1: no chips cut experts of Llama",
            ),
            ("llama3-8b", {"expert": 2}, "ep=1: Llama 3 8B, training has no experts"),
        ],
    )
    def test_experts_that_do_not_divide_are_refused(self, name, degrees, said):
        given = Constraints(degrees=Degrees(**degrees))
        with pytest.raises(InputError, match=said):
            search(trained(name), levels(8, 6), given, RULES)

    def test_a_level_for_experts_is_refused_where_there_are_none(self):
        plain = levels(8)
        fixed = replace(plain, network=(replace(plain.network[0], parallelism=EXPERT),))
        with pytest.raises(InputError, match=r"system.network\[0\].parallelism: got .* has no exp"):
            search(trained("llama3-8b"), fixed, Constraints(), RULES)

    def test_a_mapping_that_spreads_what_is_not_there_is_refused(self):
        workload = trained("mixtral", batch=8, sequence=8)
        _, mapping, _ = mapped(workload, levels(4), tensor=1, pipeline=1, data=4, expert=4)
        system, dense = levels(4), trained("llama3-8b", batch=8, sequence=8)
        with pytest.raises(InputError, match=r"mapping.parallelism: got ep=4; allowed: ep=1"):
            evaluate(
                replace(dense, before=(), after=()),
                system,
                replace(
                    mapping,
                    sharding=(Axis.NONE,) * dense.graph.n,
                    partitions=tuple(range(dense.graph.n)),
                    ends=(),
                ),
                RULES,
            )

    def test_more_chips_never_leave_less_than_nothing(self):
        workload = trained("mixtral", batch=16, sequence=8)
        for data in (4, 8, 16):
            found, *_ = mapped(workload, levels(data), tensor=1, pipeline=1, data=data, expert=4)
            assert min(min(sizes) for sizes in found.memory.sizes) >= 0
            assert found.memory_used > 0

    def test_a_model_of_one_expert_is_that_of_one_network_and_a_router(self):
        shape = SMALL["mixtral"]
        assert shape.experts is not None
        alone = replace(shape.experts, count=1, active=1)
        dense = replace(shape, experts=None, feed_forward=alone.feed_forward)
        one, other = (
            Job(model=model, kind=JobKind.TRAIN, batch=1, sequence=8).workload
            for model in (replace(shape, experts=alone), dense)
        )
        assert one.experts == 1
        router = 3 * 8 * 2 * shape.hidden  # one choice of every token, and its two gradients
        assert one.graph.work[one.graph.gemm].sum() == (
            other.graph.work[other.graph.gemm].sum() + router
        )
