"""A graph of operations over named axes as tables: what it holds, and every operation of it."""

from __future__ import annotations

import math

from rich.console import Group

from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import Table, table_of
from crosstack.units import format_quantity
from crosstack.workload.dataflow import Graph
from crosstack.workload.loops import LoopNest
from crosstack.workload.operations import Block, Role
from crosstack.workload.passes.reach import kept


def graph_tables(name: str, graph: Graph) -> Group:
    """Return what a graph holds, and a table for each of its blocks."""
    blocks = []
    for block in graph.blocks:
        times = f", {graph.repeats(block):,} times" if block.axis else ""
        table = rows_table(_operations(graph, block), wraps=2)
        blocks.append(titled(f"{block.name}{times}", table))
    return titled(name, pairs_table(_counts(graph)), *blocks)


def _counts(graph: Graph) -> tuple[tuple[str, str], ...]:
    weights = math.fsum(graph.size(t.name) for t in graph.tensors if t.role is Role.WEIGHT)
    pairs = (
        ("parameters", f"{graph.n_parameters:,}"),
        ("weights", format_quantity(weights, "B", 4)),
        ("work", format_quantity(graph.total_work, "FLOP", 4)),
    )
    held = math.fsum(kept(graph).values())
    return (*pairs, ("kept for backward", format_quantity(held, "B", 4))) if held else pairs


def _operations(graph: Graph, block: Block) -> Table:
    """Return every operation of a block: what it makes, its extents, and its work in one run."""

    def axes(nest: LoopNest) -> str:
        return " ".join(f"{axis} {graph.sizes[axis]:,}" for axis in nest.output) or "one number"

    def extents(nest: LoopNest) -> str:
        product = nest.product
        groups = (product.outer, product.m, product.k, product.n)
        return " x ".join(f"{graph.count(group):,}" for group in groups)

    return table_of(
        (graph.nest(block, block.operations[i]) for i in graph.orders[block.name]),
        ("operation", "<", lambda nest: nest.operation.name),
        ("function", "<", lambda nest: nest.operation.function.value),
        ("makes", "<", axes),
        ("outer x M x K x N", ">", extents),
        ("work", ">", lambda nest: format_quantity(graph.work(nest), "FLOP", 4)),
    )
