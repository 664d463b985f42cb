"""``crosstack map``, ``evaluate`` and ``convert``: a mapping found, priced, and written out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import crosstack
from crosstack.cli.inputs import (
    Chips,
    Fabric,
    Gap,
    JsonOut,
    On,
    WorkLimit,
    check_jobs,
    check_number,
    check_outputs,
    check_work,
    in_file,
    read_result,
    result_rules,
    rules_given,
)
from crosstack.cli.job_options import (
    FileOrModel,
    GivenOptions,
    JobOptions,
    asked_task,
    said_by,
)
from crosstack.cli.options import with_options
from crosstack.cli.outputs import (
    DFMODEL_SUFFIXES,
    YAML_SUFFIXES,
    Searching,
    check_suffix,
    converted_text,
    save,
    show_answer,
    show_strategies,
    write,
)
from crosstack.cli.task_options import HtmlOut, Kernels, Rules, Set, SvgOut
from crosstack.model.objective import Objective

__all__ = ["convert", "evaluate", "map_"]

LIMIT_EXIT = 4
MOST_LISTED = 1000


@with_options
def map_(
    file: FileOrModel,
    job: JobOptions,
    given: GivenOptions,
    rules: Rules = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--start",
            metavar="RESULT",
            help="Start from the mapping of a result saved with --json; the answer is no slower.",
        ),
    ] = None,
    work_limit: WorkLimit = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="S",
            help="Stop after S seconds with the best mapping found, its bound and exit code 4. "
            "What a clock cuts off depends on how busy the machine is; a limit on work does not.",
        ),
    ] = None,
    gap: Gap = 0.0,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs", metavar="N", help="Processes that search together; the answer is the same."
        ),
    ] = 1,
    objective: Annotated[
        Objective,
        typer.Option(
            "--objective",
            help="What is least: the time of an iteration, its energy, its share of the purchase "
            "price (over four years), or energy times time.",
        ),
    ] = Objective.TIME,
    set_: Set = None,
    on: On = None,
    chips: Chips = None,
    fabric: Fabric = None,
    json_out: JsonOut = None,
    html_out: HtmlOut = None,
    svg_out: SvgOut = None,
    kernels: Kernels = False,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            metavar="N",
            help="List the N fastest strategies too: degrees and their levels, microbatch, "
            "recomputation and schedule, with time and memory.",
        ),
    ] = 0,
) -> None:
    """Find the best mapping, prove it, and print what bounds it.

    A model by name needs a machine of the library and takes how much is done with it from the
    options; what is given with --parallel and the options after it is not searched.

    Examples: `crosstack map llama3-70b --on h100-dgx --chips 512 --batch 512 --parallel tp=8`,
    `crosstack map llama3-8b --on h100-dgx --decode --batch 64 --context 8192`,
    `crosstack map examples/gpt3_1t_sn30.yaml --html map.html` and
    `crosstack map setup.txt --rules dfmodel-readme --set system.r_r.link_bw_x=450`
    """
    limit = float("inf") if time_limit is None else time_limit
    check_number("--time-limit", limit, limit > 0, "a number of seconds above 0")
    check_work(work_limit)
    check_number("--top", top, 0 <= top <= MOST_LISTED, f"0 to {MOST_LISTED:,} strategies")
    check_number("--gap", gap, 0 <= gap < 1, "0 to below 1, such as 0.01 for one percent")
    check_jobs(jobs)
    check_outputs(file, {"--json": json_out, "--html": html_out, "--svg": svg_out})
    chosen = rules_given(rules)
    task = asked_task(file, set_, on, chips, fabric, job, given)
    first = None
    if start is not None:
        from crosstack.evaluate.saved import mapping_from_dict

        with in_file(start):
            first = mapping_from_dict(read_result(start), task)
    with Searching() as update, said_by(file):
        answer = crosstack.optimise(
            task,
            rules=chosen,
            work_limit=work_limit,
            time_limit=limit,
            gap=gap,
            jobs=jobs,
            start=first,
            objective=objective,
            progress=update,
        )
    try:
        show_answer(answer, kernels=kernels)
        if top:
            with in_file(file):
                show_strategies(answer, top)
    finally:  # the reader of the tables may be gone; the result is not lost with him
        save(answer, json_out, html_out, svg_out)
    if answer.certificate.status is crosstack.Status.LIMIT:
        raise typer.Exit(LIMIT_EXIT)


@with_options
def evaluate(
    file: FileOrModel,
    job: JobOptions,
    mapping: Annotated[
        Path, typer.Option("--mapping", metavar="RESULT", help="A result saved with --json.")
    ],
    rules: Rules = None,
    set_: Set = None,
    on: On = None,
    chips: Chips = None,
    fabric: Fabric = None,
    json_out: JsonOut = None,
    html_out: HtmlOut = None,
    svg_out: SvgOut = None,
    kernels: Kernels = False,
) -> None:
    """Price a mapping that was saved before, perhaps under other rules or on another machine.

    The result's own rules are used unless others are given.

    Examples: `crosstack evaluate examples/gpt3_1t_sn30.yaml --mapping map.json` and
    `crosstack evaluate llama3-8b --mapping map.json --on a100-dgx --batch 64`
    """
    check_outputs(file, {"--json": json_out, "--html": html_out, "--svg": svg_out})
    task = asked_task(file, set_, on, chips, fabric, job, GivenOptions())
    answer = _given_answer(task, mapping, rules)
    try:
        show_answer(answer, kernels=kernels)
    finally:
        save(answer, json_out, html_out, svg_out)


def convert(
    source: Annotated[Path, typer.Argument(metavar="A", help="Native YAML or DFModel text.")],
    target: Annotated[
        Path, typer.Argument(metavar="B", help="A .yaml file, or .txt/.pbtxt for DFModel text.")
    ],
    result: Annotated[
        Path | None,
        typer.Option(
            "--result",
            metavar="RESULT",
            help="A result saved with --json; DFModel text then has the mapping filled in.",
        ),
    ] = None,
    set_: Set = None,
) -> None:
    """Convert between native YAML and DFModel text.

    Example: `crosstack convert setup.txt setup.yaml`
    """
    check_suffix("B", target, (*YAML_SUFFIXES, *DFMODEL_SUFFIXES))
    check_outputs(source, {"B": target})
    if result is not None:
        check_suffix("--result", target, DFMODEL_SUFFIXES, "; YAML holds no mapping")
    task = crosstack.load(source, set_ or ())
    answer = None if result is None else _given_answer(task, result, None)
    write((target, converted_text(task, answer, source, set_ or (), target)))


def _given_answer(task: crosstack.Task, result: Path, rules: str | None) -> crosstack.Plan:
    """Return the answer of a saved mapping, its problems under the name of the result."""
    from crosstack.evaluate.plan import given_plan, mapping_from_dict

    data = read_result(result)
    chosen = result_rules(rules, result, data, task)
    with in_file(result):
        return given_plan(task, mapping_from_dict(data, task), rules=chosen)
