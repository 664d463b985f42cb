"""A machine of the library as a step of training runs on it: as many chips as a strategy has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crosstack.errors import InputError, Problem, require_quantity
from crosstack.io.library.entries import names
from crosstack.io.library.machines import chip, joined_by, node, system_on
from crosstack.machine.calibration import AS_SAID, Calibration
from crosstack.machine.chip import Chip
from crosstack.machine.network import NetworkLevel
from crosstack.machine.node import Fabric, NetworkPort, Node, system_of_nodes
from crosstack.machine.packages import system_of_packages
from crosstack.machine.system import System
from crosstack.mapping.strategy import Strategy
from crosstack.workload.dtype import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryMachine:
    """A chip of the library, alone or in nodes, and the type of number that it computes with.

    ``n_chips`` None: as many as a strategy has. [1] ``calibration``: as it was measured.
    """

    chip: Chip
    dtype: Dtype
    node: Node | None = None
    n_chips: int | None = None
    fabric: Fabric | None = None
    port: NetworkPort | None = None
    calibration: Calibration = AS_SAID

    def system(
        self,
        strategy: Strategy,
        levels: tuple[NetworkLevel, NetworkLevel | None] | None = None,
    ) -> System:
        """Return the machine that a strategy runs on, its chips joined as ``levels`` say."""
        if self.node is None:
            return system_of_packages(self.chip)
        inside, between = levels or (None, None)
        return system_of_nodes(
            self.node,
            self.n_chips or strategy.n_chips,
            fabric=self.fabric,
            port=self.port,
            inside=inside,
            between=between,
        )


def library_machine(
    name: str,
    *,
    chips: int | None = None,
    fabric: str | None = None,
    frequency: float | None = None,
    launch_overhead: float | None = None,
    dtype: Dtype | None = None,
    accumulator: Dtype | None = None,
) -> LibraryMachine:
    """Return a machine of the library by name, for a step of training.

    `InputError` for a name that the library does not have; names the nearest. For a type without a
    rate.

    Parameters
    ----------
    name, chips, fabric
        As of `crosstack.io.library.system_on`; left out, as many chips as a strategy needs.
    frequency : float, optional
        Another clock. [Hz]
    launch_overhead : float, optional
        Another time before a kernel starts. [s]
    dtype : Dtype, optional
        What is computed in; 16 bits if the chip has a rate for them.
    accumulator : Dtype, optional
        What products are added up in; as usual if left out.
    """
    system_on(name, fabric=fabric)  # is it known?
    alone = name in names("chips")
    if alone and chips not in (None, 1):
        raise InputError(Problem("n_chips", f"got {chips}; allowed: 1: {name} is one chip."))
    of = None if alone else node(name)
    made = chip(name if of is None else of.chip.name, frequency=frequency)
    if launch_overhead is not None:
        require_quantity("launch_overhead", launch_overhead, "s")
        made = replace(made, launch_overhead=launch_overhead)
    computed = dtype or _usual(made)
    made.rate(computed)  # has it one?
    if accumulator is not None:
        made = made.adding_in(accumulator, computed)
    if of is None:
        return LibraryMachine(chip=made, dtype=computed)
    joined, port = joined_by(of, fabric)
    made = replace(made, intra=of.chip.intra, inter=of.chip.inter)
    whole = replace(of, chip=made)
    return LibraryMachine(
        chip=made, dtype=computed, node=whole, n_chips=chips, fabric=joined, port=port
    )


def _usual(made: Chip) -> Dtype:
    """Return what a chip computes with where nothing is said: 16 bits if it has a rate for them."""
    known = [dtype for dtype, _ in made.compute.relative_rates]
    return next((d for d in (Dtype.BF16, Dtype.FP16) if d in known), known[0])
