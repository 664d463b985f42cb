"""The ``system`` section of a native file, made into a `System`, with library names looked up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.library import NetworkLink, entry, link, names, system_on, topology
from crosstack.io.library import chip as library_chip
from crosstack.io.native.problems import collecting
from crosstack.io.native.schema import FileModel, LibraryModel
from crosstack.io.native.task_schema import (
    ChipFile,
    DimensionFile,
    LevelFile,
    MemoryFile,
    SystemFile,
    TopologyFile,
)
from crosstack.machine.chip import Chip, Link, flat_chip, flat_fields, relative_rates
from crosstack.machine.compute import Compute
from crosstack.machine.memory import MemoryLevel, main_memory
from crosstack.machine.system import Dimension, DimensionKind, Prices, System
from crosstack.units import format_quantity
from crosstack.workload.dtype import Dtype

_OWN_PRICES = {"link": "link_price", "switch": "switch_price", "switch_power": "switch_power"}
_LINK_PRICES = {"link": "price", "switch": "switch_price", "switch_power": "switch_power"}


_REQUIRED = ("n_cores", "lanes", "stages", "frequency", "sram_capacity")
_CELLS = ("n_cores", "lanes", "stages", "sram_capacity", "memory_units", "memory_unit_capacity")
_FLAT = (*_REQUIRED, "utilization", "memory_units", "memory_unit_capacity", "rates",
        "relative_rates")  # fmt: skip
_LEVELLED = ("levels", "intra", "inter")
_NULLABLE = {"utilization", "rates"}  # null takes what a library entry has away


def read_system(file: SystemFile, problems: list[Problem]) -> System | None:
    """Return the system of a section; None, with ``problems`` longer, if something is wrong."""
    return _Builder(file, problems).system()


def _named_alone(model: LibraryModel) -> bool:
    return model.model_fields_set == {"library"}


@dataclass
class _Builder:
    """Builds a system, collecting problems, and unit prices from library entries, on the way."""

    file: SystemFile
    problems: list[Problem]
    unit_prices: dict[str, float] = field(default_factory=dict)

    def system(self) -> System | None:
        before = len(self.problems)
        if self.file.on is not None:
            return self._on_library(self.file.on)
        self._refuse(("fabric", "link"), "system", self.file, "allowed with system.on")
        chip = self._chip(self.file.chip, None)
        memories = self._memories(chip)
        network = self._network()
        n_chips = self._n_chips(network)
        prices = self._prices(Prices())
        if len(self.problems) > before or not (chip and memories and network):
            return None
        if not (n_chips and prices):
            return None
        with collecting(self.problems, "system"):
            return System(
                chip=replace(chip, memories=memories),
                network=tuple(network),
                n_chips=n_chips,
                prices=prices,
                domain_size=self.file.domain_size,
                copies=self.file.copies,
                all_reduce=self.file.all_reduce,
                name=self.file.name or "system",
            )
        return None

    def _on_library(self, name: str) -> System | None:
        """Return a machine of the library, changed where the file says so."""
        before, file = len(self.problems), self.file
        self._refuse(("network", "topology"), "system", file, "allowed without system.on")
        found: System | None = None
        with collecting(self.problems, "system"):
            found = system_on(name, chips=file.n_chips, fabric=file.fabric, port=file.link)
        if found is None:
            return None
        chip = found.chip if file.chip is None else self._chip(file.chip, found.chip)
        memories = self._memories(chip)
        prices = self._prices(found.prices)
        if len(self.problems) > before or not (chip and memories and prices):
            return None
        with collecting(self.problems, "system"):
            return replace(
                found,
                chip=replace(chip, memories=memories),
                network=self._without_own(found.network),
                prices=prices,
                domain_size=file.domain_size,
                copies=file.copies,
                all_reduce=file.all_reduce,
                name=file.name or found.name,
            )
        return None

    def _chip(self, file: ChipFile | None, base: Chip | None) -> Chip | None:
        """Return the chip: as its record is where it has compute, of the library, or flat."""
        path = "system.chip"
        if file is None:
            self.problems.append(Problem(path, "required, but missing."))
            return None
        if file.compute is not None:
            others = ("library", *_FLAT)
            self._refuse(others, path, file, "allowed without system.chip.compute, which says it")
            with collecting(self.problems, path):
                return _whole_chip(file)
            return None
        self._refuse(_LEVELLED, path, file, "allowed with system.chip.compute")
        given = {k: v for k, v in file.given().items() if v is not None or k in _NULLABLE}
        for name in ("library", "memories", *_LEVELLED):
            given.pop(name, None)
        if base is None and file.library is None:
            self._require(given, _REQUIRED, path, named=False)
            if any(name not in given for name in _REQUIRED):
                return None
        if file.library is not None:
            with collecting(self.problems, path if _named_alone(file) else f"{path}.library"):
                base = library_chip(file.library)
            if base is None or base.name != file.library:
                return None
        if {"rates", "relative_rates"} <= given.keys():
            message = "not allowed beside rates, which says the same in FLOP/s."
            self.problems.append(Problem(f"{path}.relative_rates", message))
        with collecting(self.problems, path):
            return _flat_of(given) if base is None else _changed_chip(base, given)
        return None

    def _memories(self, chip: Chip | None) -> tuple[MemoryLevel, ...] | None:
        """Return what the file says of memory, else what the chip brings."""
        file, path = self.file.memory, "system.memory"
        beside = self.file.chip.memories if self.file.chip is not None else None
        if beside is not None and file is not None:
            message = "required, but not allowed beside system.chip.memories."
            self.problems.append(Problem(path, message))
        elif beside is not None:
            with collecting(self.problems, "system.chip.memories"):
                return _levels(beside)
        elif file is not None:
            return self._memory(file, path, chip)
        elif chip is not None and chip.memories:
            return chip.memories
        elif chip is not None or self.file.chip is None:
            self.problems.append(Problem(path, "required, but missing."))
        return None

    def _memory(
        self, file: MemoryFile, path: str, chip: Chip | None
    ) -> tuple[MemoryLevel, ...] | None:
        """Return the library's memory, or the chip's, with the file's values over them."""
        values: dict[str, Any] = {}
        given = {k: v for k, v in file.given().items() if v is not None or k == "capacity"}
        given.pop("library", None)
        if file.library is not None:
            before = len(self.problems)
            with collecting(self.problems, path if _named_alone(file) else f"{path}.library"):
                values = {**entry("memories", file.library).values, "name": file.library}
            if len(self.problems) > before:
                return None
            for price, name in (("price", "memory"), ("power", "memory_power")):
                if price in values:
                    self.unit_prices[name] = values.pop(price)
        elif chip is not None and chip.memories and "bandwidth" not in given:
            return self._changed_memories(chip, given, path)
        values |= given
        self._require(values, ("bandwidth",), path, named=file.library is not None)
        if "bandwidth" not in values:
            return None
        with collecting(self.problems, path):
            return main_memory(**values)
        return None

    def _changed_memories(
        self, chip: Chip, given: dict[str, Any], path: str
    ) -> tuple[MemoryLevel, ...] | None:
        """Return the memories of a chip of the library, with the file's values over them."""
        first, *others = chip.memories
        values: dict[str, Any] = {"bandwidth": first.speed, "capacity": first.capacity}
        for second in others:
            values |= {"second_bandwidth": second.speed, "second_capacity": second.capacity}
        with collecting(self.problems, path):
            main, *rest = main_memory(**values | given)
            same = {"name": main.name, "bandwidth": main.bandwidth, "capacity": main.capacity}
            return (replace(first, **same | {"name": given.get("name", first.name)}), *rest)
        return None

    def _refuse(self, names: Iterable[str], path: str, file: FileModel, allowed: str) -> None:
        given = file.given()
        self.problems += [Problem(f"{path}.{n}", f"{allowed}.") for n in names if n in given]

    def _require(
        self, values: dict[str, Any], required: Iterable[str], path: str, *, named: bool
    ) -> None:
        hint = "" if named else " (or library, a name to start from)"
        self.problems.extend(
            Problem(f"{path}.{name}", f"required, but missing{hint}.")
            for name in required
            if name not in values
        )

    def _network(self) -> list[Dimension] | None:
        network, shape = self.file.network, self.file.topology
        if (network is None) == (shape is None):
            found = "missing" if network is None else "both are given"
            message = f"required: either network, a list of dimensions, or topology; {found}."
            self.problems.append(Problem("system.network", message))
            return None
        if shape is not None:
            return self._from_topology(shape)
        dimensions = [
            self._dimension(one, f"system.network[{i}]") for i, one in enumerate(network or [])
        ]
        if not dimensions:
            message = "got no dimensions; allowed: 1 to 4 dimensions."
            self.problems.append(Problem("system.network", message))
        return None if None in dimensions else [one for one in dimensions if one is not None]

    def _dimension(self, file: DimensionFile, path: str) -> Dimension | None:
        values: dict[str, Any] = {}
        if file.library is not None:
            found = self._link(file.library, f"{path}.library")
            if found is None:
                return None
            values = _link_values(found)
        values |= {f: v for f, v in file.given().items() if v is not None and f != "library"}
        self._require(values, ("bandwidth",), path, named=file.library is not None)
        if "bandwidth" not in values:
            return None
        if "shape" in values:
            values["shape"] = tuple(values["shape"])
        with collecting(self.problems, path):
            return Dimension(**values)
        return None

    def _from_topology(self, file: TopologyFile) -> list[Dimension] | None:
        path, before = "system.topology", len(self.problems)
        kinds: tuple[DimensionKind, ...] = ()
        self._require({"library": 0} if file.library else {}, ("library",), path, named=True)
        with collecting(self.problems, f"{path}.library"):
            kinds = topology(file.library) if file.library is not None else ()
        many = len(file.link) > 1
        links = [
            self._link(name, f"{path}.link[{i}]" if many else f"{path}.link")
            for i, name in enumerate(file.link)
        ]
        sizes = file.sizes or [None] * len(kinds)
        uses = file.parallelism or [None] * len(kinds)
        for name, given in (("sizes", sizes), ("link", links), ("parallelism", uses)):
            if kinds and len(given) != len(kinds) and not (name == "link" and not many):
                message = f"got {len(given)}; allowed: {len(kinds)}, one per dimension"
                one = ", or one for all" if name == "link" else ""
                self.problems.append(Problem(f"{path}.{name}", f"{message}{one}."))
        if len(self.problems) > before:
            return None
        found = [one for one in links if one is not None]
        found = found if many else found * len(kinds)
        return [
            Dimension(kind=kind, size=size, parallelism=use, **_link_values(one))
            for kind, size, use, one in zip(kinds, sizes, uses, found, strict=True)
        ]

    def _link(self, name: str, path: str) -> NetworkLink | None:
        """Return the library's link, its unit prices noted."""
        with collecting(self.problems, path):
            found = link(name)
            for price, of_link in _LINK_PRICES.items():
                self._note_price(price, getattr(found, of_link))
            return found
        return None

    def _note_price(self, name: str, value: float | None) -> None:
        if value is None:
            return
        given = self.file.prices
        before = self.unit_prices.setdefault(name, value)
        if before == value or (given is not None and getattr(given, name) is not None):
            return
        unit = "W/(B/s)" if name.endswith("power") else "USD/(B/s)"
        both = " and ".join(format_quantity(v, unit) for v in (before, value))
        message = f"the links of the network differ ({both}); give the one to use."
        self.problems.append(Problem(f"system.prices.{name}", message))

    def _n_chips(self, network: list[Dimension] | None) -> int | None:
        if self.file.n_chips is not None or network is None:
            return self.file.n_chips
        sizes = [d.size for d in network if d.size is not None]
        if len(sizes) < len(network):
            message = "required where a dimension of the network has no size."
            self.problems.append(Problem("system.n_chips", message))
            return None
        return math.prod(sizes)

    def _without_own(self, network: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
        """Return a network that costs what the file says, where it does."""
        given = self.file.prices.given() if self.file.prices is not None else {}
        own: dict[str, Any] = {
            _OWN_PRICES[f]: None for f, v in given.items() if f in _OWN_PRICES and v is not None
        }
        return tuple(replace(d, **own) for d in network)

    def _prices(self, usual: Prices) -> Prices | None:
        given = self.file.prices.given() if self.file.prices is not None else {}
        prices = self.unit_prices | {f: v for f, v in given.items() if v is not None}
        with collecting(self.problems, "system.prices"):
            return replace(usual, **prices)
        return None


def _link_values(found: NetworkLink) -> dict[str, Any]:
    return {
        "bandwidth": found.bandwidth,
        "latency": found.latency,
        "link_power": found.link_power,
    }


# ---------------------------------------------------------------- the chip


def _whole_chip(file: ChipFile) -> Chip:
    """Return a chip that the file describes as its record is, without memories."""
    assert file.compute is not None  # the caller asked
    compute = file.compute.given()
    for name in ("relative_rates", "relative_vector_rates"):
        compute[name] = _in_order(compute.get(name) or {})
    others = compute.pop("accumulator_rates", None) or {}
    compute["accumulator_rates"] = tuple(
        (dtype, sums, share) for dtype, shares in others.items() for sums, share in shares.items()
    )
    given = {k: v for k, v in file.given().items() if v is not None and k in Chip.__slots__}
    given["compute"] = Compute(**compute)
    given["fusions"] = tuple(given.get("fusions", ()))
    given["levels"], given["memories"] = _levels(file.levels or ()), ()
    for name in ("intra", "inter"):
        if name in given:
            given[name] = Link(**given[name].given())
    return Chip(**given)


def _levels(files: Iterable[LevelFile]) -> tuple[MemoryLevel, ...]:
    """Return levels of memory; raises `InputError` for the first that is wrong."""
    return tuple(MemoryLevel(**level.given()) for level in files)


def _flat_of(given: dict[str, Any]) -> Chip:
    """Return the flat chip that the fields of a file make."""
    values = {name: value for name, value in given.items() if name != "rates"}
    values["fusions"] = tuple(values.get("fusions", ()))
    shares = dict(values.pop("relative_rates", {}))
    shares |= relative_rates(given.get("rates") or {}, values)
    return flat_chip(**values, relative_rates=_in_order(shares))


def _changed_chip(base: Chip, given: dict[str, Any]) -> Chip:
    """Return a chip of the library with the fields that a file gives over its own.

    `InputError` if it is not of cores alone and fields of one are given, or for a bad number.
    """
    flat = flat_fields(base)
    if flat is not None:
        rates = {} if given.get("rates", {}) is None else dict(flat["relative_rates"])
        rates |= given.get("relative_rates", {})
        made = _flat_of({**flat, **given, "relative_rates": rates})
        return replace(made, memories=base.memories)
    wrong = [
        Problem(name, f"{base.name} has levels and no cells; describe it with compute and levels.")
        for name in _CELLS
        if name in given
    ]
    if wrong:
        raise InputError(wrong)
    changed = base
    if "frequency" in given:
        known = base.name in names("chips")
        changed = (
            replace(library_chip(base.name, frequency=given["frequency"]), memories=base.memories)
            if known
            else base.with_compute(frequency=given["frequency"])
        )
        changed = replace(changed, intra=base.intra, inter=base.inter)
    compute = {name: given[name] for name in ("utilization",) if name in given}
    if "rates" in given or "relative_rates" in given:
        compute["relative_rates"] = _rates(changed, given)
    simple = {k: v for k, v in given.items() if k in Chip.__slots__ and k != "fusions"}
    if "fusions" in given:
        simple["fusions"] = tuple(given["fusions"])
    return replace(changed.with_compute(**compute), **simple)


def _rates(base: Chip, given: dict[str, Any]) -> tuple[tuple[Dtype, float], ...]:
    """Return the chip's rates with the file's over them; none where the file says null."""
    if given.get("rates", {}) is None:
        return ()
    found = dict(base.compute.relative_rates) | given.get("relative_rates", {})
    found |= {d: rate / base.peak_throughput for d, rate in given.get("rates", {}).items()}
    return _in_order(found)


def _in_order(shares: dict[Dtype, float]) -> tuple[tuple[Dtype, float], ...]:
    return tuple((dtype, shares[dtype]) for dtype in Dtype if dtype in shares)
