"""``crosstack explain``: what bounds a task, and what each resource of its machine is worth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    machine_given,
    read_result,
    result_answer,
    rules_given,
)
from crosstack.cli.job_options import GivenOptions, JobOptions, asked_task, said_by
from crosstack.cli.options import with_options
from crosstack.cli.outputs import asked_files, json_text, show_and_write
from crosstack.cli.sweep import searching
from crosstack.errors import InputError, Problem

__all__ = ["explain"]


@with_options
def explain(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|MODEL",
            help="Native YAML, DFModel text, what `crosstack map --json` saved, or, with --on, one "
            "of `crosstack show library models`.",
        ),
    ],
    job: JobOptions,
    given: GivenOptions,
    rules: Annotated[
        str | None,
        typer.Option("--rules", metavar="NAME|FILE", help="What is counted; see `crosstack map`."),
    ] = None,
    step: Annotated[
        float, typer.Option("--step", metavar="S", help="How much more and less: 0.1 is 10 %.")
    ] = 0.1,
    work_limit: WorkLimit = None,
    time_limit: Annotated[
        float | None,
        typer.Option("--time-limit", metavar="S", help="Of each search; what stops is marked."),
    ] = None,
    gap: Gap = 0.0,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", help="Processes that search together.")
    ] = 1,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field first; may be repeated."),
    ] = None,
    on: On = None,
    chips: Chips = None,
    fabric: Fabric = None,
    json_out: JsonOut = None,
    svg_out: Annotated[
        Path | None, typer.Option("--svg", metavar="OUT", help="Save a tornado chart.")
    ] = None,
) -> None:
    """Say what bounds a mapping, and what a little more of each resource would bring.

    Every bandwidth, capacity, clock, latency and price is changed alone, both ways, and the task
    is mapped anew, starting from the mapping it has. Where that is not proved the best, the figures
    are those of the mapping itself.

    Examples: `crosstack explain examples/my_graph.yaml --svg worth.svg` and
    `crosstack explain llama3-8b --on h100-dgx --batch 64 --parallel tp=2,pp=1`
    """
    from crosstack.explore.explain import explain as run
    from crosstack.model.rules import MAPPED, chosen_rules
    from crosstack.report.explain_text import (
        explanation_data,
        explanation_svg,
        explanation_tables,
    )

    limit = float("inf") if time_limit is None else time_limit
    check_number("--step", step, 0 < step < 1, "above 0, below 1, such as 0.1 for 10 %")
    check_number("--time-limit", limit, limit > 0, "a number of seconds above 0")
    check_work(work_limit)
    check_number("--gap", gap, 0 <= gap < 1, "0 to below 1, such as 0.01 for one percent")
    check_jobs(jobs)
    check_outputs(file, {"--json": json_out, "--svg": svg_out})
    if file.suffix.lower() == ".json":
        if set_:
            raise InputError(Problem("--set", "allowed with a task; a saved result is as it is."))
        if machine_given(on, chips, fabric):
            raise InputError(Problem("--on", "allowed with a task; a saved result is as it is."))
        job.refuse()
        given.refuse()
        saved = result_answer(file, read_result(file), None, rules)
        task, chosen, answer = saved.task, saved.rules, saved
    else:
        answer = None
        counted = rules_given(rules)
        task = asked_task(file, set_, on, chips, fabric, job, given)
        chosen = chosen_rules(counted, MAPPED, otherwise=task.rules)
    with searching(None) as update, said_by(file):
        found = run(
            task,
            answer=answer,
            rules=chosen,
            step=step,
            work_limit=work_limit,
            time_limit=limit,
            gap=gap,
            jobs=jobs,
            progress=update,
        )
    texts = asked_files(
        (json_out, lambda: json_text(explanation_data(found))),
        (svg_out, lambda: explanation_svg(found)),
    )
    show_and_write(explanation_tables(found), texts)
