"""What a mask of scores leaves out, and which chips leave it out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.evaluate.plan import optimise
from crosstack.evaluate.time import evaluate
from crosstack.io import library
from crosstack.io.library.machines import system_on
from crosstack.machine.chip import Execution
from crosstack.machine.framework import Fusion
from crosstack.model.attention import density_on, work_done
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import graphs
from crosstack.workload.dtype import Dtype
from crosstack.workload.graph_workload import workload_of

RULES = rules_named("crosstack")
H100 = system_on("h100-dgx", chips=1)


def layer(name, kind=graphs.prefill, block="layers", **sizes):
    workload = workload_of(kind(library.model(name), **sizes), block=block, items="batch")
    return replace(workload, n_layers=workload.layers_in_graph)


def executed(workload, system=H100):
    answer = optimise(workload, system)
    assert evaluate(workload, system, answer.mapping, RULES).time == pytest.approx(
        answer.certificate.objective, rel=1e-9
    )
    return answer.evaluation, {kernel.name: kernel.work for kernel in answer.evaluation.kernels}


def test_a_causal_mask_halves_the_scores_that_a_gpu_works_on():
    """Llama-3 8B, 4,096 tokens: 32 heads of 128; query i looks at i + 1 keys."""
    evaluation, work = executed(layer("llama3-8b", sequence=4096))
    pairs = 32 * 4096 * 4097 / 2
    assert work["scores"] == work["attended"] == pytest.approx(2 * 128 * pairs, rel=1e-12)
    assert work["weights"] == pytest.approx(5 * pairs, rel=1e-12)
    assert work["queries"] == 2 * 4096**3
    # All scores count in the FLOP of the model, as published utilizations have them.
    assert evaluation.work - sum(work.values()) == pytest.approx(
        (4 * 128 + 5) * (32 * 4096**2 - pairs), rel=1e-12
    )


@pytest.mark.parametrize(
    ("label", "seen"),
    [
        ("global_", 4096 * 4097 / 2),
        *((f"window_{i}_", 1024 * 1025 / 2 + (4096 - 1024) * 1024) for i in range(1, 6)),
    ],
)
def test_layers_of_gemma_look_at_all_tokens_before_or_at_a_window(label, seen):
    """Gemma 3 4B, 4,096 tokens: 8 heads of 256, windows of 1,024."""
    _, work = executed(layer("gemma3-4b", sequence=4096))
    assert work[f"{label}scores"] == pytest.approx(2 * 8 * 256 * seen, rel=1e-12)


def test_a_window_of_mistral_bounds_what_a_long_prompt_takes():
    """Windows of 4,096: twice the tokens are a little more than twice the work."""
    seen = 4096 * 4097 / 2 + (16384 - 4096) * 4096
    _, work = executed(layer("mistral-7b", sequence=16384))
    assert work["scores"] == pytest.approx(2 * 32 * 128 * seen, rel=1e-12)


def test_the_backward_pass_leaves_out_what_the_forward_pass_does():
    workload = layer("llama3-8b", graphs.training, sequence=1024)
    share = np.asarray(workload.graph.density).min(axis=1)
    names = {n for n, s in zip(workload.graph.names, share, strict=True) if s < 1}
    assert names == {
        "scores", "weights", "attended", "attended_bwd0", "attended_bwd1", "weights_bwd0",
        "scores_bwd0", "scores_bwd1",
    }  # fmt: skip
    assert set(share[share < 1]) == {1025 / 2048}


def test_writing_looks_at_all_that_is_kept():
    assert (layer("llama3-8b", graphs.decode, context=4096).graph.density == 1).all()
    assert (layer("gemma3-4b", graphs.decode, context=4096).graph.density == 1).all()


@pytest.mark.parametrize(
    ("chip", "rules"),
    [
        (replace(H100.chip, fusions=(Fusion.EPILOGUE,)), "crosstack"),
        (replace(H100.chip, execution=Execution.SPATIAL, fusions=()), "crosstack"),
        (H100.chip, "dfmodel-e3b"),
    ],
    ids=["computes, then masks", "spatial", "counts all"],
)
def test_chips_without_programs_that_skip_and_releases_work_on_all(chip, rules):
    graph = layer("llama3-8b", sequence=1024).graph
    traffic = rules_named(rules).traffic
    assert (density_on(graph, chip, traffic) == 1).all()
    assert work_done(graph, chip, traffic) == {Dtype.BF16: graph.total_work}
    assert work_done(graph, H100.chip, RULES.traffic)[Dtype.BF16] < graph.total_work


def test_scores_that_pass_main_memory_pass_as_far_as_they_count():
    """Kernel by kernel: the softmax reads and writes 16 heads' scores that count, once each."""
    workload = layer("llama3-8b", sequence=2048)
    apart = replace(H100, chip=replace(H100.chip, fusions=(Fusion.ATTENTION,)))
    answer = optimise(workload, apart)
    mapping = answer.mapping
    alone = replace(mapping, partitions=tuple(range(len(mapping.partitions))))
    found = evaluate(workload, apart, alone, RULES)
    softmax = next(p for p in found.partitions if p.kernels == ("weights",))
    assert softmax.memory_traffic == pytest.approx(2 * 2 * 32 * 2048 * 2049 / 2, rel=1e-12)
    assert answer.evaluation.time < found.time
