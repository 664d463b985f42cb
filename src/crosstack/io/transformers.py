"""A model as people name it: one of the library, or the path of a ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem, require_whole, unknown_name
from crosstack.io import library
from crosstack.io.files import in_file, read_text
from crosstack.records import require_type
from crosstack.workload.architectures import Model, Transformer

SHAPE = (
    "hidden", "layers", "heads", "kv_heads", "head_size", "feed_forward", "vocabulary", "gated",
)  # fmt: skip
VOCABULARY = 32_000  # of a shape that says none: head and embedding are not mapped


def known_models() -> tuple[str, ...]:
    """Return the names of all models of the library."""
    return (*library.names("models"), *library.names("images"))


def model_named(model: str | Path) -> Model:
    """Return the model called ``model``, one of images too; otherwise as `transformer`."""
    require_type("model", model, str | Path)
    name = str(model)
    if Path(name).suffix.lower() == ".json" or name in library.names("models"):
        return transformer(name)
    if name in library.names("images"):
        return library.image_model(name)
    raise unknown_name("model", "model is", name, known_models(), "In the library")


def transformer(model: str | Path) -> Transformer:
    """Return the model called ``model``, or that of a file of the Hugging Face Hub.

    ``model`` is a name of the library, or with the suffix ``.json`` a path. `InputError` if the
    library has no such model, saying the nearest; if the file cannot be read or is no known model.
    """
    require_type("model", model, str | Path)
    model = str(model)
    if model in library.names("images"):
        message = f"{model} works on images; allowed: a model of sequences, such as llama3-8b."
        raise InputError(Problem("model", message))
    if Path(model).suffix.lower() != ".json":
        try:
            return library.model(model)
        except InputError as error:
            raise InputError(p.at("model") for p in error.problems) from None
    from crosstack.io.huggingface import read_config  # pydantic only where a file is read

    try:
        return read_config(read_text(model))
    except InputError as error:
        # a file that cannot be read says its name already
        inside = (p.at(p.path.removeprefix(model).removeprefix(": ")) for p in error.problems)
        raise in_file(InputError(inside), f"model {model}") from None


def shaped(model: str | None, shape: Mapping[str, Any], name: str) -> Transformer:
    """Return a model with a shape that differs, or one that the shape alone says.

    `InputError` if the model is unknown, or fields are missing or out of range.

    Parameters
    ----------
    model : str or None
        As `transformer`; None: there is the shape alone.
    shape : mapping
        Fields of `SHAPE`; without a model at least hidden, layers and heads.
    name : str
        What to call a model that is a shape.
    """
    if model is not None:
        return replace(transformer(model), **shape)
    missing = [field for field in ("hidden", "layers", "heads") if field not in shape]
    if missing:
        message = "required, but missing; or model, the name of one that has it."
        raise InputError(Problem(field, message) for field in missing)
    hidden, heads = shape["hidden"], shape["heads"]
    require_whole("heads", heads)
    if "head_size" not in shape and hidden % heads:
        message = f"left out; allowed: a whole number, as hidden / heads = {hidden} / {heads}."
        raise InputError(Problem("head_size", message))
    usual = {
        "kv_heads": heads,
        "head_size": max(hidden // heads, 1),
        "feed_forward": 4 * hidden,
        "vocabulary": VOCABULARY,
        "context": 1,  # nothing asks how long a sequence it was made for
    }
    return Transformer(name=name, **{**usual, **shape})
