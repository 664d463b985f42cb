"""Figures 1 and 9 to 11 of the DeepFlow paper (``ardalani2022deepflow``).

Those of its section 9 are about a language model on 512 chips of 850 mm2 and 300 W; nodes scaled by
1.8 in area and 1.3 in power; memories and networks by their bandwidth. What the paper leaves out is
as in the public tool's V100 (``deepflow_code``, configs/v100.yaml of 2021), whose shares its
section 4 shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from crosstack.evaluate.step_settings import StepSettings
from crosstack.explore.budget_space import BudgetSpace
from crosstack.explore.cooptimise import CoResult, co_optimise
from crosstack.explore.design import DesignProblem
from crosstack.explore.recorded import Choice
from crosstack.io.chip_file import read_chip
from crosstack.machine.chip import Chip, Link
from crosstack.machine.packages import system_of_packages
from crosstack.machine.system import System
from crosstack.mapping.strategy import KernelSplit, Strategy, strategies
from crosstack.model.kernels.clock import product_time
from crosstack.model.rules import rules_named
from crosstack.published.case import Progress, Row
from crosstack.published.deepflow.edges import edges_of_paper
from crosstack.published.deepflow.steps import over_edges
from crosstack.published.figures.figure import Cell, Figure, Ours, figure, held
from crosstack.workload.lstm import LstmModel

Floats = NDArray[np.float64]

# ---------------------------------------------------------------- Figure 1

SIDE = 65536  # the product of section 2, 64K x 64K x 64K
GPUS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
CACHE = 6 * 2.0**20  # L2 of a V100, deepflow_code, configs/v100.yaml [B]
WORD = 2.0  # B
SMALLEST = 16  # side of a tile: smaller ones leave the arrays of a core empty


def _intensities(strategy: Strategy) -> Floats:
    """Return operations for each word of main memory, one for every tiling of the cache. [1]

    Notes
    -----
    Tiles of M x K, K x N and M x N with sides that are powers of two fill at least a quarter of
    the cache and fit it together; one of the three stays while the other two pass. With the
    output's tile in place, A is read ``ceil(N / tile)`` times, B ``ceil(M / tile)`` times and C
    is written once; with a tile of A or B in place, sums pass ``ceil(K / tile)`` times both ways.
    """
    m, k, n = SIDE / strategy.kp1, float(SIDE), SIDE / strategy.kp2
    if strategy.split is KernelSplit.CR:
        m, k, n = SIDE, SIDE / strategy.kp1, SIDE
    powers = 2.0 ** np.arange(math.log2(SMALLEST), math.log2(SIDE) + 1)
    tile_m, tile_k, tile_n = (
        np.minimum(axis.ravel(), side)
        for axis, side in zip(np.meshgrid(powers, powers, powers), (m, k, n), strict=True)
    )
    filled = (tile_m * tile_k + tile_k * tile_n + tile_m * tile_n) * WORD
    whole = (tile_m == m) & (tile_k == k) & (tile_n == n)
    fits = (filled <= CACHE) & ((filled > CACHE / 4) | whole)
    a, b, c = m * k, k * n, m * n
    rows, steps, columns = (
        np.ceil(side / tile[fits]) for side, tile in ((m, tile_m), (k, tile_k), (n, tile_n))
    )
    moved = np.stack(
        [
            a * columns + b * rows + c,
            a + b * rows + c * (2 * steps - 1),
            a * columns + b + c * (2 * steps - 1),
        ]
    )
    return np.unique(2 * m * k * n / moved)


def _quartiles(values: Floats) -> tuple[float, ...]:
    return tuple(float(v) for v in np.percentile(values, (0, 25, 50, 75, 100)))


def _short(strategy: str) -> str:
    """Return the first number of an RC strategy, which has two; ``CR`` for the other kind."""
    kind, first, *_ = strategy.split("-")
    if kind != "RC":
        return kind
    return first if int(first) < 1024 else f"{int(first) // 1024}K"


def intensity(progress: Progress) -> Figure:
    """Return Figure 1: the spread over strategies and tilings, by the number of chips."""
    spread: dict[int, tuple[float, ...]] = {}
    single: dict[str, tuple[float, ...]] = {}
    for count in GPUS:
        progress(f"{count} chips")
        splits = [s for s in strategies(count) if s.dp == s.lp == 1]
        powers = [s for s in splits if not (s.kp1 & (s.kp1 - 1) or s.kp2 & (s.kp2 - 1))]
        found = {str(s).removesuffix("-d1-p1"): _intensities(s) for s in powers}
        spread[count] = _quartiles(np.concatenate(list(found.values())))
        single = {name: _quartiles(values) for name, values in found.items()}
    widths = [spread[count][4] - spread[count][0] for count in GPUS]
    best = [values[4] for values in single.values()]
    claims: dict[str, Ours] = {
        "falls": [spread[GPUS[-1]][i] < spread[GPUS[0]][i] / 2 for i in (2, 4)],
        "spread": [widths[0] > widths[-1], widths[1] > widths[-2]],
        "differ": max(best) > 2 * min(best),
    }
    rows: list[tuple[Cell, ...]] = [(f"{count:,} chips", *spread[count]) for count in GPUS]
    rows += [(f"{GPUS[-1]:,}: {name}", *values) for name, values in single.items()]
    return figure(
        "intensity",
        rows=rows,
        claims=claims,
        chips=GPUS,
        splits=[_short(name) for name in single],
    )


# ---------------------------------------------------------------- section 9

CHIPS = 512
NODES = ("N12", "N7", "N5", "N3", "N2", "N1.4", "N1")
MEMORIES = {"HBM2": 1e12, "HBM2E": 2e12, "HBM3": 2.6e12, "HBM4": 3.3e12}  # B/s
NETWORKS = {"NDR-x8": 100e9, "XDR-x8": 200e9, "GDR-x8": 400e9}  # B/s
LATENCY = 5e-6  # of every link; deepflow_code, configs/v100.yaml [s]
INTRA_BANDWIDTH = 2e12  # section 9.2
MODEL = LstmModel(
    batch=16384,
    sequence=20,
    vocabulary=800_000,
    layers=2,
    width=16384,
    name="language model of the case studies",
)
# The paper does not ask whether the model fits the memory: one copy of it with gradients and
# optimizer takes 0.5 TB, so that data parallelism alone, from which it starts, fits none of its
# time.
SETTINGS = StepSettings(enforces_capacity=False)
_CHIP = """
node: {node}
scaling: paper
memory: {{dram: hbm2, bandwidth: {memory:g} B/s}}
chip_area: 850 mm^2
package_area: 1250 mm^2
power: 300 W
"""


def _system(network: float, per_package: int) -> Callable[[Chip], System]:
    """Return what joins 512 chips by a network of this bandwidth between packages. [B/s]"""

    def build(chip: Chip) -> System:
        inter = Link(n_links=1, bandwidth=network, latency=LATENCY)
        intra = Link(n_links=1, bandwidth=INTRA_BANDWIDTH, latency=LATENCY)
        joined = replace(chip, inter=inter, intra=intra if per_package > 1 else None)
        return system_of_packages(
            joined, chips_per_package=per_package, n_packages=CHIPS // per_package
        )

    return build


def _problem(
    node: str,
    memory: str,
    network: str,
    *,
    rules: str = "crosstack",
    per_package: int = 1,
    model: LstmModel = MODEL,
) -> DesignProblem:
    """Return one case, data parallel, over the links of the paper's rings.

    Memory and network have the bandwidth they are given, whatever they take. Their shares are held;
    compute and the memory on the chip share out the rest.
    """
    chip = read_chip(_CHIP.format(node=node, memory=MEMORIES[memory]), f"{node}, {memory}")
    known = rules_named(rules)
    return DesignProblem(
        free=BudgetSpace(template=chip.template, budget=chip.budget, held=("DRAM", "inter")),
        workload=model,
        strategy=Strategy(dp=CHIPS),
        system=_system(NETWORKS[network], per_package),
        rules=replace(known, step=over_edges(known.step, edges_of_paper)),
        settings=SETTINGS,
    )


# ---------------------------------------------------------------- Figure 9

FLAT = 1.05  # a step that gains less is called unchanged
Times = dict[tuple[str, str, str], float]  # by network, memory, node


def technology_scaling(progress: Progress) -> Figure:
    """Return Figure 9: 7 nodes x 4 memories x 3 networks, under our rules and the public tool's."""
    times: dict[str, Times] = {}
    for rules in ("crosstack", "deepflow-2021"):
        progress(f"84 machines under {rules}")
        times[rules] = {
            (network, memory, node): _problem(node, memory, network, rules=rules)
            .given()
            .metrics.time
            for network, memory, node in product(NETWORKS, MEMORIES, NODES)
        }
    ours, tool = times.values()
    return figure(
        "technology-scaling",
        rows=[(*point, ours[point], tool[point]) for point in ours],
        claims=[row for rules, found in times.items() for row in _scaling_claims(rules, found)],
    )


