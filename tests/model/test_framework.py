"""Claims about frameworks: what they fuse, what their host takes, and which strategies they run."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import crosstack
from crosstack import Constraints, Degrees, InputError, Job
from crosstack.evaluate.predicted import predict_job
from crosstack.evaluate.timeline import LAUNCHING
from crosstack.io import library
from crosstack.io.native import read_task, write_task
from crosstack.machine.framework import Framework, Fusion
from crosstack.model.dispatch import check_time, host_time, launched
from crosstack.model.legality import legality_on
from crosstack.model.runnable import runs_schedule, unrunnable
from crosstack.model.several_kernels import passes_besides
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import bits
from crosstack.workload.transformer_training import Recompute, Schedule, Zero

A100 = library.chip("a100-sxm-80gb")
GPT = Job(model=crosstack.model("gpt3-175b"), batch=8, sequence=2048).workload
LLAMA = Job(model=crosstack.model("llama3-8b"), batch=8, sequence=2048).workload
SMALL = Job(model=crosstack.model("llama3.2-1b"), batch=8, sequence=512)
ONE = Degrees(tensor=1, pipeline=1, data=1)


def driven(name: str, **changes):
    """Return an A100 that a framework drives."""
    return replace(A100, framework=replace(library.framework(name), **changes))


def allows(chip, workload, *names: str) -> bool:
    graph = workload.graph
    return legality_on(graph, chip).allows(sum(1 << graph.index[name] for name in names))


# ---------------------------------------------------------------- what is fused

BIAS_GELU = "up_biased", "active"
BIAS_DROPOUT_ADD = "attention_out_biased", "attention_dropped", "attention_added"
ATTENTION = "scores", "weights", "weights_dropped", "attended"
ADD_NORM = "attention_added", "feed_forward_norm"
PRODUCT_BIAS = "up", "up_biased"
BIAS_GRADIENT = "expert_bias_gradient 8"
EPILOGUE = "up", "up_biased", "active"


@pytest.mark.parametrize(
    ("name", "fused", "apart"),
    [
        # narayanan2021megatron, section 4.2
        ("megatron", [BIAS_GELU, BIAS_DROPOUT_ADD, ATTENTION, PRODUCT_BIAS], [ADD_NORM, EPILOGUE]),
        ("eager", [ATTENTION, PRODUCT_BIAS], [BIAS_GELU, BIAS_DROPOUT_ADD, ADD_NORM, EPILOGUE]),
        # ansel2024pytorch2
        ("compiled", [BIAS_GELU, BIAS_DROPOUT_ADD, ADD_NORM, ATTENTION, PRODUCT_BIAS], [EPILOGUE]),
        ("fsdp", [BIAS_GELU, BIAS_DROPOUT_ADD, ADD_NORM, ATTENTION, PRODUCT_BIAS], [EPILOGUE]),
    ],
)
def test_a_framework_fuses_what_it_has_kernels_for(name, fused, apart):
    assert all(allows(driven(name), GPT, *kernels) for kernels in fused)
    assert not any(allows(driven(name), GPT, *kernels) for kernels in apart)
    assert all(allows(A100, GPT, *kernels) for kernels in [*fused, *apart])


def test_a_part_of_a_chain_is_fused_and_what_it_skips_is_not():
    megatron = driven("megatron")
    assert allows(megatron, GPT, "attention_dropped", "attention_added")
    assert not allows(megatron, GPT, "attention_out_biased", "attention_added")


def test_a_chip_fuses_nothing_that_it_may_not():
    bare = replace(driven("compiled"), fusions=(Fusion.ELEMENTWISE,))
    assert bare.fused == (Fusion.ELEMENTWISE,)
    assert not allows(bare, GPT, *ATTENTION)


def test_chains_name_functions():
    with pytest.raises(InputError, match=r"chains\[0\]: got 'bias gleu'; allowed: two functions"):
        Framework(chains=("bias gleu",))


def test_a_spatial_chip_has_no_framework():
    with pytest.raises(InputError, match="framework: got 'megatron'; allowed: none"):
        replace(library.chip("sn30"), framework=library.framework("megatron"))


# ---------------------------------------------------------------- what the host takes


@pytest.mark.parametrize(
    ("name", "workload", "count"),
    [
        # 23 kernels there, 27 back; 5 biases in products, attention 4 and 5 in one each,
        # dropout and residual twice.
        ("megatron", GPT, 50 - 6 - 3 - 4 - 2),
        ("eager", GPT, 50 - 6 - 3 - 4),
        ("eager", LLAMA, 49 - 2 - 3),  # attention of 3 kernels there, of 4 back
        ("megatron", LLAMA, 49 - 2 - 3 - 2),  # and both gradients of the gate
    ],
)
def test_a_framework_launches_what_it_does_not_fuse(name, workload, count):
    groups = launched(workload.graph, driven(name))
    assert len(groups) == count
    assert sum(groups) == (1 << workload.graph.n) - 1
    assert host_time(workload.graph, driven(name, dispatch=1e-5)) == pytest.approx(count * 1e-5)


def test_what_is_computed_again_is_launched_again():
    chip = driven("eager", dispatch=1.0)
    again = [host_time(LLAMA.graph, chip, each) for each in Recompute]
    forward = sum(1 for g in launched(LLAMA.graph, chip) if not LLAMA.graph.backward[bits(g)[0]])
    assert again == [44, 44 + 1, 44 + forward]


def experts_job(name):
    return Job(model=crosstack.model(name), batch=8, sequence=512).workload


@pytest.mark.parametrize("parts", [8, 16, 128])
def test_products_of_every_expert_of_a_chip_are_launched_where_they_are_apart(parts):
    graph, chip = experts_job("qwen3-235b-a22b").graph, driven("eager", dispatch=1.0)
    apart = replace(chip, framework=replace(chip.framework, experts_apart=True))
    more = host_time(graph, apart, expert_parts=parts) - host_time(graph, chip)
    # A gate and what it lets through are one product forward, and two backward: 6 in place of 9.
    assert more == 6 * (128 // parts) - 9
    again = host_time(graph, apart, Recompute.FULL, parts) - host_time(graph, chip, Recompute.FULL)
    assert again == 8 * (128 // parts) - 12


def test_experts_are_as_many_as_a_chip_has_of_them():
    def host(given):
        system = crosstack.system("h100-dgx", chips=16, framework="megatron")
        job = Job(model=crosstack.model("mixtral-8x7b"), batch=32, sequence=512)
        return predict_job(job, system, f"{given},microbatch=2,recompute=none").plan.evaluation

    few, many = host("tp=1,pp=2,dp=8,ep=8"), host("tp=1,pp=2,dp=8,ep=2")
    dispatch = library.framework("megatron").dispatch
    assert many.host_time - few.host_time == pytest.approx(6 * (4 - 1) * dispatch)
    cut = host("tp=2,pp=1,dp=8,ep=4,etp=2")  # 2 experts of a chip, half of each
    assert cut.host_time - few.host_time == pytest.approx(6 * dispatch)


def test_kernels_that_add_biases_are_launched_for_every_expert():
    graph = experts_job("gpt-oss-120b").graph  # a layer with a window, and one without

    def host(parts, **changes):
        chip = driven("eager", dispatch=1.0, experts_apart=True, **changes)
        return host_time(graph, chip, expert_parts=parts)

    more = host(32, passes=("expert_bias 6",)) - host(32)
    assert more == 2 * (128 // 32) * (2 + 4)
    assert host(128) < host(32)


AGAIN = Recompute.NONE, Recompute.FULL


def test_functions_of_several_kernels_are_launched_as_often():
    def more(**changes):
        chip = driven("megatron", dispatch=1.0, fusions=(), launches=("softmax 4",), **changes)
        one = driven("megatron", dispatch=1.0, fusions=(), **changes)
        return [
            host_time(GPT.graph, chip, each) - host_time(GPT.graph, one, each) for each in AGAIN
        ]

    assert more() == [4.0, 8.0]  # once, and once again


@pytest.mark.parametrize(("tensor", "count"), [(1, 0), (2, 2), (8, 8)])
def test_checks_of_collectives_take_the_host_a_time_for_every_chip_of_a_group(tensor, count):
    chip = driven("nanotron", checks=1e-3)
    assert check_time(chip, tensor) == pytest.approx(count * 1e-3)
    assert check_time(driven("nanotron", checks=1e-3, dispatch=None), tensor) == 0.0
    assert check_time(A100, tensor) == 0.0


def test_a_layer_is_checked_once_a_microbatch():
    def host(**changes):
        framework = replace(library.framework("nanotron"), **changes)
        system = crosstack.system("h100-dgx", chips=16).driven_by(framework)
        given = "tp=8,pp=2,dp=1,microbatch=2,recompute=none"
        return predict_job(SMALL, system, given).plan.evaluation.host_time

    assert host(checks=1e-3) - host() == pytest.approx(8e-3)


def test_replayed_launches_take_the_host_no_time():
    assert host_time(LLAMA.graph, driven("eager", dispatch=None)) == 0.0
    assert host_time(LLAMA.graph, A100) == 0.0


@cache
def planned(framework: Framework | None):
    system = crosstack.system("a100-dgx-80gb", chips=1).driven_by(framework)
    constraints = Constraints(degrees=ONE, microbatch_size=1, recompute=Recompute.NONE)
    return crosstack.optimise(SMALL, system, constraints=constraints)


def test_a_step_takes_the_longer_of_its_host_and_its_chip():
    eager = replace(library.framework("eager"), dispatch=None)
    chip = planned(eager)
    layer = chip.evaluation.layer_time
    for dispatch in (0.5 * layer / 43, 2 * layer / 43):
        found = planned(replace(eager, dispatch=dispatch))
        assert found.certificate.status == "optimal"
        assert found.evaluation.host_time == pytest.approx(43 * dispatch)
        # 16 layers, 8 microbatches; embedding and head are launched in no time to speak of.
        waited = 16 * 8 * max(43 * dispatch - layer, 0.0)
        ends = (found.evaluation.time - chip.evaluation.time) - waited
        assert abs(ends) <= 8 * 12 * dispatch
        assert found.evaluation.layer_time == pytest.approx(layer, rel=1e-9)


def test_what_waits_for_the_host_is_named():
    system = crosstack.system("a100-dgx-80gb", chips=1, framework="megatron")
    found = predict_job(SMALL, system, microbatches=8)
    parts = dict(found.parts)
    assert parts[LAUNCHING] > 0
    assert sum(parts.values()) == pytest.approx(found.time, rel=1e-9)


def test_events_of_a_host_bound_pipeline_end_when_the_closed_form_says():
    system = crosstack.system("a100-dgx-80gb", chips=4, framework="eager")
    found = predict_job(SMALL, system, "tp=1,pp=4,dp=1", microbatches=8)
    (timeline,) = found.timelines()
    assert timeline.makespan == pytest.approx(found.time, rel=1e-9)


def test_without_a_framework_nothing_is_waited_for_and_all_is_fused():
    plain, eager = planned(None).evaluation, planned(library.framework("eager")).evaluation
    assert plain.host_time == 0.0
    assert plain.layer_time < eager.layer_time
    assert plain.time < eager.time


# ---------------------------------------------------------------- functions of several kernels


def stepped(chips=1, given="tp=1,pp=1,dp=1", gradients=None, **changes):
    """Return the step of a small model by one microbatch of two sequences on each chip."""
    eager = replace(library.framework("eager"), dispatch=None, passes=(), keeps=())
    system = crosstack.system("a100-dgx-80gb", chips=chips).driven_by(replace(eager, **changes))
    job = Job(model=SMALL.model, batch=2 * chips, sequence=512, gradients=gradients)
    return predict_job(job, system, f"{given},microbatch=2,recompute=none")


def test_kernels_of_a_function_move_its_first_operand_as_often_as_they_say():
    model, speed = SMALL.model, A100.main_memory.speed
    one, scores = stepped().time, 2 * 512 * model.vocabulary * 4
    assert stepped(passes=("cross_entropy 7",)).time - one == pytest.approx(7 * scores / speed)
    assert stepped(passes=("cross_entropy_gradient 2",)).time - one == pytest.approx(
        2 * scores / speed
    )
    gates = model.layers * 2 * 512 * model.feed_forward * 2
    # A gate is bound by its lanes before, and by main memory behind.
    assert 0 < stepped(passes=("gated_silu 4",)).time - one <= 4 * gates / speed * (1 + 1e-9)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("gpt-oss-120b",
         {"window_expert_down_biased": 6.0, "global_expert_down_biased": 6.0,
          "window_weighted_bwd0": 8.0, "global_weighted_bwd0": 8.0}),
        ("qwen3-235b-a22b", {}),  # whose experts have no biases
        ("gpt3-175b", {}),  # nor experts
    ],
)  # fmt: skip
def test_biases_of_what_experts_make_and_their_gradients_are_kernels_of_their_own(name, found):
    graph = Job(model=crosstack.model(name), batch=8, sequence=512).workload.graph
    counts = passes_besides(graph, driven("eager", passes=("expert_bias 6", BIAS_GRADIENT)))
    there = {kernel: count for kernel, count in zip(graph.index, counts, strict=True) if count}
    assert there == found


def test_what_a_framework_keeps_besides_is_kept_of_every_layer():
    def kept(**changes):
        return stepped(**changes).memory.stage(0).activations

    model = SMALL.model
    result = model.layers * 2 * 512 * model.feed_forward * 2
    assert kept(keeps=("gated_silu 1",)) - kept() == pytest.approx(result)


def test_gradients_that_products_make_lie_beside_single_ones_where_chips_sum_them():
    def gradients(chips, **changes):
        given = f"tp=1,pp=1,dp={chips},zero=0"
        found = stepped(chips, given, **changes).memory.stage(0)
        return found.gradients / found.weights  # of two bytes

    single = {"gradients": Dtype.FP32}
    assert gradients(2, buckets=True, **single) == pytest.approx((4 + 2) / 2)
    assert gradients(1, buckets=True, **single) == pytest.approx(4 / 2)
    assert gradients(2, buckets=False, **single) == pytest.approx(4 / 2)
    assert gradients(2, buckets=True) == pytest.approx(1.0)


@pytest.mark.parametrize("field", ["passes", "launches", "keeps"])
@pytest.mark.parametrize("said", ["gelu", "gelu many", "gleu 1", "bias 2", "gelu 1 2"])
def test_counts_name_a_function_and_a_number(field, said):
    with pytest.raises(InputError, match=rf"{field}\[0\]: got '{said}'; allowed: a function and"):
        Framework(**{field: (said,)})


def test_only_passes_name_biases_of_experts():
    assert Framework(passes=("expert_bias 6",)).passes
    with pytest.raises(InputError, match=r"keeps\[0\]: got 'expert_bias 6'"):
        Framework(keeps=("expert_bias 6",))


# ---------------------------------------------------------------- which strategies run


@pytest.mark.parametrize(
    ("name", "tensor", "pipeline", "why"),
    [
        ("megatron", 3, 1, "got tp=3; allowed with megatron: a divisor of 32 heads. "
         "Nearest: tp=2 or tp=4."),
        ("eager", 64, 1, "got tp=64; allowed with eager: a divisor of 32 heads. Nearest: tp=32."),
        ("megatron", 1, 6, "got pp=6; allowed with megatron: a divisor of 32 layers, "
         "or of 33 to 34 with ends. Nearest: pp=4 or pp=8."),
        ("fsdp", 1, 33, "got pp=33; allowed with fsdp: up to 32 stages, as many as there are "
         "layers. Nearest: pp=32."),
        ("fsdp", 1, 6, None),
        ("megatron", 16, 8, None),  # two chips for each of 8 heads of keys and values
    ],
)  # fmt: skip
def test_what_a_framework_cannot_run_is_refused_with_the_nearest_that_it_can(
    name, tensor, pipeline, why
):
    problem = unrunnable(LLAMA, library.framework(name), tensor=tensor, pipeline=pipeline)
    assert (None if problem is None else problem.message) == why
    assert unrunnable(LLAMA, None, tensor=tensor, pipeline=pipeline) is None


def test_a_free_search_tries_what_the_framework_runs_alone():
    model = replace(crosstack.model("llama3.2-1b"), layers=3, heads=6, kv_heads=6, feed_forward=24)
    job = Job(model=model, batch=8, sequence=64)
    for name, stages in (("megatron", {1}), ("eager", {1, 2})):
        system = crosstack.system("h100-dgx", chips=8, framework=name)
        plan = crosstack.optimise(job, system, work_limit=1e3)
        parallel = plan.to_dict()["parallelism"]
        assert parallel["tp"] in (1, 2)
        assert parallel["pp"] in stages


def test_a_saved_mapping_that_the_framework_cannot_run_is_refused():
    model = replace(crosstack.model("llama3.2-1b"), layers=5)
    job = Job(model=model, batch=8, sequence=64)
    system = crosstack.system("h100-dgx", chips=4)
    given = Constraints(degrees=Degrees(tensor=1, pipeline=4, data=1))
    plan = crosstack.optimise(job, system, constraints=given, work_limit=1e4)
    megatron = system.driven_by(replace(library.framework("megatron"), fusions=tuple(Fusion)))
    with pytest.raises(InputError, match="mapping.parallelism: got pp=4; .* a divisor of 5 layers"):
        crosstack.evaluate(replace(plan.task, system=megatron), plan.mapping)


def test_data_parallel_chips_of_fsdp_share_weights_or_gradients():
    system = crosstack.system("h100-dgx", chips=4, framework="fsdp")
    given = Constraints(degrees=Degrees(tensor=1, pipeline=1, data=4))
    plan = crosstack.optimise(SMALL, system, constraints=given, work_limit=1e4)
    assert plan.mapping.zero in library.framework("fsdp").sharing


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"zero": Zero.STATE}, "constraints.zero: got '1'; allowed: 2, 3, hsdp with fsdp"),
        ({"schedule": Schedule.ZB_H1}, "constraints.schedule: got 'zb-h1'; allowed: gpipe, 1f1b"),
    ],
)
def test_what_fsdp_does_not_share_is_refused(given, says):
    system = crosstack.system("h100-dgx", chips=4, framework="fsdp")
    constraints = Constraints(degrees=Degrees(tensor=1, pipeline=2, data=2), **given)
    with pytest.raises(InputError, match=says):
        crosstack.optimise(SMALL, system, constraints=constraints, work_limit=1e3)


@pytest.mark.parametrize(
    ("name", "schedule", "says"),
    [
        ("megatron", "gpipe", "got 'gpipe'; allowed: 1f1b, combined-1f1b with megatron"),
        ("megatron", "dualpipe", "got 'dualpipe'; allowed: 1f1b, combined-1f1b with megatron"),
        ("eager", "zb-h1", "allowed: gpipe, 1f1b, zb-v with eager; nearest: zb-v"),
        ("megatron", "zb-v", "got 'zb-v'; allowed: 1f1b, combined-1f1b with megatron"),
        ("compiled", "zb-v", "allowed: gpipe, 1f1b with compiled; nearest: 1f1b"),
        ("eager", "zb-v", None),
        ("compiled", "dualpipe", "allowed: gpipe, 1f1b with compiled; nearest: 1f1b"),
        ("eager", "gpipe", None),
        ("megatron", "1f1b", None),
        (None, "zb-h1", None),
    ],
)  # fmt: skip
def test_a_schedule_that_the_framework_does_not_run_is_refused_by_name(name, schedule, says):
    system = crosstack.system("h100-dgx", chips=4, framework=name)
    given = Constraints(
        degrees=Degrees(tensor=1, pipeline=4, data=1), schedule=Schedule(schedule), zero=Zero.NONE
    )
    if says is None:
        plan = crosstack.optimise(SMALL, system, constraints=given, work_limit=1e3)
        assert plan.mapping.schedule is Schedule(schedule)
        return
    with pytest.raises(InputError, match=says):
        crosstack.optimise(SMALL, system, constraints=given, work_limit=1e3)
    with pytest.raises(InputError, match=says):
        predict_job(SMALL, system, "tp=1,pp=4,dp=1", schedule=Schedule(schedule))


def test_a_free_schedule_is_one_that_the_framework_runs():
    given = Constraints(degrees=Degrees(tensor=1, pipeline=4, data=1))
    followed = {}
    for name in (None, "megatron"):
        system = crosstack.system("h100-dgx", chips=4, framework=name)
        plan = crosstack.optimise(SMALL, system, constraints=given, work_limit=1e4)
        followed[name] = plan.mapping.schedule
    assert followed == {None: Schedule.ZB_H1, "megatron": Schedule.ONE_F_ONE_B}


def test_a_saved_schedule_that_the_framework_does_not_run_is_refused():
    system = crosstack.system("h100-dgx", chips=4)
    given = Constraints(degrees=Degrees(tensor=1, pipeline=4, data=1), schedule=Schedule.GPIPE)
    plan = crosstack.optimise(SMALL, system, constraints=given, work_limit=1e3)
    every = {"fusions": tuple(Fusion), "dispatch": None}
    megatron = system.driven_by(replace(library.framework("megatron"), **every))
    with pytest.raises(
        InputError, match="mapping.schedule: got 'gpipe'; allowed: 1f1b, combined-1f1b with meg"
    ):
        crosstack.evaluate(replace(plan.task, system=megatron), plan.mapping)


def test_one_stage_goes_there_and_back_whatever_pipelines_the_framework_has():
    piped = replace(library.framework("eager"), schedules=(Schedule.GPIPE,))
    assert runs_schedule(piped, Schedule.ONE_F_ONE_B, np.array([1, 2])).tolist() == [True, False]
    assert runs_schedule(piped, Schedule.GPIPE, np.array([1, 2])).tolist() == [True, True]
    system = crosstack.system("h100-dgx", chips=4).driven_by(piped)
    given = Constraints(degrees=Degrees(tensor=1, pipeline=4, data=1))
    plan = crosstack.optimise(SMALL, system, constraints=given, work_limit=1e3)
    assert plan.mapping.schedule is Schedule.GPIPE


def test_serving_kernel_by_kernel_has_no_framework():
    system = crosstack.system("h100-dgx", framework="eager")
    with pytest.raises(InputError, match=r"system\.framework: got eager; allowed here: none"):
        crosstack.serve(SMALL.model, system, context=128, tensor=1, batch=1)


# ---------------------------------------------------------------- files


@pytest.mark.parametrize(
    "said",
    ["megatron", "{library: megatron, dispatch: null}",
     "{name: mine, fusions: [attention], chains: [bias gelu, bias dropout add], dispatch: 9 us}",
     "{name: mine, passes: [gelu 2], launches: [gelu 1], keeps: [gelu 1], buckets: true,"
     " sent_passes: 6, dispatch: 9 us, checks: 1 ms}"],
)  # fmt: skip
def test_a_framework_of_a_file_is_written_and_read_again(said):
    text = f"""
