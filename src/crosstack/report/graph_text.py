"""A graph of operations over named axes as tables: what it holds, and every operation of it."""

from __future__ import annotations

import math

from rich.console import Group, RenderableType
from rich.text import Text

from crosstack.report.text import pairs_table, rows_table
from crosstack.report.wording import Table
from crosstack.units import format_quantity
from crosstack.workload.dataflow import Graph
from crosstack.workload.operations import Block, Role
from crosstack.workload.passes.reach import kept

__all__ = ["graph_tables", "operation_table"]

HEADER = ("operation", "function", "makes", "outer x M x K x N", "work")


def graph_tables(name: str, graph: Graph) -> Group:
    """Return what a graph holds, and a table for each of its blocks."""
    shown: list[RenderableType] = [Text(name, style="bold"), pairs_table(_counts(graph))]
    for block in graph.blocks:
        times = f", {graph.repeats(block):,} times" if block.axis else ""
        shown.append(Text(f"{block.name}{times}", style="bold"))
        shown.append(rows_table(operation_table(graph, block), wraps=2))
    return Group(*shown)


def _counts(graph: Graph) -> tuple[tuple[str, str], ...]:
    weights = math.fsum(graph.size(t.name) for t in graph.tensors if t.role is Role.WEIGHT)
    pairs = (
        ("parameters", f"{graph.n_parameters:,}"),
        ("weights", format_quantity(weights, "B", 4)),
        ("work", format_quantity(graph.total_work, "FLOP", 4)),
    )
    held = math.fsum(kept(graph).values())
    return (*pairs, ("kept for backward", format_quantity(held, "B", 4))) if held else pairs


def operation_table(graph: Graph, block: Block) -> Table:
    """Return every operation of a block: what it makes, its extents, and its work in one run."""
    rows = []
    for i in graph.orders[block.name]:
        nest = graph.nest(block, block.operations[i])
        product = nest.product
        groups = (product.outer, product.m, product.k, product.n)
        axes = " ".join(f"{axis} {graph.sizes[axis]:,}" for axis in nest.output)
        rows.append(
            (
                nest.operation.name,
                nest.operation.function.value,
                axes or "one number",
                " x ".join(f"{graph.count(group):,}" for group in groups),
                format_quantity(graph.work(nest), "FLOP", 4),
            )
        )
    return Table(header=HEADER, numeric=(False, False, False, True, True), rows=tuple(rows))
