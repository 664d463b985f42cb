"""crosstack's own file format: one YAML file holds one task."""

from crosstack.io.native.overrides import override
from crosstack.io.native.own_words import in_own_words
from crosstack.io.native.read import read_system_alone, read_task
from crosstack.io.native.write import write_system, write_task, write_workload

__all__ = [
    "in_own_words",
    "override",
    "read_system_alone",
    "read_task",
    "write_system",
    "write_task",
    "write_workload",
]
