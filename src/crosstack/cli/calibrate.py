"""``crosstack calibrate``: a machine as it was measured."""

from __future__ import annotations

from pathlib import Path

from crosstack.cli import inputs
from crosstack.cli.outputs import EVERY, asked_files, json_text, show_and_write, watching


def calibrate(
    table: Path,
    on: str,
    most: int | None = None,
    output: Path | None = None,
    json_out: Path | None = None,
) -> None:
    """Fit a few physical factors of a machine to what was measured on it."""
    from crosstack.io.calibration import calibrate as fitted
    from crosstack.io.calibration import machine_text
    from crosstack.published.case import silent
    from crosstack.report.calibration_text import fit_data, fit_shown

    inputs.check_outputs(table, {"--output": output, "--json": json_out})
    if most is not None:
        inputs.check_number("--most", most, most >= 1, "a whole number, at least 1")
    with (
        watching(lambda part: f"predicting {part}", every=EVERY) as step,
        inputs.options_named({"on": "--on"}),
    ):
        found = fitted(table, on, most=most, tell=step or silent)
    texts = asked_files(
        (output, lambda: machine_text(found)),
        (json_out, lambda: json_text(fit_data(found.fit, found.left_out))),
    )
    show_and_write(fit_shown(found.fit, found.left_out), texts)
