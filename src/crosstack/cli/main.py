"""The command line: parses arguments, calls the public API, prints."""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer
import typer.core

import crosstack
from crosstack.cli.chip import Library, chip_app, library_given
from crosstack.cli.codesign import codesign
from crosstack.cli.explain import explain
from crosstack.cli.figure import figure, space
from crosstack.cli.generate import generate_app
from crosstack.cli.inputs import (
    Chips,
    Fabric,
    On,
    Saved,
    WorkLimit,
    check_jobs,
    check_number,
    check_outputs,
    check_work,
    in_file,
    loaded_task,
    options_named,
    read_result,
    result_answer,
    result_rules,
    rules_given,
    saved_kind,
)
from crosstack.cli.optimize import optimize
from crosstack.cli.outputs import (
    DFMODEL_SUFFIXES,
    YAML_SUFFIXES,
    Searching,
    check_suffix,
    converted_text,
    printable,
    save,
    show,
    show_answer,
    write,
)
from crosstack.cli.place import place
from crosstack.cli.predict import predict, trace
from crosstack.cli.report import explore, report
from crosstack.cli.serve_sweep import serve_sweep
from crosstack.cli.speculate import speculate
from crosstack.cli.study import study_app
from crosstack.cli.sweep import sweep
from crosstack.cli.validate import validate
from crosstack.errors import CrosstackError, InputError, Problem, nearest
from crosstack.interrupt import INTERRUPTED_EXIT, loaded
from crosstack.model.objective import Objective

if TYPE_CHECKING:
    from crosstack.mapping.mapping import Task

__all__ = ["app", "main"]

LIMIT_EXIT = 4
MOST_LETTERS = 2000  # of an error: a name in a file may be megabytes long
# What typer raises for bad arguments; it brings its own click in some versions.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

# The panels of `crosstack --help` and the order in them.
PANELS = {
    "Map a workload onto a machine": ("map", "evaluate", "show", "generate", "convert"),
    "Understand the answer": ("explain", "space", "rules", "report", "explore"),
    "Serve": ("serve-sweep", "speculate"),
    "Design chips and predict a training step": ("chip", "predict", "trace", "place"),
    "Vary and search": ("sweep", "study", "optimize", "codesign"),
    "Compare with what is published": ("validate", "figure"),
}


class Commands(typer.core.TyperGroup):
    """The commands, in the order of `PANELS`; typer lists groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, those in no panel last."""
        known = super().list_commands(ctx)
        order = [name for names in PANELS.values() for name in names]
        return sorted(known, key=lambda name: order.index(name) if name in order else len(order))


app = typer.Typer(
    name="crosstack",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    help="Map an AI or HPC workload onto a machine, and prove how good the mapping is.\n\n"
    "Exit codes: 0 done, 2 bad input, 3 no answer (infeasible, or none found before a limit), "
    "4 stopped at a limit with an answer, 1 a bug.",
    epilog="Start with: `crosstack map examples/gpt3_1t_sn30.yaml`",
)
app.add_typer(generate_app, name="generate")
app.add_typer(chip_app, name="chip")
app.add_typer(study_app, name="study")
app.command("speculate")(speculate)
app.command("sweep")(sweep)
app.command("serve-sweep")(serve_sweep)
app.command("place")(place)
app.command("predict")(predict)
app.command("trace")(trace)
app.command("optimize")(optimize)
app.command("codesign")(codesign)
app.command("explain")(explain)
app.command("report")(report)
app.command("explore")(explore)
app.command("figure")(figure)
app.command("space")(space)
app.command("validate")(validate)

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
JsonOut = Annotated[
    Path | None, typer.Option("--json", metavar="OUT", help="Save the result as JSON.")
]
HtmlOut = Annotated[
    Path | None, typer.Option("--html", metavar="OUT", help="Save a page with figures and tables.")
]
SvgOut = Annotated[
    Path | None,
    typer.Option("--svg", metavar="OUT", help="Save a picture: graph, partitions, machine."),
]
Kernels = Annotated[bool, typer.Option("--kernels", help="Print the table of kernels too.")]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"crosstack {crosstack.__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error; after a command, too."),
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Read the options before the command; `main` has taken ``--debug`` out."""


@app.command("map")
def map_(
    file: File,
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
    gap: Annotated[
        float, typer.Option("--gap", metavar="G", help="Stop at this relative gap (0: prove).")
    ] = 0.0,
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
) -> None:
    """Find the best mapping, prove it, and print what bounds it.

    Examples: `crosstack map examples/gpt3_1t_sn30.yaml --html map.html`,
    `crosstack map examples/llama3_8b_sn40l.yaml --on h100-dgx --chips 64` and
    `crosstack map setup.txt --rules dfmodel-readme --set system.r_r.link_bw_x=450`
    """
    limit = float("inf") if time_limit is None else time_limit
    check_number("--time-limit", limit, limit > 0, "a number of seconds above 0")
    check_work(work_limit)
    check_number("--gap", gap, 0 <= gap < 1, "0 to below 1, such as 0.01 for one percent")
    check_jobs(jobs)
    check_outputs(file, {"--json": json_out, "--html": html_out, "--svg": svg_out})
    chosen = rules_given(rules)
    task = loaded_task(file, set_, on, chips, fabric)
    first = None
    if start is not None:
        from crosstack.evaluate.saved import mapping_from_dict

        with in_file(start):
            first = mapping_from_dict(read_result(start), task)
    with Searching() as update, in_file(file):
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
    finally:  # the reader of the tables may be gone; the result is not lost with him
        save(answer, json_out, html_out, svg_out)
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

    Example: `crosstack evaluate examples/gpt3_1t_sn30.yaml --mapping map.json`
    """
    check_outputs(file, {"--json": json_out, "--html": html_out, "--svg": svg_out})
    answer = _given_answer(loaded_task(file, set_, on, chips, fabric), mapping, rules)
    try:
        show_answer(answer, kernels=kernels)
    finally:
        save(answer, json_out, html_out, svg_out)


