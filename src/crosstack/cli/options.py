"""Functions as commands: what their options are called, and all help, is in ``options.yaml``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib.resources import files
from inspect import Parameter, signature
from typing import Annotated, Any, get_type_hints

import typer

from crosstack.io.yaml_tree import parse_yaml

Said = tuple[list[str], str | None, str]


@cache
def _sections() -> Any:
    return parse_yaml(files("crosstack.cli").joinpath("options.yaml").read_text("utf-8"))


@cache
def known_options(command: str) -> dict[str, Said]:
    """Return names (none of an argument), what it takes, and the help of each parameter."""
    found: dict[str, Said] = {}
    for commands, section in _sections().items():  # what is shared comes first
        if commands == "shared" or command in commands.split(", "):
            for parameter, (words, text) in section.items():
                names = [word for word in words.split() if word.startswith("-")]
                takes = " ".join(words.split()[len(names) :])
                found[parameter] = names, takes or None, text
    return found


def flags(command: str, parameters: Iterable[str]) -> dict[str, str]:
    """Return what options are called on the command line, by the parameters that they give."""
    known = known_options(command)
    return {name: known[name][0][-1] for name in parameters if known[name][0]}


def option(command: str, name: str, kind: Any, default: Any = Parameter.empty) -> Parameter:
    """Return an option or an argument of a command, as typer reads it of a function."""
    names, takes, text = known_options(command)[name]
    said: Any = typer.Option(*names, metavar=takes, help=text)
    if not names:
        said = typer.Argument(metavar=takes, help=text)
    if default is MISSING:
        default = Parameter.empty
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, said]
    )


def with_options(command: str, function: Callable[..., None]) -> Callable[..., None]:
    """Return a function as a command that typer takes.

    A parameter that is a record of options stands for all its fields.
    """
    hints: dict[str, Any] = get_type_hints(function)
    records: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    taken: list[Parameter] = []
    for name, parameter in signature(function).parameters.items():
        if name not in records:
            taken.append(option(command, name, hints[name], parameter.default))
            continue
        kinds = get_type_hints(records[name])
        taken += [option(command, f.name, kinds[f.name], f.default) for f in fields(records[name])]

    def run(**given: Any) -> None:
        for name, kind in records.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        function(**given)

    return as_command(command, run, taken, function.__doc__)


def named(*commands: Callable[..., None]) -> dict[str, Callable[..., None]]:
    """Return commands by what they are called on the command line."""
    return {command.__name__.strip("_").replace("_", "-"): command for command in commands}


def add_commands(app: typer.Typer, name: str, *commands: Callable[..., None]) -> None:
    """Add the commands of a group that is called ``name``."""
    for own, command in named(*commands).items():
        app.command(own)(with_options(f"{name} {own}", command))


def as_command(
    command: str, run: Callable[..., None], taken: list[Parameter], does: str | None
) -> Callable[..., None]:
    """Return a function that takes everything as a command that takes these parameters.

    Parameters
    ----------
    command : str
        What it is called; its help goes on with what the catalogue says of it.
    run : callable
        The function.
    taken : list of Parameter
        As `option` returns them.
    does : str or None
        Its help in a sentence.
    """
    made: Any = run
    made.__signature__ = signature(run).replace(parameters=taken)
    made.__annotations__ = {parameter.name: parameter.annotation for parameter in taken}
    made.__doc__ = "\n\n".join(filter(None, (does, _sections()["about"].get(command))))
    return run
