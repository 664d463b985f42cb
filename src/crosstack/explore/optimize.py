"""A file for ``crosstack optimize`` as choices to search: technologies times strategies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem, did_you_mean, unknown_name
from crosstack.evaluate.predict import Step, predict
from crosstack.explore.budget_space import AreaRange, BudgetSpace
from crosstack.explore.cooptimise import CoResult, co_optimise
from crosstack.explore.design import DesignProblem, Metric
from crosstack.explore.keys import stated
from crosstack.explore.methods import Descent, DescentForm, method_named
from crosstack.explore.progress import Tell
from crosstack.explore.recorded import EXCESS, Choice
from crosstack.explore.study import Bound, Goal
from crosstack.explore.trials import Space, trials_in
from crosstack.io import deepflow
from crosstack.io.chip_file import ChipDescription, read_chip
from crosstack.io.deepflow.steps import order_of, program_of, strategy_of, system_of, workload_of
from crosstack.io.files import in_file, read_text
from crosstack.io.native.problems import collecting
from crosstack.io.native.schema import FileModel
from crosstack.io.rules import rules_at
from crosstack.io.steps import step_named
from crosstack.io.study_file import optimize_file
from crosstack.io.technology import TechnologyLibrary
from crosstack.io.yaml_tree import Change, parse_yaml
from crosstack.machine.chip import Chip
from crosstack.machine.network import RING, SWITCH
from crosstack.machine.packages import system_of_packages
from crosstack.machine.system import System
from crosstack.mapping.strategy import (
    KernelSplit,
    MappingOrder,
    Strategy,
    parse_strategy,
    strategies,
)
from crosstack.model.rules import PREDICTED, Rules
from crosstack.units import parse_quantity
from crosstack.workload.job import most_stages
from crosstack.workload.published_steps import CHANGES, changed_step

__all__ = [
    "MOST_CHOICES",
    "Labels",
    "Optimization",
    "combinations",
    "read_optimization",
]

MOST_CHOICES = 20_000
Builder = Callable[[Chip], System]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    """What a file asks for; ``space``: what trials of it are known by."""

    choices: tuple[Choice, ...]
    workload: Step
    objective: Metric
    method: str
    descent: Descent | None
    evaluations: int
    searches: int
    seed: int
    space: Space

    def run(
        self,
        *,
        store: Path | None = None,
        resume: bool = False,
        progress: Tell | None = None,
    ) -> CoResult:
        """Search; with a ``store``, keep every evaluation there, and go on with it."""
        with trials_in(self.space, store, resume=resume) as trials:
            return co_optimise(
                self.choices,
                evaluations=self.evaluations,
                searches=self.searches,
                method=self.method,
                descent=self.descent,
                seed=self.seed,
                trials=trials,
                progress=progress,
            )


def read_optimization(
    path: Path, overrides: Sequence[str] = (), library: TechnologyLibrary | None = None
) -> Optimization:
    """Return what a file for ``crosstack optimize`` asks for.

    Raises
    ------
    InputError
        With every problem found.
    """
    file = optimize_file(read_text(path), str(path), overrides)
    chip_path = path.parent / file.chip
    chip_text = read_text(chip_path)
    workload, model_text = _workload(file, path)
    try:
        problems: list[Problem] = []
        with collecting(problems, ""):
            rules = rules_at(file.rules, PREDICTED, path.parent)
        descent = _descent(file, problems)
        with collecting(problems, ""):
            objective = _metric("objective", file.objective)
        limits = _limits(file, problems)
        with collecting(problems, ""):
            area = file.chip_area and AreaRange(low=file.chip_area.low, high=file.chip_area.high)
        if problems:
            raise InputError(problems)
        machines = _machines(file, chip_text, str(chip_path), library)
        choices = []
        for labels, hardware in machines:
            for run in _runs(file, hardware, workload, rules):
                held = set(file.hold)
                if not run.several:  # one chip sends nothing
                    held |= {n for n in ("intra", "inter") if n in hardware.template.components}
                problem = DesignProblem(
                    free=BudgetSpace(
                        template=hardware.template,
                        budget=hardware.budget,
                        chip_area=area or None,
                        held=tuple(sorted(held)),
                        spare=objective.spare,
                    ),
                    workload=workload,
                    strategy=run.strategy,
                    system=run.system,
                    rules=run.rules,
                    order=run.order,
                    objective=objective,
                    limits=limits,
                )
                named = (*labels, ("strategy", str(run.strategy)))
                choices.append(Choice(labels=named, problem=problem))
    except InputError as error:
        raise in_file(error, str(path)) from None
    return Optimization(
        choices=tuple(choices),
        workload=workload,
        objective=objective,
        method=file.search.method,
        descent=descent,
        evaluations=file.search.evaluations,
        searches=file.search.searches,
        seed=file.search.seed,
        space=_space(file, path, choices, (chip_text, model_text)),
    )


def _space(file: FileModel, path: Path, choices: Sequence[Choice], texts: tuple[str, ...]) -> Space:
    """Return what trials are known by: all of a file but how it is searched."""
    problem = choices[0].problem
    return Space(
        name=path.stem,
        kind="optimize",
        base=file.chip,
        labels=(*file.choices, "strategy"),
        shares=tuple(dict.fromkeys(n for c in choices for n in c.problem.free.space.names)),
        terms=(*((metric.value, metric.unit) for metric in Metric), (EXCESS, "1")),
        problem={
            "file": file.model_dump(
                mode="json", warnings=False, exclude={"search", "choices", "strategies"}
            ),
            "texts": list(texts),
            "rules": stated(problem.rules),
        },
        bounds=tuple(Bound(column=m, maximum=limit) for m, limit in problem.limits.items()),
        objectives=((problem.objective.value, Goal.MINIMUM),),
    )


def _descent(file: FileModel, problems: list[Problem]) -> Descent | None:
    """Return how the method goes down, where the file says so."""
    given, found = file.search.descent, None
    if given is not None:
        values = given.model_dump()
        forms = [form.value for form in DescentForm]
        with collecting(problems, "search.descent"):
            if given.form not in forms:
                raise unknown_name("form", "form is", given.form, forms)
            found = Descent(**values | {"form": DescentForm(given.form)})
    with collecting(problems, "search"):
        method_named(file.search.method, found)
    return found


def _metric(field: str, name: str) -> Metric:
    names = [metric.value for metric in Metric]
    if name in names:
        return Metric(name)
    hint = did_you_mean(name, names)
    message = f'got "{name[:60]}"; allowed: {", ".join(names)}.{hint}'
    raise InputError(Problem(field, message))


def _limits(file: FileModel, problems: list[Problem]) -> dict[Metric, float]:
    found = {}
    for name, value in file.limits.items():
        with collecting(problems, ""):
            metric = _metric(f"limits.{name}", name)
            with collecting(problems, f"limits.{name}"):
                limit = parse_quantity(value, metric.unit)
                if not limit > 0:
                    raise InputError(Problem("", f"got {value}; allowed: above 0 {metric.unit}."))
                found[metric] = limit
    return found


def _workload(file: FileModel, path: Path) -> tuple[Step, str]:
    """Return what is timed, and the text of its file if it has one."""
    name, text = file.model, ""
    changes = {field: getattr(file, field) for field in CHANGES}
    try:
        if name is None:
            chip_path = path.parent / file.chip
            text = read_text(chip_path)
            held = None
            if deepflow.looks_like(parse_yaml(text)):
                held = deepflow.read_hardware(text, str(chip_path)).model
            if held is None:
                raise InputError(Problem("model", "required: the name of a model, or a file."))
            step = workload_of(held)
        elif Path(name).suffix.lower() in (".yaml", ".yml"):
            model_path = path.parent / name
            text = read_text(model_path)
            step = workload_of(deepflow.read_model(text, str(model_path)))
        else:
            return step_named(name, changes), text
        return changed_step(step, changes), text
    except InputError as error:
        raise in_file(error, str(path)) from None


Hardware = ChipDescription | deepflow.DeepflowHardware


def _machines(
    file: FileModel, text: str, source: str, library: TechnologyLibrary | None
) -> list[tuple[Labels, Hardware]]:
    """Return every combination of the choices with the hardware that it makes."""
    tree = parse_yaml(text)
    content = tree if isinstance(tree, dict) else text
    if deepflow.looks_like(tree):
        return [
            (labels, deepflow.read_hardware(content, source, changes))
            for labels, changes in combinations(file.choices)
        ]
    return [
        (labels, read_chip(content, source, changes, library))
        for labels, changes in combinations(file.choices)
    ]


Labels = tuple[tuple[str, str], ...]


def combinations(choices: Mapping[str, list[Any]]) -> list[tuple[Labels, list[Change]]]:
    """Return every combination of what may be chosen: its name, and what it changes.

    Raises
    ------
    InputError
        If a field has nothing to choose from, a value is not a single one, or there are more
        than `MOST_CHOICES`.
    """
    empty = [name for name, values in choices.items() if not values]
    if empty:
        raise InputError(Problem(f"choices.{empty[0]}", "got an empty list; allowed: values."))
    count = math.prod(len(values) for values in choices.values())
    if count > MOST_CHOICES:
        message = f"{count:,} combinations; allowed: up to {MOST_CHOICES:,}."
        raise InputError(Problem("choices", message))
    rows = itertools.product(*([(name, v) for v in values] for name, values in choices.items()))
    return [(tuple((name, _text(v)) for name, v in row), list(row)) for row in rows]


def _text(value: Any) -> str:
    """Return a value as people write it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, dict | list):
        message = "got a mapping or a list; allowed: names, numbers, text with a unit."
        raise InputError(Problem("choices", message))
    return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A strategy to try, the machine it runs on, and the rules that count it."""

    strategy: Strategy
    system: Builder
    several: bool  # chips
    rules: Rules
    order: MappingOrder | None = None


def _runs(file: FileModel, hardware: Hardware, workload: Step, rules: Rules) -> list[_Run]:
    """Return the strategies to try, each with its machine."""
    asked: list[Strategy] | None = None
    if file.strategies is not None and file.strategies != ["all"]:
        asked = []
        problems: list[Problem] = []
        for i, name in enumerate(file.strategies):
            with collecting(problems, f"strategies[{i}]"):
                asked.append(parse_strategy(name))
        if problems:
            raise InputError(problems)
    if not isinstance(hardware, ChipDescription) and file.chips is None and asked is None:
        own = strategy_of(hardware)
        program = program_of(rules.step, hardware)
        as_in_file = _Run(
            strategy=own,
            system=partial(system_of, hardware),
            several=own.n_chips > 1,
            rules=replace(rules, step=program),
            order=None if program is rules.step else order_of(hardware),
        )
        return [as_in_file]
    inside, between = RING, SWITCH
    if isinstance(hardware, ChipDescription):
        per_package, packages = hardware.chips_per_package, hardware.n_packages
        inside, between = hardware.inside, hardware.between
    else:
        per_package, packages = hardware.system.num_devices_per_node, hardware.system.num_nodes
    n_chips = file.chips or (asked[0].n_chips if asked else per_package * packages)
    if n_chips % per_package:
        message = f"got {n_chips}; allowed: whole packages of {per_package} chips."
        raise InputError(Problem("chips", message))
    if asked is None:
        # Chips that split rows hold what data-parallel ones do, but for programs of releases.
        asked = [
            one
            for one in strategies(n_chips, max_lp=most_stages(workload))
            if rules.step is not predict or one.split is KernelSplit.CR or one.kp1 == 1
        ]
    wrong = [s for s in asked if s.n_chips != n_chips]
    if wrong:
        message = f"{wrong[0]} is for {wrong[0].n_chips} chips, and there are {n_chips}."
        raise InputError(Problem("strategies", message))
    if len(asked) > MOST_CHOICES:
        message = f"{len(asked):,} of them; allowed: up to {MOST_CHOICES:,}. Name some."
        raise InputError(Problem("strategies", message))
    builder = partial(
        system_of_packages,
        chips_per_package=per_package,
        n_packages=n_chips // per_package,
        inside=inside,
        between=between,
    )
    return [
        _Run(strategy=strategy, system=builder, several=n_chips > 1, rules=rules)
        for strategy in asked
    ]
