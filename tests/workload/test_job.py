"""A job says what is done with a model, and is mapped as the graph that follows from it."""

from __future__ import annotations

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.steps import job_named
from crosstack.workload.axes import Causal
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind, as_workload
from crosstack.workload.published_steps import as_step
from crosstack.workload.transformer_training import TransformerTraining

LLAMA = library.model("llama3-8b")


def test_a_step_of_training_does_three_times_the_work_of_reading():
    """Twice forward for every product behind, and a little elementwise work beside it."""
    numbers = {"model": LLAMA, "batch": 4, "sequence": 1024, "block": "layers"}
    train, read = (Job(kind=kind, **numbers).workload for kind in ("train", "prefill"))
    assert train.training
    assert not read.training
    assert train.work / read.work == pytest.approx(3, rel=0.02)


def test_its_layers_do_two_operations_a_parameter_and_token():
    """``kaplan2020scaling``, equation 2.2: 2 N a token forward, without the context's own part."""
    job = Job(model=LLAMA, kind="prefill", sequence=1, block="layers")
    layers = LLAMA.parameters.total - LLAMA.parameters.embedding - LLAMA.parameters.head
    assert job.workload.work == pytest.approx(2 * layers, rel=0.01)


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v3", "gemma3-27b"])
def test_places_of_experts_are_no_tokens(name):
    job = Job(model=library.model(name), batch=2, sequence=128)
    assert job.workload.item_length == 128


def test_the_batch_is_that_of_all_chips_and_items_are_sequences():
    workload = Job(model=LLAMA, batch=12, sequence=512).workload
    assert workload.global_batch_size == 12
    assert (workload.item, workload.item_part, workload.item_length) == ("sequence", "token", 512)


def test_a_step_of_decoding_writes_one_token_of_each():
    job = Job(model=LLAMA, kind=JobKind.DECODE, batch=8, context=4096)
    assert job.sequence == 1
    assert job.workload.item_length == 1


def test_a_type_of_number_may_be_given_by_its_name():
    job = Job(model=LLAMA, sequence=64, dtype="fp8")
    assert job.dtype is Dtype.FP8
    assert job.workload.graph.dtype is Dtype.FP8


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("llama3-8b", {"embedding": 1}, {"head": 1}),
        ("deepseek-v3", {"embedding": 1, "dense_layers": 3},
         {"head": 1, "predictors": 1, "loss": 1}),
        ("gemma3-27b", {"embedding": 1}, {"last_window_layers": 2, "head": 1}),
        ("gpt-oss-120b", {"embedding": 1}, {"head": 1}),
    ],
)  # fmt: skip
def test_all_blocks_of_a_model_are_mapped(name, before, after):
    job = Job(model=library.model(name), batch=2, sequence=128)
    workload = job.workload
    assert {end.name: end.count for end in workload.before} == before
    assert {end.name: end.count for end in workload.after} == after
    assert job.left_out == ()
    layers = [end.count for end in workload.ends if end.name.endswith("layers")]
    assert workload.n_layers + sum(layers) == job.model.layers


def test_blocks_that_are_not_mapped_are_said():
    job = Job(model=LLAMA, batch=2, sequence=128, block="layers")
    assert dict(job.left_out) == {"embedding": 1, "head": 1}
    assert job.workload.ends == ()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "sequence: required to train"),
        ({"kind": "decode"}, "context: required to decode"),
        ({"kind": "prefil", "sequence": 8}, 'Did you mean "prefill"'),
        ({"sequence": 8, "context": 8}, "context: allowed to decode; this is to train"),
        ({"sequence": 8, "dtype": "bf8"}, "dtype: no dtype is"),
        ({"sequence": 0}, "sequence: got 0"),
        ({"sequence": 8, "batch": 0}, "batch: got 0"),
        ({"sequence": 8, "model": "llama3-8b"}, "model: got 'llama3-8b'; allowed: Transformer"),
    ],
)
def test_a_job_that_is_none_is_refused(fields, said):
    with pytest.raises(InputError, match=said):
        Job(**{"model": LLAMA, **fields})


def test_a_job_prints_on_a_line():
    assert str(Job(model=LLAMA, kind="decode", batch=8, context=4096)) == (
        "Llama 3 8B, decoding: 8 sequences of 1 token, 4,096 kept of each, in bf16"
    )


def test_a_workload_is_taken_as_it_is():
    job = Job(model=LLAMA, sequence=64)
    assert as_workload(job) is as_workload(job.workload)
    with pytest.raises(InputError, match="allowed: Workload or Job"):
        as_workload(LLAMA)


