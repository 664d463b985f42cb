"""The decision problems, one file each, and the search over all of them."""

from __future__ import annotations

from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status, Stop, Task

__all__ = ["Certificate", "Constraints", "Mapping", "Status", "Stop", "Task"]
