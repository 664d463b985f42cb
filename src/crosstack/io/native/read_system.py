"""The ``system`` section of a native file, made into a `System`, with library names looked up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from crosstack.errors import Problem
from crosstack.io.library import Link, entry, link, topology
from crosstack.io.native.problems import collecting
from crosstack.io.native.schema import LibraryModel
from crosstack.io.native.task_schema import (
    DimensionFile,
    LevelFile,
    SystemFile,
    TopologyFile,
)
from crosstack.machine.chip import Chip, flat_chip, relative_rates
from crosstack.machine.chip import Link as ChipLink
from crosstack.machine.compute import Compute
from crosstack.machine.memory import MemoryLevel, main_memory
from crosstack.machine.system import Dimension, DimensionKind, Prices, System
from crosstack.units import format_quantity
from crosstack.workload.dtype import Dtype

__all__ = ["read_system"]

Record = TypeVar("Record", Chip, tuple[MemoryLevel, ...])

_CHIP_REQUIRED = ("n_cores", "lanes", "stages", "frequency", "sram_capacity")
_FLAT = (*_CHIP_REQUIRED, "utilization", "memory_units", "memory_unit_capacity", "rates",
         "relative_rates")  # fmt: skip
_LEVELLED = ("levels", "intra", "inter")
_LINK_PRICES = {"link": "price", "switch": "switch_price", "switch_power": "switch_power"}


def read_system(file: SystemFile, problems: list[Problem]) -> System | None:
    """Return the system, or None with ``problems`` longer.

    Parameters
    ----------
    file : SystemFile
        The section.
    problems : list of Problem
        Grows by everything that is wrong.
    """
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
        chip, memories = self._chip(), self._memories()
        network = self._network()
        n_chips = self._n_chips(network)
        prices = self._prices()
        if len(self.problems) > before or not (
            chip and memories and network and n_chips and prices
        ):
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

    def _chip(self) -> Chip | None:
        """Return the chip, without memories: flat, or as its record is where it has compute."""
        file, path = self.file.chip, "system.chip"
        if file.compute is None:
            self._refuse(_LEVELLED, "allowed with system.chip.compute")
            return self._record(flat_chip, "chips", file, path, _CHIP_REQUIRED)
        self._refuse(("library", *_FLAT), "allowed without system.chip.compute, which says it")
        compute = file.compute.given()
        rates = compute.pop("relative_rates", None) or {}
        given = {name: value for name, value in file.given().items() if value is not None}
        given = {name: value for name, value in given.items() if name in Chip.__slots__}
        with collecting(self.problems, path):
            given["compute"] = Compute(
                **compute, relative_rates=tuple((d, rates[d]) for d in Dtype if d in rates)
            )
            given["fusions"] = tuple(given.get("fusions", ()))
            given["levels"], given["memories"] = _levels(file.levels), ()
            for name in ("intra", "inter"):
                if name in given:
                    given[name] = ChipLink(**given[name].given())
            return Chip(**given)
        return None

    def _memories(self) -> tuple[MemoryLevel, ...] | None:
        beside, file = self.file.chip.memories, self.file.memory
        if (beside is None) == (file is None):
            found = "missing" if file is None else "not allowed beside system.chip.memories"
            self.problems.append(Problem("system.memory", f"required, but {found}."))
            return None
        if file is not None:
            return self._record(main_memory, "memories", file, "system.memory", ("bandwidth",))
        with collecting(self.problems, "system.chip.memories"):
            return _levels(beside)
        return None

    def _refuse(self, names: Iterable[str], allowed: str) -> None:
        given = self.file.chip.given()
        self.problems += [Problem(f"system.chip.{n}", f"{allowed}.") for n in names if n in given]

    def _record(
        self,
        make: Callable[..., Record],
        section: str,
        file: LibraryModel,
        path: str,
        required: Iterable[str],
    ) -> Record | None:
        """Return a chip or memory: the library's values, then the file's over them."""
        values: dict[str, Any] = {}
        if file.library is not None:
            where = path if _named_alone(file) else f"{path}.library"
            before = len(self.problems)
            with collecting(self.problems, where):
                values = {**entry(section, file.library).values, "name": file.library}
            if len(self.problems) > before:
                return None
        if section == "memories":
            for price, name in (("price", "memory"), ("power", "memory_power")):
                if price in values:
                    self.unit_prices[name] = values.pop(price)
        nullable = {"capacity", "utilization", "rates"}
        given = {f: v for f, v in file.given().items() if v is not None or f in nullable}
        given.pop("library", None)
        given.pop("memories", None)  # of a chip: see `_memories`
        given.pop("memories", None)  # of a chip: see `_memories`
        rates = {name: given.pop(name) for name in ("rates", "relative_rates") if name in given}
        values |= given
        self._require(values, required, path, named=file.library is not None)
        if any(name not in values for name in required):
            return None
        if rates:
            values["relative_rates"] = self._rates(rates, values, path)
        if "fusions" in values:
            values["fusions"] = tuple(values["fusions"])
        with collecting(self.problems, path):
            return make(**values)
        return None

    def _rates(
        self, given: dict[str, Any], values: dict[str, Any], path: str
    ) -> tuple[tuple[Dtype, float], ...]:
        """Return the library's rates, the file's over them; none where the file says null."""
        if len(given) > 1:
            message = "not allowed beside rates, which says the same in FLOP/s."
            self.problems.append(Problem(f"{path}.relative_rates", message))
        if given.get("rates", {}) is None:
            return ()
        found = dict(values.get("relative_rates", ()))
        found |= given.get("relative_rates", {})
        found |= relative_rates(given.get("rates", {}), values)
        return tuple((dtype, found[dtype]) for dtype in Dtype if dtype in found)

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

    def _link(self, name: str, path: str) -> Link | None:
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

    def _prices(self) -> Prices | None:
        given = self.file.prices.given() if self.file.prices is not None else {}
        prices = self.unit_prices | {f: v for f, v in given.items() if v is not None}
        with collecting(self.problems, "system.prices"):
            return Prices(**prices)
        return None


def _levels(files: list[LevelFile] | None) -> tuple[MemoryLevel, ...]:
    return tuple(MemoryLevel(**level.given()) for level in files or ())


def _link_values(found: Link) -> dict[str, Any]:
    return {
        "bandwidth": found.bandwidth,
        "latency": found.latency,
        "link_power": found.link_power,
    }
