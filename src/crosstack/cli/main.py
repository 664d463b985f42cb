"""The command line: parses arguments, calls the public API, prints."""

from __future__ import annotations

import json
import math
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import crosstack
from crosstack.errors import CrosstackError, InputError, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from crosstack.mapping.search import Progress
    from crosstack.model.rules import ModelRules

__all__ = ["app", "main"]

LIMIT_EXIT = 4

app = typer.Typer(
    name="crosstack",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    help="Map an AI or HPC workload onto a machine, and prove how good the mapping is.\n\n"
    "Exit codes: 0 done, 2 bad input, 3 infeasible, 4 stopped at a limit with an answer, 1 a bug.",
    epilog="Start with: `crosstack map examples/gpt3_1t_sn30.yaml`",
)
generate_app = typer.Typer(no_args_is_help=True, help="Write a ready-made workload to a file.")
app.add_typer(generate_app, name="generate")

File = Annotated[Path, typer.Argument(metavar="FILE", help="Native YAML or DFModel text.")]
Rules = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="NAME|FILE",
        help="What is counted: crosstack (default), dfmodel-readme, dfmodel-e2, dfmodel-e3b, "
        "dfmodel-e4, dfmodel-e5, or a YAML file of rules.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a field before the file is checked, e.g. "
        "`system.network[0].bandwidth=450GB/s`. May be repeated.",
    ),
]
JsonOut = Annotated[Path | None, typer.Option("--json", metavar="OUT", help="Save the result.")]
HtmlOut = Annotated[Path | None, typer.Option("--html", metavar="OUT", help="Save a page.")]
SvgOut = Annotated[Path | None, typer.Option("--svg", metavar="OUT", help="Save a picture.")]


class Style(StrEnum):
    """How `validate` prints."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "md"


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Read the options before the command."""
    context.obj = {"debug": debug}
    if version:
        typer.echo(f"crosstack {crosstack.__version__}")
        raise typer.Exit


@app.command("map")
def map_(
    file: File,
    rules: Rules = None,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="S", help="Stop after S seconds.")
    ] = None,
    gap: Annotated[
        float, typer.Option("--gap", metavar="G", help="Stop at this relative gap (0: prove).")
    ] = 0.0,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", help="Processes that search together.")
    ] = 1,
    set_: Set = None,
    json_out: JsonOut = None,
    html_out: HtmlOut = None,
    svg_out: SvgOut = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Print the table of kernels too.")
    ] = False,
) -> None:
    """Find the fastest mapping, prove it, and print what bounds it.

    Examples: `crosstack map examples/gpt3_1t_sn30.yaml --html map.html` and
    `crosstack map setup.txt --rules dfmodel-readme --set system.r_r.link_bw_x=450`
    """
    limit = _positive("--time-limit", time_limit, math.inf)
    if not 0 <= gap < 1:
        raise InputError(Problem("--gap", f"got {gap}; allowed: 0 to below 1."))
    if jobs < 1:
        raise InputError(Problem("--jobs", f"got {jobs}; allowed: 1 or more."))
    _check_outputs(json_out, html_out, svg_out)
    task = crosstack.load(file, set_ or ())
    with _progress() as show:
        answer = crosstack.optimise(
            task, rules=_rules(rules), time_limit=limit, gap=gap, jobs=jobs, progress=show
        )
    _print_answer(answer, kernels)
    _save(answer, json_out, html_out, svg_out)
    if answer.certificate.status is crosstack.Status.LIMIT:
        raise typer.Exit(LIMIT_EXIT)


@app.command()
def evaluate(
    file: File,
    mapping: Annotated[
        Path, typer.Option("--mapping", metavar="RESULT", help="A result saved with --json.")
    ],
    rules: Rules = None,
    set_: Set = None,
    json_out: JsonOut = None,
    html_out: HtmlOut = None,
    svg_out: SvgOut = None,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="Print the table of kernels too.")
    ] = False,
) -> None:
    """Price a mapping that was saved before, perhaps under other rules or on another machine."""
    from crosstack.evaluate.answer import given_answer, mapping_from_dict

    _check_outputs(json_out, html_out, svg_out)
    task = crosstack.load(file, set_ or ())
    data = _read_json(mapping)
    try:
        chosen = mapping_from_dict(data, task)
        saved = data.get("rules") if rules is None and task.rules is None else None
        answer = given_answer(task, chosen, rules=_rules(rules or saved))
    except InputError as error:
        raise InputError(Problem(f"{mapping}: {p.path}", p.message) for p in error.problems) from (
            error
        )
    _print_answer(answer, kernels)
    _save(answer, json_out, html_out, svg_out)


