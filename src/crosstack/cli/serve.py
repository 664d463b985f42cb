"""``crosstack serve-sweep`` and ``speculate``: a transformer served, alone or after drafts."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path

import typer

import crosstack
from crosstack.cli import inputs
from crosstack.cli.outputs import asked_files, json_text, show, write
from crosstack.cli.sweep import check_resume, searching
from crosstack.errors import InputError, Problem
from crosstack.mapping.mapping import Constraints
from crosstack.units import format_quantity
from crosstack.workload.dtype import Dtype

MOST_LETTERS = 10_000  # of a list of numbers


def serve_sweep(
    *,
    model: str,
    context: str,
    file: Path | None = None,
    phase: str = "decode",
    tensor: str = "1",
    pipeline: str = "1",
    batch: str = "1",
    tokens: int = 1,
    microbatch: int | None = None,
    dtype: Dtype = Dtype.BF16,
    rules: str | None = None,
    set_: list[str] | None = None,
    machine: inputs.MachineOptions,
    store: Path | None = None,
    resume: bool = False,
    top: int = 20,
    csv_out: Path | None = None,
    json_out: Path | None = None,
) -> None:
    """Serve a transformer at every combination of TP, PP, batch and context."""
    from crosstack.evaluate.serving_points import MOST_POINTS
    from crosstack.explore.served import AXES, serve
    from crosstack.io.transformers import transformer
    from crosstack.report.serving_text import sweep_csv, sweep_data, sweep_tables

    check_resume(store, resume=resume)
    inputs.check_outputs(file, {"--csv": csv_out, "--json": json_out})
    inputs.check_number("--top", top, top >= 0, "a whole number, 0 or more")
    lists = {"--tp": tensor, "--pp": pipeline, "--batch": batch, "--context": context}
    swept = [_numbers(option, text) for option, text in lists.items()]
    with inputs.options_named({"model": "--model"}):
        chosen = transformer(model)
    count = math.prod(len(axis) for axis in swept)
    most = f"at most {MOST_POINTS:,} points"
    inputs.check_number(_OPTIONS["points"], count, count <= MOST_POINTS, most)
    system, usual = machine.or_of(file, set_)
    with searching(store) as update, inputs.options_named(_OPTIONS):
        sweep = serve(
            chosen,
            system,
            **dict(zip(AXES, swept, strict=True)),
            phase=phase,
            tokens=tokens,
            microbatch=microbatch,
            dtype=dtype,
            rules=inputs.rules_given(rules) or usual,
            store=store,
            resume=resume,
            progress=update,
        )
    show(sweep_tables(sweep, top))
    texts = asked_files(
        (csv_out, lambda: sweep_csv(sweep)), (json_out, lambda: json_text(sweep_data(sweep)))
    )
    write(*texts)


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


def speculate(
    *,
    draft: str,
    target: str,
    context: int,
    window: int,
    acceptance: float,
    file: Path | None = None,
    branches: int = 1,
    batch: int = 1,
    rules: str | None = None,
    machine: inputs.MachineOptions,
    json_out: Path | None = None,
) -> None:
    """Compare speculative decoding with the target model on its own."""
    from crosstack.evaluate.speculation import speculate as run
    from crosstack.io.transformers import transformer

    inputs.check_outputs(file, {"--json": json_out})
    models = []
    for option, name in (("--draft", draft), ("--target", target)):
        with inputs.options_named({"model": option}):
            models.append(transformer(name))
    constraints = Constraints()
    if file is not None and machine.on is None:
        constraints = crosstack.load(file).constraints
    system, usual = machine.or_of(file, None)
    names = ("context", "window", "acceptance", "branches", "batch")
    with inputs.options_named({name: f"--{name}" for name in names}):
        found = run(
            models[0],
            models[1],
            system,
            constraints,
            context=context,
            window=window,
            acceptance=acceptance,
            branches=branches,
            batch=batch,
            rules=inputs.rules_given(rules) or usual,
        )
    typer.echo(
        f"{draft} drafts for {target}: {found.rate:.6g} tokens/s a sequence, "
        f"{found.speedup:.4g} times {1 / found.plain_time:.6g} without\n"
        f"  a step drafts for {format_quantity(found.draft_time, 's')}, checks for "
        f"{format_quantity(found.check_time, 's')} "
        f"and adds {found.tokens:.4g} tokens"
    )
    values = {**asdict(found), "rate": found.rate, "speedup": found.speedup}
    write(*asked_files((json_out, lambda: json_text(values))))
