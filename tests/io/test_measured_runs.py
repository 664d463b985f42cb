"""Claims about tables of measured training runs: what is read of them, and what is left out."""

from __future__ import annotations

import json

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.measured_runs import is_of_runs, read_runs
from crosstack.machine.calibration import Calibration
from crosstack.machine.framework import Fusion
from crosstack.workload.dtype import Dtype
from crosstack.workload.transformer_training import Hidden

ROW = {
    "id": "one", "source": "own", "hardware": "A100-SXM-80GB", "gpus": 16, "model": "gpt",
    "family": "gpt", "layers": 4, "hidden": 256, "heads": 4, "kv_heads": 4, "head_size": 64,
    "ffn": 1024, "gated": False, "seq": 512, "vocab": 1000, "tied": True, "precision": "fp16",
    "global_batch": 16, "micro_batch": 2, "tp": 2, "pp": 2, "dp": 4, "virtual_stages": 2,
    "recompute": "selective", "software": "Megatron-LM", "step_s": 0.1,
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    def reading(*rows):
        path = tmp_path / "runs.jsonl"
        path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
        return read_runs(path)

    return reading


def test_a_row_is_a_job_on_a_machine_with_what_is_given(read):
    (run,) = read(ROW).sets["own"]
    assert run.given == (
        "tp=2,pp=2,dp=4,microbatch=2,zero=0,recompute=attention,schedule=1f1b,interleave=2"
    )
    assert (run.job.batch, run.job.sequence, run.job.dtype) == (16, 512, Dtype.BF16)
    assert (run.name, run.time, run.overlap) == ("one", 0.1, None)
    model = run.job.model
    assert (model.vocabulary, model.positions, model.dropout, model.qkv_bias) == (1024, 512, 1, 1)
    assert run.system.n_chips == 16
    assert run.system.chip.framework == library.framework("megatron")
    assert Fusion.ATTENTION not in run.system.chip.fusions


def test_the_network_gives_what_sums_of_all_chips_reached_where_a_run_measured_them(read):
    def outside(**changes):
        (run,) = read(ROW | {"allreduce_gbs_measured": 80.0} | changes).sets["own"]
        return [(level.bandwidth, level.achieved) for level in run.system.network[1:]]

    assert outside() == [(10e9, 1.0)]  # eight ports of a node
    assert outside(allreduce_gbs_measured=400.0) == [(0.96 * 25e9, 1.0)]  # no more than there is
    assert outside(inter_gbytes_per_gpu=5.0) == [(0.96 * 5e9, 1.0)]
    assert outside(gpus=8, dp=2) == []


def test_links_overlap_shares_and_fused_attention_are_as_the_row_says(read):
    changes = {
        "flash_attention": True, "dp_overlap": False, "inter_gbytes_per_gpu": 12.5, "pp": 1,
        "dp": 8, "zero": 1, "cp": 1, "software": "nanotron", "family": "llama",
    }  # fmt: skip
    (run,) = read(ROW | changes).sets["own"]
    assert run.given == "tp=2,pp=1,dp=8,microbatch=2,zero=1,recompute=attention"
    assert run.overlap == ()
    assert [level.bandwidth for level in run.system.network] == [300e9, 12.5e9]
    assert Fusion.ATTENTION in run.system.chip.fusions
    assert not run.job.model.dropout


def test_nanotron_sums_gradients_beside_the_backward_pass_and_waits_for_weights(read):
    changes = {"software": "nanotron", "family": "llama", "pp": 1, "dp": 8, "zero": 1}
    (run,) = read(ROW | changes).sets["own"]
    assert run.overlap == (Hidden.GRADIENTS,)
    assert run.job.gradients is Dtype.FP32
    assert run.system.chip.framework == library.framework("nanotron")


@pytest.mark.parametrize(
    ("changes", "passes", "fused"),
    [
        ({"software": "Megatron-LM 2022"}, True, True),
        ({"software": "Megatron-LM 2022", "source": "megatron-selene"}, True, False),
        ({"software": "Megatron-DeepSpeed"}, True, False),
        ({"software": "Megatron-Bridge, NeMo 26.06"}, False, True),
        ({"software": "Megatron-LM / TE 2.11"}, False, True),
    ],
)
def test_loss_and_sums_are_as_the_software_of_a_run_has_them(read, changes, passes, fused):
    row = ROW | changes
    (run,) = read(row).sets[row["source"]]
    framework = run.system.chip.framework
    apart = any(text.startswith("cross_entropy ") for text in framework.passes)
    assert (apart, framework.fused_sums) == (passes, fused)


@pytest.mark.parametrize(
    ("changes", "apart"),
    [
        ({}, False),  # two sequences of two heads
        ({"micro_batch": 1}, True),
        ({"tp": 4, "dp": 2}, True),
        ({"micro_batch": 1, "flash_attention": True}, False),
        ({"micro_batch": 1, "software": "nanotron"}, False),
    ],
)
def test_softmax_is_one_kernel_of_four_matrices_or_a_multiple(read, changes, apart):
    (run,) = read(ROW | changes).sets["own"]
    framework = run.system.chip.framework
    launches = ("softmax 4", "softmax_gradient 4") if apart else ()
    assert framework.launches == launches
    assert ("softmax 16" in framework.passes) == apart


@pytest.mark.parametrize(
    ("changes", "messages"),
    [
        ({"id": "nanotron/14098605/1"}, 20),
        ({"id": "nanotron/13505375/1"}, 0),  # of 2024
        ({"id": "nanotron/14098605/1", "gpus": 8, "dp": 2}, 0),  # one server
        ({"id": "nanotron/14098605/1", "software": "Megatron-LM"}, 0),
    ],
)
def test_later_jobs_of_nanotron_on_several_servers_check_their_collectives(read, changes, messages):
    row = ROW | {"software": "nanotron", "family": "llama", "gpus_per_node": 8} | changes
    (run,) = read(row).sets["own"]
    assert run.system.chip.framework.checks == pytest.approx(messages * 125e-6)


def test_a_machine_runs_at_the_clock_that_its_source_says_products_have(read):
    def clock(source):
        (run,) = read(ROW | {"hardware": "B200-SXM", "source": source}).sets[source]
        assert run.under(Calibration(products=0.5)).sustained is None  # measured, so not said
        return run.machine.chip.compute.sustained

    assert clock("simumax") == 0.484 < clock("own") == library.chip("b200").compute.sustained


EXPERTS = {
    "model": "Qwen3_235B_A22B", "experts": 128, "topk": 8, "moe_ffn": 64, "pp": 1, "dp": 8,
    "ep": 8, "microbatches": 4, "hardware": "GB200", "precision": "fp8-mx",
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "once", "combined", "biases"),
    [
        ({"software": "Megatron-Bridge, NeMo 25.09"}, False, False, {"6", "8"}),
        ({"software": "Megatron-Bridge, NeMo 25.11"}, True, False, {"14", "20"}),
        ({"software": "Megatron-Bridge, NeMo 26.06"}, True, True, set()),
        ({"software": "Megatron-Bridge, NeMo 26.06", "ep": 1}, True, False, set()),
        ({"software": "Megatron-Bridge, NeMo 26.06", "microbatches": 1}, True, False, set()),
        ({"software": "Megatron-LM / TE 2.11"}, False, False, {"6", "8"}),  # SimuMax's launcher
    ],
)
def test_tokens_are_sent_as_the_recipe_of_a_release_says(read, changes, once, combined, biases):
    (run,) = read(ROW | EXPERTS | changes).sets["own"]
    framework = run.system.chip.framework
    assert framework.tokens_once == once
    assert ("schedule=combined-1f1b" in run.given) == combined
    passes = (text.split() for text in framework.passes)
    assert {count for word, count in passes if word.startswith("expert_bias")} == biases
    # One kernel of all experts is launched once, and with its iteration.
    assert framework.experts_apart == bool(biases)
    assert (framework.dispatch is None) == (not biases)


