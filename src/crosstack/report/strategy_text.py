"""What a task may be mapped as: its fastest strategies, and how many mappings it has, as tables."""

from __future__ import annotations

from rich.console import Group

from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.ranking import RankedStrategies
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.mapping_space import MappingSpace
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import Table, percent, plural, table_of, time_words
from crosstack.units import format_quantity


def strategy_table(ranked: RankedStrategies) -> Group:
    """Return what each strategy decides, and what it takes."""
    title = (
        f"Fastest {plural(len(ranked.found), 'strategy')} of {ranked.total:,}, each "
        f"with the kernels of its block as first mapped ({plural(ranked.blocks, 'block')})"
    )
    table = table_of(
        ranked.found,
        ("tensor", ">", lambda found: f"{found[0].degree(Parallelism.TENSOR):,}"),
        ("pipeline", ">", lambda found: f"{found[0].degree(Parallelism.PIPELINE):,}"),
        ("data", ">", lambda found: f"{found[0].degree(Parallelism.DATA):,}"),
        *((("expert", ">", _experts),) if any(map(_spread, ranked.found)) else ()),
        ("on levels", "<", lambda found: _levels(found[0])),
        ("microbatch", ">", lambda found: f"{found[0].microbatch_size:,}"),
        ("again", "<", lambda found: found[0].recompute.value),
        ("schedule", "<", lambda found: _schedule(found[0])),
        ("time", ">", lambda found: time_words(found[1].time)),
        ("of peak", ">", lambda found: percent(found[1].utilization)),
        ("memory", ">", lambda found: format_quantity(found[1].memory_used, "B")),
    )
    return titled(title, rows_table(table, wraps=3))


def _experts(found: tuple[Mapping, Evaluation]) -> str:
    return f"{found[0].degree(Parallelism.EXPERT):,}"


def _spread(found: tuple[Mapping, Evaluation]) -> bool:
    return found[0].degree(Parallelism.EXPERT) > 1


def _levels(mapping: Mapping) -> str:
    places = mapping.dimensions or range(len(mapping.sizes))
    levels: dict[int, list[str]] = {}
    for place, size, use in zip(places, mapping.sizes, mapping.parallelism, strict=True):
        levels.setdefault(place, []).append(f"{use.value} {size}")
    return "; ".join(f"{place}: {' x '.join(uses)}" for place, uses in levels.items())


def _schedule(mapping: Mapping) -> str:
    pieces = "" if mapping.interleave == 1 else f" in {mapping.interleave} pieces"
    return mapping.schedule.value + pieces


def space_table(space: MappingSpace) -> Group:
    """Return the factors and their product, as powers of ten."""
    rows = [(f.decision, _power(f.digits), f.choices) for f in space.factors]
    rows.append(("all", _power(space.digits), "combinations"))
    ordered = space.ordered_digits
    words = "combinations whose partitions respect the graph"
    rows.append(("in order", "unknown" if ordered is None else _power(ordered), words))
    header, numeric = ("decision", "choices", "which"), (False, True, False)
    table = Table(header=header, numeric=numeric, rows=tuple(rows))
    return titled("Mappings to choose from", rows_table(table, wraps=2))


def _power(digits: float) -> str:
    return f"{10**digits:,.0f}" if digits < 6 else f"10^{digits:.1f}"
