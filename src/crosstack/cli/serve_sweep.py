"""``crosstack serve-sweep``: a transformer served over degrees, batches and contexts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstack.cli.inputs import (
    Chips,
    Counted,
    Fabric,
    On,
    check_number,
    check_outputs,
    machine_of,
    options_named,
    rules_given,
)
from crosstack.cli.outputs import asked_files, json_text, show, write
from crosstack.cli.sweep import ResumeOption, StoreOption, check_resume, searching
from crosstack.errors import InputError, Problem
from crosstack.workload.dtype import Dtype

if TYPE_CHECKING:
    from crosstack.explore.served import ServedPoints

__all__ = ["serve_sweep"]

MOST_LETTERS = 10_000  # of a list of numbers


def serve_sweep(
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="A model of `crosstack show library models`, or a config.json.",
        ),
    ],
    context: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="Tokens kept of each sequence (decode) or of a prompt (prefill).",
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="A machine; its workload is not used. Left out with --on."
        ),
    ] = None,
    phase: Annotated[
        str, typer.Option(metavar="NAME", help="decode: write tokens; prefill: read a prompt.")
    ] = "decode",
    tensor: Annotated[
        str,
        typer.Option(
            "--tp",
            metavar="N,N,...",
            help="Chips that split every tensor; divisors of heads and feed-forward width, at "
            "most the first dimension.",
        ),
    ] = "1",
    pipeline: Annotated[
        str,
        typer.Option(
            "--pp",
            metavar="N,N,...",
            help="Pipeline stages; at most the layers, and the next dimension.",
        ),
    ] = "1",
    batch: Annotated[
        str, typer.Option(metavar="N,N,...", help="Sequences that are served at once.")
    ] = "1",
    tokens: Annotated[
        int, typer.Option(metavar="N", help="New tokens of a decoding step, as drafts are checked.")
    ] = 1,
    microbatch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Sequences a stage works on at a time; left out, the most that keep every stage "
            "busy.",
        ),
    ] = None,
    dtype: Annotated[
        Dtype, typer.Option("--dtype", help="What weights and activations are computed in.")
    ] = Dtype.BF16,
    rules: Counted = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field of the file first."),
    ] = None,
    on: On = None,
    chips: Chips = None,
    fabric: Fabric = None,
    store: StoreOption = None,
    resume: ResumeOption = False,
    top: Annotated[int, typer.Option(metavar="N", help="Points to print, best first.")] = 20,
    csv_out: Annotated[
        Path | None, typer.Option("--csv", metavar="OUT", help="Save every point as CSV.")
    ] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Save every point as JSON.")
    ] = None,
) -> None:
    """Serve a transformer at every combination of TP, PP, batch and context.

    Kernels run one by one under the usual sharding (attention by heads, the feed-forward network
    by its width, the head by words), so nothing is searched and a thousand points take a fraction
    of a second. The file gives chip, memory and links: its first network dimension joins the
    tensor-parallel chips, the next one the pipeline stages; how many of its chips are used is what
    is swept.

    Examples: `crosstack serve-sweep --on h100-dgx --model llama3-70b --context 4096 --tp 4,8
    --batch 1,64` and `crosstack serve-sweep examples/llama3_8b_sn40l.yaml --model llama3-8b
    --tp 1,2,4,8,16 --pp 1,2,4 --batch 1,16,256 --context 1024,4096,16384 --csv points.csv`
    """
    from crosstack.evaluate.serving_points import MOST_POINTS
    from crosstack.explore.served import AXES, serve
    from crosstack.io.transformers import transformer
    from crosstack.report.serving_text import sweep_csv, sweep_tables

    check_resume(store, resume=resume)
    check_outputs(file, {"--csv": csv_out, "--json": json_out})
    check_number("--top", top, top >= 0, "a whole number, 0 or more")
    swept = [
        _numbers(option, text)
        for option, text in (
            ("--tp", tensor), ("--pp", pipeline), ("--batch", batch), ("--context", context),
        )
    ]  # fmt: skip
    with options_named({"model": "--model"}):
        chosen = transformer(model)
    count = math.prod(len(axis) for axis in swept)
    check_number(_OPTIONS["points"], count, count <= MOST_POINTS, f"at most {MOST_POINTS:,} points")
    system, usual = machine_of(file, set_, on, chips, fabric)
    counted = rules_given(rules) or usual
    with searching(store) as update, options_named(_OPTIONS):
        sweep = serve(
            chosen,
            system,
            **dict(zip(AXES, swept, strict=True)),
            phase=phase,
            tokens=tokens,
            microbatch=microbatch,
            dtype=dtype,
            rules=counted,
            store=store,
            resume=resume,
            progress=update,
        )
    show(sweep_tables(sweep, top))
    texts = asked_files(
        (csv_out, lambda: sweep_csv(sweep)), (json_out, lambda: json_text(_data(sweep)))
    )
    write(*texts)


def _data(sweep: ServedPoints) -> dict[str, Any]:
    """Return a sweep as JSON holds it."""
    from crosstack.report.serving_text import sweep_rows

    return {
        "model": sweep.served.model.name,
        "phase": str(sweep.served.phase),
        "system": sweep.served.system.name,
        "rules": sweep.served.rules.name,
        "points": sweep_rows(sweep),
    }


_OPTIONS = {
    "tensor": "--tp",
    "pipeline": "--pp",
    "batch": "--batch",
    "context": "--context",
    "phase": "--phase",
    "tokens": "--tokens",
    "microbatch": "--microbatch",
    "dtype": "--dtype",
    "system.chip.rates": "--dtype",
    "points": "--tp, --pp, --batch and --context",
}


def _numbers(option: str, text: str) -> list[int]:
    """Return the whole numbers of a list such as ``1,2,4``."""
    parts = [part.strip() for part in text.split(",")]
    whole = len(text) <= MOST_LETTERS and all(
        part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts
    )
    if not whole:
        allowed = "whole numbers joined by commas, such as 1,2,4"
        raise InputError(Problem(option, f"got {text[:40]!r}; allowed: {allowed}."))
    return [int(part) for part in parts]
