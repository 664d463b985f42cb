"""The command line: parses arguments, calls the public API, prints."""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
import typer.core
import typer.main

import crosstack
from crosstack.cli.calibrate import calibrate
from crosstack.cli.chip import chip_app
from crosstack.cli.explain import explain
from crosstack.cli.generate import generate_app
from crosstack.cli.map import convert, evaluate, map_
from crosstack.cli.options import named, with_options
from crosstack.cli.outputs import printable
from crosstack.cli.place import place
from crosstack.cli.predict import predict, trace
from crosstack.cli.published import figure, rules_, score, space, validate
from crosstack.cli.report import explore, report
from crosstack.cli.search import codesign, optimize
from crosstack.cli.serve import serve_sweep, speculate
from crosstack.cli.show import show_
from crosstack.cli.study import study_app
from crosstack.cli.sweep import sweep
from crosstack.errors import CrosstackError, InputError, nearest
from crosstack.interrupt import INTERRUPTED_EXIT, loaded

MOST_LETTERS = 2000  # of an error: a name in a file may be megabytes long
# What typer raises for bad arguments; it brings its own click in some versions.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

# The panels of `crosstack --help` and the order in them.
PANELS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "Map a workload onto a machine": {
        **named(map_, evaluate, show_),
        "generate": generate_app,
        **named(convert),
    },
    "Understand the answer": {**named(explain, space, rules_, report, explore)},
    "Serve": {**named(serve_sweep, speculate)},
    "Design chips and predict a training step": {"chip": chip_app, **named(predict, trace, place)},
    "Vary and search": {**named(sweep), "study": study_app, **named(optimize, codesign)},
    "Compare with what is published": {**named(validate, figure, score, calibrate)},
}


class Commands(typer.core.TyperGroup):
    """The commands, in the order of `PANELS`; typer lists groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names."""
        return [name for names in PANELS.values() for name in names]


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
for _panel, _commands_of in PANELS.items():
    for _name, _command in _commands_of.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(with_options(_name, _command))


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


@cache
def _commands() -> Callable[..., Any]:
    """Return the commands with all their options; reading those takes longer than most runs."""
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> int:
    """Run a command; return the exit code."""
    found = _commands()(arguments, prog_name="crosstack", standalone_mode=False)
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
