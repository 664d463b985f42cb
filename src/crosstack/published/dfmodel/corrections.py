"""What each correction of the default rules changes, on a given task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from crosstack.errors import InfeasibleError
from crosstack.evaluate.answer import Answer, optimise
from crosstack.mapping.mapping import Task
from crosstack.mapping.search import Progress
from crosstack.model.rules import MAPPED, Rules, rule_names, rules_named
from crosstack.published.dfmodel.rules import as_dfmodel

__all__ = ["Correction", "corrections", "corrections_markdown", "fields_markdown"]

# Fields that only make sense together are one correction.
TOGETHER = (
    ("weights_read",),
    ("weight_cuts",),
    ("boundary",),
    ("fan_out_copies",),
    ("operand_by_size",),
    ("stage_transfers",),
    ("full_all_reduce_halves",),
    ("latency",),
    ("conversion_of_shard", "all_to_all_pair_shares"),
    ("gradient_bytes", "optimizer_bytes", "weights_held_once"),
    ("keeps_activations",),
    ("periodic_per_microbatch",),
    ("halves_of_slots", "full_count_unfused"),
    ("domain_halves", "domain_for_each"),
    ("exchange", "grid_by_place", "gradient_bandwidth"),
    ("rates_by_dtype",),
    ("bytes_first",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The best mapping with one correction made: iteration, layer [s] and memory [B]."""

    name: str
    value: str
    time: float | None
    layer_time: float | None
    memory_used: float | None
    status: str


def corrections(
    task: Task,
    base: Rules | str = "dfmodel-readme",
    target: Rules | str = "crosstack",
    progress: Callable[[Progress], None] | None = None,
) -> list[Correction]:
    """Optimise ``task`` under ``base`` with each field of ``target`` put in place, one by one.

    The first row is ``base`` alone, the last ``target``.
    """
    base = as_dfmodel(rules_named(base) if isinstance(base, str) else base)
    target = rules_named(target) if isinstance(target, str) else target
    wanted = _fields(as_dfmodel(target))
    named = {name for group in TOGETHER for name in group}
    left = tuple((name,) for name in _fields(base) if name not in named)
    rows = [_row(task, base, base.name, "", progress)]
    for group in TOGETHER + left:
        change = {name: wanted[name] for name in group}
        if all(_fields(base)[name] == value for name, value in change.items()):
            continue
        rules = base.changed(name=f"{base.name} + {group[0]}", **change)
        shown = ", ".join(str(getattr(value, "value", value)) for value in change.values())
        rows.append(_row(task, rules, " and ".join(group), shown, progress))
    rows.append(_row(task, target, target.name, "all of them", progress))
    return rows


def _fields(rules: Rules) -> dict[str, Any]:
    """Return the fields of the parts that mapping reads, and their values."""
    parts = [part for name, part in rules.parts() if name in MAPPED]
    return {f.name: getattr(part, f.name) for part in parts for f in fields(part)}


def _row(
    task: Task,
    rules: Rules,
    name: str,
    value: str,
    progress: Callable[[Progress], None] | None,
) -> Correction:
    try:
        answer: Answer = optimise(task, rules=rules, time_limit=60.0, progress=progress)
    except InfeasibleError as error:
        return Correction(
            name=name, value=value, time=None, layer_time=None, memory_used=None, status=str(error)
        )
    e = answer.evaluation
    return Correction(
        name=name,
        value=value,
        time=e.time,
        layer_time=e.layer_time,
        memory_used=e.memory_used,
        status=answer.certificate.status.value,
    )


def corrections_markdown(rows: Sequence[Correction]) -> str:
    """Return the rows as a Markdown table; changes are relative to the first row."""
    first = rows[0].time
    lines = [
        "| correction | value | iteration [s] | change | layer [ms] | memory [GB] | status |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.time is None or row.layer_time is None or row.memory_used is None:
            lines.append(f"| {row.name} | {row.value} | - | - | - | - | {row.status} |")
            continue
        change = "" if first is None else f"{100 * (row.time / first - 1):+.2f} %"
        lines.append(
            f"| {row.name} | {row.value} | {row.time:.4f} | {change} | "
            f"{row.layer_time * 1e3:.5f} | {row.memory_used / 1e9:.2f} | {row.status} |"
        )
    return "\n".join(lines) + "\n"


def fields_markdown() -> str:
    """Return a Markdown table of every field of every rule set that maps."""
    sets = {name: _fields(as_dfmodel(rules_named(name))) for name in rule_names(MAPPED)}
    lines = ["| field | " + " | ".join(sets) + " |", "|---|" + "---|" * len(sets)]
    for field in sets["crosstack"]:
        values = [known[field] for known in sets.values()]
        if len(set(values)) > 1:
            shown = [str(getattr(value, "value", value)) for value in values]
            lines.append(f"| {field} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"