def _scaling_claims(rules: str, times: Times) -> tuple[Row, ...]:
    def gain(network: str, memory: str, old: str, new: str) -> float:
        return times[network, memory, old] / times[network, memory, new]

    saturated = [_saturation([times["GDR-x8", m, node] for node in NODES]) for m in MEMORIES]
    network = times["NDR-x8", "HBM4", "N3"] / times["GDR-x8", "HBM4", "N3"]
    later = [b >= a for a, b in pairwise(saturated)]
    claims: dict[str, Ours] = {
        "first": [gain(n, m, "N12", "N7") >= FLAT for n in NETWORKS for m in MEMORIES],
        "l2": _bound_by_l2(rules) > 0,
        "saturates": [*later, saturated[-1] > saturated[0]],
        "unchanged": gain("GDR-x8", "HBM4", "N3", "N1"),
        "network": network > gain("NDR-x8", "HBM4", "N3", "N1"),
    }
    return held("technology-scaling", claims, rules=rules)


def _saturation(times: list[float]) -> int:
    """Return after how many nodes the next one gains less than 5 %. [1]"""
    flat = (i for i, (old, new) in enumerate(pairwise(times)) if old / new < FLAT)
    return next(flat, len(times) - 1)


def _bound_by_l2(rules: str) -> int:
    """Return how many of the six products of a step L2 binds at N12, with HBM4. [1]"""
    case = _problem("N12", "HBM4", "GDR-x8", rules=rules)
    chip = case.given().system.chip
    b, d = MODEL.batch // CHIPS, MODEL.width
    n, v = MODEL.gates * d, MODEL.vocabulary
    shapes = [(b, 2 * d, n), (b, n, 2 * d), (2 * d, b, n), (b, d, v), (b, v, d), (d, b, v)]
    m, k, n_ = np.array(shapes, dtype=float).T
    return int(np.sum(product_time(case.rules.clock.kernels, chip, m, k, n_).bound == "L2"))


