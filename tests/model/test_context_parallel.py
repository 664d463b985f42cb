"""Sequences shared by chips: what one has, sends, sums and keeps, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import crosstack
from crosstack.errors import InputError
from crosstack.evaluate.plan import optimise
from crosstack.evaluate.saved_plan import saved_plan
from crosstack.evaluate.time import evaluate
from crosstack.evaluate.timeline import stages_of, timeline_of
from crosstack.io import library
from crosstack.machine.chip import Chip, Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, Prices, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.search import search
from crosstack.model.attention import attentions
from crosstack.model.choices import make_choices
from crosstack.model.context import shared_tokens
from crosstack.model.energy import energy_rates
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.rules import rules_named
from crosstack.workload.job import Job, JobKind
from crosstack.workload.passes.context_parallel import crosses, heads_of, spread_context
from crosstack.workload.transformer_training import (
    ContextExchange,
    Hidden,
    Recompute,
    Schedule,
    Zero,
)
from crosstack.workload.workload import Workload
from tests.builders.small_models import SMALL

RULES = rules_named("crosstack")
TENSOR, PIPELINE, DATA, EXPERT, CONTEXT = Parallelism
RING, GATHER, ULYSSES = ContextExchange
NAMES = ("llama3-8b", "mixtral-8x22b", "deepseek-v3")
LINK, LATENCY = 4e11, 1e-6  # B/s and s of a chip on a switch
TOKENS = 8192
KEYS = TOKENS * 8 * 128 * 2  # bytes of the keys of a sequence of Llama 3 8B, or of its values
QUERIES = TOKENS * 32 * 128 * 2


def trained(name: str, *, batch: int = 64, sequence: int = TOKENS, **changes) -> Workload:
    model = library.model(name) if name in NAMES or name not in SMALL else SMALL[name]
    return Job(model=model, kind=JobKind.TRAIN, batch=batch, sequence=sequence, **changes).workload


def reading(sequence: int = TOKENS, name: str = "llama3-8b", batch: int = 1) -> Workload:
    model = library.model(name)
    return Job(model=model, kind=JobKind.PREFILL, batch=batch, sequence=sequence).workload


def on_switches(*sizes: int, chip: Chip | None = None, speed: float = LINK) -> System:
    """Spatial chips, which take nothing for what arrives, on switches."""
    own = chip or flat_chip(
        n_cores=64, lanes=32, stages=8, frequency=1e9, sram_capacity=1e9, utilization=0.9,
        overlap=Overlap.ALL, memories=main_memory(bandwidth=2e12, capacity=1e15),
    )  # fmt: skip
    network = tuple(
        Dimension(kind=DimensionKind.SWITCH, bandwidth=speed, latency=LATENCY, size=size)
        for size in sizes
    )
    return System(chip=own, network=network, n_chips=int(np.prod(sizes)))


def hop(size: float) -> float:
    return size / LINK + LATENCY


def plan_of(
    workload, system, sizes, uses, places=(), exchange: ContextExchange = RING, **changes
) -> MeshPlan:
    plan = make_plan(workload, system, sizes, uses, 1, RULES, places, exchange)
    assert plan is not None
    return replace(plan, **changes)


@pytest.fixture(scope="module")
def llama() -> Workload:
    return trained("llama3-8b")


# ---------------------------------------------------------------- what a chip has of a graph


class TestGraphOfAChip:
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.parametrize("exchange", ContextExchange)
    def test_work_of_all_chips_is_that_of_the_sequence(self, name, exchange):
        workload = trained(name)
        for graph in (workload.graph, *(end.graph for end in workload.ends)):
            one = spread_context(graph, 4, exchange)
            works = graph.tokens.any(axis=1)  # what has no tokens is done on every chip
            assert 4 * one.work[works].sum() == pytest.approx(graph.work[works].sum(), rel=1e-12)
            assert np.array_equal(one.work[~works], graph.work[~works])
            assert np.array_equal(one.weight_size, graph.weight_size)
            assert np.array_equal(one.periodic_size, graph.periodic_size)
            assert attentions(one) == attentions(graph)

    def test_queries_of_a_chip_see_all_keys(self, llama):
        one = spread_context(llama.graph, 4, RING)
        scores, up = one.index["scores"], one.index["up"]
        assert (one.outer[scores], one.m[scores], one.k[scores]) == (8, TOKENS, 128)
        assert one.columns[scores] == 4 * TOKENS / 4  # of a group of queries
        assert (one.m[up], one.columns[up]) == (14336, TOKENS / 4)
        assert one.input_sizes[scores].tolist() == [QUERIES / 4, KEYS]
        assert one.output_size[one.index["keys_turned"]] == KEYS / 4

    def test_a_chip_may_have_all_queries_of_some_heads(self, llama):
        one = spread_context(llama.graph, 4, ULYSSES)
        scores, up = one.index["scores"], one.index["up"]
        assert (one.outer[scores], one.m[scores], one.columns[scores]) == (2, TOKENS, 4 * TOKENS)
        assert one.columns[up] == TOKENS / 4
        assert one.input_sizes[scores].tolist() == [QUERIES / 4, KEYS / 4]

    def test_gradients_of_weights_add_up_over_the_tokens_of_a_chip(self, llama):
        one = spread_context(llama.graph, 8, GATHER)
        weights = one.periodic_size > 0
        assert set(one.k[weights & one.gemm]) == {TOKENS / 8}

    @pytest.mark.parametrize("exchange", ContextExchange)
    def test_one_chip_has_the_graph_itself(self, llama, exchange):
        assert spread_context(llama.graph, 1, exchange) is llama.graph

    def test_places_of_experts_are_those_for_the_tokens_of_a_chip(self):
        graph = trained("mixtral-8x22b").graph
        one = spread_context(graph, 4, RING)
        up = graph.index["expert_up"]
        assert one.columns[up] * 4 == graph.columns[up]
        assert one.routing[up, 1] == TOKENS / 4

    def test_what_is_exchanged_of_heads_goes_there_and_back(self, llama):
        names = [llama.graph.names[i] for i in np.flatnonzero(crosses(llama.graph))]
        there = ["queries_turned", "keys_turned", "values", "attended"]
        back = ["attention_out_bwd0", "attended_bwd0", "scores_bwd0", "scores_bwd1"]
        assert names == there + back
        assert heads_of(llama.graph) == 8

    def test_writing_shares_no_sequences_and_reading_does(self):
        read, write = reading(64), Job(
            model=library.model("llama3-8b"), kind=JobKind.DECODE, batch=4, context=64
        ).workload  # fmt: skip
        assert shared_tokens(write, RULES) == 1
        assert shared_tokens(read, RULES) == 32

    def test_a_sequence_has_two_pieces_a_chip(self, llama):
        assert shared_tokens(llama, RULES) == TOKENS // 2
        assert shared_tokens(trained("llama", sequence=7), RULES) == 1
        assert shared_tokens(llama, rules_named("dfmodel-readme")) == 1


# ---------------------------------------------------------------- keys and values on their way


class TestExchange:
    """On a switch c chips all-gather S bytes in (c - 1) / c S over the link of one, c - 1 hops."""

    def sent(self, llama, exchange, *, degree=4, recompute=Recompute.NONE):
        system = on_switches(degree)
        plan = plan_of(llama, system, (degree,), (CONTEXT,), exchange=exchange, recompute=recompute)
        choices = make_choices(llama, llama.graph, plan, 1, RULES, system.chip)
        return plan, choices

    @pytest.mark.parametrize(
        ("recompute", "forward"), [(Recompute.NONE, 1), (Recompute.ATTENTION, 1),
                                   (Recompute.FULL, 2)]
    )  # fmt: skip
    def test_a_ring_passes_blocks_on(self, llama, recompute, forward):
        _, choices = self.sent(llama, RING, recompute=recompute)
        # Forward keys and values; backward those, and the gradients of both.
        blocks = 2 * forward + 4
        assert choices.context_busy.sum() == pytest.approx(blocks * 3 * hop(KEYS / 4), rel=1e-12)
        assert np.array_equal(choices.context_time, choices.context_busy)  # partitions hide it

    def test_a_gather_has_all_before_attention(self, llama):
        plan, choices = self.sent(llama, GATHER)
        lines = plan.context_times
        gather, scatter = float(lines.gather.time(KEYS)), float(lines.scatter.time(KEYS))
        assert gather == pytest.approx(KEYS * 3 / 4 / LINK + 3 * LATENCY, rel=1e-12)
        assert choices.context_busy.sum() == pytest.approx(4 * gather + 2 * scatter, rel=1e-12)

    def test_heads_are_exchanged_all_to_all(self, llama):
        plan, choices = self.sent(llama, ULYSSES)
        lines = plan.context_times
        # Queries, what attention makes and the gradients of both are four times as wide as keys.
        each = 4 * float(lines.exchange.time(KEYS / 4)) + 4 * float(
            lines.exchange.time(QUERIES / 4)
        )
        assert choices.context_busy.sum() == pytest.approx(each, rel=1e-12)
        assert float(lines.exchange.time(4e9)) == pytest.approx(4e9 * 3 / 4 / LINK, rel=1e-2)

    def test_a_chip_has_other_chips_keys_while_it_works_on_them(self, llama):
        for exchange, held in ((RING, 2 * KEYS / 4), (GATHER, KEYS), (ULYSSES, 0)):
            _, choices = self.sent(llama, exchange)
            assert choices.again.sum() == 2 * held

    @pytest.mark.parametrize("exchange", ContextExchange)
    def test_a_chip_keeps_its_share_of_activations(self, llama, exchange):
        system = on_switches(4)
        alone = plan_of(llama, system, (4,), (DATA,))
        whole = make_choices(llama, llama.graph, alone, 1, RULES, system.chip)
        _, choices = self.sent(llama, exchange)
        first = whole.index.start[:-1]
        assert 4 * choices.kept[first].sum() == pytest.approx(whole.kept[first].sum(), rel=1e-9)


class TestReading:
    """Prompts that several chips read together: the forward half of training."""

    @pytest.mark.parametrize("exchange", ContextExchange)
    def test_work_of_all_chips_is_that_of_the_prompt_and_the_head_is_on_each(self, exchange):
        workload = reading()
        one = spread_context(workload.graph, 4, exchange)
        assert 4 * one.work.sum() == pytest.approx(workload.graph.work.sum(), rel=1e-12)
        head = workload.after[0].graph  # of the last token
        logits = head.index["logits"]
        assert spread_context(head, 4, exchange).work[logits] == head.work[logits]

    @pytest.mark.parametrize(
        ("exchange", "sent"),
        [
            (RING, 2 * 3 * hop(KEYS / 4)),  # blocks of keys and of values
            (GATHER, 2 * (KEYS * 3 / 4 / LINK + 3 * LATENCY)),
        ],
    )
    def test_keys_and_values_are_sent_once(self, exchange, sent):
        workload, system = reading(), on_switches(4)
        plan = plan_of(workload, system, (4,), (CONTEXT,), exchange=exchange)
        choices = make_choices(workload, workload.graph, plan, 1, RULES, system.chip)
        assert choices.context_busy.sum() == pytest.approx(sent, rel=1e-12)

    @pytest.mark.parametrize("exchange", ContextExchange)
    def test_search_evaluation_and_events_agree(self, exchange):
        system = crosstack.system("h100-dgx", chips=4)
        said = Constraints(
            degrees=Degrees(tensor=1, pipeline=2, data=1, context=2), context_exchange=exchange
        )
        task = Task(workload=reading(batch=2), system=system, constraints=said)
        plan = optimise(task, work_limit=1e4)
        found = evaluate(task.workload, system, plan.mapping, plan.rules)
        assert found.time == pytest.approx(plan.certificate.objective, rel=1e-9)
        timeline = timeline_of(plan, stages_of(plan))
        assert timeline.makespan == pytest.approx(found.time, rel=1e-9)
        account = plan.step_account()
        assert sum(time for _, time in account.spent) == pytest.approx(found.time, rel=1e-9)

    def test_a_long_prompt_is_read_sooner_by_chips_that_share_it(self):
        times = {}
        for tensor, context in ((8, 1), (1, 8)):
            said = Constraints(
                degrees=Degrees(tensor=tensor, pipeline=1, data=1, context=context),
                context_exchange=RING if context > 1 else None,
            )
            system = crosstack.system("h100-dgx", chips=8)
            task = Task(workload=reading(2**17), system=system, constraints=said)
            times[context] = optimise(task, work_limit=2e4).evaluation.time
        # 2 all-reduces of 2 x 131,072 x 4,096 B a layer against keys and values of 1,024 numbers.
        assert times[8] < 0.9 * times[1]


class TestRingOnGpus:
    system = crosstack.system("h100-dgx", chips=8)

    def columns(self, sequence, **changes):
        workload = trained("llama3-8b", sequence=sequence)
        plan = plan_of(workload, self.system, (8,), (CONTEXT,), **changes)
        chip = self.system.chip
        return workload, plan, make_choices(workload, workload.graph, plan, 1, RULES, chip)

    @pytest.mark.parametrize("sequence", [256, 65536])
    def test_what_is_longer_than_the_work_on_a_block_is_waited_for(self, sequence):
        workload, plan, choices = self.columns(sequence)
        size = sequence * 8 * 128 * 2 / 8
        once = float(plan.context_times.hop.time(size))
        assert choices.clocked is not None
        for name in ("scores", "attended_bwd1", "scores_bwd1"):
            code = choices.index.start[workload.graph.index[name]]
            work = choices.clocked.work[code] / 8
            waited = 7 * max(once - work, 0.0)
            assert choices.context_time[code] == pytest.approx(waited, rel=1e-12)
            assert choices.context_busy[code] == pytest.approx(7 * once, rel=1e-12)
            assert (waited > 0) == (sequence == 256)

    def test_blocks_hide_behind_nothing_where_sends_do_not(self):
        *_, choices = self.columns(65536, hidden=(Hidden.GRADIENTS,))
        assert np.array_equal(choices.context_time, choices.context_busy)


# ---------------------------------------------------------------- weights and stages


class TestPlans:
    def test_gradients_are_summed_as_by_data_parallel_chips(self, llama):
        system = on_switches(8)
        some = plan_of(llama, system, (4, 2), (CONTEXT, DATA), (0, 0))
        none = plan_of(llama, system, (8,), (DATA,))
        assert (some.data, some.context, some.alike, none.alike) == (2, 4, 8, 8)
        for name in ("periodic", "scatter", "gather", "near"):
            assert getattr(some, name) == getattr(none, name)
        assert some.n_microbatches == 4 * none.n_microbatches
        for zero in Zero:
            each = [replace(plan, zero=zero.number).sharers(1) for plan in (some, none)]
            assert each[0] == each[1]

    def test_experts_are_summed_by_chips_of_sequences_too(self):
        workload = trained("mixtral-8x22b")
        plan = plan_of(workload, on_switches(16), (2, 4, 2), (CONTEXT, EXPERT, DATA), (0, 0, 0))
        assert (plan.data, plan.expert, plan.alike, plan.replicas.chips) == (8, 4, 16, 4)

    def test_stages_send_the_tokens_of_a_chip(self, llama):
        system = on_switches(8)
        some = plan_of(llama, system, (4, 2), (CONTEXT, PIPELINE), (0, 0))
        none = plan_of(llama, system, (4, 2), (DATA, PIPELINE), (0, 0))
        assert some.stage_transfer.per_byte == pytest.approx(none.stage_transfer.per_byte / 4)

    def test_links_that_bring_keys_draw_power(self, llama):
        plain = on_switches(8)
        network = tuple(replace(d, link_power=1e-9) for d in plain.network)
        chip = replace(plain.chip, power=300.0, idle_power=80.0)
        prices = Prices(memory_power=1e-11, switch_power=1e-9)
        system = replace(plain, chip=chip, network=network, prices=prices)
        plan = plan_of(llama, system, (4, 2), (CONTEXT, DATA), (0, 0))
        rates = energy_rates(system, plan)
        assert rates.tensor == 0 < rates.context
        # Four times as many sequences a chip, which computes for each a quarter of the time.
        whole = energy_rates(system, plan_of(llama, system, (8,), (DATA,)))
        assert rates.compute == pytest.approx(4 * whole.compute, rel=1e-12)


# ---------------------------------------------------------------- mappings


def tiny(name: str = "llama", batch: int = 4) -> Workload:
    return trained(name, batch=batch, sequence=16)


def mapped(
    workload: Workload,
    system: System,
    exchange=None,
    work_limit: float = 1e3,
    schedule: Schedule | None = None,
    **degrees: int,
):
    given = Constraints(degrees=Degrees(**degrees), context_exchange=exchange, schedule=schedule)
    return search(workload, system, given, RULES, work_limit=work_limit)


class TestMappings:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "exchange"),
        [
            *(("llama", exchange) for exchange in ContextExchange),
            ("mixtral", ULYSSES),
            *(
                pytest.param("mixtral", exchange, marks=pytest.mark.slow)
                for exchange in ContextExchange
                if exchange is not ULYSSES
            ),
        ],
    )
    def test_a_mapping_takes_what_the_search_says(self, name, exchange):
        workload = tiny(name)
        given = {"tensor": 1, "context": 2, "pipeline": 2, "schedule": Schedule.ONE_F_ONE_B}
        mapping, certificate = mapped(workload, on_switches(4, 2), exchange, **given)
        assert mapping.context_exchange is exchange
        assert mapping.degree(CONTEXT) == 2
        found = evaluate(workload, on_switches(4, 2), mapping, RULES)
        assert found.time == pytest.approx(certificate.objective, rel=1e-9)
        assert certificate.bound <= certificate.objective * (1 + 1e-12)

    @pytest.mark.slow
    def test_a_free_search_is_as_good_as_the_best_of_all_that_can_be_given(self):
        workload, system = tiny(batch=2), on_switches(4, speed=1e9)
        _, free = mapped(workload, system, work_limit=2e5)
        best = np.inf
        for tensor in (1, 2):
            for context in (1, 2, 4):
                for pipeline in (1, 2):
                    chips = 4 // (tensor * context * pipeline)
                    if tensor * context * pipeline * chips != 4 or chips > 2:
                        continue
                    for exchange in ContextExchange if context > 1 else (None,):
                        if exchange is ULYSSES and 2 % (tensor * context):
                            continue
                        degrees = {"tensor": tensor, "context": context, "pipeline": pipeline}
                        _, one = mapped(workload, system, exchange, 2e5, data=chips, **degrees)
                        assert one.bound <= one.objective * (1 + 1e-12)
                        best = min(best, one.objective)
        assert free.objective == pytest.approx(best, rel=1e-9)
        assert free.bound <= best

    @pytest.mark.parametrize("exchange", ContextExchange)
    def test_faster_links_never_slow_a_mapping(self, exchange):
        workload = tiny()
        degrees = {"tensor": 1, "context": 2, "data": 2, "schedule": Schedule.ONE_F_ONE_B}
        mapping, _ = mapped(workload, on_switches(4, speed=1e8), exchange, **degrees)
        times = [
            evaluate(workload, on_switches(4, speed=speed), mapping, RULES).time
            for speed in (1e7, 1e8, 1e9, 1e12)
        ]
        assert times == sorted(times, reverse=True)
        assert times[0] > times[-1]

    def test_one_chip_of_a_sequence_takes_the_same_however_it_exchanges(self):
        workload, system = tiny(), on_switches(4)
        mapping, _ = mapped(workload, system, context=1)
        times = {
            evaluate(workload, system, replace(mapping, context_exchange=one), RULES).time
            for one in ContextExchange
        }
        assert len(times) == 1

    @pytest.mark.parametrize("exchange", ContextExchange)
    def test_events_take_as_long_and_the_account_adds_up(self, exchange):
        given = Constraints(
            degrees=Degrees(context=2, tensor=1, pipeline=2, data=2),
            context_exchange=exchange,
            schedule=Schedule.ONE_F_ONE_B,
        )
        task = Task(workload=tiny(), system=on_switches(4, 2, speed=1e9), constraints=given)
        answer = optimise(task, work_limit=1e4)
        assert answer.mapping.context_exchange == exchange
        timeline = timeline_of(answer, stages_of(answer))
        assert timeline.makespan == pytest.approx(answer.evaluation.time, rel=1e-9)
        spent = sum(time for _, time in answer.step_account().spent)
        assert spent == pytest.approx(answer.evaluation.time, rel=1e-9)

    def test_a_saved_answer_is_read_again(self):
        workload, system = tiny(), on_switches(4)
        given = Constraints(
            degrees=Degrees(context=2, tensor=1),
            context_exchange=GATHER,
            schedule=Schedule.ONE_F_ONE_B,
        )
        answer = optimise(Task(workload=workload, system=system, constraints=given))
        again = saved_plan(answer.to_dict(), answer.task)
        assert again.mapping == answer.mapping
        assert again.evaluation.time == pytest.approx(answer.evaluation.time, rel=1e-12)
        assert answer.degrees.context == 2


class TestRefused:
    @pytest.mark.parametrize(
        ("given", "words"),
        [
            ({"degrees": Degrees(context=3)}, "2 cp divides the sequence of 16 tokens.*cp=2 or"),
            (
                {"degrees": Degrees(context=2, tensor=2), "context_exchange": ULYSSES},
                "divides 2 heads of keys and values with ulysses, not 2 x 2; or",
            ),
        ],
    )
    def test_chips_that_cannot_share_a_sequence(self, given, words):
        system = on_switches(12) if given["degrees"].context == 3 else on_switches(4)
        with pytest.raises(InputError, match=words):
            search(tiny(batch=12), system, Constraints(**given), RULES)

    def test_a_way_that_nothing_is_exchanged_by(self):
        job = Job(model=SMALL["llama"], kind=JobKind.DECODE, batch=4, context=16)
        with pytest.raises(InputError, match="context_exchange: got 'ring'; allowed: none"):
            search(job.workload, on_switches(4), Constraints(context_exchange=RING), RULES)

    def test_what_a_framework_does_not_run(self):
        megatron = crosstack.system("h100-dgx", chips=8, framework="megatron")
        given = Constraints(degrees=Degrees(context=2), context_exchange=RING)
        workload = trained("mistral-7b", batch=8, sequence=2048)
        with pytest.raises(InputError, match="all-gather or ulysses with megatron.* windows"):
            search(workload, megatron, given, RULES)
