"""A file for ``crosstack codesign`` as machines to choose from and a workload to map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem, require
from crosstack.explore.budget_space import AreaRange, BudgetSpace
from crosstack.explore.codesign import TERMS, CodesignProblem, Front, search_front
from crosstack.explore.keys import stated
from crosstack.explore.machines import MachineChoice, UnitPrices
from crosstack.explore.optimize import Labels, combinations
from crosstack.explore.pool import Executor, executor_for
from crosstack.explore.progress import Tell
from crosstack.explore.study import Bound, Goal
from crosstack.explore.trials import Space, trials_in
from crosstack.io import deepflow
from crosstack.io.chip_file import ChipDescription, read_chip
from crosstack.io.files import in_file, read_text
from crosstack.io.native.problems import collecting
from crosstack.io.native.schema import FileModel
from crosstack.io.rules import rules_at
from crosstack.io.study_file import codesign_file
from crosstack.io.technology import TechnologyLibrary
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.generate.generation import Generation
from crosstack.model.rules import MAPPED, Rules
from crosstack.records import require_type
from crosstack.technology.wafers import Wafer

__all__ = ["Codesign", "codesign", "read_codesign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codesign:
    """What a file asks for; ``space``: what trials of it are known by."""

    problem: CodesignProblem
    evaluations: int
    seed: int
    space: Space

    def run(
        self,
        *,
        executor: Executor | None = None,
        store: Path | None = None,
        resume: bool = False,
        progress: Tell | None = None,
    ) -> Front:
        """Search; with a ``store``, keep every mapping there, and go on with it."""
        with trials_in(self.space, store, resume=resume) as trials:
            return search_front(
                self.problem,
                evaluations=self.evaluations,
                seed=self.seed,
                executor=executor,
                trials=trials,
                progress=progress,
            )


def codesign(
    path: str | Path,
    overrides: Sequence[str] = (),
    *,
    library: TechnologyLibrary | None = None,
    jobs: int | None = 1,
    store: str | Path | None = None,
    resume: bool = False,
    timeout: float | None = None,
    dask: Any = None,
    progress: Tell | None = None,
) -> Front:
    """Generate chips, map a workload on machines of them, and keep what nothing else beats.

    Parameters
    ----------
    path : str or Path
        Workload, chip, choices and prices, as YAML.
    overrides : sequence of str
        ``path=value`` changes applied before the file is checked.
    library : TechnologyLibrary, optional
        Of technologies, in place of crosstack's own.
    jobs : int or None
        Processes that map; the answer is the same. [1]
    store : str or Path, optional
        Directory of the mappings; none are kept if it is left out.
    resume : bool
        Go on with a store that has mappings already.
    timeout : float, optional
        Seconds after which a mapping is given up. [s]
    dask : distributed.Client or str, optional
        A Dask cluster, or the address of its scheduler, to run on instead; then no ``jobs``.
    progress : callable, optional
        Told where the search stands.

    Raises
    ------
    InputError
        With every problem found.
    InfeasibleError
        If no candidate is a machine that the workload fits on.
    """
    require_type("path", path, str | Path)
    require_type("store", store, str | Path | None)
    executor = executor_for(jobs if dask is None else None, timeout, dask)
    asked = read_codesign(Path(path), overrides, library)
    place = None if store is None else Path(store)
    return asked.run(executor=executor, store=place, resume=resume, progress=progress)


def read_codesign(
    path: Path, overrides: Sequence[str] = (), library: TechnologyLibrary | None = None
) -> Codesign:
    """Return what a file for ``crosstack codesign`` asks for.

    Raises
    ------
    InputError
        With every problem found.
    """
    file, workload = codesign_file(read_text(path), path, overrides)
    chip_path = path.parent / file.chip
    chip_text = read_text(chip_path)
    other = "" if isinstance(file.workload, dict) else read_text(path.parent / file.workload)
    try:
        tree = parse_yaml(chip_text)
        content = tree if isinstance(tree, dict) else chip_text
        rules, chip_rules, area = _decided(file, path.parent, of_deepflow=deepflow.looks_like(tree))
        chips = (
            (labels, read_chip(content, str(chip_path), changes, library))
            for labels, changes in combinations(file.choices)
        )
        choices = tuple(_choice(file, labels, found, area) for labels, found in chips)
        for choice in choices:
            choice.space.space  # noqa: B018, it says so where nothing is free
    except InputError as error:
        raise in_file(error, str(path)) from None
    limits = {name: value for name, value in file.limits.model_dump().items() if value is not None}
    problem = CodesignProblem(
        workload=workload,
        choices=choices,
        prices=UnitPrices(**file.prices.model_dump(exclude={"wafer"})),
        chip_rules=chip_rules,
        rules=rules,
        limits=limits,
        time_limit=math.inf if file.search.time_limit is None else file.search.time_limit,
        gap=file.search.gap,
    )
    return Codesign(
        problem=problem,
        evaluations=file.search.evaluations,
        seed=file.search.seed,
        space=_space(file, path, problem, (chip_text, other)),
    )


def _decided(
    file: FileModel, folder: Path, *, of_deepflow: bool
) -> tuple[Rules, Generation, AreaRange | None]:
    """Return rules, those of chips, and the range of areas; `InputError` with every problem.

    ``of_deepflow``: whether the chip's file is one of DeepFlow.
    """
    problems: list[Problem] = []
    with collecting(problems, ""):
        rules = rules_at(file.rules, MAPPED, folder)
    try:
        chip_rules = rules_at(file.chip_rules, ("chips",), folder).chips
    except InputError as error:  # it calls its argument rules
        problems += [Problem("chip_rules", problem.message) for problem in error.problems]
    with collecting(problems, ""):
        area = file.chip_area and AreaRange(low=file.chip_area.low, high=file.chip_area.high)
    with collecting(problems, "search"):
        require(file.search.gap < 1, "gap", file.search.gap, "0 to below 1")
    if of_deepflow:
        message = "is DeepFlow's, which names no node; allowed: a chip file of crosstack."
        problems.append(Problem("chip", f"{file.chip} {message}"))
    if problems:
        raise InputError(problems)
    return rules, chip_rules, area or None


def _choice(
    file: FileModel, labels: Labels, found: ChipDescription, area: AreaRange | None
) -> MachineChoice:
    """Return a choice of machines, of a chip that was read and areas in a range."""
    return MachineChoice(
        labels=labels,
        space=BudgetSpace(
            template=found.template,
            budget=found.budget,
            chip_area=area,
            held=tuple(sorted(_held(file, found))),
            spare=("power",),  # a chip that draws less may be the better one
        ),
        wafer=_wafer(file.prices, found),
        chips_per_package=found.chips_per_package,
        n_packages=found.n_packages,
        inside=found.inside,
        between=found.between,
    )


def _space(file: FileModel, path: Path, problem: CodesignProblem, texts: tuple[str, ...]) -> Space:
    """Return what trials are known by: all of a file but what is drawn, and the limits."""
    given: Any = {"choices": True, "limits": True, "search": {"evaluations", "seed"}}
    names = (name for choice in problem.choices for name in choice.space.space.names)
    return Space(
        name=path.stem,
        kind="codesign",
        base=file.chip,
        labels=tuple(file.choices),
        shares=tuple(dict.fromkeys(names)),
        terms=tuple(TERMS.items()),
        problem={
            "file": file.model_dump(mode="json", warnings=False, exclude=given),
            "texts": list(texts),
            "rules": [stated(problem.rules), stated(problem.chip_rules)],
        },
        bounds=tuple(Bound(column=name, maximum=m) for name, m in problem.limits.items()),
        objectives=(
            ("throughput", Goal.MAXIMUM), ("price", Goal.MINIMUM), ("power", Goal.MINIMUM),
        ),
    )  # fmt: skip


def _held(file: FileModel, found: ChipDescription) -> set[str]:
    """Return whose shares stay: what is asked, and links that join nothing."""
    held = set(file.hold)
    for name, size in (("intra", found.chips_per_package), ("inter", found.n_packages)):
        if size == 1 and name in found.template.components:
            held.add(name)
    return held


def _wafer(prices: FileModel, found: ChipDescription) -> Wafer:
    given, node = prices.wafer, found.node
    assert node is not None  # a chip file has one
    price = node.wafer_price if given.price is None else given.price
    density = node.defect_density if given.defect_density is None else given.defect_density
    for name, value in (("price", price), ("defect_density", density)):
        if value is None:
            message = f"required: the library has none for {node.name}."
            raise InputError(Problem(f"prices.wafer.{name}", message))
    assert price is not None
    assert density is not None
    return Wafer(
        price=price, defect_density=density, model=given.yield_model, clustering=given.clustering
    )
