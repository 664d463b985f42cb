"""What the update of weights takes for each byte of their gradients, and casting them again."""

from __future__ import annotations

import numpy as np

from crosstack.machine.system import System
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.workload import Workload


def update_of_a_byte(workload: Workload, system: System, rules: Rules) -> float:
    """Time that the update of weights takes for each byte of their gradients. [s/B]"""
    if not workload.training:
        return 0.0
    element = gradient_element(workload.graph)
    traffic = rules.memory.as_trained(workload).update_traffic(element * weight_share(workload))
    return traffic / element / system.chip.memory_speed(spilled=False)


def casting_of_a_byte(workload: Workload, system: System, graph: KernelGraph) -> float:
    """Time that casting weights of layers takes for each byte of their gradients. [s/B]

    Once an iteration, behind their update: every chip casts all weights that it multiplies with,
    those of its ``graph``.
    """
    if not (workload.training and graph.weight_cast.any()):
        return 0.0
    numbers = np.where(graph.backward, 0.0, graph.parameters / graph.sharers)
    moved = float((numbers * graph.weight_cast).sum() / numbers.sum())
    return moved / gradient_element(graph) / system.chip.memory_speed(spilled=False)


def weight_share(workload: Workload) -> float:
    """Bytes of weights for each byte of their gradients: in the type that products make. [1]"""
    graph = workload.graph
    if workload.gradients is None:
        return 1.0
    made = graph.output_element[graph.gemm & ~graph.backward]
    return float(made.max()) / workload.gradients.size if made.size else 1.0


def gradient_element(graph: KernelGraph) -> float:
    """Bytes of an element of gradients that are summed once an iteration. [B]"""
    made = graph.output_element[graph.periodic_size > 0]
    return float(made.max()) if made.size else float(graph.dtype.size)
