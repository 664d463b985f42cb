"""Figure 9 of the DeepFlow paper: logic, memory and network of a data-parallel language model."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from crosstack.charts import LineChart, Measure
from crosstack.model.kernels.clock import product_time
from crosstack.published.case import Row
from crosstack.published.figures.deepflow_setting import (
    CHIPS,
    MEMORIES,
    MODEL,
    NETWORKS,
    NODES,
    problem,
)
from crosstack.published.figures.figure import Figure, Progress, claim, figure, lines, statement

RULES = ("crosstack", "deepflow-2021")
FLAT = 1.05  # a step that gains less is called unchanged
SOURCE = "ardalani2022deepflow, section 9.1"
Times = dict[tuple[str, str, str], float]  # by network, memory, node


def technology_scaling(progress: Progress) -> Figure:
    """Return Figure 9: 7 nodes x 4 memories x 3 networks, under our rules and the public tool's."""
    times: dict[str, Times] = {}
    for rules in RULES:
        progress(f"84 machines under {rules}")
        times[rules] = {
            (network, memory, node): problem(node, memory, network, rules=rules)
            .given()
            .metrics.time
            for network in NETWORKS
            for memory in MEMORIES
            for node in NODES
        }
    ours, tool = times["crosstack"], times["deepflow-2021"]
    return figure(
        "technology-scaling",
        rows=tuple((*point, ours[point], tool[point]) for point in ours),
        claims=tuple(row for rules in RULES for row in _claims(rules, times[rules])),
        charts=tuple(_chart(network, ours) for network in NETWORKS),
    )


def _chart(network: str, times: Times) -> LineChart:
    return LineChart(
        title=f"{network}, {NETWORKS[network] / 1e9:.0f} GB/s a chip",
        x=Measure(label="node", names=NODES),
        y=Measure(label="time of a step", unit="s"),
        series=lines(
            [1.0 + i for i in range(len(NODES))],
            {
                f"{memory}, {rate / 1e12:g} TB/s": [times[network, memory, node] for node in NODES]
                for memory, rate in MEMORIES.items()
            },
        ),
    )


def _claims(rules: str, times: Times) -> list[Row]:
    def gain(network: str, memory: str, old: str, new: str) -> float:
        return times[network, memory, old] / times[network, memory, new]

    first = [gain(n, m, "N12", "N7") for n in NETWORKS for m in MEMORIES]
    saturated = [_saturation([times["GDR-x8", m, node] for node in NODES]) for m in MEMORIES]
    logic = gain("NDR-x8", "HBM4", "N3", "N1")
    network = times["NDR-x8", "HBM4", "N3"] / times["GDR-x8", "HBM4", "N3"]
    return [
        statement("Fig. 9", f"{rules}: N7 gains over N12 whatever the memory, by 5 % or more",
                  [g >= FLAT for g in first], rules=rules, source=SOURCE,
                  reason="with HBM2 main memory binds at N12 already"),
        statement("Fig. 9", f"{rules}: some kernels are bound by L2 at N12",
                  _bound_by_l2(rules) > 0, rules=rules, source=SOURCE,
                  reason="the large products of the tool's tiles are bound elsewhere"),
        statement("Fig. 9", f"{rules}: with faster memory, logic scaling saturates later",
                  [b >= a for a, b in pairwise(saturated)]
                  + [saturated[-1] > saturated[0]],
                  rules=rules, source=SOURCE),
        claim("Fig. 9", f"{rules}: with HBM4 and 400 GB/s, N1 over N3 (unchanged beyond N3)", 1.0,
              gain("GDR-x8", "HBM4", "N3", "N1"), tolerance=FLAT - 1, rules=rules, source=SOURCE,
              reason="by the paper's own scaling the cache's cells shrink by 1.8 and its energy a "
              "bit by 1.3 a node, so its capacity and bandwidth keep growing; the paper has them "
              "increase only marginally, and says by no number how its crossbar is to grow"),
        statement("Fig. 9", f"{rules}: beyond N3 a network of 400 GB/s gains more than N1",
                  network > logic, rules=rules, source=SOURCE),
    ]  # fmt: skip


def _saturation(times: list[float]) -> int:
    """Return after how many nodes the next one gains less than 5 %. [1]"""
    for i, (old, new) in enumerate(pairwise(times)):
        if old / new < FLAT:
            return i
    return len(times) - 1


def _bound_by_l2(rules: str) -> int:
    """Return how many of the six products of a step L2 binds at N12, with HBM4. [1]"""
    case = problem("N12", "HBM4", "GDR-x8", rules=rules)
    chip = case.given().system.chip
    b, d = MODEL.batch // CHIPS, MODEL.width
    n, v = MODEL.gates * d, MODEL.vocabulary
    shapes = [(b, 2 * d, n), (b, n, 2 * d), (2 * d, b, n), (b, d, v), (b, v, d), (d, b, v)]
    m, k, n_ = np.array(shapes, dtype=float).T
    return int(np.sum(product_time(case.rules.clock.kernels, chip, m, k, n_).bound == "L2"))
