"""Training steps that are published, by the name of their model, and what may be changed of one.

The LSTMs are the language model of ``ardalani2022deepflow``, as ``deepflow_code`` configures it,
and the smaller one of its recorded runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.records import Checked, Count, require_type, words_of
from crosstack.workload.architectures import ImageModel
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind, Work
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import (
    CHOICES,
    ImageTraining,
    Training,
    TransformerTraining,
    offload_named,
    overlap_named,
    recompute_named,
)
from crosstack.workload.workload import Workload

Step = TypeVar("Step", bound=Work)
# Fields of a step that are asked for beside its model.
CHANGES = (
    "batch", "sequence", "microbatches", "microbatch_size", *CHOICES, "interleave",
    "expert_imbalance", "packed", "overlap", "offload",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Checked):
    """What a model is published to have been trained on in one step: sequences, tokens of one. [1]

    Images have none of the latter. ``optimizer`` is the name of what updated the weights, where it
    is not the usual one; ``source`` is a key in ``data/references.bib``, ``where`` a table or
    section there.
    """

    batch: Count
    sequence: Count | None
    source: str
    where: str
    optimizer: str | None = None


def _of(source: str, where: str, sequence: int, batches: Mapping[str, int]) -> dict[str, Batch]:
    return {
        name: Batch(batch=batch, sequence=sequence, source=source, where=where)
        for name, batch in batches.items()
    }


# One sequence a replica and microbatch is the batch of table 3 over the pipeline. Batches of Llama
# are printed in tokens, 4 M and in the end 16 M; smaller ones of Llama 3 have "similar recipes".
BATCHES: dict[str, Batch] = {
    **_of("narayanan2021megatron", "table 1", 2048, {
        "gpt-1.7b": 512, "gpt-3.6b": 512, "gpt-7.5b": 512, "gpt-18b": 1024, "gpt-39b": 1536,
        "gpt-76b": 1792, "gpt-146b": 2304, "gpt-310b": 2160,
    }),
    **_of("korthikanti2023reducing", "table 3", 2048, {
        "gpt-22b": 4, "gpt3-175b": 64, "gpt-530b": 280, "gpt-1t": 512,
    }),
    **_of("touvron2023llama2", "table 1", 4096, dict.fromkeys(
        ("llama2-7b", "llama2-13b", "llama2-70b"), 1024
    )),
    **_of("grattafiori2024llama3", "sections 3.4 and 3.4.1", 8192, dict.fromkeys(
        ("llama3-8b", "llama3-70b", "llama3-405b"), 2048
    )),
    **_of("hugging_face", "nvidia/Nemotron-4-340B-Base: model card", 4096, {
        "nemotron-4-340b": 2304,
    }),
    **dict.fromkeys(("resnet50", "resnet101"), Batch(
        batch=8192, sequence=None, optimizer="sgd-momentum", source="goyal2017imagenet",
        where="sections 1 and 5.1, table 2",
    )),
    "unet": Batch(
        batch=1, sequence=None, optimizer="sgd-momentum", source="ronneberger2015unet",
        where="section 3",
    ),
}  # fmt: skip

LSTMS: dict[str, LstmModel] = {
    "lstm-lm": LstmModel(
        batch=2000, sequence=20, vocabulary=800_000, layers=2, width=19968, projection=2048,
        name="LSTM language model",
    ),
    "lstm-lm-40k": LstmModel(
        batch=2048, sequence=20, vocabulary=40_000, layers=2, width=4096, projection=2048,
        name="LSTM language model, 40 000 words",
    ),
}  # fmt: skip


def as_step(given: Work, changes: Mapping[str, Any]) -> tuple[Work, Dtype | None]:
    """Return a step with those of `CHANGES` that are given, and what a job computes in.

    Raises `InputError` if a change is not known or does not fit.
    """
    require_type("job", given, Work)
    for name in changes:
        if name not in CHANGES:
            raise unknown_name(name, "change of a step is", name, CHANGES)
    if not isinstance(given, Job):
        return changed_step(given, changes), None
    step: Work = given
    if given.kind is JobKind.TRAIN and not given.block:
        step = step_of(given)
    return changed_step(step, changes), Dtype(given.dtype)


def step_of(job: Job) -> TransformerTraining | ImageTraining:
    """Return the step of a job of training, of which nothing is decided."""
    said: dict[str, Any] = {
        "batch": job.batch,
        "gradients": None if job.gradients is None else Dtype(job.gradients),
        "optimizer": job.updating,
    }
    if isinstance(job.model, ImageModel):
        return ImageTraining(model=job.model, **said)
    assert job.sequence is not None  # required where the job is made
    said |= {"sequence": job.sequence, "expert_imbalance": job.expert_imbalance}
    said["packed"] = job.packed
    sent = job.expert_dispatch
    said["expert_dispatch"] = None if sent is None else Dtype(sent)
    return TransformerTraining(model=job.model, **said)


def changed_step(step: Step, changes: Mapping[str, Any]) -> Step:
    """Return ``step`` with those of `CHANGES` that are not None; names stand for choices.

    Raises `InputError` if the step has no such field, or does not allow the value.
    """
    given = {name: changes[name] for name in CHANGES if changes.get(name) is not None}
    again = dict[str, Any]()
    for name, value in given.items():
        if isinstance(step, Product):
            raise InputError(Problem(name, "a single product has none."))
        sized = not isinstance(step, Workload) and name in ("batch", "sequence")
        if not sized and not isinstance(step, Training):
            raise InputError(Problem(name, "allowed for the training of a model only."))
        if name not in {field.name for field in fields(step)}:
            raise InputError(Problem(name, f"allowed for a transformer; {step.name} is none."))
        if name == "overlap":
            given[name] = overlap_named(value)
        if name == "offload":
            given[name] = offload_named(value)
        if name == "recompute":
            given[name], layers = recompute_named(value)
            again = {} if layers is None else {"recompute_layers": layers}
        elif name in CHOICES:
            known = words_of(CHOICES[name])
            if str(value) not in known:
                raise unknown_name(name, f"{name} is", str(value), known)
            given[name] = known[str(value)]
    return replace(step, **given, **again) if given else step
