"""The ``system`` section of a native file, made into a `System`, with library names looked up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from crosstack.errors import InputError, Problem
from crosstack.io.files import under
from crosstack.io.library import NetworkLink, entry, framework, link, names, system_on, topology
from crosstack.io.library import chip as library_chip
from crosstack.io.native.problems import collecting, path_of
from crosstack.io.native.schema import FileModel
from crosstack.machine.calibration import Calibration
from crosstack.machine.chip import Chip, Link, flat_chip, flat_fields, relative_rates
from crosstack.machine.compute import Compute
from crosstack.machine.framework import Framework
from crosstack.machine.host import HostShare
from crosstack.machine.memory import MemoryLevel, main_memory
from crosstack.machine.system import Dimension, DimensionKind, Prices, System
from crosstack.units import format_quantity
from crosstack.workload.dtype import Dtype

T = TypeVar("T")
_OWN_PRICES = {"link": "link_price", "switch": "switch_price", "switch_power": "switch_power"}
_LINK_PRICES = {"link": "price", "switch": "switch_price", "switch_power": "switch_power"}


_REQUIRED = ("n_cores", "lanes", "stages", "frequency", "sram_capacity")
_CELLS = ("n_cores", "lanes", "stages", "sram_capacity", "memory_units", "memory_unit_capacity")
_FLAT = (*_REQUIRED, "utilization", "memory_units", "memory_unit_capacity", "rates",
        "relative_rates")  # fmt: skip
_LEVELLED = ("levels", "intra", "inter")


def read_system(file: FileModel, problems: list[Problem]) -> System | None:
    """Return the system of a section; None, with ``problems`` longer, if something is wrong."""
    with collecting(problems, "system"):
        return _Reader(file).system()
    return None


def _path(model: FileModel, path: str) -> str:
    """Return where the library's name is: ``path`` itself, if nothing is beside it."""
    return path if model.model_fields_set == {"library"} else f"{path}.library"


def _require(values: dict[str, Any], required: Iterable[str], path: str, *, named: bool) -> None:
    hint = "" if named else " (or library, a name to start from)"
    missing = [name for name in required if name not in values]
    if missing:
        message = f"required, but missing{hint}."
        raise InputError(Problem(f"{path}.{name}", message) for name in missing)


