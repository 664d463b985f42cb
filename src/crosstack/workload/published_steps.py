"""Training steps that are published, by the name of their model, and what may be changed of one.

The LSTMs are the language model of ``ardalani2022deepflow``, as ``deepflow_code`` configures it,
and the smaller one of its recorded runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.records import Checked, Count, require_type, words_of
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind, Work
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import CHOICES, TransformerTraining, overlap_named
from crosstack.workload.workload import Workload

Step = TypeVar("Step", bound=Work)
# Fields of a step that are asked for beside its model.
CHANGES = (
    "batch", "sequence", "microbatches", "microbatch_size", *CHOICES, "interleave",
    "expert_imbalance", "packed", "overlap",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Checked):
    """What a model is published to have been trained on in one step: sequences, tokens of one. [1]

    ``source`` is a key in ``data/references.bib``, ``where`` a table or section there.
    """

    batch: Count
    sequence: Count
    source: str
    where: str


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
    if given.kind is JobKind.TRAIN and given.sequence is not None and not given.block:
        step = TransformerTraining(
            model=given.model, batch=given.batch, sequence=given.sequence,
            expert_imbalance=given.expert_imbalance,
            packed=given.packed,
            gradients=None if given.gradients is None else Dtype(given.gradients),
            optimizer=given.updating,
        )  # fmt: skip
    return changed_step(step, changes), Dtype(given.dtype)


def changed_step(step: Step, changes: Mapping[str, Any]) -> Step:
    """Return ``step`` with those of `CHANGES` that are not None; names stand for choices.

    Raises `InputError` if the step has no such field, or does not allow the value.
    """
    given = {name: changes[name] for name in CHANGES if changes.get(name) is not None}
    for name, value in given.items():
        if isinstance(step, Product):
            raise InputError(Problem(name, "a single product has none."))
        sized = not isinstance(step, Workload) and name in ("batch", "sequence")
        if not sized and not isinstance(step, TransformerTraining):
            raise InputError(Problem(name, "allowed for the training of a transformer only."))
        if name == "overlap":
            given[name] = overlap_named(value)
        if name in CHOICES:
            known = words_of(CHOICES[name])
            if str(value) not in known:
                raise unknown_name(name, f"{name} is", str(value), known)
            given[name] = known[str(value)]
    return replace(step, **given) if given else step
