"""What updates weights, and the state that it keeps of each: by name, or by its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crosstack.errors import InputError, Problem, did_you_mean
from crosstack.records import Bytes, Checked
from crosstack.units import parse_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer(Checked):
    """An optimizer of training in mixed precision.

    ``state`` is what it keeps of each weight, a copy in single precision with it: all of that is
    read and written by an update. [B] ``gradient_passes``: how often the end of an iteration moves
    all gradients: five times where their norm is clipped, as of large models, else twice, to read
    them and to set them to zero (``nvidia_megatron_core``). [1] ``source`` is a key in
    ``data/references.bib``, ``where`` a section there; both are empty where the state is given as a
    number.
    """

    name: str
    state: Bytes = field(metadata={"unit": "b"})
    gradient_passes: float = 5.0
    source: str = ""
    where: str = ""

    def __str__(self) -> str:
        """Return its name."""
        return self.name


# Single precision: the copy that is updated takes 4 bytes, every moment 4 more.
OPTIMIZERS: Mapping[str, Optimizer] = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer(
            name="adamw", state=12.0, source="rajbhandari2020zero", where="section 3.1: K = 12"
        ),
        Optimizer(
            name="sgd",
            state=4.0,
            gradient_passes=2.0,
            source="micikevicius2018mixed",
            where="section 3.1: master copy",
        ),
        Optimizer(
            name="sgd-momentum",
            state=8.0,
            gradient_passes=2.0,
            source="sutskever2013importance",
            where="section 2, equations 1 and 2: one velocity a weight",
        ),
    )
}


def optimizer_named(text: str) -> Optimizer:
    """Return the optimizer of a name, or one that keeps so many bytes of each weight.

    Parameters
    ----------
    text : str
        One of `OPTIMIZERS`, or a size such as ``14 B``.

    Raises
    ------
    InputError
        If it is neither, at an empty path.
    """
    if text in OPTIMIZERS:
        return OPTIMIZERS[text]
    if not text[:1].isdigit():
        hint = did_you_mean(text, OPTIMIZERS)
        names = f"{', '.join(OPTIMIZERS)}, or what one keeps of each weight, such as 14 B"
        raise InputError(Problem("", f"got {text[:60]!r}; allowed: {names}.{hint}"))
    state = parse_quantity(text, "B")
    return Optimizer(name=f"{state:.17g} B", state=state)
