from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from itertools import product

import numpy as np
import pytest

import crosstack
from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.serving_blocks import block_costs
from crosstack.evaluate.serving_graphs import job_series
from crosstack.evaluate.serving_points import machine_of
from crosstack.evaluate.serving_sweep import Phase, serving_sweep
from crosstack.io import library
from crosstack.machine.chip import Overlap
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import Constraints
from crosstack.model.ends import counted
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.model.tiles import divisors
from crosstack.published.dfmodel.machines import RING, SWITCH, TENSOR, chip, system
from crosstack.workload.job import Job

LLAMA = library.model("llama3-8b")
GRID = tuple(
    np.array(axis)
    for axis in zip(
        *product((1, 2, 4, 16), (1, 2, 8, 32), (1, 6, 64), (1, 100, 4096, 32768)), strict=True
    )
)
RULES = ("crosstack", "dfmodel-e2", "dfmodel-e4", "dfmodel-e5+separate")


def machine(utilization=0.9, overlap=Overlap.NONE, **memory):
    two = ((RING, 16, 50.0, TENSOR), (SWITCH, 64, 12.5, None))
    made = system(
        chip("SN40L", utilization=utilization, overlap=overlap),
        (1638.4, 68719476736.0),
        two,
        latency=150e-9,
    )
    first = made.chip.main_memory
    usual = {"bandwidth": first.bandwidth, "capacity": first.capacity}
    return replace(made, chip=replace(made.chip, memories=main_memory(**usual | memory)))


def gpus(overlap):
    """The same network of temporal chips with levels."""
    made = machine()
    levelled = replace(library.chip("a100-sxm-80gb"), overlap=overlap, intra=None, inter=None)
    return replace(made, chip=levelled)


def sweep(the_machine, **changes):
    given = dict(zip(("tensor", "pipeline", "batch", "context"), GRID, strict=True))
    return serving_sweep(LLAMA, the_machine, **(given | changes))


def compare(points, rows):
    """Compare points with what `crosstack.evaluate` says; return how many fit."""
    fitting = 0
    for i in rows:
        job, the_machine, mapping = points.point(i)
        if points.limit[i]:
            with pytest.raises(InfeasibleError) as refused:
                crosstack.evaluate(job, the_machine, mapping, points.rules)
            assert refused.value.resource == points.limit[i]
            continue
        fitting += 1
        one = crosstack.evaluate(job, the_machine, mapping, points.rules)
        for name in ("time", "latency", "layer_time", "memory_used", "memory_capacity"):
            assert getattr(points, name)[i] == pytest.approx(getattr(one, name), rel=1e-12), name
        tokens = points.context[i] if points.phase is Phase.PREFILL else points.tokens
        assert points.throughput[i] == pytest.approx(one.throughput * tokens, rel=1e-12)
    return fitting


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize(
    "the_machine",
    [
        machine(),
        machine(None, Overlap.ALL),
        machine(0.9, Overlap.COMPUTE_MEMORY),
        gpus(Overlap.ALL),
        gpus(Overlap.COMPUTE_MEMORY),
        gpus(Overlap.NONE),
    ],
    ids=[
        "no overlap",
        "cycles",
        "compute and memory overlap",
        "a GPU",
        "its network apart",
        "nothing hides",
    ],
)
def test_a_point_is_what_the_one_point_path_says(the_machine, phase, rules):
    points = sweep(the_machine, phase=phase, rules=rules)
    rows = np.random.default_rng(7).permutation(len(points.time))[:6]
    assert compare(points, rows.tolist()) >= 3


def test_several_new_tokens_and_a_given_microbatch():
    points = sweep(machine(), tokens=5, microbatch=1, dtype="fp16")
    assert compare(points, range(0, len(points.time), 9)) > 10


def test_a_second_memory_takes_what_does_not_fit():
    tight = machine(capacity=4e9, second_bandwidth=200e9, second_capacity=64e9)
    points = sweep(tight)
    spilled = np.nonzero(points.memory_capacity > 4e9)[0]
    assert 0 < len(spilled) < len(points.time)
    rows = [*spilled[::7].tolist(), *np.nonzero(points.memory_capacity == 4e9)[0][::7].tolist()]
    assert compare(points, rows) > 5


def test_what_exceeds_a_memory_is_named():
    small = replace(
        machine(), chip=replace(machine().chip, memories=main_memory(bandwidth=1e12, capacity=2e9))
    )
    points = sweep(small)
    assert set(points.limit) == {"", "main memory"}
    assert compare(points, range(0, len(points.time), 11)) > 1
    tiny = replace(machine(), chip=machine().chip.with_level(0, capacity=2e5))
    points = serving_sweep(LLAMA, tiny, tensor=1, pipeline=1, batch=1, context=32768)
    assert points.limit == ("SRAM",)
    assert compare(points, [0]) == 0