@app.command()
def show(
    file: File,
    set_: Set = None,
    svg_out: SvgOut = None,
) -> None:
    """Describe the workload and the machine of a file, in words and as a picture."""
    from crosstack.io.files import write_atomically
    from crosstack.report.svg import task_svg
    from crosstack.report.text import task_text

    _check_outputs(svg_out)
    task = crosstack.load(file, set_ or ())
    _console().print(task_text(task))
    if svg_out is not None:
        write_atomically(svg_out, task_svg(task))
        typer.echo(f"wrote {svg_out}")


@app.command()
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
    """Convert between native YAML and DFModel text."""
    task = crosstack.load(source, set_ or ())
    if result is None:
        crosstack.save(task, target)
    else:
        from crosstack.evaluate.answer import given_answer, mapping_from_dict
        from crosstack.io.dfmodel import write_answer
        from crosstack.io.files import write_atomically

        if target.suffix.lower() in {".yaml", ".yml"}:
            raise InputError(Problem("--result", "only DFModel text (.txt) can hold a mapping."))
        data = _read_json(result)
        chosen = mapping_from_dict(data, task)
        answer = given_answer(task, chosen, rules=_rules(task.rules or data.get("rules")))
        write_atomically(target, write_answer(answer))
    typer.echo(f"wrote {target}")


@generate_app.command("llm")
def generate_llm(
    hidden: Annotated[int, typer.Option(help="Model width.")],
    heads: Annotated[int, typer.Option(help="Attention heads; heads x head size = hidden.")],
    sequence: Annotated[int, typer.Option(help="Tokens of a sequence.")],
    layers: Annotated[int, typer.Option(help="Layers of the model.")] = 1,
    batch: Annotated[int, typer.Option(help="Sequences of one iteration.")] = 1,
    head_size: Annotated[
        int | None, typer.Option(help="Width of a head; hidden / heads if left out.")
    ] = None,
    layers_in_graph: Annotated[int, typer.Option(help="Layers the graph spells out.")] = 1,
    word: Annotated[int, typer.Option(help="Bytes of an element.")] = 2,
    forward: Annotated[bool, typer.Option("--forward", help="Forward pass only.")] = False,
    system: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Take the machine and constraints from this file."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write here.")
    ] = None,
) -> None:
    """Write a transformer, kernel by kernel, as native YAML or (by suffix .txt) DFModel text."""
    from crosstack.io.native import write_task, write_workload

    if head_size is None:
        if heads < 1 or hidden % heads:
            raise InputError(
                Problem("--heads", f"got {heads}; allowed: a divisor of --hidden {hidden}.")
            )
        head_size = hidden // heads
    workload = crosstack.llm(
        hidden=hidden,
        sequence_length=sequence,
        n_heads=heads,
        head_size=head_size,
        n_layers=layers,
        global_batch_size=batch,
        training=not forward,
        word=word,
        layers_in_graph=layers_in_graph,
    )
    if system is None:
        text = write_workload(workload)
        if output is not None and output.suffix.lower() not in {".yaml", ".yml"}:
            raise InputError(
                Problem("--output", "DFModel text needs a machine: add --system FILE.")
            )
    else:
        machine = crosstack.load(system)
        task = crosstack.Task(
            workload=workload,
            system=machine.system,
            constraints=machine.constraints,
            rules=machine.rules,
        )
        if output is not None:
            crosstack.save(task, output)
            typer.echo(f"wrote {output}")
            return
        text = write_task(task)
    if output is None:
        typer.echo(text, nl=False)
    else:
        from crosstack.io.files import write_atomically

        write_atomically(output, text)
        typer.echo(f"wrote {output}")


