"""``crosstack speculate``: what a small drafting model brings on a machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import crosstack
from crosstack.cli.inputs import (
    Chips,
    Counted,
    Fabric,
    JsonOut,
    On,
    check_outputs,
    machine_of,
    options_named,
    rules_given,
)
from crosstack.cli.outputs import json_text, write
from crosstack.mapping.mapping import Constraints
from crosstack.units import format_quantity

__all__ = ["speculate"]


def speculate(
    draft: Annotated[str, typer.Option(metavar="NAME|FILE", help="The model that drafts.")],
    target: Annotated[str, typer.Option(metavar="NAME|FILE", help="The model that checks.")],
    context: Annotated[int, typer.Option(metavar="N", help="Tokens kept of each sequence.")],
    window: Annotated[int, typer.Option(metavar="K", help="Drafted tokens in a row.")],
    acceptance: Annotated[
        float, typer.Option(metavar="A", help="Probability that one is accepted, 0 to 1.")
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="Machine and constraints; any workload. Left out with --on."
        ),
    ] = None,
    branches: Annotated[
        int,
        typer.Option(metavar="N", help="Tokens drafted for each place: 1 a sequence, 2 a tree."),
    ] = 1,
    batch: Annotated[int, typer.Option(metavar="N", help="Sequences written at once.")] = 1,
    rules: Counted = None,
    on: On = None,
    chips: Chips = None,
    fabric: Fabric = None,
    json_out: JsonOut = None,
) -> None:
    """Compare speculative decoding with the target model on its own.

    Models are those of `crosstack show library models`, or files `config.json`.

    Example: `crosstack speculate examples/gpt3_175b_sn10.yaml --draft llama-68m
    --target llama3-8b --context 4096 --window 4 --acceptance 0.8`
    """
    from crosstack.evaluate.speculation import speculate as run
    from crosstack.io.transformers import transformer

    check_outputs(file, {"--json": json_out})
    models = []
    for option, name in (("--draft", draft), ("--target", target)):
        with options_named({"model": option}):
            models.append(transformer(name))
    constraints = Constraints()
    if file is not None and on is None:
        constraints = crosstack.load(file).constraints
    system, usual = machine_of(file, None, on, chips, fabric)
    names = ("context", "window", "acceptance", "branches")
    given = {name: f"--{name}" for name in names} | {"batch": "--batch"}
    with options_named(given):
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
    if json_out is not None:
        values = {**asdict(found), "rate": found.rate, "speedup": found.speedup}
        write((json_out, json_text(values)))
