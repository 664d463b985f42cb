"""Models of the library: the shape of each, and how many parameters are published."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, get_args, get_type_hints

from crosstack.io.library.entries import entry
from crosstack.workload.architectures import ImageModel, ResidualNetwork, Transformer, UNet


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedParameters:
    """Parameters that the publisher of a model says it has.

    Parameters
    ----------
    total, rounding : int
        All, give or take; 0: to the digit. [1]
    beside : int
        Elements among them that are not of the language model: an encoder of images, a second copy
        of a tied table. [1]
    active, active_rounding : int
        Those that a token passes; 0 where nothing is said of them. [1]
    """

    total: int
    rounding: int = 0
    beside: int = 0
    active: int = 0
    active_rounding: int = 0


@cache
def model(name: str) -> Transformer:
    """Return the model called ``name``; `InputError` names the nearest if there is none."""
    found = entry("models", name)
    made: Transformer = _record(Transformer, _nested(found.under("shape")) | {"name": found.title})
    return made


_ARCHITECTURES: dict[str, type[ImageModel]] = {"residual": ResidualNetwork, "unet": UNet}


@cache
def image_model(name: str) -> ImageModel:
    """Return the model of images called ``name``; `InputError` names the nearest without one."""
    found = entry("images", name)
    kind = _ARCHITECTURES[found.values["architecture"]]
    return kind(**found.under("shape"), name=found.title)


@cache
def published_parameters(name: str, section: str = "models") -> PublishedParameters:
    """Return what is published of the parameters of the model called ``name`` in a section."""
    return PublishedParameters(**entry(section, name).under("parameters"))


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tree of what stands at paths such as ``experts.count``."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *way, last = path.split(".")
        here = tree
        for step in way:
            here = here.setdefault(step, {})
        here[last] = value
    return tree


def _record(kind: Any, values: Mapping[str, Any]) -> Any:
    """Return a record whose words are members of enums and whose mappings are records."""
    hints = get_type_hints(kind)
    return kind(**{field: _value(hints[field], value) for field, value in values.items()})


def _value(hint: Any, value: Any) -> Any:
    inside = next((part for part in get_args(hint) if dataclasses.is_dataclass(part)), None)
    if inside is not None:
        return _record(inside, value)
    return hint(value) if isinstance(hint, type) and issubclass(hint, Enum) else value