workload:
  llm: {{hidden: 64, sequence: 32, heads: 4, layers: 1, feed_forward: 256, vocabulary: 99}}
system: {{on: a100-dgx-80gb, n_chips: 2, framework: {said}}}
"""
    task = read_task(text, "mine.yaml")
    assert task.system.chip.framework is not None
    again = read_task(write_task(task), "again.yaml")
    assert again.system == task.system


def test_an_unknown_framework_is_told_the_nearest():
    with pytest.raises(InputError, match='framework: no framework is called "megatorn". Did you'):
        crosstack.system("h100-dgx", framework="megatorn")


def test_a_result_says_what_drove_the_chips():
    plan = planned(library.framework("eager"))
    assert plan.to_dict()["framework"] == "eager"
    assert plan.to_dict()["host_time_s"] == plan.evaluation.host_time


def test_energy_is_least_only_where_no_chip_waits_for_its_host():
    job, given = SMALL, Constraints(degrees=ONE, microbatch_size=1)
    system = crosstack.system("a100-dgx-80gb", chips=1, framework="eager")
    with pytest.raises(InputError, match="objective: needs energy; allowed: time or price"):
        crosstack.optimise(job, system, constraints=given, objective="energy", work_limit=1e3)
    replayed = system.driven_by(replace(library.framework("eager"), dispatch=None))
    found = crosstack.optimise(job, replayed, constraints=given, objective="energy", work_limit=1e3)
    assert found.certificate.objective > 0