@pytest.mark.parametrize("rules", ["crosstack", "dfmodel-e5"])
def test_no_number_of_tiles_that_divides_the_prompt_is_faster(rules):
    small = replace(machine(None), chip=machine(None).chip.with_level(0, capacity=3e7))
    lengths = np.array([96, 360, 1024])
    points = serving_sweep(
        LLAMA, small, tensor=4, pipeline=1, batch=1, context=lengths, phase="prefill", rules=rules
    )
    assert max(points.n_tiles) > 1
    chosen = rules_named(rules)
    found = job_series(reading(LLAMA, chosen), lengths, chosen)
    joined, uses = machine_of(small, 4, 1, chosen), (Parallelism.TENSOR, Parallelism.PIPELINE)
    for series in found:
        layer = series.blocks[0]
        plan = make_plan(layer.workload, joined, (4, 1), uses, 1, chosen)
        for length in series.contexts.tolist():
            tiles = np.array(divisors(length))
            every = block_costs(
                layer, np.full_like(tiles, length), np.ones_like(tiles), tiles, joined, plan, chosen
            )
            (at,) = np.flatnonzero(lengths == length)
            assert points.layer_time[at] == every.time[every.fits].min()


def reading(model, rules):
    return lambda length: counted(Job(model=model, kind="prefill", sequence=length).workload, rules)


def writing(model, tokens=1):
    return lambda c: Job(model=model, kind="decode", context=c, sequence=tokens).workload


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    ["llama3-8b", "gpt3-175b", "gemma2-9b", "qwen3-4b", "mixtral-8x7b", "deepseek-v2"],
)
@pytest.mark.parametrize("phase", Phase)
def test_few_graphs_say_all_others(model, phase):
    """Also where a window begins to matter on the way, and where experts take no even share."""
    model, rules = library.model(model), rules_named("crosstack")
    last = min(model.positions or 9000, 9000)
    contexts = np.unique(np.geomspace(3, last - 1, 9).astype(int))
    made = writing(model) if phase is Phase.DECODE else reading(model, rules)
    seen = []
    for series in job_series(made, contexts, rules):
        some = series.contexts
        seen += some.tolist()
        each = [made(context) for context in some.tolist()]
        assert series.boundary(some).tolist() == [one.boundary_size for one in each]
        for number, block in enumerate(series.blocks):
            graphs = [[one.graph, *(end.graph for end in one.ends)][number] for one in each]
            laid = block.laid_out(some)
            ends = ("source", "target", "tensor", "join_source", "join_target")
            for field in fields(laid):
                array = getattr(laid, field.name)
                if isinstance(array, np.ndarray) and field.name not in ends:
                    alone = np.concatenate([getattr(graph, field.name) for graph in graphs])
                    assert np.array_equal(array, alone), field.name
            first, count = graphs[0], len(graphs)
            steps = np.repeat(np.arange(count) * first.n, len(first.source))
            assert (laid.source == np.tile(first.source, count) + steps).all()
            assert (laid.target == np.tile(first.target, count) + steps).all()
            steps = np.repeat(np.arange(count) * first.n, len(first.join_source))
            assert (laid.join_source == np.tile(first.join_source, count) + steps).all()
    assert sorted(seen) == contexts.tolist()


def test_a_thousand_contexts_take_a_few_graphs():
    made, asked = writing(LLAMA), []

    def at(context):
        asked.append(context)
        return made(context)

    (series,) = job_series(cache(at), np.arange(2, 2002, 2), rules_named("crosstack"))
    assert len(series.contexts) == 1000
    assert len(asked) == 5


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v2-lite", "gemma2-9b", "falcon-7b"])
@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("the_machine", [machine(), gpus(Overlap.ALL)], ids=["an RDU", "a GPU"])
def test_layers_of_other_kinds_are_served(the_machine, phase, model):
    """Experts, latent attention, windows in some layers, halves side by side."""
    degree = 1 if model == "falcon-7b" else 4
    points = serving_sweep(
        library.model(model), the_machine, tensor=[degree] * 6, pipeline=[1, 1, 2, 2, 4, 4],
        batch=[1, 8, 2, 16, 64, 64], context=[1, 1024, 100, 2000, 300, 2000], phase=phase,
    )  # fmt: skip
    assert compare(points, range(6)) >= 5


def test_the_usual_sharding_is_close_to_the_best():
    """It gives up at most 1 % when TP is 8; the search also splits elementwise kernels."""
    the_machine = machine(overlap=Overlap.ALL)
    points = serving_sweep(LLAMA, the_machine, tensor=8, pipeline=1, batch=1, context=4096)
    job, joined, _ = points.point(0)
    given = Constraints(kernel_by_kernel=True, microbatch_size=1)
    best = crosstack.optimise(job, joined, constraints=given).certificate
    assert best.status is crosstack.Status.OPTIMAL
    assert best.objective <= points.time[0] <= 1.01 * best.objective


