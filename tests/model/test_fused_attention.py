"""Attention that is one kernel: what its backward pass makes once more, keeps and computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import crosstack
from crosstack.io import library
from crosstack.machine.framework import Fusion
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.model.attention import attentions
from crosstack.model.fused_attention import as_kept, as_mapped, as_run, plain, remade
from crosstack.model.memory import kept_tensors, recomputations, searched_recomputations
from crosstack.model.rules import rules_named
from crosstack.workload.job import Job
from crosstack.workload.kernel_graph import bits
from crosstack.workload.transformer_training import Recompute

MODEL = library.model("llama3.2-1b")
SEQUENCE, WORD = 512, 2
JOB = Job(model=MODEL, batch=8, sequence=SEQUENCE)
GRAPH = JOB.workload.graph
FUSED = remade(GRAPH)
CROSSTACK = rules_named("crosstack")
NODE = crosstack.system("h100-dgx", chips=1)
UNFUSED = replace(NODE, chip=replace(NODE.chip, fusions=(Fusion.EPILOGUE,)))
ONE = Degrees(tensor=1, pipeline=1, data=1)


def named(graph, mask):
    return {graph.names[i] for i in bits(mask)}


def test_the_backward_kernel_is_the_five_products_and_what_is_between_them():
    forward, backward = (named(FUSED, held) for _, held in attentions(FUSED))
    assert forward == {"scores", "weights", "attended"}
    made = {"scores_again", "weights_again", "attended_bwd0", "attended_bwd1"}
    assert backward == made | {"weights_bwd0", "scores_bwd0", "scores_bwd1"}


def test_what_is_made_once_more_is_what_it_was():
    again = np.flatnonzero(FUSED.remade >= 0)
    assert [FUSED.names[FUSED.remade[i]] for i in again] == ["scores", "weights"]
    assert FUSED.backward[again].all()
    for name in ("work", "rows", "columns", "k", "density", "output_size", "splits"):
        column = getattr(FUSED, name)
        np.testing.assert_array_equal(column[again], column[FUSED.remade[again]])
    assert FUSED.total_work == GRAPH.total_work


def test_no_backward_kernel_reads_the_inside_of_a_forward_attention():
    inside = {FUSED.index[name] for name in ("scores", "weights")}
    edges = zip(FUSED.source.tolist(), FUSED.target.tolist(), strict=True)
    assert not any(FUSED.backward[j] and i in inside for i, j in edges)


def test_it_is_done_once_and_undone_without_a_trace():
    assert remade(FUSED) is FUSED
    assert plain(FUSED) == GRAPH
    assert plain(GRAPH) is GRAPH
    kept = as_kept(as_run(JOB.workload, NODE.chip))
    assert kept == JOB.workload


def test_attention_keeps_queries_keys_values_and_its_result_alone():
    def size(graph):
        kept = kept_tensors(graph).output
        return {graph.names[i]: graph.output_size[i] for i in np.flatnonzero(kept)}

    before, after = size(GRAPH), size(FUSED)
    square = MODEL.heads * SEQUENCE**2 * WORD
    assert {name: before[name] for name in before.keys() - after.keys()} == {"weights": square}
    assert after.keys() <= before.keys()


def test_computing_it_again_keeps_no_less_and_is_not_searched():
    assert Recompute.ATTENTION in recomputations(FUSED, CROSSTACK)
    assert Recompute.ATTENTION not in searched_recomputations(FUSED, CROSSTACK)
    assert Recompute.ATTENTION in searched_recomputations(GRAPH, CROSSTACK)
    none, again = (kept_tensors(FUSED, kind) for kind in (Recompute.NONE, Recompute.ATTENTION))
    np.testing.assert_array_equal(none.output, again.output)


def test_other_chips_keep_the_weights():
    """One that runs kernels side by side, and one that has no program for attention."""
    for chip in (library.chip("sn40l"), UNFUSED.chip):
        assert as_run(JOB.workload, chip) is JOB.workload


def test_a_forward_pass_is_left_as_it_is():
    job = Job(model=MODEL, batch=8, sequence=SEQUENCE, kind="prefill")
    assert as_run(job.workload, NODE.chip) is job.workload


def test_kernel_by_kernel_keeps_what_it_reads_and_its_mapping_is_evaluated_so():
    given = Constraints(degrees=ONE, microbatch_size=1, kernel_by_kernel=True)
    plan = crosstack.optimise(JOB, NODE, constraints=given, work_limit=1e5)
    assert len(plan.mapping.sharding) == GRAPH.n
    again = crosstack.evaluate(plan.task, plan.mapping)
    assert again.time == pytest.approx(plan.evaluation.time, rel=1e-12)
    assert as_mapped(as_run(JOB.workload, NODE.chip), NODE.chip, GRAPH.n).graph == GRAPH
    assert as_mapped(JOB.workload, NODE.chip, FUSED.n).graph == FUSED


def test_a_step_fuses_both_directions_and_moves_no_scores():
    given = Constraints(degrees=ONE, microbatch_size=1, recompute=Recompute.NONE)
    found = crosstack.optimise(JOB, NODE, constraints=given).evaluation
    held = {partition.kernels for partition in found.partitions}
    both = [tuple(name for i, name in enumerate(FUSED.names) if mask >> i & 1)
            for _, mask in attentions(FUSED)]  # fmt: skip
    assert {frozenset(one) for one in both} <= {frozenset(one) for one in held}
    square = MODEL.heads * SEQUENCE**2 * WORD
    inside = [p for p in found.partitions if "scores_again" in p.kernels]
    assert sum(p.memory_traffic for p in inside) < square


def test_as_a_machine_changes_so_does_what_is_made_once_more():
    task = crosstack.Task(workload=JOB.workload, system=NODE)
    other = crosstack.Task(workload=task.workload, system=UNFUSED)
    assert task.workload.graph.n == GRAPH.n + 2
    assert other.workload == JOB.workload
