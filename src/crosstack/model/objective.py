"""What a mapping is chosen for: time, energy, or the price of the machine while it runs.

An objective is ``a T + b E``: a price of an iteration's time and one of its energy
(`crosstack.model.energy`). The search counts in seconds of one layer: what a second of it costs in
time, and how much main memory, the network and operations add to that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from crosstack.errors import InputError, Problem, require
from crosstack.machine.prices import missing_costs, not_given, system_price, unit_prices
from crosstack.machine.system import System
from crosstack.model.dispatch import waits_for_host
from crosstack.model.energy import Energy, energy_rates, powers_of
from crosstack.model.iteration import steepest
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules

YEARS = 4.0  # over which a machine is paid off (assumed)
YEAR = 365.25 * 86400.0


class Objective(StrEnum):
    """What is minimised: time [s], energy [J], price [USD] or energy times time [J s].

    ``price``: the share of the purchase price that an iteration takes of `YEARS` of use.
    """

    TIME = "time"
    ENERGY = "energy"
    PRICE = "price"
    ENERGY_DELAY = "energy-delay"

    @property
    def unit(self) -> str:
        """Of its values."""
        return {"time": "s", "energy": "J", "price": "USD", "energy-delay": "J s"}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Price of a second and of a joule; ``owned``: the machine's price over `YEARS`, besides."""

    time: float = 0.0
    energy: float = 0.0
    owned: bool = False

    def __post_init__(self) -> None:
        """Check that something is priced."""
        for name in ("time", "energy"):
            value = getattr(self, name)
            require(0 <= value < math.inf, name, value, "a price, at least 0")
        require(self.time + self.energy > 0 or self.owned, "time", self.time, "above 0, or energy")

    @classmethod
    def of(cls, objective: Objective) -> Weights:
        """Return the weights of an objective that has some.

        Raises `InputError` for ``energy-delay``, which is no weighted sum.
        """
        weights: dict[str, dict[str, Any]] = {
            "time": {"time": 1.0}, "energy": {"energy": 1.0}, "price": {"owned": True},
        }  # fmt: skip
        if objective not in weights:
            message = f"{objective} is no weighted sum of time and energy."
            raise InputError(Problem("objective", message))
        return cls(**weights[objective])

    @property
    def only_time(self) -> bool:
        """Whether the fastest mapping is the best."""
        return self.energy == 0 and not self.owned


def price_of(system: System, sizes: tuple[int, ...]) -> float:
    """Price of a system with the given dimension sizes. [USD]

    Raises `InputError` for every part of it whose price is needed and not given.
    """
    bill = system_price(system, sizes)
    if bill.total is not None:
        return bill.total
    missing = ["system.chip.price"] if bill.chips is None else []
    missing += ["system.prices.memory"] if bill.memory is None else []
    bare = {"system.prices.link": bill.links, "system.prices.switch": bill.switches}
    fields = missing_costs(system, sizes, unit_prices(system))
    missing += [field for field in fields if bare[field] is None]
    raise InputError([not_given(field, "the price") for field in missing])


def value_of(
    objective: Objective,
    system: System,
    sizes: tuple[int, ...],
    *,
    time: float,
    energy: Energy | None,
) -> float:
    """Return the value of an objective for one iteration.

    Raises `InputError` for every power or price that the objective needs and that is not given.

    Parameters
    ----------
    sizes : tuple of int
        Chips of each dimension of the system's network. [1]
    time, energy : float, Energy or None
        Of the iteration [s]; None where a power is not given.
    """
    match objective:
        case Objective.TIME:
            return time
        case Objective.PRICE:
            return price_of(system, sizes) * time / (YEARS * YEAR)
    if energy is None:
        powers_of(system, sizes)  # which names what is missing
    assert energy is not None
    return energy.total * (time if objective is Objective.ENERGY_DELAY else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPrices:
    """Prices under one plan, or arrays of many, in seconds of one layer of one sequence.

    ``second`` is what a second of the iteration costs, static power included. ``memory``,
    ``network`` and ``data`` are what a second of main memory, of the network, and of the gradient
    all-reduce adds to a second of a layer, ``exchange`` of the network for tokens that go to
    experts, ``context`` for keys and values [1]; ``work`` what an operation adds [s/FLOP],
    ``on_chip`` a joule of memories on the chip [s/J]; ``fixed`` what stages send to each other,
    sums, updates and ends add to an iteration; ``per_layer`` seconds of an iteration for each
    second of a layer, at most. [1]
    """

    second: float = 1.0
    memory: float = 0.0
    network: float = 0.0
    exchange: float = 0.0
    context: float = 0.0
    data: float = 0.0
    work: float = 0.0
    on_chip: float = 0.0
    fixed: float = 0.0
    per_layer: float = 1.0


TIME = LayerPrices()


def layer_prices(
    weights: Weights, system: System, plan: MeshPlan, peak: float, rules: Rules
) -> LayerPrices:
    """Return the prices under a plan; chips draw all that computing adds at ``peak`` [FLOP/s].

    Raises `InputError` if a power or a price that is needed is not given, time costs nothing, or
    energy is asked of chips that may wait for their host.
    """
    second = weights.time
    if weights.owned:
        second += price_of(system, plan.dimension_sizes) / (YEARS * YEAR)
    if not weights.energy:
        return LayerPrices(second=second)
    if waits_for_host(system.chip):
        # A layer's energy counts also where its time does not, behind that of the launches.
        allowed = "time or price, or a framework whose launches are replayed (dispatch: null)"
        raise InputError(Problem("objective", f"needs energy; allowed: {allowed}."))
    rates = energy_rates(system, plan)
    second += weights.energy * rates.static
    if second <= 0:
        message = "got 0 W always drawn, so time costs nothing; allowed: more than that."
        raise InputError(Problem("system.chip.power", message))
    per_layer = steepest(plan, system.chip.overlap, rules)
    each = weights.energy / (second * per_layer)
    ends = rates.of_ends(plan)
    return LayerPrices(
        second=second,
        memory=each * rates.memory,
        network=each * rates.tensor,
        exchange=each * rates.expert,
        context=each * rates.context,
        data=each * rates.data,
        work=each * rates.compute / peak,
        on_chip=each * rates.on_chip,
        fixed=weights.energy * (rates.once + ends),
        per_layer=per_layer,
    )
