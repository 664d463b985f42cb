"""What each correction of the default rules changes, on a given task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from crosstack.errors import InfeasibleError
from crosstack.evaluate.plan import Plan, optimise
from crosstack.mapping.mapping import Task
from crosstack.mapping.search import Progress
from crosstack.model.rules import MAPPED, Rules, rule_names, rules_named
from crosstack.published.case import markdown_table
from crosstack.published.dfmodel.rules import as_dfmodel

# Fields, or parts of another kind, in this order; those that only make sense together are one.
TOGETHER = (
    ("weights_read",), ("weight_cuts",), ("boundary",), ("fan_out_copies",), ("operand_by_size",),
    ("stage_transfers",), ("conversion_of_shard", "sums_at_once", "collectives"),
    ("gradient_bytes", "optimizer_bytes", "weights_held_once"), ("keeps_activations",),
    ("periodic_per_microbatch",), ("halves_of_slots", "full_count_unfused"), ("rates_by_dtype",),
    ("bytes_first",),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The best mapping with one correction made: iteration, layer [s] and memory [B]."""

    name: str
    value: str
    status: str
    time: float | None = None
    layer_time: float | None = None
    memory_used: float | None = None


def corrections(
    task: Task,
    base: Rules | str = "dfmodel-readme",
    target: Rules | str = "crosstack",
    progress: Callable[[Progress], None] | None = None,
) -> list[Correction]:
    """Optimise ``task`` under ``base`` with what ``target`` has otherwise put in place, one by one.

    The first row is ``base`` alone, the last ``target``. A part of another kind is put in place as
    a whole, of one of the same kind each field.
    """
    base = as_dfmodel(rules_named(base) if isinstance(base, str) else base)
    target = rules_named(target) if isinstance(target, str) else target
    others = differing(base, as_dfmodel(target))
    named = {name for group in TOGETHER for name in group}
    left = tuple((name,) for name in others if name not in named)
    rows = [_row(task, base, base.name, "", progress)]
    for group in TOGETHER + left:
        change = {name: others[name] for name in group if name in others}
        if change:
            single = {name: value for name, value in change.items() if name not in MAPPED}
            changed = base.changed(name=f"{base.name} + {next(iter(change))}", **single)
            parts = {name: value for name, value in change.items() if name in MAPPED}
            shown = ", ".join(_shown(value) for value in change.values())
            rows.append(
                _row(task, replace(changed, **parts), " and ".join(change), shown, progress)
            )
    rows.append(_row(task, target, target.name, "all of them", progress))
    return rows


def differing(base: Rules, target: Rules) -> dict[str, Any]:
    """Return the parts of another kind, and the fields with other values, that ``target`` has."""
    found: dict[str, Any] = {}
    mine = dict(base.parts())
    for name, part in target.parts():
        if name not in MAPPED:
            continue
        if type(part) is not type(mine[name]):
            found[name] = part
            continue
        values = {item.name: getattr(part, item.name) for item in fields(part)}
        found |= {key: value for key, value in values.items() if getattr(mine[name], key) != value}
    return found


def _shown(value: Any) -> str:
    """Return a value as text, of a part its kind."""
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__
    return str(getattr(value, "value", value))


def _fields(rules: Rules) -> dict[str, Any]:
    """Return the parts that mapping reads, and their fields."""
    parts = {name: part for name, part in rules.parts() if name in MAPPED}
    found = {name: type(part).__name__ for name, part in parts.items()}
    return found | {f.name: getattr(part, f.name) for part in parts.values() for f in fields(part)}


def _row(
    task: Task,
    rules: Rules,
    name: str,
    value: str,
    progress: Callable[[Progress], None] | None,
) -> Correction:
    try:
        answer: Plan = optimise(task, rules=rules, time_limit=60.0, progress=progress)
    except InfeasibleError as error:
        return Correction(name=name, value=value, status=str(error))
    e, status = answer.evaluation, answer.certificate.status.value
    found = {"time": e.time, "layer_time": e.layer_time, "memory_used": e.memory_used}
    return Correction(name=name, value=value, status=status, **found)


def corrections_markdown(rows: Sequence[Correction]) -> str:
    """Return the rows as a Markdown table; changes are relative to the first row."""
    first = rows[0].time
    header = (
        "correction", "value", "iteration [s]", "change", "layer [ms]", "memory [GB]", "status",
    )  # fmt: skip
    cells = []
    for row in rows:
        numbers = ["-", "-", "-", "-"]
        if row.time is not None and row.layer_time is not None and row.memory_used is not None:
            change = "" if first is None else f"{100 * (row.time / first - 1):+.2f} %"
            layer, memory = f"{row.layer_time * 1e3:.5f}", f"{row.memory_used / 1e9:.2f}"
            numbers = [f"{row.time:.4f}", change, layer, memory]
        cells.append([row.name, row.value, *numbers, row.status])
    return "\n".join(markdown_table(header, cells)) + "\n"


def fields_markdown() -> str:
    """Return a Markdown table of every field of every rule set that maps."""
    sets = {name: _fields(as_dfmodel(rules_named(name))) for name in rule_names(MAPPED)}
    cells = []
    for field in {name: None for known in sets.values() for name in known}:
        shown = [_shown(known.get(field, "-")) for known in sets.values()]
        if len(set(shown)) > 1:
            cells.append([field, *shown])
    return "\n".join(markdown_table(("field", *sets), cells)) + "\n"
