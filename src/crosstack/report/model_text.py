"""Models as tables: those of the library, what one holds and computes, graphs of operations."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.console import Group

from crosstack.io import library
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import Table, table_of
from crosstack.units import format_quantity
from crosstack.workload.architectures import AttentionKind, ImageModel, ResidualNetwork, Transformer
from crosstack.workload.dataflow import Graph
from crosstack.workload.loops import LoopNest
from crosstack.workload.operations import Block, Role
from crosstack.workload.passes.backward import kept

_KINDS = {"feed_forward": "feed-forward", "routed": "experts", "shared": "shared experts"}


def model_table() -> Table:
    """Return the models of the library: their shapes and parameters."""
    return _shapes({name: library.model(name) for name in library.names("models")})


def image_table() -> Table:
    """Return the models of images of the library: their shapes, parameters and work."""
    models = {name: library.image_model(name) for name in library.names("images")}
    return table_of(
        models,
        ("model", "<", str),
        ("blocks", "<", lambda name: _blocks(models[name])),
        ("width", ">", lambda name: f"{models[name].width:,}"),
        ("image", ">", lambda name: f"{models[name].image:,}"),
        ("classes", ">", lambda name: f"{models[name].classes:,}"),
        ("parameters", ">", lambda name: f"{models[name].n_parameters:,}"),
        ("FLOP of an image", ">", lambda name: f"{models[name].forward_flop:,.0f}"),
    )


def _blocks(model: ImageModel) -> str:
    """Return the blocks of each stage, or how many levels both paths have."""
    if isinstance(model, ResidualNetwork):
        return ", ".join(map(str, model.blocks))
    return f"{model.levels} levels"


def image_data(model: ImageModel) -> dict[str, Any]:
    """Return a model of images as plain values: its shape, and all parameters."""
    return {"shape": asdict(model), "parameters": {"total": model.n_parameters}}


def _shapes(models: dict[str, Transformer]) -> Table:
    return table_of(
        models,
        ("model", "<", str),
        ("layers", ">", lambda name: f"{models[name].layers:,}"),
        ("hidden", ">", lambda name: f"{models[name].hidden:,}"),
        ("heads", ">", lambda name: _heads(models[name])),
        ("feed-forward", ">", lambda name: f"{models[name].feed_forward:,}"),
        ("experts", ">", lambda name: _experts(models[name])),
        ("vocabulary", ">", lambda name: f"{models[name].vocabulary:,}"),
        ("context", ">", lambda name: f"{models[name].context:,}"),
        ("parameters", ">", lambda name: f"{models[name].parameters.total:,}"),
        ("active", ">", lambda name: _active(models[name])),
    )


def _active(model: Transformer) -> str:
    active = model.active_parameters
    return "" if active == model.parameters.total else f"{active:,}"


def _heads(model: Transformer) -> str:
    if model.attention is AttentionKind.LATENT:
        return f"{model.heads}, latent"
    shared = model.attention in (AttentionKind.GROUPED_QUERY, AttentionKind.MULTI_QUERY)
    return f"{model.heads} on {model.kv_heads}" if shared else f"{model.heads}"


def _experts(model: Transformer) -> str:
    if model.experts is None:
        return ""
    e = model.experts
    shared = f" + {e.shared}" if e.shared else ""
    return f"{e.active} of {e.count}{shared}: {e.feed_forward:,}"


def count_table(model: Transformer) -> Table:
    """Return parameters by kind, and the work of a token at the end of the longest sequence."""
    work = model.forward_flop(1, cached=model.context - 1)
    flop = {
        "attention": work.projections,
        "scores and weighted values": work.attention,
        "feed_forward": work.feed_forward,
        "routed": work.routed,
        "shared": work.shared,
        "router": work.router,
        "head": work.head,
        "all": work.total,
    }
    held = asdict(model.parameters)
    kinds = [
        kind for kind in (*held, "scores and weighted values") if held.get(kind) or flop.get(kind)
    ]
    held["all"] = model.parameters.total
    return table_of(
        (*kinds, "all"),
        ("", "<", lambda kind: _KINDS.get(kind, kind)),
        ("parameters", ">", lambda kind: _whole(held.get(kind))),
        (f"FLOP of a token after {model.context - 1:,}", ">", lambda kind: _whole(flop.get(kind))),
    )


def _whole(value: float | None) -> str:
    return f"{value:,.0f}" if value else ""


def model_tables(name: str, model: Transformer) -> Group:
    """Return a model as tables: its shape, and what it holds and computes."""
    shape = rows_table(_shapes({name: model}), wraps=0)
    return Group(shape, "", rows_table(count_table(model), wraps=0))


def model_data(model: Transformer) -> dict[str, Any]:
    """Return a model as plain values: its shape, and parameters by kind, all and active."""
    count = model.parameters
    return {
        "shape": asdict(model),
        "parameters": asdict(count) | {"total": count.total, "active": model.active_parameters},
    }


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
