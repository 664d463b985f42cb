"""``crosstack explain``: what bounds a task, and what each resource of its machine is worth."""

from __future__ import annotations

from pathlib import Path

from crosstack.cli import inputs, saved
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
    search: inputs.SearchOptions,
    set_: list[str] | None = None,
    machine: inputs.MachineOptions,
    json_out: Path | None = None,
    svg_out: Path | None = None,
) -> None:
    """Say what bounds a mapping, and what a little more of each resource would bring."""
    from crosstack.explore.explain import explain as run
    from crosstack.explore.team import usual_jobs
    from crosstack.model.rules import MAPPED, chosen_rules
    from crosstack.report import explain_text

    inputs.check_number("--step", step, 0 < step < 1, "above 0, below 1, such as 0.1 for 10 %")
    limits = search.checked(usual_jobs())
    inputs.check_outputs(file, {"--json": json_out, "--svg": svg_out})
    if file.suffix.lower() == ".json":
        message = "allowed with a task; a saved result is as it is."
        inputs.refuse({"--set": set_, "--on": machine.given or None}, message)
        job.refuse()
        given.refuse()
        answer = saved.result_answer(file, saved.read_result(file), None, rules)
        task, chosen = answer.task, answer.rules
    else:
        answer = None
        counted = inputs.rules_given(rules)
        task = asked_task(file, set_, machine, job, given)
        chosen = chosen_rules(counted, MAPPED, otherwise=task.rules)
    with searching(None) as update, said_by(file):
        found = run(task, answer=answer, rules=chosen, step=step, progress=update, **limits)
    texts = asked_files(
        (json_out, lambda: json_text(explain_text.explanation_data(found))),
        (svg_out, lambda: explain_text.explanation_svg(found)),
    )
    show_and_write(explain_text.explanation_tables(found), texts)
