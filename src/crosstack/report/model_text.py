"""Models as tables: those of the library, and what one holds and computes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.io import library
from crosstack.report.text import rows_table
from crosstack.report.wording import Table
from crosstack.workload.architectures import AttentionKind, Transformer

__all__ = ["count_table", "model_data", "model_row", "model_table", "model_tables"]

HEADER = ("model", "layers", "hidden", "heads", "feed-forward", "experts", "vocabulary", "context",
          "parameters", "active")  # fmt: skip


def model_table() -> Table:
    """Return the models of the library: their shapes and parameters."""
    rows = tuple(model_row(name, library.model(name)) for name in library.names("models"))
    return _shapes(rows)


def _shapes(rows: tuple[tuple[str, ...], ...]) -> Table:
    return Table(header=HEADER, numeric=(False, *([True] * (len(HEADER) - 1))), rows=rows)


def model_row(name: str, model: Transformer) -> tuple[str, ...]:
    """Return a model as a row of the table of models."""
    count = model.parameters
    active = model.active_parameters
    return (
        name,
        f"{model.layers:,}",
        f"{model.hidden:,}",
        _heads(model),
        f"{model.feed_forward:,}",
        _experts(model),
        f"{model.vocabulary:,}",
        f"{model.context:,}",
        f"{count.total:,}",
        "" if active == count.total else f"{active:,}",
    )


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
    count = model.parameters
    work = model.forward_flop(1, cached=model.context - 1)
    flop = {
        "attention": work.projections,
        "scores and weighted values": work.attention,
        "feed_forward": work.feed_forward,
        "routed": work.routed,
        "shared": work.shared,
        "router": work.router,
        "head": work.head,
    }
    held = asdict(count)
    kinds = [kind for kind in (*held, "scores and weighted values") if _any(held, flop, kind)]
    rows = [(_words(kind), _whole(held.get(kind)), _whole(flop.get(kind))) for kind in kinds]
    rows.append(("all", _whole(count.total), _whole(work.total)))
    header = ("", "parameters", f"FLOP of a token after {model.context - 1:,}")
    return Table(header=header, numeric=(False, True, True), rows=tuple(rows))


def _any(held: dict[str, int], flop: dict[str, float], kind: str) -> bool:
    return bool(held.get(kind) or flop.get(kind))


def _words(kind: str) -> str:
    return {"feed_forward": "feed-forward", "routed": "experts", "shared": "shared experts"}.get(
        kind, kind
    )


def _whole(value: float | None) -> str:
    return "" if not value else f"{value:,.0f}"


def model_tables(name: str, model: Transformer) -> Group:
    """Return a model as tables: its shape, and what it holds and computes."""
    shape = _shapes((model_row(name, model),))
    return Group(rows_table(shape, wraps=0), Text(""), rows_table(count_table(model), wraps=0))


def model_data(model: Transformer) -> dict[str, Any]:
    """Return a model as plain values: its shape, and parameters by kind, all and active."""
    count = model.parameters
    return {
        "shape": asdict(model),
        "parameters": asdict(count) | {"total": count.total, "active": model.active_parameters},
    }
