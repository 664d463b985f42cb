"""``crosstack map``, ``evaluate`` and ``convert``: a mapping found, priced, and written out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

import crosstack
from crosstack.cli import inputs, outputs, saved
from crosstack.cli.job_options import GivenOptions, JobOptions, asked_task, said_by
from crosstack.model.objective import Objective

LIMIT_EXIT = 4
MOST_LISTED = 1000
DFMODEL_SUFFIXES = (".txt", ".pbtxt")


def map_(
    *,
    file: Path,
    job: JobOptions,
    given: GivenOptions,
    rules: str | None = None,
    start: Path | None = None,
    search: inputs.SearchOptions,
    objective: Objective = Objective.TIME,
    set_: list[str] | None = None,
    machine: inputs.MachineOptions,
    pages: outputs.PageOptions,
    kernels: bool = False,
    top: int = 0,
    front: str | None = None,
    tokens: str | None = None,
    spare_memory: str | None = None,
    electricity: str | None = None,
    trace_out: Path | None = None,
) -> None:
    """Find the best mapping, prove it, and print what it takes, what bounds it and what is next."""
    limits = search.checked()
    inputs.check_number("--top", top, 0 <= top <= MOST_LISTED, f"0 to {MOST_LISTED:,} strategies")
    pages.check(file, {"--trace": trace_out})
    chosen, count = inputs.rules_given(rules), inputs.many_tokens(tokens)
    task = asked_task(file, set_, machine, job, given)
    system = inputs.sparing(task.system, spare_memory)
    task = replace(task, system=inputs.billed(system, electricity))
    inputs.check_tokens(task, count)
    first = None
    if start is not None:
        from crosstack.evaluate.saved import mapping_from_dict

        data = saved.read_result(start)
        with inputs.in_file(start):
            first = mapping_from_dict(data, task)
    try:
        with outputs.watching() as update, said_by(file):
            answer = crosstack.optimise(
                task,
                rules=chosen,
                start=first,
                objective=objective,
                top=top,
                front=tuple(front.split(",")) if front else (),
                tokens=count,
                progress=update,
                **limits,
            )
    except crosstack.InfeasibleError as error:
        raise outputs.tell_ways(error, task, chosen, pages) from error
    try:
        outputs.show_answer(answer, kernels=kernels)
    finally:  # the reader of the tables may be gone; the result is not lost with him
        pages.save(answer, trace_out)
    if answer.certificate.status is crosstack.Status.LIMIT:
        raise typer.Exit(LIMIT_EXIT)


def evaluate(
    *,
    file: Path,
    job: JobOptions,
    mapping: Path,
    rules: str | None = None,
    set_: list[str] | None = None,
    machine: inputs.MachineOptions,
    pages: outputs.PageOptions,
    kernels: bool = False,
    tokens: str | None = None,
    electricity: str | None = None,
    trace_out: Path | None = None,
) -> None:
    """Price a mapping that was saved before, perhaps under other rules or on another machine."""
    pages.check(file, {"--trace": trace_out})
    count = inputs.many_tokens(tokens)
    task = asked_task(file, set_, machine, job, GivenOptions())
    task = replace(task, system=inputs.billed(task.system, electricity))
    inputs.check_tokens(task, count)
    answer = replace(_given_answer(task, mapping, rules), tokens=count)
    try:
        outputs.show_answer(answer, kernels=kernels)
    finally:
        pages.save(answer, trace_out)


def convert(
    source: Path, target: Path, result: Path | None = None, set_: list[str] | None = None
) -> None:
    """Convert between native YAML and DFModel text."""
    inputs.check_suffix("B", target, (*inputs.YAML_SUFFIXES, *DFMODEL_SUFFIXES))
    inputs.check_outputs(source, {"B": target})
    if result is not None:
        inputs.check_suffix("--result", target, DFMODEL_SUFFIXES, "; YAML holds no mapping")
    task = crosstack.load(source, set_ or ())
    answer = None if result is None else _given_answer(task, result, None)
    outputs.write((target, outputs.converted_text(task, answer, source, set_ or (), target)))


def _given_answer(task: crosstack.Task, result: Path, rules: str | None) -> crosstack.Plan:
    """Return the answer of a saved mapping, its problems under the name of the result."""
    from crosstack.evaluate.plan import given_plan, mapping_from_dict

    data = saved.read_result(result)
    chosen = saved.result_rules(rules, result, data, task)
    with inputs.in_file(result):
        return given_plan(task, mapping_from_dict(data, task), rules=chosen)
