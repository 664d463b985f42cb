"""``crosstack explain``: what bounds a task, and what each resource of its machine is worth."""

from __future__ import annotations

from pathlib import Path

from crosstack.cli.inputs import (
    MachineOptions,
    SearchOptions,
    check_number,
    check_outputs,
    read_result,
    refuse,
    result_answer,
    rules_given,
)
from crosstack.cli.job_options import GivenOptions, JobOptions, asked_task, said_by
from crosstack.cli.outputs import asked_files, json_text, show_and_write
from crosstack.cli.sweep import searching


def explain(
    *,
    file: Path,
    job: JobOptions,
    given: GivenOptions,
    rules: str | None = None,
    step: float = 0.1,
    search: SearchOptions,
    set_: list[str] | None = None,
    machine: MachineOptions,
    json_out: Path | None = None,
    svg_out: Path | None = None,
) -> None:
    """Say what bounds a mapping, and what a little more of each resource would bring."""
    from crosstack.explore.explain import explain as run
    from crosstack.model.rules import MAPPED, chosen_rules
    from crosstack.report.explain_text import (
        explanation_data,
        explanation_svg,
        explanation_tables,
    )

    check_number("--step", step, 0 < step < 1, "above 0, below 1, such as 0.1 for 10 %")
    limits = search.checked()
    check_outputs(file, {"--json": json_out, "--svg": svg_out})
    if file.suffix.lower() == ".json":
        message = "allowed with a task; a saved result is as it is."
        refuse({"--set": set_, "--on": machine.given or None}, message)
        job.refuse()
        given.refuse()
        answer = result_answer(file, read_result(file), None, rules)
        task, chosen = answer.task, answer.rules
    else:
        answer = None
        counted = rules_given(rules)
        task = asked_task(file, set_, machine, job, given)
        chosen = chosen_rules(counted, MAPPED, otherwise=task.rules)
    with searching(None) as update, said_by(file):
        found = run(task, answer=answer, rules=chosen, step=step, progress=update, **limits)
    texts = asked_files(
        (json_out, lambda: json_text(explanation_data(found))),
        (svg_out, lambda: explanation_svg(found)),
    )
    show_and_write(explanation_tables(found), texts)
