"""A strategy is a mapping: what `predict` says of it is what `map` and `evaluate` say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from random import Random

import pytest
from builders.random_graphs import random_graph
from builders.steps import reshaped

import crosstack
from crosstack import Constraints, Degrees, InfeasibleError, InputError, Job, Parallelism, Task
from crosstack.errors import LimitError
from crosstack.evaluate.predict import (
    GATHERING,
    SUMMING,
    UPDATING,
    WAITING,
    predict,
    strategy_task,
)
from crosstack.evaluate.rules import crosstack as default_rules
from crosstack.evaluate.step_settings import StepSettings
from crosstack.io import library
from crosstack.io.chip_file import read_chip
from crosstack.io.steps import job_named, step_named
from crosstack.machine.chip import flat_chip
from crosstack.machine.generate.generated import generate
from crosstack.machine.memory import main_memory
from crosstack.machine.packages import system_of_packages
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.mapping.strategy import Strategy, parse_strategy
from crosstack.model.choice_index import axis_names, choice_index
from crosstack.workload.dtype import Dtype
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.optimizer import optimizer_named
from crosstack.workload.passes.backward import training
from crosstack.workload.product import Product
from crosstack.workload.published_steps import BATCHES
from crosstack.workload.transformer_training import Exchange, Recompute, Schedule

RULES = default_rules()
EXAMPLE = Path(__file__).resolve().parents[2] / "examples/chips/n5_hbm3.yaml"
GPT = replace(step_named("gpt-22b"), batch=64)
PLAIN = replace(GPT, recompute=Recompute.NONE, schedule=Schedule.ONE_F_ONE_B, interleave=1)
DECIDED = replace(PLAIN, microbatches=8)


@pytest.fixture(scope="module")
def chip():
    described = read_chip(EXAMPLE.read_text(), EXAMPLE.name)
    return generate(described.template, described.budget).chip.with_memory(capacity=None)


@cache
def predicted(step, text, chip, settings=None):
    strategy = parse_strategy(text) if isinstance(text, str) else text
    system = system_of_packages(chip, n_packages=strategy.n_chips)
    return predict(step, strategy, system, Dtype.BF16, settings, rules=RULES)


@cache
def on_server(step, **settings):
    """A step on eight GPUs with replicas of all, whatever their memory holds."""
    system = library.system_on("h100-dgx", chips=8)
    told = StepSettings(enforces_capacity=False, **settings)
    return predict(step, parse_strategy("dp=8"), system, Dtype.BF16, told, rules=RULES)


# ---------------------------------------------------------------- the same number


def any_system(rng: Random, n_chips: int) -> System:
    """A server of GPUs, or spatial chips behind a switch."""
    if rng.random() < 0.5:
        system = library.system_on("h100-dgx", chips=n_chips)
        return replace(system, chip=system.chip.with_memory(capacity=None))
    chip = flat_chip(
        n_cores=rng.choice([4, 16]), lanes=8, stages=8, frequency=1e9,
        sram_capacity=rng.choice([1e6, 1e9]), utilization=0.8,
    )  # fmt: skip
    chip = replace(chip, memories=main_memory(bandwidth=rng.choice([1e9, 1e11])))
    link = Dimension(kind=DimensionKind.SWITCH, size=n_chips, bandwidth=rng.choice([1e9, 1e11]))
    return System(chip=chip, network=(link,), n_chips=n_chips)


def any_task(rng: Random) -> Task:
    """A random graph, perhaps trained, on a random machine under a random strategy."""
    graph = random_graph(rng, rng.randint(3, 6), repeats=False)
    losses = [name for name in graph.makers if not graph.tensor[name].axes]
    if losses and rng.random() < 0.5:
        graph = training(graph, losses[-1])
    work = workload_of(graph, name="random")
    tensor = rng.choice([1, 2, 4])
    degrees = Degrees(tensor=tensor, pipeline=1, data=1)
    return Task(
        workload=work, system=any_system(rng, tensor), constraints=Constraints(degrees=degrees)
    )


def all_given(task: Task, mapping) -> Constraints:
    """Every decision of a mapping as one that is given."""
    graph = task.workload.graph
    names = [axis_names(graph, i)[axis] for i, axis in enumerate(mapping.sharding)]
    return Constraints(
        degrees=Degrees(**{use.value: mapping.degree(use) for use in Parallelism}),
        microbatch_size=mapping.microbatch_size,
        n_tiles=mapping.n_tiles,
        recompute=mapping.recompute,
        recompute_layers=mapping.recompute_layers,
        schedule=mapping.schedule,
        interleave=mapping.interleave,
        sharding=tuple(zip(graph.names, map(str, names), strict=True)),
        partitions=tuple(zip(graph.names, mapping.partitions, strict=True)),
    )


def given_some(rng: Random, task: Task) -> Task:
    """The task with the sharding of every kernel given, at random."""
    graph = task.workload.graph
    index = choice_index(graph, named=RULES.traffic.traces_layouts)
    sharding = tuple(
        (name, str(axis_names(graph, i)[rng.choice(index.axes(i))]))
        for i, name in enumerate(graph.names)
    )
    kernel_by_kernel = rng.random() < 0.5
    given = replace(task.constraints, sharding=sharding, kernel_by_kernel=kernel_by_kernel)
    return replace(task, constraints=given)


def check_same(seed: int) -> bool:
    """Whether there was a mapping; then `map` with its decisions given takes as long."""
    rng = Random(seed)
    try:
        task = any_task(rng)
        task = given_some(rng, task) if rng.random() < 0.6 else task
        found = crosstack.optimise(task, work_limit=3e4)
    except (InfeasibleError, InputError, LimitError):
        return False
    time = found.evaluation.time
    assert crosstack.evaluate(task, found.mapping).time == time
    again = crosstack.optimise(replace(task, constraints=all_given(task, found.mapping)))
    assert again.evaluation.time == time
    assert again.mapping == found.mapping
    return True


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 60, 20))
def test_a_mapping_with_all_its_decisions_given_takes_the_same(start):
    assert sum(map(check_same, range(start, start + 20))) >= 10


@pytest.mark.slow
def test_200_mappings_with_all_their_decisions_given_take_the_same():
    count, seed = 0, 1000
    while count < 200:
        count += check_same(seed)
        seed += 1
    assert seed < 1400


JOBS = {
    "train": job_named("llama3-8b", "train", batch=32, sequence=2048),
    "decode": job_named("llama3-8b", "decode", batch=32, context=2048),
    "experts": job_named("mixtral-8x7b", "prefill", batch=8, sequence=1024),
}


SPLITS = ["tp=4,pp=2", "tp=2,pp=1,dp=4", "tp=8"]
SLOW = [("train", "tp=4,pp=2"), ("train", "tp=2,pp=1,dp=4"), ("train", "tp=8"), ("experts", "tp=8")]


@pytest.mark.parametrize(
    ("what", "text"),
    [
        pytest.param(*pair, marks=pytest.mark.slow if pair in SLOW else ())
        for pair in product(JOBS, SPLITS)
    ],
)
def test_a_strategy_takes_what_map_says_of_its_degrees(what, text):
    system = library.system_on("h100-dgx", chips=8)
    found = crosstack.predict(JOBS[what], system, text)
    s = parse_strategy(text)
    degrees, schedule = Degrees(tensor=s.kp2, pipeline=s.lp, data=s.dp), None
    if what == "train":
        degrees, schedule = replace(degrees, context=1), Schedule.ONE_F_ONE_B
    given = Constraints(degrees=degrees, schedule=schedule)
    mapped = crosstack.optimise(JOBS[what], system, constraints=given, work_limit=2e5)
    assert found.time == mapped.evaluation.time
    task = Task(workload=JOBS[what].workload, system=system)
    again = replace(task, constraints=all_given(task, found.plan.mapping))
    assert crosstack.optimise(again).evaluation.time == found.time


def test_rows_are_split_as_the_batch_is():
    job, system = JOBS["decode"], library.system_on("h100-dgx", chips=8)
    assert crosstack.predict(job, system, "RC-4-2-d1-p1").time == (
        crosstack.predict(job, system, "tp=2,dp=4").time
    )


def test_sums_are_split_where_cr_says_so():
    whole = Product(m=4096, k=8192, n=4096)
    system = library.system_on("h100-dgx", chips=8)
    found = crosstack.predict(whole, system, "CR-8-d1-p1")
    assert [kernel.sharding for kernel in found.plan.evaluation.kernels] == ["k"]
    (kernel,) = found.plan.evaluation.kernels
    assert kernel.network_time > 0
    assert crosstack.predict(whole, system, "RC-1-8-d1-p1").time < found.time


# ---------------------------------------------------------------- what a step is made of


def test_no_strategy_beats_what_all_chips_compute_together(chip):
    work = 3 * GPT.batch * GPT.sequence * GPT.model.forward_flop(GPT.sequence, causal=True).total
    for text in ("pp=8,dp=8", "dp=64"):
        assert predicted(PLAIN, text, chip).time > work / 64 / chip.compute.throughput


def test_faster_links_never_slow_a_step(chip):
    fast = replace(chip, inter=replace(chip.inter, bandwidth=10 * chip.inter.bandwidth))
    for text in ("tp=2,dp=2,pp=16", "RC-1-1-d64-p1"):
        assert predicted(PLAIN, text, fast).time <= predicted(PLAIN, text, chip).time * (1 + 1e-12)


def test_a_remainder_is_work_of_the_fullest_chip(chip):
    odd = Product(m=1000, k=4096, n=4096)
    found = predicted(odd, "RC-3-1-d1-p1", chip)
    assert found.share == (334, 4096, 4096)
    whole = predicted(replace(odd, m=1002), "RC-3-1-d1-p1", chip)
    assert found.time == whole.time


def test_a_training_run_is_as_many_steps_as_its_tokens_take():
    tokens = 3.0 * GPT.batch * GPT.sequence
    found = on_server(replace(DECIDED, tokens=tokens))
    assert found.run_time == pytest.approx(3 * found.time)
    assert on_server(DECIDED).run_time is None


# Every split and every order once; the other pairs run the same code.
QUICK = [
    ("tp=1", "1f1b", 1), ("tp=1", "1f1b", 2), ("tp=8,pp=8", "gpipe", 1),
    ("tp=8,pp=3,dp=2", "1f1b", 2), ("tp=8,pp=3,dp=2", "zb-h1", 1), ("tp=4,pp=2,dp=8", "1f1b", 1),
]  # fmt: skip
PIECES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in (
        (text, *order)
        for text in ("tp=1", "tp=8,pp=8", "tp=8,pp=3,dp=2", "tp=4,pp=2,dp=8")
        for order in (("gpipe", 1), ("1f1b", 1), ("1f1b", 2), ("zb-h1", 1))
    )
]


@pytest.mark.parametrize(("text", "schedule", "interleave"), PIECES)
def test_pieces_of_a_step_add_up_to_it_and_the_timeline_takes_as_long(
    text, schedule, interleave, chip
):
    step = replace(reshaped(GPT, layers=48), batch=96, interleave=interleave)
    step = replace(step, schedule=Schedule(schedule), microbatches=96 // parse_strategy(text).dp)
    if interleave > 1 and "pp" not in text:
        with pytest.raises(InputError, match="interleave"):
            predicted(step, text, chip)
        return
    found = predicted(step, text, chip)
    pieces = dict(found.parts)
    assert min(pieces.values()) >= 0
    assert sum(pieces.values()) == pytest.approx(found.time, rel=1e-9)
    ended = sum(pieces.get(name, 0.0) for name in (SUMMING, UPDATING, GATHERING))
    works = found.time - pieces[WAITING] - ended
    assert dict(found.busy)[found.busiest] == pytest.approx(works, rel=1e-9)
    (timeline,) = found.timelines()
    assert timeline.makespan == pytest.approx(found.time, rel=1e-9)
    ran = {name: time for name, time in timeline.busy().items() if name.startswith("stage")}
    assert dict(found.busy) == pytest.approx(ran)


@pytest.mark.parametrize("what", ["decode", "experts"])
def test_the_timeline_of_a_forward_pass_takes_as_long(what):
    system = library.system_on("h100-dgx", chips=8)
    found = crosstack.predict(JOBS[what], system, "tp=2,pp=4")
    (timeline,) = found.timelines()
    assert timeline.makespan == pytest.approx(found.time, rel=1e-9)


def test_one_stage_waits_for_none(chip):
    found = predicted(reshaped(PLAIN, layers=4), "tp=4,dp=4", chip)
    assert dict(found.parts)[WAITING] == pytest.approx(0, abs=1e-9)


def test_equal_stages_wait_for_the_bubble_of_a_pipeline(chip):
    # One forward, one backward, s stages and m microbatches: (s - 1) / m of the work is waited for.
    step = replace(reshaped(PLAIN, layers=32), microbatches=16)
    found = predicted(step, "tp=8,pp=8", chip)
    work = dict(found.busy)[found.busiest]
    assert dict(found.parts)[WAITING] == pytest.approx(7 / 16 * work, rel=0.2)


# ---------------------------------------------------------------- what is given of a step


def test_what_a_step_says_is_what_is_mapped():
    step = replace(
        GPT, microbatches=16, recompute=Recompute.FULL, schedule=Schedule.GPIPE, interleave=1
    )
    task = strategy_task(step, parse_strategy("tp=2,pp=2,dp=2"), library.system_on("h100-dgx"))
    given = task.constraints
    assert (given.microbatch_size, given.recompute) == (2, Recompute.FULL)
    assert (given.schedule, given.interleave) == (Schedule.GPIPE, 1)
    assert given.degrees == Degrees(tensor=2, pipeline=2, data=2, context=1)


def test_the_state_of_the_optimizer_is_as_large_as_it_is_said_to_be():
    usual, none = (
        on_server(DECIDED, **settings) for settings in ({}, {"optimizer": optimizer_named("0 B")})
    )
    weights = usual.memory.stages[0].weights / 2
    assert usual.memory.stages[0].optimizer_state == pytest.approx(
        12 / 8 * weights
    )  # eight replicas have a share each
    assert none.memory.stages[0].optimizer_state == 0


def test_a_model_that_does_not_fit_is_infeasible_unless_that_is_not_asked():
    system = library.system_on("h100-dgx", chips=1)
    step = replace(step_named("gpt3-175b"), batch=1)
    with pytest.raises(InfeasibleError, match="main memory"):
        predict(step, Strategy(), system, Dtype.BF16, rules=RULES)
    free = StepSettings(enforces_capacity=False)
    assert predict(step, Strategy(), system, Dtype.BF16, free, rules=RULES).time > 0


@pytest.mark.parametrize(
    ("step", "text", "message"),
    [
        (
            replace(GPT, microbatches=7),
            "tp=8",
            "7 microbatches on each of 1 replicas",
        ),
        (replace(GPT, exchange=Exchange.GATHERED), "tp=8", "exchange: got gathered; allowed"),
        (GPT, "tp=16", "needs 16 chips; there are 8"),
        (replace(GPT, interleave=5), "tp=4,pp=2", "interleave: got 5; allowed"),
    ],
)
def test_what_cannot_be_is_refused(step, text, message):
    system = library.system_on("h100-dgx", chips=8)
    with pytest.raises(InputError, match=message):
        predict(step, parse_strategy(text), system, Dtype.BF16, rules=RULES)


def test_a_strategy_of_fewer_chips_takes_those_that_are_near():
    job, whole = JOBS["decode"], library.system_on("h100-dgx", chips=16)
    near = library.system_on("h100-dgx", chips=8)
    assert crosstack.predict(job, whole, "tp=8").time == crosstack.predict(job, near, "tp=8").time
    alone = crosstack.predict(job, library.system_on("h100-sxm"), "tp=1").time
    assert crosstack.predict(job, near, "tp=1").time == pytest.approx(alone, rel=1e-12)


def test_an_order_of_ranks_is_for_releases():
    with pytest.raises(InputError, match="order: allowed under the rules of a release"):
        crosstack.predict(GPT, library.system_on("h100-dgx", chips=8), "tp=8", order="kp2,dp")


def test_any_graph_of_a_job_is_predicted():
    job = Job(model=library.model("deepseek-v2-lite"), kind="decode", batch=8, context=512)
    found = crosstack.predict(job, library.system_on("h100-dgx", chips=2), "tp=2")
    assert found.time == found.plan.evaluation.time > 0


@pytest.mark.parametrize(
    ("name", "chips", "tensor", "pipeline"),
    [
        # narayanan2021megatron, table 1
        ("gpt-1.7b", 32, 1, 1),
        ("gpt-3.6b", 64, 2, 1),
        ("gpt-7.5b", 128, 4, 1),
        ("gpt-18b", 256, 8, 1),
        ("gpt-39b", 512, 8, 2),
        ("gpt-76b", 1024, 8, 4),
        ("gpt-146b", 1536, 8, 8),
        ("gpt-310b", 1920, 8, 16),
    ],
)
def test_a_published_batch_is_dealt_out_evenly_to_the_copies_that_were_trained(
    name, chips, tensor, pipeline
):
    copies = chips // (tensor * pipeline)
    assert BATCHES[name].batch % copies == 0
