"""crosstack's own file format: one YAML file holds one task, or a graph of one's own."""

from crosstack.io.native.calibrated import CalibratedMachine, read_calibrated
from crosstack.io.native.overrides import override
from crosstack.io.native.own_words import in_own_words
from crosstack.io.native.read import read_system_alone, read_task
from crosstack.io.native.read_graph import holds_graph, read_graph
from crosstack.io.native.write import write_graph, write_system, write_task, write_workload

__all__ = [
    "CalibratedMachine", "holds_graph", "in_own_words", "override", "read_calibrated", "read_graph",
    "read_system_alone", "read_task", "write_graph", "write_system", "write_task", "write_workload",
]  # fmt: skip
