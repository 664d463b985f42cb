"""What a chip has of its host: a link to it, and a share of the host's memory."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require_quantity
from crosstack.records import require_types


@dataclass(frozen=True, slots=True, kw_only=True)
class HostShare:
    """A chip's link to its host, ``bandwidth`` each way [B/s], and its share of the memory there.

    ``capacity`` is that share [B], ``memory_bandwidth`` the same of the memory's bandwidth, by
    which the host's processors update weights; None where nothing says it [B/s]; ``link_power``
    what both ends of the link draw for each byte a second that it moves [W/(B/s)].
    """

    bandwidth: float
    capacity: float
    memory_bandwidth: float | None = None
    link_power: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        require_quantity("bandwidth", self.bandwidth, "B/s", above_zero=True)
        require_quantity("link_power", self.link_power, "W/(B/s)")
        require_quantity("capacity", self.capacity, "B", above_zero=True, infinite=True)
        if self.memory_bandwidth is not None:
            require_quantity("memory_bandwidth", self.memory_bandwidth, "B/s", above_zero=True)
