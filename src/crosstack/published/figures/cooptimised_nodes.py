"""Figure 10 of the DeepFlow paper: parallelism, then architecture, then model, node by node."""

from __future__ import annotations

from dataclasses import replace

from crosstack.charts import BarChart, Bars, Measure
from crosstack.explore.cooptimise import CoResult, co_optimise
from crosstack.explore.recorded import Choice
from crosstack.mapping.strategy import strategies
from crosstack.published.figures.deepflow_setting import (
    CHIPS,
    DATA_PARALLEL,
    MODEL,
    NODES,
    problem,
)
from crosstack.published.figures.figure import Figure, Ours, Progress, figure
from crosstack.workload.lstm import LstmModel

__all__ = ["best_of_strategies", "cooptimised_nodes", "deeper_model"]

MEMORY, NETWORK = "HBM3", "XDR-x8"
EVALUATIONS, SEARCHES = 60, 4
MATURE = ("N12", "N7")


def best_of_strategies(
    node: str,
    *,
    evaluations: int,
    model: LstmModel = MODEL,
    per_package: int = 1,
    network: str = NETWORK,
) -> CoResult:
    """Return the best of all strategies of 512 chips; 1 evaluation keeps the given shares."""
    case = problem(node, MEMORY, network, model=model, per_package=per_package)
    choices = [
        Choice(
            labels=(("node", node), ("strategy", str(strategy))),
            problem=replace(case, strategy=strategy),
        )
        for strategy in strategies(CHIPS, max_lp=model.layers + 2)
    ]
    return co_optimise(choices, evaluations=evaluations, searches=SEARCHES)


def deeper_model(layers: int) -> LstmModel:
    """Return a model of as many parameters as the studied one, with other layers.

    The width is the largest multiple of 512 with no more parameters, so that every strategy of
    512 chips splits it. [1]
    """
    width = MODEL.width
    model = replace(MODEL, layers=layers)
    while replace(model, width=width).parameters > MODEL.parameters:
        width -= 512
    while replace(model, width=width + 512).parameters <= MODEL.parameters:
        width += 512
    return replace(model, width=width)


def cooptimised_nodes(progress: Progress) -> Figure:
    """Return Figure 10: each step of co-optimisation on every node."""
    naive, parallel, built, shaped, names, shapes = {}, {}, {}, {}, {}, {}
    others = [deeper_model(layers) for layers in (1, 4)]
    for node in NODES:
        progress(f"{node}: all strategies of {CHIPS} chips, then the chip")
        naive[node] = problem(node, MEMORY, NETWORK, DATA_PARALLEL).given().metrics.time
        alone = best_of_strategies(node, evaluations=1)
        both = best_of_strategies(node, evaluations=EVALUATIONS)
        parallel[node] = alone.design.metrics.time
        built[node] = min(both.design.metrics.time, parallel[node])
        names[node] = dict(both.best.choice.labels)["strategy"]
        found = {MODEL.layers: built[node]}
        for model in others:
            result = best_of_strategies(node, evaluations=EVALUATIONS, model=model)
            found[model.layers] = result.design.metrics.time
        shapes[node] = min(found, key=lambda layers: found[layers])
        shaped[node] = found[shapes[node]]
    gains = {node: naive[node] / parallel[node] for node in NODES}
    chips = {node: parallel[node] / built[node] for node in NODES}
    steps = {
        node: _nodes_worth(built, node, built[node] / shaped[node]) for node in ("N12", "N7", "N5")
    }
    mean = sum(gains.values()) / len(gains)
    advanced = [node for node in NODES if node not in MATURE]
    claims: dict[str, Ours] = {
        "parallelism": mean,
        "mature": [chips[node] >= 1.2 for node in MATURE],
        "less": [chips[node] < min(chips[m] for m in MATURE) for node in advanced],
        "advanced": [1.2 <= chips[node] <= 1.3 for node in advanced],
        "shape": sum(steps.values()) / len(steps),
    }
    return figure(
        "co-optimised-nodes",
        rows=tuple((node, naive[node], parallel[node], built[node], shaped[node], names[node],
                    float(shapes[node])) for node in NODES),
        claims=claims,
        charts=(
            BarChart(
                title=f"Time of a step on {CHIPS} chips, {MEMORY}, {NETWORK}",
                y=Measure(label="time of a step", unit="s"),
                groups=NODES,
                bars=tuple(
                    Bars(name=name, values=tuple(values[node] for node in NODES), colour=colour)
                    for colour, (name, values) in enumerate(
                        {"data parallel": naive, "and parallelism": parallel,
                         "and architecture": built, "and model": shaped}.items()
                    )
                ),
            ),
        ),
        chips=CHIPS,
        searches=SEARCHES,
        evaluations=EVALUATIONS,
        memory=MEMORY,
    )  # fmt: skip


def _nodes_worth(times: dict[str, float], node: str, gain: float) -> float:
    """Return how many nodes of logic scaling give the same gain. [1]"""
    at = NODES.index(node)
    count = 0.0
    for old, new in zip(NODES[at:], NODES[at + 1 :], strict=False):
        step = times[old] / times[new]
        if gain < step:
            return count + ((gain - 1) / (step - 1) if step > 1 else 0.0)
        gain /= step
        count += 1
    return count