@app.command("show")
def show_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|RESULT|library|technology",
            help="Native YAML, DFModel text, or what a command saved with --json.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="With `technology`: which one; all if left out. With `library`: chips, nodes, "
            "networks, memories, technology, or one of them.",
        ),
    ] = None,
    set_: Set = None,
    on: On = None,
    chips: Chips = None,
    fabric: Fabric = None,
    svg_out: SvgOut = None,
    library: Library = None,
    parallel: Annotated[
        str | None,
        typer.Option(
            "--parallel",
            metavar="STRATEGY",
            help="Show the graph as a strategy such as RC-2-2-d2-p2 transforms it, step by step.",
        ),
    ] = None,
) -> None:
    """Describe the workload and the machine of a file, or a saved result, in words.

    `crosstack show technology` lists technologies, `crosstack show technology hbm3` shows the
    numbers of one with their sources, and what follows from them. `crosstack show library` lists
    machines, `crosstack show library chips` one kind of them, `crosstack show library h100-sxm`
    shows every number of one with its source.

    Example: `crosstack show examples/my_graph.yaml --parallel RC-2-2-d2-p2 --svg graph.svg`
    """
    if str(file) == "library":
        _show_library(name, library, {"--set": set_, "--svg": svg_out, "--parallel": parallel})
        return
    if str(file) == "technology":
        _show_technology(name, library, {"--set": set_, "--svg": svg_out, "--parallel": parallel})
        return
    if name is not None:
        raise InputError(
            Problem("NAME", f'got "{name}"; allowed: a name after library or technology.')
        )
    if library is not None:
        raise InputError(Problem("--library", "allowed: with technology alone."))
    if file.suffix.lower() == ".json":
        _show_result(file, {"--set": set_, "--svg": svg_out, "--parallel": parallel})
        return
    from crosstack.report.svg import task_svg
    from crosstack.report.text import task_text

    check_outputs(file, {"--svg": svg_out})
    task = loaded_task(file, set_, on, chips, fabric)
    if parallel is not None:
        _show_transformed(task, parallel, svg_out)
        return
    show(task_text(task))
    if svg_out is not None:
        write((svg_out, task_svg(task)))


def _show_result(file: Path, of_tasks: dict[str, object]) -> None:
    """Print what was saved again."""
    for option, given in of_tasks.items():
        if given:
            raise InputError(Problem(option, "allowed: with a workload and a machine alone."))
    kind, data = saved_kind(file, read_result(file))
    match kind:
        case Saved.MAPPING:
            show_answer(result_answer(file, data, None, None), kernels=False)
        case Saved.FRONT:
            from crosstack.report.front_text import front_tables

            show(front_tables(data))
        case Saved.OPTIMUM:
            from crosstack.report.optimize_text import optimum_tables

            show(optimum_tables(data))
        case Saved.PREDICTION:
            from crosstack.report.kernel_text import kernel_tables
            from crosstack.report.prediction_text import prediction_tables

            kernel = data.get("kernel")
            alone = kernel is not None and data["n_chips"] == 1
            show(prediction_tables(data, parts=not alone))
            if kernel is not None:
                show(kernel_tables(kernel))
        case _:
            assert_never(kind)


def _show_transformed(task: Task, parallel: str, svg_out: Path | None) -> None:
    """Print and draw a graph after every step of its transformation."""
    from crosstack.mapping.strategy import parse_strategy
    from crosstack.mapping.transform import transform
    from crosstack.report.transform_figure import transform_svg, transform_table

    with options_named({"strategy": "--parallel"}):
        strategy = parse_strategy(parallel)
        steps = transform(task.workload.graph, strategy)
    title = f"{task.workload.name} under {strategy}"
    show(transform_table(steps, title))
    if svg_out is not None:
        write((svg_out, transform_svg(steps, title)))


