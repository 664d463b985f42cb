"""A rule set is a bundle of parts, each of which counts one thing; sets are known by name.

What a part does is in the layer that uses it: its default there, the variants of published tools in
`crosstack.published`. `crosstack.registry.register_rules` makes a set known, `rules_named` finds
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from crosstack.errors import InputError, Problem, require, unknown_name
from crosstack.model.collectives import LeastTime
from crosstack.model.decisions import Decisions
from crosstack.model.iteration import Pipelining
from crosstack.model.parts import Clock, MainMemory
from crosstack.model.traffic import Traffic
from crosstack.registry import RULE_SETS, RULE_VARIANTS

if TYPE_CHECKING:
    from crosstack.machine.generate.generation import Generation

MAPPED = ("collectives", "traffic", "memory", "iteration", "decisions", "clock")
"""The parts that mapping a task and pricing a mapping need."""
PREDICTED = ("clock", "step", "chips")
"""The parts that predicting a step on a generated chip needs."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """Stands for a part that a rule set does not have: to use it is an error that names it."""

    part: str

    def __getattr__(self, name: str) -> Any:
        """Raise the error."""
        if name.startswith("__"):  # what Python asks every object
            raise AttributeError(name)
        raise lacks("these rules", (self.part,))


def lacks(whose: str, parts: tuple[str, ...]) -> InputError:
    """Return the error for rules without some parts: which, and which rules have them."""
    those = ", ".join(f'"{part}"' for part in parts)
    having = ", ".join(name for name in rule_names() if not rules_named(name).lacking(parts))
    noun = "part" if len(parts) == 1 else "parts"
    return InputError(
        Problem("rules", f"{whose} lack the {noun} {those}, which this needs; allowed: {having}.")
    )


_none: Any = Lacking  # of any part


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """A name and the parts it stands for; a published tool has some of them only.

    They count what a collective takes, what a partition moves and holds, what a chip keeps in its
    main memory, how stages and microbatches follow one another, what is decided and in which order,
    how long kernels take, how `predict` puts a step together (`crosstack.evaluate.predict`), how
    chips are generated, and how shards are placed and routed (`crosstack.mapping.placement`).
    """

    name: str
    collectives: LeastTime = field(default=_none("collectives"))
    traffic: Traffic = field(default=_none("traffic"))
    memory: MainMemory = field(default=_none("memory"))
    iteration: Pipelining = field(default=_none("iteration"))
    decisions: Decisions = field(default=_none("decisions"))
    clock: Clock = field(default=_none("clock"))
    step: Any = field(default=_none("step"))  # of layers above this one
    chips: Generation = field(default=_none("chips"))
    placement: Any = field(default=_none("placement"))

    def __post_init__(self) -> None:
        """Check the name."""
        require(isinstance(self.name, str) and self.name != "", "name", self.name, "a name")

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Yield the name of each part that the set has, and the part."""
        for item in fields(self):
            part = getattr(self, item.name)
            if item.name != "name" and not isinstance(part, Lacking):
                yield item.name, part

    def lacking(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of ``parts`` that the set does not have."""
        return tuple(part for part in parts if isinstance(getattr(self, part), Lacking))

    def part_with(self, name: str) -> str | None:
        """Return the name of the part that has a field; None if none has."""
        return self._owners().get(name)

    def _owners(self) -> dict[str, str]:
        """Return the name of the part that has each field."""
        parts = ((own, part) for own, part in self.parts() if is_dataclass(part))
        return {item.name: own for own, part in parts for item in fields(part)}

    def changed(self, *, name: str | None = None, **values: Any) -> Rules:
        """Return the same rules with other values of some fields of their parts.

        Raises `InputError` if no part has a field, or a value is not allowed.
        """
        parts: dict[str, dict[str, Any]] = {}
        owners = self._owners()
        for key, value in values.items():
            if key not in owners:
                raise unknown_name(key, "field of these rules is", key, list(owners))
            parts.setdefault(owners[key], {})[key] = value
        made = {part: replace(getattr(self, part), **given) for part, given in parts.items()}
        return replace(self, name=self.name if name is None else name, **made)


def require_parts(rules: Rules, parts: tuple[str, ...]) -> Rules:
    """Return ``rules``, which have all of ``parts``.

    Raises `InputError` if they lack some; names those and the rule sets that have them.
    """
    missing = rules.lacking(parts)
    if missing:
        raise lacks(f'rules "{rules.name}"', missing)
    return rules


def chosen_rules(
    rules: Rules | str | None, parts: tuple[str, ...], *, otherwise: str | None = None
) -> Rules:
    """Return rules that are given as such or by name, which have ``parts``.

    ``otherwise`` is the name where none are given; the default set where that is not given, either.
    Raises `InputError` if there are none of a name, or they lack a part.
    """
    if isinstance(rules, Rules):
        return require_parts(rules, parts)
    return rules_named(rules or otherwise or "crosstack", parts)


def rule_names(parts: tuple[str, ...] = ()) -> list[str]:
    """Return the names of all rule sets that have ``parts``, variants of them left out."""
    names = [name for name in RULE_SETS if name not in RULE_VARIANTS]
    return [name for name in names if not parts or not rules_named(name).lacking(parts)]


def is_known(name: str) -> bool:
    """Whether a rule set is called ``name``."""
    return name in RULE_SETS


@cache
def _loaded(name: str) -> Rules:
    found: Rules = RULE_SETS[name]()
    return found


def rules_named(name: str, parts: tuple[str, ...] = ()) -> Rules:
    """Return the rule set called ``name``, which has ``parts``.

    Raises `InputError` if there is none, or it lacks a part; names the nearest, or those that have
    it.
    """
    if name not in RULE_SETS:
        raise unknown_name("rules", "rules are", name, rule_names(parts))
    return require_parts(_loaded(name), parts)
