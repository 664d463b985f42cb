"""Which search finds the best chip on the same budget of evaluations, and how fast is one?

Three problems: the public tool's own setting (an LSTM of 256 x 4096 on a V100-like chip of fixed
area, under its rules of 2021), the same with the chip's area free under the default rules, and 64
chips with a network. Every method gets 200 evaluations and five seeds; the searches are timed with
everything they evaluate. TPE runs where `optuna` is installed.
"""

from __future__ import annotations

import platform
import time
import warnings
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from crosstack.errors import InfeasibleError
from crosstack.explore.budget_space import AreaRange, BudgetSpace
from crosstack.explore.design import DesignProblem
from crosstack.explore.methods import METHODS
from crosstack.explore.optimize import read_optimization
from crosstack.explore.search import minimise
from crosstack.io.deepflow import read_hardware
from crosstack.io.deepflow.steps import program_of, strategy_of, system_of, workload_of

ROOT = Path(__file__).resolve().parents[1]
V100 = ROOT.parent / "shared/data/deepflow/configs/2021/configs/v100.yaml"
EVALUATIONS, SEEDS = 200, range(5)


def public_setting(rules: str, *, free: bool) -> DesignProblem:
    from crosstack.model.rules import rules_named

    hardware = read_hardware(V100.read_text(), "v100.yaml", [])
    area = 1130e-6  # what one stack leaves of the package
    areas = {name: a / 815e-6 * area for name, a in hardware.budget.areas.items()}
    counted = rules_named(rules)
    return DesignProblem(
        free=BudgetSpace(
            template=hardware.template,
            budget=replace(hardware.budget, chip_area=area, areas=areas),
            held=("intra", "inter"),
            chip_area=AreaRange(low=400e-6, high=area) if free else None,
        ),
        workload=replace(workload_of(hardware.model), batch=256, width=4096),
        strategy=strategy_of(hardware),
        system=lambda chip: system_of(hardware, chip),
        rules=replace(counted, step=program_of(counted.step, hardware)),
    )


def tpe(problem: DesignProblem, seed: int) -> float:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = problem.free.space

    def value(trial: optuna.Trial) -> float:
        z = [trial.suggest_float(name, -4.0, 4.0) for name in space.names]
        return problem(space.from_logarithms(np.array([z])))[0].score

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed, multivariate=True))
    study.optimize(value, n_trials=EVALUATIONS)
    return float(study.best_value)


def main() -> None:
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, "
          f"numpy {np.__version__}")  # fmt: skip
    problems: dict[str, DesignProblem] = {}
    if V100.exists():
        problems["public setting, deepflow-2021"] = public_setting("deepflow-2021", free=False)
        problems["area free, crosstack"] = public_setting("crosstack", free=True)
    example = ROOT / "examples/optimize/lstm_64.yaml"
    asked = read_optimization(example, ("strategies=[RC-2-2-d16-p1]", "choices={}"))
    problems["64 chips, crosstack"] = asked.choices[0].problem
    for name, problem in problems.items():
        for method in METHODS:
            report(name, method, [run(problem, method, seed) for seed in SEEDS])
        try:
            import optuna  # noqa: F401
        except ImportError:
            continue
        found = []
        for seed in SEEDS:
            begun = time.perf_counter()
            found.append((tpe(problem, seed), time.perf_counter() - begun))
        report(name, "tpe", found)


def run(problem: DesignProblem, method: str, seed: int) -> tuple[float, float]:
    start = problem.free.space.draw(np.random.default_rng(seed), 1)[0]
    begun = time.perf_counter()
    try:
        value = minimise(
            problem,
            problem.free.space,
            start=start,
            method=method,
            evaluations=EVALUATIONS,
            seed=seed,
        ).value
    except InfeasibleError:
        value = float("inf")
    return value, time.perf_counter() - begun


def report(name: str, method: str, found: list[tuple[float, float]]) -> None:
    values, times = zip(*found, strict=True)
    print(f"{name:30s} {method:9s} median {median(values):.6f} s, {min(values):.6f} to "
          f"{max(values):.6f}; {EVALUATIONS / median(times):,.0f} evaluations/s, "
          f"{median(times):.2f} s ({min(times):.2f} to {max(times):.2f}), {len(found)} seeds",
          flush=True)  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
