"""Models as tables: those of the library, and what one holds and computes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group

from crosstack.io import library
from crosstack.report.text import rows_table
from crosstack.report.wording import Table, table_of
from crosstack.workload.architectures import AttentionKind, Transformer

_KINDS = {"feed_forward": "feed-forward", "routed": "experts", "shared": "shared experts"}


def model_table() -> Table:
    """Return the models of the library: their shapes and parameters."""
    return _shapes({name: library.model(name) for name in library.names("models")})


def _shapes(models: dict[str, Transformer]) -> Table:
    return table_of(
        models.items(),
        ("model", "<", lambda named: named[0]),
        ("layers", ">", lambda named: f"{named[1].layers:,}"),
        ("hidden", ">", lambda named: f"{named[1].hidden:,}"),
        ("heads", ">", lambda named: _heads(named[1])),
        ("feed-forward", ">", lambda named: f"{named[1].feed_forward:,}"),
        ("experts", ">", lambda named: _experts(named[1])),
        ("vocabulary", ">", lambda named: f"{named[1].vocabulary:,}"),
        ("context", ">", lambda named: f"{named[1].context:,}"),
        ("parameters", ">", lambda named: f"{named[1].parameters.total:,}"),
        ("active", ">", lambda named: _active(named[1])),
    )


def _active(model: Transformer) -> str:
    active = model.active_parameters
    return "" if active == model.parameters.total else f"{active:,}"


def _heads(model: Transformer) -> str:
    shared = model.attention in (AttentionKind.GROUPED_QUERY, AttentionKind.MULTI_QUERY)
    if model.attention is AttentionKind.LATENT:
        return f"{model.heads}, latent"
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
