"""What ``predict`` and ``trace`` run on: a chip file, DeepFlow's hardware, or the library's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from crosstack.cli.chip import described
from crosstack.cli.inputs import check_number, library_system, machine_given, options_named
from crosstack.errors import InputError, Problem, unknown_name
from crosstack.machine.chip import Chip
from crosstack.machine.node import Fabric, NetworkPort, Node
from crosstack.units import parse_quantity
from crosstack.workload.dtype import Dtype

if TYPE_CHECKING:
    from crosstack.evaluate.cluster import Cluster
    from crosstack.io.chip_file import ChipDescription
    from crosstack.io.deepflow import DeepflowHardware
    from crosstack.machine.topology import NetworkLevel
    from crosstack.mapping.strategy import MappingOrder, Strategy

__all__ = ["LibraryMachine", "hardware_of", "source_of"]

_FIELDS = {"frequency": "Hz", "launch_overhead": "s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryMachine:
    """A chip of the library, alone or in nodes, and the type of number that it computes with.

    ``n_chips`` None: as many nodes as a strategy fills. [1]
    """

    chip: Chip
    dtype: Dtype
    node: Node | None = None
    n_chips: int | None = None
    fabric: Fabric | None = None
    port: NetworkPort | None = None

    def cluster(
        self,
        strategy: Strategy,
        levels: tuple[NetworkLevel, NetworkLevel | None] | None,
        order: MappingOrder,
    ) -> Cluster:
        """Return the machine that a strategy runs on, its chips joined as ``levels`` say."""
        from crosstack.evaluate.cluster import Cluster, node_cluster, two_levels
        from crosstack.mapping.strategy import whole_order

        if self.node is None:
            whole = whole_order(strategy, order)
            return Cluster(chip=self.chip, network=two_levels(self.chip), order=whole)
        inside, between = levels or (None, None)
        with options_named({"n_chips": "--chips"}):
            return node_cluster(
                self.node,
                strategy,
                n_chips=self.n_chips,
                fabric=self.fabric,
                port=self.port,
                inside=inside,
                between=between,
                order=order,
            )


if TYPE_CHECKING:
    Machine = ChipDescription | DeepflowHardware | LibraryMachine


def source_of(file: Path | None, on: str | None) -> Path:
    """Return what a machine is called in errors: its file, or its name in the library.

    Raises
    ------
    InputError
        Unless one of them is given.
    """
    if file is not None and on is not None:
        raise InputError(Problem("--on", "given with FILE; allowed: one of them."))
    if file is not None:
        return file
    if on is None:
        raise InputError(Problem("FILE", "required, or --on with a machine of the library."))
    return Path(on)


def hardware_of(
    file: Path | None,
    on: str | None,
    chips: int | None,
    fabric: str | None,
    library: Path | None,
    set_: list[str],
) -> Machine:
    """Return the machine that a file describes or the library has.

    Raises
    ------
    InputError
        For a name that the library does not have; names the nearest.
    """
    machine_given(on, chips, fabric)
    if on is None:
        from crosstack.io import library as machines

        assert file is not None  # `source_of` asked
        if not file.exists() and str(file) in (*machines.names("chips"), *machines.names("nodes")):
            raise InputError(Problem(str(file), f"no such file; did you mean --on {file}?"))
        return described(file, library, set_)
    if library is not None:
        raise InputError(Problem("--library", f"allowed with a chip file; {on} is none."))
    return _of_library(on, chips, fabric, set_)


def _of_library(on: str, chips: int | None, fabric: str | None, set_: list[str]) -> LibraryMachine:
    from crosstack.io import library as machines

    numbers, dtype = _changes(on, set_)
    found = library_system(on, None, fabric)
    assert found is not None  # it is named
    with options_named({"frequency": "--set frequency"}):
        chip = machines.chip(found.chip.name, frequency=numbers.get("frequency"))
    with options_named({"launch_overhead": "--set launch_overhead"}):
        chip = replace(chip, launch_overhead=numbers.get("launch_overhead", chip.launch_overhead))
    if on in machines.names("chips"):
        if chips is not None:
            check_number("--chips", chips, chips == 1, f"1: {on} is one chip")
        return LibraryMachine(chip=chip, dtype=dtype or _usual(chip))
    node = machines.node(on)
    joined, port = machines.joined_by(node, fabric)
    chip = replace(chip, intra=node.chip.intra, inter=node.chip.inter)
    return LibraryMachine(
        chip=chip,
        dtype=dtype or _usual(chip),
        node=replace(node, chip=chip),
        n_chips=chips,
        fabric=joined,
        port=port,
    )


def _usual(chip: Chip) -> Dtype:
    """Return what a chip computes with where nothing is said: 16 bits if it has a rate for them."""
    known = [dtype for dtype, _ in chip.compute.relative_rates]
    return next((d for d in (Dtype.BF16, Dtype.FP16) if d in known), known[0])


def _changes(on: str, set_: list[str]) -> tuple[dict[str, float], Dtype | None]:
    """Return the numbers, and the type, that ``--set`` gives a chip of the library."""
    numbers: dict[str, float] = {}
    dtype = None
    for change in set_:
        field, _, value = change.partition("=")
        if field == "dtype":
            if value not in list(Dtype):
                raise unknown_name("--set dtype", "type of number is", value, Dtype)
            dtype = Dtype(value)
            continue
        if field not in _FIELDS:
            message = f"got {change[:60]!r}; {on} takes {', '.join(_FIELDS)}, dtype, as dtype=int8."
            raise InputError(Problem("--set", message))
        with options_named({"": f"--set {field}"}):
            numbers[field] = parse_quantity(value, _FIELDS[field])
    return numbers, dtype