def _show_library(name: str | None, library: Path | None, of_files: dict[str, object]) -> None:
    """Print the machines of the library, those of one kind, or one with its sources."""
    from crosstack.report.library_text import LISTS, library_list, library_tables

    if name == "technology":
        _show_technology(None, library, of_files)
        return
    for option, given in (of_files | {"--library": library}).items():
        if given:
            raise InputError(Problem(option, "allowed: with a file alone."))
    listed = name is None or name in LISTS
    show(library_list(name) if listed else library_tables(str(name)))


def _show_technology(name: str | None, library: Path | None, of_files: dict[str, object]) -> None:
    """Print one technology, or the names of all."""
    from crosstack.report.technology_text import technology_list, technology_tables

    for option, given in of_files.items():
        if given:
            raise InputError(Problem(option, "allowed: with a file alone."))
    known = library_given(library)
    show(technology_list(known) if name is None else technology_tables(known, name))


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


@app.command("rules")
def rules_(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Native YAML or DFModel text.")
    ] = None,
    base: Annotated[
        str, typer.Option("--base", metavar="NAME|FILE", help="The rules to start from.")
    ] = "dfmodel-readme",
    rules: Rules = None,
    set_: Set = None,
) -> None:
    """Show what each rule set counts, or what changing from one to another does to a case.

    `crosstack rules` compares the fields of all sets; `crosstack rules FILE` puts each field of
    --rules (default: crosstack) into --base, optimises again, and prints a Markdown table.
    """
    from crosstack.published.dfmodel.corrections import (
        corrections,
        corrections_markdown,
        fields_markdown,
    )

    if file is None:
        typer.echo(fields_markdown(), nl=False)
        return
    task = crosstack.load(file, set_ or ())
    with Searching() as step:
        rows = corrections(
            task, rules_given(base) or base, rules_given(rules) or "crosstack", progress=step
        )
    typer.echo(corrections_markdown(rows), nl=False)


_PANEL_OF = {name: panel for panel, names in PANELS.items() for name in names}
for _command in app.registered_commands:
    _called = str(_command.name or getattr(_command.callback, "__name__", ""))
    _command.rich_help_panel = _PANEL_OF.get(_called)
for _group in app.registered_groups:
    _group.rich_help_panel = _PANEL_OF.get(_group.name or "")


# ---------------------------------------------------------------- pieces


def _given_answer(task: crosstack.Task, result: Path, rules: str | None) -> crosstack.Answer:
    """Return the answer of a saved mapping, its problems under the name of the result."""
    from crosstack.evaluate.answer import given_answer, mapping_from_dict

    data = read_result(result)
    chosen = result_rules(rules, result, data, task)
    with in_file(result):
        return given_answer(task, mapping_from_dict(data, task), rules=chosen)


def _report(error: CrosstackError) -> None:
    """Print an error, one line for each problem."""
    for line in error.lines() if isinstance(error, InputError) else (str(error),):
        typer.echo(f"crosstack: {_shortened(printable(line))}", err=True)


def _shortened(line: str) -> str:
    half = MOST_LETTERS // 2
    return line if len(line) <= MOST_LETTERS else f"{line[:half]} ... {line[-half:]}"


def _usage(error: Exception) -> None:
    """Print what is wrong with the arguments, on one line."""
    context = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    message = message.replace("Value error, ", "")
    if choice := re.search(r"'([^']*)' is not one of (.*)", message):
        close = nearest(choice[1], re.findall(r"'(.*?)'", choice[2]), 1)
        message += f' Did you mean "{close[0]}"?' if close else ""
    if message:  # no arguments at all: typer has printed the help already
        command = context.command_path if context is not None else "crosstack"
        stop = "" if message.endswith((".", "?")) else "."
        typer.echo(f"crosstack: {printable(message)}{stop} See: {command} --help", err=True)


def _run(arguments: list[str]) -> int:
    """Run a command; return the exit code."""
    found = app(arguments, prog_name="crosstack", standalone_mode=False)
    sys.stdout.flush()
    if found == INTERRUPTED_EXIT:  # typer has caught it
        raise KeyboardInterrupt
    return found if isinstance(found, int) else 0


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exits the process with the documented codes."""
    loaded()
    given = sys.argv[1:] if arguments is None else list(arguments)
    debug = "--debug" in given
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter is no bug
    try:
        sys.exit(_run([argument for argument in given if argument != "--debug"]))
    except CrosstackError as error:
        if debug:
            traceback.print_exc()
        _report(error)
        sys.exit(error.exit_code)
    except UsageError as error:
        _usage(error)
        sys.exit(2)
    except (BrokenPipeError, SystemExit) as stop:
        # The reader went away (`crosstack ... | head`): nobody is left to tell. Typer turns that
        # into an exit of its own.
        if isinstance(stop, SystemExit) and not isinstance(stop.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("crosstack: interrupted", err=True)
        sys.exit(INTERRUPTED_EXIT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        said = printable(f"{type(error).__name__}: {error}")
        again = "" if debug else " Run again with --debug."
        typer.echo(f"crosstack: a bug: {said}.{again}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