# ---------------------------------------------------------------- Figures 10 and 11

MEMORY, NETWORK = "HBM3", "XDR-x8"
EVALUATIONS, SEARCHES = 60, 4
MATURE = ("N12", "N7")
SIZES = (1, 2, 4, 8, 16)


def _best_of_strategies(
    node: str,
    *,
    evaluations: int = EVALUATIONS,
    model: LstmModel = MODEL,
    per_package: int = 1,
    network: str = NETWORK,
) -> CoResult:
    """Return the best of all strategies of 512 chips; 1 evaluation keeps the given shares."""
    case = _problem(node, MEMORY, network, model=model, per_package=per_package)
    choices = [
        Choice(
            labels=(("node", node), ("strategy", str(strategy))),
            problem=replace(case, strategy=strategy),
        )
        for strategy in strategies(CHIPS, max_lp=model.layers + 2)
    ]
    return co_optimise(choices, evaluations=evaluations, searches=SEARCHES)


def _strategy(found: CoResult) -> str:
    return dict(found.best.choice.labels)["strategy"]


def _deeper_model(layers: int) -> LstmModel:
    """Return a model of as many parameters as the studied one, with other layers.

    The width is the largest multiple of 512 with no more parameters, so that every strategy of
    512 chips splits it. [1]
    """
    width, model = MODEL.width, replace(MODEL, layers=layers)
    while replace(model, width=width).parameters > MODEL.parameters:
        width -= 512
    while replace(model, width=width + 512).parameters <= MODEL.parameters:
        width += 512
    return replace(model, width=width)


