"""Heads that all share one key: chips have some of them each, and all have the keys."""

from __future__ import annotations

import numpy as np
import pytest

import crosstack
from crosstack import Constraints, Degrees, Job, Task
from crosstack.evaluate.time import mapped_plan
from crosstack.model.choice_index import axis_names
from crosstack.model.choices import index_of, make_choices
from crosstack.model.rules import rules_named
from crosstack.workload.kernels import Axis

CHIPS, BATCH = 8, 32
RULES = rules_named("crosstack")
CORE = ("scores", "weights", "attended")


def workload(model, kind, **lengths):
    return Job(model=crosstack.model(model), kind=kind, batch=BATCH, **lengths).workload


@pytest.fixture(scope="module")
def answer():
    """Latent attention of 128 heads, whose vector is the key and the value of all of them."""
    given = Constraints(degrees=Degrees(tensor=CHIPS))
    decoding = workload("deepseek-v3", "decode", context=8192, dtype="fp8")
    return crosstack.optimise(
        Task(workload=decoding, system=crosstack.system("h200-dgx"), constraints=given)
    )


def terms(answer, end):
    return next(k for k in answer.evaluation.kernels if k.name.endswith(end))


@pytest.mark.parametrize(
    ("model", "kind", "lengths", "name"),
    [
        ("deepseek-v3", "decode", {"context": 512}, "head_row"),
        ("gemma-2b", "decode", {"context": 512}, "group"),
        ("gemma-2b", "prefill", {"sequence": 512}, "group"),
        ("falcon-7b", "train", {"sequence": 512}, "group"),
    ],
)
def test_scores_may_be_split_by_heads(model, kind, lengths, name):
    made = workload(model, kind, **lengths)
    index, graph = index_of(made, made.graph, RULES), made.graph
    i = next(i for i, one in enumerate(graph.names) if one.endswith("scores"))
    assert Axis.N in index.axes(i)
    assert axis_names(graph, i)[Axis.N] == name


def test_products_are_not_split_along_the_tokens_that_tiles_are_cut_of():
    made = workload("llama3-8b", "train", sequence=512)
    index, graph = index_of(made, made.graph, RULES), made.graph
    for i in np.flatnonzero(graph.gemm).tolist():
        named = axis_names(graph, i)
        assert "sequence" not in [named[axis] for axis in index.axes(i)]


def test_queries_of_one_key_lie_by_heads_as_scores_read_them():
    made = workload("gemma-2b", "prefill", sequence=512)
    graph = made.graph
    scores = graph.splits[graph.index["scores"], 3].tolist()
    assert "heads" in [graph.layouts[place] for place in scores[:2]]
    assert graph.layouts[graph.splits[graph.index["attended"], 3, 2]] == "heads"


def test_a_chip_has_its_part_of_the_heads(answer):
    graph = answer.task.workload.graph
    for name in ("scores", "attended"):
        kernel = terms(answer, name)
        i = graph.index[kernel.name]
        whole = 2.0 * graph.rows[i] * graph.k[i] * graph.columns[i]
        assert kernel.work == pytest.approx(whole / CHIPS)


def test_nothing_is_sent_between_queries_and_the_values_of_heads(answer):
    assert [terms(answer, name).network_time for name in ("queries", *CORE)] == [0.0] * 4


def test_every_chip_has_the_keys_of_all_heads(answer):
    made = answer.task.workload
    caches = (sum(made.graph.cache_size) * made.graph_repetitions) * BATCH
    dense = sum(end.count * sum(end.graph.cache_size) for end in made.ends) * BATCH
    found = answer.evaluation.memory.stage(0).caches
    assert found == pytest.approx(caches + dense, rel=0.02)


def test_a_kernel_reads_a_vector_that_is_key_and_value_once(answer):
    graph = answer.task.workload.graph
    inside = {terms(answer, name).name for name in CORE}
    (one,) = (p for p in answer.evaluation.partitions if inside <= {*p.kernels})
    past = graph.cache_size[graph.index["expert_latent_all"]]
    assert past < one.memory_traffic < 1.1 * past


def test_few_sequences_have_their_keys_split_over_multiprocessors():
    given, times = Constraints(degrees=Degrees(tensor=1, pipeline=1, expert=8)), []
    for sequences in (8, 128):  # of each chip, which has 132 multiprocessors
        job = Job(model=crosstack.model("deepseek-v2"), kind="decode", batch=8 * sequences,
                  context=4096)  # fmt: skip
        task = Task(workload=job.workload, system=crosstack.system("h200-dgx"), constraints=given)
        found = terms(crosstack.optimise(task), "scores")
        times.append(found.compute_time)
    assert times[0] < 3 * times[1]  # beside what a tile waits for; 16 times as long on its own


def test_all_of_a_past_that_is_split_is_gathered_for_who_reads_it_whole(answer):
    task, mapping = answer.task, answer.mapping
    plan, graph = (
        mapped_plan(task.workload, task.system, mapping, answer.rules),
        task.workload.graph,
    )
    choices = make_choices(task.workload, graph, plan, 1, answer.rules, task.system.chip)
    index, keeper = choices.index, graph.index["expert_latent_all"]
    scores = graph.index["expert_scores"]
    (edge,) = np.flatnonzero((index.source == keeper) & (index.target == scores))
    entries = np.flatnonzero(index.edge == edge)
    time = {
        (index.axis[index.before[e]], index.axis[index.after[e]]): choices.conversions.edge_time[e]
        for e in entries.tolist()
    }
    m, n, none = 1, 3, 4
    gathered = graph.output_size[keeper] * (CHIPS - 1) / CHIPS / task.system.network[0].bandwidth
    assert time[m, n] >= gathered
    assert time[none, n] == time[m, m] == 0.0
