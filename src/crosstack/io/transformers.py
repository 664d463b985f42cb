"""A transformer as people name it: a model of the library, or the path of a ``config.json``."""

from __future__ import annotations

from pathlib import Path

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.files import in_file, read_text
from crosstack.records import require_type
from crosstack.workload.architectures import Transformer

__all__ = ["transformer"]


def transformer(model: str | Path) -> Transformer:
    """Return the model called ``model``, or that of a file of the Hugging Face Hub.

    Parameters
    ----------
    model : str or Path
        A name of the library; with the suffix ``.json`` a path.

    Raises
    ------
    InputError
        If the library has no such model, saying the nearest; if the file cannot be read or is no
        model that is known.
    """
    require_type("model", model, str | Path)
    model = str(model)
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
