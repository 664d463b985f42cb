"""``crosstack speculate``: what a small drafting model brings on a machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

import crosstack
from crosstack.cli.inputs import MachineOptions, check_outputs, options_named, rules_given
from crosstack.cli.outputs import asked_files, json_text, write
from crosstack.mapping.mapping import Constraints
from crosstack.units import format_quantity


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
    machine: MachineOptions,
    json_out: Path | None = None,
) -> None:
    """Compare speculative decoding with the target model on its own."""
    from crosstack.evaluate.speculation import speculate as run
    from crosstack.io.transformers import transformer

    check_outputs(file, {"--json": json_out})
    models = []
    for option, name in (("--draft", draft), ("--target", target)):
        with options_named({"model": option}):
            models.append(transformer(name))
    constraints = Constraints()
    if file is not None and machine.on is None:
        constraints = crosstack.load(file).constraints
    system, usual = machine.or_of(file, None)
    names = ("context", "window", "acceptance", "branches", "batch")
    with options_named({name: f"--{name}" for name in names}):
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
            rules=rules_given(rules) or usual,
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