def test_faster_links_and_memory_never_slow_a_point():
    slow = sweep(machine())
    fast = sweep(
        replace(
            machine(),
            chip=replace(
                machine().chip, memories=main_memory(bandwidth=4e12, capacity=68719476736.0)
            ),
        )
    )
    assert (fast.time <= slow.time).all()
    linked = replace(
        machine(), network=tuple(replace(d, bandwidth=2 * d.bandwidth) for d in machine().network)
    )
    assert (sweep(linked).time <= slow.time).all()


def test_the_batch_is_cut_so_that_every_stage_has_a_microbatch():
    points = serving_sweep(
        LLAMA, machine(), tensor=1, pipeline=[1, 2, 4, 4, 8], batch=[64, 64, 6, 3, 4], context=8
    )
    assert points.microbatch.tolist() == [64, 32, 1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tensor": 0}, "tensor: got 0"),
        ({"tensor": 1.5}, "tensor: got 1.5"),
        ({"context": []}, "context: got nothing"),
        ({"pipeline": 33}, "pipeline: got 33; allowed: 1 to 32: at most a stage a layer, 32"),
        ({"tensor": [3, 8, 5]}, "tensor: got 3, 5; allowed: 1, 2, 4, 8, 16: divisors of 32 heads"),
        ({"tensor": 32}, "tensor: got 32; allowed: 1, 2, 4, 8, 16: divisors of 32 heads"),
        ({"batch": 6, "microbatch": 4}, "microbatch: got 4; allowed: a divisor of the batch, 6"),
        ({"batch": [1, 2], "context": [1, 2, 3]}, "allowed: lengths that are equal or 1"),
        ({"phase": "decoding"}, 'phase: got "decoding". Did you mean "decode"?'),
        ({"tokens": 0}, "tokens: got 0"),
        ({"rules": "e5"}, 'rules: no rules are called "e5"'),
    ],
)
def test_what_makes_no_sense_is_refused(changes, says):
    given = {"tensor": 1, "pipeline": 1, "batch": 1, "context": 16} | changes
    with pytest.raises(InputError) as refused:
        serving_sweep(LLAMA, machine(), **given)
    assert says in str(refused.value)


def network(*sizes):
    """Return a machine of so many dimensions of these sizes."""
    first = machine().network[0]
    dimensions = tuple(replace(first, size=size, parallelism=None) for size in sizes)
    return replace(machine(), network=dimensions, n_chips=int(np.prod(sizes)))


def test_degrees_are_bounded_by_the_dimension_that_joins_them():
    given = {"tensor": 8, "pipeline": 4, "batch": 4, "context": 16}
    assert serving_sweep(LLAMA, network(8, 4), **given).fits.all()
    with pytest.raises(InputError, match="tensor: got 8; allowed: 1, 2, 4: .*network.0.") as both:
        serving_sweep(LLAMA, network(4, 2), **given)
    assert "pipeline: got 4; allowed: 1 to 2: " in str(both.value)
    assert "the 2 chips of system.network[1]" in str(both.value)


def test_a_free_dimension_joins_what_the_others_leave():
    two = network(8, 4)
    free = replace(two, network=(two.network[0], replace(two.network[1], size=None)))
    assert serving_sweep(LLAMA, free, tensor=8, pipeline=4, batch=4, context=16).fits.all()
    with pytest.raises(InputError, match="pipeline: got 8; allowed: 1 to 4: "):
        serving_sweep(LLAMA, free, tensor=8, pipeline=8, batch=4, context=16)


def test_degrees_that_share_one_dimension_are_a_point_that_does_not_fit():
    points = serving_sweep(
        LLAMA, network(8), tensor=[2, 4, 8], pipeline=[4, 2, 2], batch=4, context=16
    )
    assert points.limit == ("", "", "network")


def test_the_feed_forward_width_is_split_as_well():
    odd = replace(LLAMA, feed_forward=14_340)
    with pytest.raises(InputError, match="tensor: got 8; allowed: 1, 2, 4: divisors of 32 heads"):
        serving_sweep(odd, machine(), tensor=8, pipeline=1, batch=1, context=16)


@pytest.mark.parametrize(
    ("batches", "wrong"),
    [(np.array([0, 4]), "0"), (np.array([4, -1]), "-1"), ([2, 0.5], "2.0"), ([], "nothing")],
    ids=str,
)
def test_every_batch_is_a_whole_number_of_sequences(batches, wrong):
    with pytest.raises(InputError, match=f"^batch: got {wrong}[;.]"):
        sweep(machine(), tensor=1, pipeline=1, context=100, batch=batches)
