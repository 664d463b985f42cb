"""crosstack's own file format: one YAML file holds one task."""

from crosstack.io.native.overrides import override
from crosstack.io.native.read import read_task
from crosstack.io.native.write import write_task, write_workload

__all__ = ["override", "read_task", "write_task", "write_workload"]