@pytest.mark.parametrize("pieces", [1, 2])
def test_only_stages_in_pieces_combine_microbatches(read, pieces):
    stages = {"pp": 2, "dp": 4, "ep": 4, "virtual_stages": pieces}
    (run,) = read(ROW | EXPERTS | stages | {"software": "Megatron-Bridge, NeMo 26.06"}).sets["own"]
    order = "1f1b" if pieces == 1 else "combined-1f1b"
    assert run.given.endswith(f"schedule={order},interleave={pieces}")


@pytest.mark.parametrize(
    ("model", "stages", "has"),
    [
        ("Qwen3_235B_a22B (tokendrop)", 1, {"qk_norm": True, "layers": 4}),
        ("GPT OSS 120B", 1, {"window": 128, "feed_forward_bias": True, "layers": 4}),
        ("GPT OSS 120B", 2, {"window": 128}),
        ("GPT OSS 120B", 4, {"window": 0, "feed_forward_bias": True}),  # stages of one layer
    ],
)
def test_a_model_that_the_library_has_is_all_that_it_is_there(read, model, stages, has):
    changes = {"model": model, "experts": 128, "topk": 8, "moe_ffn": 64, "pp": stages}
    (run,) = read(ROW | changes).sets["own"]
    assert {name: getattr(run.job.model, name) for name in has} == has


def test_what_cannot_be_predicted_is_left_out_with_its_reason(read):
    found = read(
        ROW,
        ROW | {"step_s": None},
        ROW | {"mla": True},
        ROW | {"hardware": "Abacus"},
        ROW | {"precision": "posit"},
        {key: value for key, value in ROW.items() if key != "hidden"},
    )
    assert {source: len(runs) for source, runs in found.sets.items()} == {"own": 1}
    assert found.left_out == {
        "no time": 1,
        "ranks of latent attention of gpt": 1,
        "Abacus, no node of the library": 1,
        "precision posit": 1,
        "no hidden said": 1,
    }


@pytest.mark.parametrize(
    ("row", "said"),
    [("{", "is no JSON"), ("[]", "got no object"), (ROW | {"vocab": "many"}, "got what is none")],
    ids=str,
)
def test_a_row_that_is_none_is_refused_with_its_line(read, row, said):
    with pytest.raises(InputError, match=rf"runs.jsonl:2: {said}"):
        read(ROW, row)


def test_tables_of_runs_and_of_products_are_told_apart(tmp_path):
    runs, products = tmp_path / "runs.jsonl", tmp_path / "products.jsonl"
    runs.write_text(json.dumps(ROW))
    products.write_text('{"m": 1, "k": 1, "n": 1, "dtype": "bf16", "time_s": 1.0}')
    assert is_of_runs(runs)
    assert not is_of_runs(products)