def test_training_takes_the_batch_that_is_published():
    job = job_named("llama3-8b")
    assert (job.batch, job.sequence) == (2048, 8192)
    assert job_named("llama3-8b", batch=64).sequence == 8192


def test_serving_takes_one_sequence_where_nothing_is_said():
    assert job_named("llama3-8b", "prefill", sequence=100).batch == 1


def test_training_without_a_published_batch_has_to_be_told():
    with pytest.raises(InputError, match="none is published here") as error:
        job_named("qwen3-8b")
    assert [problem.path for problem in error.value.problems] == ["batch", "sequence"]


MIXTRAL = library.model("mixtral-8x7b")


def test_the_fullest_expert_sets_the_work_of_all():
    """Mixtral, 512 tokens, 2 of 8 experts: 160 places each for 128; three products of 4096 x 14336.

    Forward, and twice that backward: 3 x 3 x 2 x 4096 x 14336 FLOP for each of 8 x 32 more.
    """
    numbers = {"model": MIXTRAL, "sequence": 512, "block": "layers"}
    even, full = (Job(expert_imbalance=x, **numbers).workload for x in (1.0, 1.25))
    products = even.graph.gemm
    more = (full.graph.work - even.graph.work)[products].sum()
    assert more == 3 * 3 * 2 * 4096 * 14336 * (8 * 32)
    assert full.graph.total_weight_size == even.graph.total_weight_size


def test_a_step_and_its_job_have_the_same_experts():
    job = Job(model=MIXTRAL, sequence=512, expert_imbalance=1.25)
    step, dtype = as_step(job, {})
    assert as_workload(step, dtype).graph == job.workload.graph
    changed, _ = as_step(Job(model=MIXTRAL, sequence=512), {"expert_imbalance": 1.25})
    assert as_workload(changed, dtype).graph == job.workload.graph


@pytest.mark.parametrize(("model", "value"), [(MIXTRAL, 0.5), (LLAMA, 1.5)])
def test_an_imbalance_below_even_or_without_experts_is_refused(model, value):
    with pytest.raises(InputError, match="expert_imbalance"):
        Job(model=model, sequence=64, expert_imbalance=value)
    with pytest.raises(InputError, match="expert_imbalance"):
        TransformerTraining(model=model, batch=1, sequence=64, expert_imbalance=value)


@pytest.mark.parametrize(
    ("document", "window", "seen"),
    [(3, 0, 6 + 6 + 3), (3, 2, 5 + 5 + 3), (8, 0, 36), (0, 0, 36), (0, 3, 6 + 5 * 3), (1, 0, 8)],
)
def test_tokens_see_their_own_document(document, window, seen):
    """Eight tokens, of documents of three: 3, 3 and 2 of them."""
    mask = Causal(query="q", key="k", window=window, document=document)
    assert mask.density(8, 8) == seen / 64
    keys = range(8)
    for queries in range(1, 9):
        counted = sum(
            i <= j and j - i < (window or 8) and i // (document or 8) == j // (document or 8)
            for j in range(8 - queries, 8)
            for i in keys
        )
        assert mask.density(queries, 8) == counted / (8 * queries)


def test_packed_documents_leave_out_work_of_attention_alone():
    """512 tokens: 512 x 513 / 2 scores of a head, or 4 x 128 x 129 / 2 of four documents."""
    numbers = {"model": LLAMA, "sequence": 512, "block": "layers"}
    one, four = (Job(packed=n, **numbers).workload.graph for n in (None, 128))
    scores = one.index["scores"]
    assert one.density[scores].min() == 513 / 2 / 512
    assert four.density[scores].min() == pytest.approx(129 / 2 / 512, rel=1e-12)
    others = np.flatnonzero(one.density.min(axis=1) == 1)
    assert np.array_equal(one.density[others], four.density[others])
    assert np.array_equal(one.work, four.work)
    assert Job(packed=512, **numbers).workload.graph.density[scores].tolist() == (
        one.density[scores].tolist()
    )


def test_a_step_and_its_job_have_the_same_documents():
    job = Job(model=MIXTRAL, sequence=512, packed=100)
    step, dtype = as_step(job, {})
    assert as_workload(step, dtype).graph == job.workload.graph
    changed, _ = as_step(Job(model=MIXTRAL, sequence=512), {"packed": 100})
    assert as_workload(changed, dtype).graph == job.workload.graph


@pytest.mark.parametrize("given", [{"packed": 65}, {"packed": 8, "kind": "prefill"}])
def test_documents_that_no_sequence_is_packed_of_are_refused(given):
    with pytest.raises(InputError, match="packed: got"):
        Job(model=LLAMA, sequence=64, **given)
