"""How many mappings a task has, as a table."""

from __future__ import annotations

from rich.console import Group

from crosstack.mapping.mapping_space import MappingSpace
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import Table


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
