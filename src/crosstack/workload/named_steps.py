"""Models whose training step can be predicted by name.

The LSTMs are the language model of ``ardalani2022deepflow``, as ``deepflow_code`` configures it,
and the smaller one of its recorded runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import CHOICES, TransformerTraining

__all__ = ["CHANGES", "STEPS", "changed_step", "step_named"]

# Fields of a step that are asked for beside its model.
CHANGES = ("batch", "sequence", "microbatches", *CHOICES, "interleave")


def _gpt(layers: int, hidden: int, heads: int, batch: int, name: str) -> TransformerTraining:
    return TransformerTraining(
        batch=batch,
        sequence=2048,
        layers=layers,
        hidden=hidden,
        heads=heads,
        feed_forward=4 * hidden,
        vocabulary=51200,
        name=name,
    )


# Transformers: korthikanti2023reducing, table 3, and its sequence and vocabulary, that of 310B
# narayanan2021megatron, table 1; one sequence a
# replica and microbatch is the batch of its measurements over the pipeline. The LSTMs: see above.
STEPS: dict[str, LstmModel | TransformerTraining] = {
    "gpt-22b": _gpt(48, 6144, 64, 4, "GPT 22B"),
    "gpt3-175b": _gpt(96, 12288, 96, 64, "GPT-3 175B"),
    "gpt-310b": _gpt(96, 16384, 128, 2160, "GPT 310B"),
    "gpt-530b": _gpt(105, 20480, 128, 280, "GPT 530B"),
    "gpt-1t": _gpt(128, 25600, 160, 512, "GPT 1T"),
    "lstm-lm": LstmModel(
        batch=2000, sequence=20, vocabulary=800_000, layers=2, width=19968, projection=2048,
        name="LSTM language model",
    ),
    "lstm-lm-40k": LstmModel(
        batch=2048, sequence=20, vocabulary=40_000, layers=2, width=4096, projection=2048,
        name="LSTM language model, 40 000 words",
    ),
}  # fmt: skip


def step_named(
    name: str, *, batch: int | None = None, sequence: int | None = None
) -> LstmModel | TransformerTraining:
    """Return the model called ``name``, with its batch or sequence changed where they are given.

    Raises
    ------
    InputError
        If there is none; names the nearest.
    """
    if name not in STEPS:
        raise unknown_name("model", "model is", name, STEPS)
    step = STEPS[name]
    step = step if batch is None else replace(step, batch=batch)
    return step if sequence is None else replace(step, sequence=sequence)


def changed_step(
    step: Product | LstmModel | TransformerTraining, changes: Mapping[str, Any]
) -> Product | LstmModel | TransformerTraining:
    """Return ``step`` with those of `CHANGES` that are not None; names stand for choices.

    Raises
    ------
    InputError
        If the step has no such field, or does not allow the value.
    """
    given = {name: changes[name] for name in CHANGES if changes.get(name) is not None}
    if given and isinstance(step, Product):
        raise InputError(Problem(next(iter(given)), "a single product has none."))
    for name in given:
        if name not in ("batch", "sequence") and not isinstance(step, TransformerTraining):
            raise InputError(Problem(name, "allowed for a transformer only."))
    for name, choices in CHOICES.items():
        if name in given:
            known = [choice.value for choice in choices]
            if given[name] not in known:
                raise unknown_name(name, f"{name} is", given[name], known)
            given[name] = choices(given[name])
    return replace(step, **given) if given else step