@app.command()
def validate(
    suite: Annotated[
        str | None, typer.Option("--suite", metavar="NAME", help="Only this suite.")
    ] = None,
    style: Annotated[Style, typer.Option("--format", help="How to print.")] = Style.TABLE,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write here too.")
    ] = None,
) -> None:
    """Run the published cases and print both numbers side by side.

    Exit code 0 only if every row is inside its tolerance.
    """
    from crosstack.io.files import write_atomically
    from crosstack.validation import report_rows, run_suite

    rows = run_suite(suite)
    text = report_rows(rows, style.value)
    typer.echo(text, nl=False)
    if output is not None:
        write_atomically(output, text)
    if not all(row.holds for row in rows):
        raise typer.Exit(1)


# ---------------------------------------------------------------- pieces


def _positive(name: str, value: float | None, otherwise: float) -> float:
    if value is None:
        return otherwise
    if not value > 0:
        raise InputError(Problem(name, f"got {value}; allowed: a number above 0."))
    return value


def _rules(name: str | None) -> ModelRules | str | None:
    if name is None:
        return None
    from crosstack.model.rules import RULES

    if name not in RULES and (os.sep in name or name.endswith((".yaml", ".yml"))):
        from crosstack.io.rules import read_rules

        return read_rules(name)
    return name


def _check_outputs(*paths: Path | None) -> None:
    """Refuse outputs that cannot be written before hours are spent on them."""
    problems = [
        Problem(str(path), "cannot be written: its directory does not exist.")
        for path in paths
        if path is not None and not path.resolve().parent.is_dir()
    ]
    problems += [
        Problem(str(path), "cannot be written: it is a directory.")
        for path in paths
        if path is not None and path.is_dir()
    ]
    if problems:
        raise InputError(problems)


def _read_json(path: Path) -> dict[str, Any]:
    from crosstack.io.files import read_text

    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(
            Problem(f"{path}: line {error.lineno}", f"not JSON: {error.msg}.")
        ) from error
    except RecursionError as error:
        raise InputError(Problem(str(path), "not a result: nested too deep.")) from error
    if not isinstance(data, dict):
        raise InputError(Problem(str(path), "not a result: a JSON object is expected."))
    return data


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 100, highlight=False)


class _progress:  # noqa: N801 - used as a function
    """Show a line of progress on a terminal while a search runs."""

    def __enter__(self) -> Callable[[Progress], None] | None:
        self.status: Any = None
        if not sys.stderr.isatty():
            return None
        from rich.console import Console

        self.status = Console(stderr=True).status("searching")
        self.status.start()
        return self.update

    def update(self, progress: Progress) -> None:
        """Say how far the search is."""
        best = f"{progress.objective:.6g} s" if math.isfinite(progress.objective) else "none yet"
        self.status.update(
            f"best {best}, no mapping below {progress.bound:.6g} s; "
            f"{progress.boxes_done} boxes done, {progress.boxes_waiting} waiting"
        )

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()


def _print_answer(answer: crosstack.Answer, kernels: bool) -> None:
    from crosstack.report.text import answer_tables, kernel_table

    console = _console()
    console.print(answer_tables(answer))
    if kernels:
        console.print(kernel_table(answer))


def _save(
    answer: crosstack.Answer,
    json_out: Path | None,
    html_out: Path | None,
    svg_out: Path | None,
) -> None:
    from crosstack.io.files import write_atomically

    if json_out is not None:
        write_atomically(json_out, answer.to_json())
        typer.echo(f"wrote {json_out}")
    if html_out is not None:
        from crosstack.report.html import answer_html

        write_atomically(html_out, answer_html(answer))
        typer.echo(f"wrote {html_out}")
    if svg_out is not None:
        from crosstack.report.svg import answer_svg

        write_atomically(svg_out, answer_svg(answer))
        typer.echo(f"wrote {svg_out}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exits the process with the documented codes."""
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    try:
        app(given)
    except CrosstackError as error:
        if debug:
            raise
        typer.echo("\n".join(f"crosstack: {line}" for line in str(error).splitlines()), err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader went away (`crosstack ... | head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        typer.echo("crosstack: interrupted", err=True)
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        typer.echo(
            f"crosstack: a bug: {type(error).__name__}: {error}. Run again with --debug.", err=True
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
