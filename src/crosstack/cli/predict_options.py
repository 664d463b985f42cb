"""What ``predict`` and ``trace`` are asked: what is timed, how it is spread, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstack.cli.chip import Library
from crosstack.cli.inputs import Chips, Fabric, On

if TYPE_CHECKING:
    from crosstack.machine.network import NetworkLevel

__all__ = ["StepOptions", "Torus"]


Torus = Annotated[
    bool, typer.Option("--torus", help="Join the last chip of every axis to the first.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """A step, its strategy and its machine, as options say them."""

    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE|MODEL",
            help="A chip file, or DeepFlow hardware YAML; with --on what --model says.",
        ),
    ] = None
    gemm: Annotated[
        str | None,
        typer.Option("--gemm", metavar="M,K,N", help="One matrix product, M x K by K x N."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME|FILE",
            help="One of `crosstack show library models`, a config.json, lstm-lm, lstm-lm-40k, or "
            "a model in DeepFlow's YAML.",
        ),
    ] = None
    parallel: Annotated[
        str | None,
        typer.Option(
            "--parallel", metavar="STRATEGY", help="tp=8,pp=4,dp=16, or RC-4-2-d8-p1 or CR-4-d8-p1."
        ),
    ] = None
    prefill: Annotated[
        bool, typer.Option("--prefill", help="The model reads prompts; it is trained if not said.")
    ] = False
    decode: Annotated[
        bool, typer.Option("--decode", help="The model writes the next token of sequences.")
    ] = False
    context: Annotated[
        int | None,
        typer.Option("--context", metavar="N", help="With --decode: tokens kept of each sequence."),
    ] = None
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", help="Sequences of a step, if not as published."),
    ] = None
    sequence: Annotated[
        int | None,
        typer.Option("--sequence", metavar="N", help="Tokens of one, if not as published."),
    ] = None
    microbatches: Annotated[
        int | None,
        typer.Option(
            "--microbatches",
            metavar="N",
            help="Parts of a replica's batch; the best if left out (transformers).",
        ),
    ] = None
    exchange: Annotated[
        str | None,
        typer.Option(
            "--exchange",
            metavar="HOW",
            help="What the chips of a kernel split send: paired, sums of pairs of products, as "
            "Megatron; or sequence, these, a share for each; the best if left out (transformers; "
            "gathered, every output, under the rules of a release).",
        ),
    ] = None
    recompute: Annotated[
        str | None,
        typer.Option(
            "--recompute",
            metavar="WHAT",
            help="What the backward pass computes again instead of keeping it: none, attention or "
            "full; the best if left out (transformers).",
        ),
    ] = None
    schedule: Annotated[
        str | None,
        typer.Option(
            "--schedule",
            metavar="ORDER",
            help="Of microbatches: 1f1b, so if left out, or gpipe, which keeps more of them "
            "(transformers).",
        ),
    ] = None
    interleave: Annotated[
        int | None,
        typer.Option(
            "--interleave",
            metavar="N",
            help="Stages on every chip, spread over the model; above 1 with --schedule 1f1b; the "
            "best if left out.",
        ),
    ] = None
    optimizer_bytes: Annotated[
        str | None,
        typer.Option(
            "--optimizer-bytes",
            metavar="SIZE",
            help="State of the optimizer for each weight; 12 B by default, as Adam in single "
            "precision keeps.",
        ),
    ] = None
    package: Annotated[
        str | None,
        typer.Option(
            "--package",
            metavar="XxYxZ",
            help="Place the shards on a mesh, in packages of so many chips; otherwise FILE says "
            "how chips are joined.",
        ),
    ] = None
    packages: Annotated[
        str | None, typer.Option("--packages", metavar="XxYxZ", help="Packages along each axis.")
    ] = None
    torus: Torus = False
    order: Annotated[
        str | None,
        typer.Option(
            "--order",
            metavar="A,B,..",
            help="Under the rules of a release: mapping order, the dimension whose chips are "
            "nearest first, such as kp1,kp2,dp,lp; otherwise kp2,kp1,dp,lp, or with --package the "
            "best.",
        ),
    ] = None
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="INSIDE[,BETWEEN]",
            help="How the chips of a package are joined, and the packages: ring, mesh, torus, "
            "switch or fully_connected, a mesh or torus with a shape, such as torus:4x4,switch; "
            "otherwise FILE says it.",
        ),
    ] = None
    rules: Annotated[
        str,
        typer.Option(
            "--rules",
            metavar="NAME|FILE",
            help="What is counted: crosstack, deepflow-2025, deepflow-2025-graph, deepflow-2021, "
            "deepflow-2020, or a YAML file of rules.",
        ),
    ] = "crosstack"
    on: On = None
    chips: Chips = None
    fabric: Fabric = None
    library: Library = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="PATH=VALUE", help="Change a field of FILE first; may be repeated."
        ),
    ] = None

    @property
    def changes(self) -> dict[str, Any]:
        """What is asked of the step itself; None: as published."""
        from crosstack.workload.published_steps import CHANGES

        return {name: getattr(self, name) for name in CHANGES}

    @property
    def levels(self) -> tuple[NetworkLevel, NetworkLevel | None] | None:
        """How the chips of a package are joined, and the packages where that is said."""
        from crosstack.machine.network import parse_levels

        return None if self.topology is None else parse_levels(self.topology)