@dataclass
class _Reader:
    """Reads a system, collecting problems, and unit prices from library entries, on the way."""

    file: FileModel
    problems: list[Problem] = field(default_factory=list)
    unit_prices: dict[str, float] = field(default_factory=dict)

    def system(self) -> System:
        """Return the system; `InputError` with every problem, by its path in the section."""
        file, found = self.file, None
        if file.on is None:
            self._refuse(("fabric", "link"), "", file, "allowed with system.on")
        else:
            self._refuse(("network", "topology"), "", file, "allowed without system.on")
            with collecting(self.problems, ""):
                found = system_on(file.on, chips=file.n_chips, fabric=file.fabric, port=file.link)
            if found is None:
                raise InputError(self.problems)
        chip = found and found.chip
        if found is None or file.chip is not None:
            chip = self._tried(self._chip, file.chip, chip)
        memories = self._tried(self._memories, chip)
        network = self._without_own(found.network) if found else self._tried(self._network)
        n_chips = found.n_chips if found else self._tried(self._n_chips, network)
        prices = self._tried(self._prices, found.prices if found else Prices())
        driven = self._tried(self._framework, file.framework) if file.framework else None
        if self.problems or not (chip and memories and network and n_chips and prices):
            raise InputError(self.problems)
        made = System(
            chip=replace(chip, memories=memories),
            network=network,
            n_chips=n_chips,
            prices=prices,
            domain_size=file.domain_size,
            copies=file.copies,
            all_reduce=file.all_reduce,
            host=self._host(found.host if found else None),
            name=file.name or (found.name if found else "system"),
        )
        made = made.driven_by(driven) if driven else made
        if file.calibrated is None:
            return made
        with under("calibrated"):
            return Calibration(**file.calibrated.given()).applied(made)

    def _host(self, usual: HostShare | None) -> HostShare | None:
        """Return what a chip has of its host: as the file says, or else the machine's."""
        if self.file.host is None:
            return usual
        with under("host"):
            return HostShare(**self.file.host.given())

    def _framework(self, file: FileModel) -> Framework:
        """Return the library's framework, with the file's values over it, or one of its own."""
        given = file.given("dispatch")  # null: launches are replayed
        name = given.pop("library", None)
        given |= {k: tuple(v) for k, v in given.items() if isinstance(v, list)}
        if name is None:
            with under("framework"):
                return Framework(**given)
        with under(_path(file, "framework")):
            base = framework(name)
        with under("framework"):
            return replace(base, **given)

    def _tried(self, read: Callable[..., T], *arguments: Any) -> T | None:
        """Return what is read; None, its problems noted, where something is wrong."""
        with collecting(self.problems, ""):
            return read(*arguments)
        return None

    def _chip(self, file: FileModel | None, base: Chip | None) -> Chip:
        """Return the chip: as its record is where it has compute, of the library, or flat."""
        if file is None:
            raise InputError(Problem("chip", "required, but missing."))
        if file.compute is not None:
            others = ("library", *_FLAT)
            self._refuse(others, "chip", file, "allowed without system.chip.compute, which says it")
            with under("chip"):
                return _whole_chip(file)
        self._refuse(_LEVELLED, "chip", file, "allowed with system.chip.compute")
        given = file.given("utilization", "rates")  # null takes what a library entry has away
        for name in ("library", "memories", *_LEVELLED):
            given.pop(name, None)
        if file.library is not None:
            with under(_path(file, "chip")):
                base = library_chip(file.library)
        elif base is None:
            _require(given, _REQUIRED, "chip", named=False)
        if {"rates", "relative_rates"} <= given.keys():
            message = "not allowed beside rates, which says the same in FLOP/s."
            self.problems.append(Problem("chip.relative_rates", message))
        with under("chip"):
            return _flat_of(given) if base is None else _changed_chip(base, given)

    def _memories(self, chip: Chip | None) -> tuple[MemoryLevel, ...] | None:
        """Return what the file says of memory, else what the chip brings."""
        file = self.file.memory
        beside = self.file.chip.memories if self.file.chip is not None else None
        if beside is not None and file is not None:
            message = "required, but not allowed beside system.chip.memories."
            raise InputError(Problem("memory", message))
        if beside is not None:
            with under("chip.memories"):
                return _levels(beside)
        if file is not None:
            return self._memory(file, chip)
        if chip is not None and chip.memories:
            return chip.memories
        if chip is not None or self.file.chip is None:
            raise InputError(Problem("memory", "required, but missing."))
        return None

    def _memory(self, file: FileModel, chip: Chip | None) -> tuple[MemoryLevel, ...]:
        """Return the library's memory, or the chip's, with the file's values over them."""
        values: dict[str, Any] = {}
        given = file.given("capacity")
        given.pop("library", None)
        if file.library is not None:
            with under(_path(file, "memory")):
                values = {**entry("memories", file.library).values, "name": file.library}
            for price, name in (("price", "memory"), ("power", "memory_power")):
                if price in values:
                    self.unit_prices[name] = values.pop(price)
        elif chip is not None and chip.memories:
            with under("memory"):
                return _changed_memories(chip, given)
        values |= given
        _require(values, ("bandwidth",), "memory", named=file.library is not None)
        with under("memory"):
            return main_memory(**values)

    def _refuse(self, names: Iterable[str], path: str, file: FileModel, allowed: str) -> None:
        given = [name for name in names if name in file.model_fields_set]
        self.problems += [Problem(path_of(path, [name]), f"{allowed}.") for name in given]

    def _network(self) -> tuple[Dimension, ...] | None:
        network, shape = self.file.network, self.file.topology
        if (network is None) == (shape is None):
            found = "missing" if network is None else "both are given"
            message = f"required: either network, a list of dimensions, or topology; {found}."
            raise InputError(Problem("network", message))
        if shape is not None:
            return self._from_topology(shape)
        if not network:
            raise InputError(Problem("network", "got no dimensions; allowed: 1 to 4 dimensions."))
        read = [self._tried(self._dimension, one, f"network[{i}]") for i, one in enumerate(network)]
        return None if None in read else tuple(one for one in read if one is not None)

    def _dimension(self, file: FileModel, path: str) -> Dimension:
        library = file.library
        values = {} if library is None else _link_values(self._link(library, f"{path}.library"))
        values |= file.given()
        values.pop("library", None)
        _require(values, ("bandwidth",), path, named=library is not None)
        if "shape" in values:
            values["shape"] = tuple(values["shape"])
        with under(path):
            return Dimension(**values)

    def _from_topology(self, file: FileModel) -> tuple[Dimension, ...] | None:
        path, before = "topology", len(self.problems)
        kinds: tuple[DimensionKind, ...] = ()
        if not file.library:
            self.problems.append(Problem("topology.library", "required, but missing."))
        else:
            with collecting(self.problems, "topology.library"):
                kinds = topology(file.library)
        many = len(file.link) > 1
        links = [
            self._tried(self._link, name, f"{path}.link[{i}]" if many else f"{path}.link")
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
        return tuple(
            Dimension(kind=kind, size=size, parallelism=use, **_link_values(one))
            for kind, size, use, one in zip(kinds, sizes, uses, found, strict=True)
        )

    def _link(self, name: str, path: str) -> NetworkLink:
        """Return the library's link, its unit prices noted."""
        with under(path):
            found = link(name)
        for price, of_link in _LINK_PRICES.items():
            self._note_price(price, getattr(found, of_link))
        return found

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
        self.problems.append(Problem(f"prices.{name}", message))

    def _n_chips(self, network: tuple[Dimension, ...] | None) -> int | None:
        given: int | None = self.file.n_chips
        if given is not None or network is None:
            return given
        sizes = [d.size for d in network if d.size is not None]
        if len(sizes) < len(network):
            message = "required where a dimension of the network has no size."
            raise InputError(Problem("n_chips", message))
        return math.prod(sizes)

    def _without_own(self, network: tuple[Dimension, ...]) -> tuple[Dimension, ...]:
        """Return a network that costs what the file says, where it does."""
        given = self.file.prices.given() if self.file.prices is not None else {}
        own: dict[str, Any] = {of: None for price, of in _OWN_PRICES.items() if price in given}
        return tuple(replace(d, **own) for d in network)

    def _prices(self, usual: Prices) -> Prices:
        given = self.file.prices.given() if self.file.prices is not None else {}
        with under("prices"):
            return replace(usual, **self.unit_prices | given)


def _changed_memories(chip: Chip, given: dict[str, Any]) -> tuple[MemoryLevel, ...]:
    """Return the memories of a chip of the library, with the file's values over them.

    What streams from the memory takes to come stays; a second one is none of a file that says both
    bandwidth and capacity, which are then all there is.
    """
    first, *others = chip.memories
    values: dict[str, Any] = {n: getattr(first, n) for n in ("capacity", "spare")}
    values["bandwidth"] = first.speed
    for second in () if {"bandwidth", "capacity"} <= given.keys() else others:
        values |= {"second_bandwidth": second.speed, "second_capacity": second.capacity}
    main, *rest = main_memory(**values | given)
    same = {n: getattr(main, n) for n in ("bandwidth", "capacity", "spare")}
    return (replace(first, **same, name=given.get("name", first.name)), *rest)


def _link_values(found: NetworkLink) -> dict[str, Any]:
    return {f: getattr(found, f) for f in ("bandwidth", "latency", "link_power")}


# ---------------------------------------------------------------- the chip


def _whole_chip(file: FileModel) -> Chip:
    """Return a chip that the file describes as its record is, without memories."""
    compute = file.compute.given()
    for name in ("relative_rates", "relative_vector_rates"):
        compute[name] = _in_order(compute.get(name, {}))
    others = compute.pop("accumulator_rates", {})
    compute["accumulator_rates"] = tuple(
        (dtype, sums, share) for dtype, shares in others.items() for sums, share in shares.items()
    )
    given = {k: v for k, v in file.given().items() if k in Chip.__slots__}
    given["compute"] = Compute(**compute)
    given["fusions"] = tuple(given.get("fusions", ()))
    given["levels"], given["memories"] = _levels(file.levels or ()), ()
    for name in ("intra", "inter"):
        if name in given:
            given[name] = given[name].record(Link)
    return Chip(**given)


def _levels(files: Iterable[FileModel]) -> tuple[MemoryLevel, ...]:
    """Return levels of memory; raises `InputError` for the first that is wrong."""
    return tuple(level.record(MemoryLevel) for level in files)


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