def cooptimised_nodes(progress: Progress) -> Figure:
    """Return Figure 10: each step of co-optimisation on every node."""
    rows = []
    others = [_deeper_model(layers) for layers in (1, 4)]
    for node in NODES:
        progress(f"{node}: all strategies of {CHIPS} chips, then the chip")
        naive = _problem(node, MEMORY, NETWORK).given().metrics.time
        parallel = _best_of_strategies(node, evaluations=1).design.metrics.time
        both = _best_of_strategies(node)
        found = {MODEL.layers: min(both.design.metrics.time, parallel)}
        for model in others:
            found[model.layers] = _best_of_strategies(node, model=model).design.metrics.time
        layers = min(found, key=lambda n: found[n])
        times = naive, parallel, found[MODEL.layers], found[layers]
        rows.append((node, *times, _strategy(both), float(layers)))
    chips = {node: parallel / built for node, _, parallel, built, *_ in rows}
    built = {node: time for node, _, _, time, *_ in rows}
    steps = [_nodes_worth(built, r[0], r[3] / r[4]) for r in rows if r[0] in ("N12", "N7", "N5")]
    advanced = [node for node in NODES if node not in MATURE]
    claims: dict[str, Ours] = {
        "parallelism": sum(r[1] / r[2] for r in rows) / len(rows),
        "mature": [chips[node] >= 1.2 for node in MATURE],
        "less": [chips[node] < min(chips[m] for m in MATURE) for node in advanced],
        "advanced": [1.2 <= chips[node] <= 1.3 for node in advanced],
        "shape": sum(steps) / len(steps),
    }
    return figure(
        "co-optimised-nodes",
        rows=rows,
        claims=claims,
        chips=CHIPS,
        searches=SEARCHES,
        evaluations=EVALUATIONS,
        memory=MEMORY,
        network=NETWORK,
    )


def _nodes_worth(times: dict[str, float], node: str, gain: float) -> float:
    """Return how many nodes of logic scaling give the same gain. [1]"""
    count = 0.0
    for old, new in pairwise(NODES[NODES.index(node) :]):
        step = times[old] / times[new]
        if gain < step:
            return count + ((gain - 1) / (step - 1) if step > 1 else 0.0)
        gain /= step
        count += 1
    return count


def package_size(progress: Progress) -> Figure:
    """Return Figure 11: parallelism and architecture searched for every size of package."""
    rows, beyond = [], []
    for node, network in product(("N7", "N3"), ("NDR-x8", "XDR-x8")):
        times, names = [], []
        for size in SIZES:
            progress(f"{node}, {network}: packages of {size}")
            found = _best_of_strategies(node, per_package=size, network=network)
            times.append(found.design.metrics.time)
            names.append(_strategy(found))
        gains = [times[0] / time for time in times]
        beyond.append(max(gains) / max(gains[: SIZES.index(4) + 1]))
        for size, time, gain, name in zip(SIZES, times, gains, names, strict=True):
            rows.append((node, network, float(size), time, gain, name))
    return figure(
        "package-size",
        rows=rows,
        claims={"gain": max(row[4] for row in rows), "marginal": [more < 1.1 for more in beyond]},
        chips=CHIPS,
        beyond=100 * max(beyond) - 100,
        inside=INTRA_BANDWIDTH / 1e12,
        searches=SEARCHES,
        evaluations=EVALUATIONS,
    )
