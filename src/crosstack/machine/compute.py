"""What a chip computes with: units, in multiprocessors; what they multiply each cycle, how fast."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require, require_quantity, require_whole
from crosstack.records import require_types
from crosstack.workload.dtype import Dtype


class Dataflow(StrEnum):
    """Which operand stays in the registers of the systolic array; ``none`` keeps nothing there.

    ``best`` is the one of weight, activation and output that needs the fewest register accesses.
    """

    BEST = "best"
    WEIGHT = "weight"
    ACTIVATION = "activation"
    OUTPUT = "output"
    NONE = "none"


class MathLibrary(StrEnum):
    """Whose functions of single precision run on the lanes: NVIDIA's, or AMD's (``amd_ocml``)."""

    CUDA = "cuda"
    OCML = "ocml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Compute units, in multiprocessors; a unit multiplies two small matrices every cycle.

    A unit is what can be given to a kernel on its own: a tensor core, or a core of a spatial chip.
    Source of the fields: ``ardalani2022deepflow``, section 4; ``ko2025dfmodel``, Table V.

    The units of a multiprocessor share a memory; ``n_units`` that fill none compute all the same.
    [1] A unit's array multiplies rows x depth by depth x columns: ``rows`` split M, ``columns`` N
    [1]; ``depth`` is what it takes of K in a cycle [B], None for one element of any type;
    ``work_per_cycle`` is that of one unit. [FLOP] ``voltage`` is that at the clock ``frequency``, 0
    where it is not known [V]; ``power`` that of all units [W]. ``utilization`` is the share of the
    peak that compute reaches; None computes the cycles of every kernel from its shape. [1]

    ``relative_rates`` are rates by type over the peak, so that both follow units and clock,
    products added up as usual (`Dtype.accumulator`); empty where one peak holds for every type.
    ``relative_vector_rates``: of what is beside the arrays, for elementwise work; empty where the
    arrays do it. ``accumulator_rates``: in numbers of the first type where products are added up in
    the second, another one than usual. [1] ``accumulator``: what the job adds up in; None as usual.

    ``operand_rows``: rows of C for which an instruction reads its operands from the memory of the
    multiprocessor, 0 where units read theirs into their registers; ``paired`` multiprocessors hold
    a part each of one operand of both; ``cluster`` of them read from levels of the chip together
    what several need; ``special_per_cycle``: results of exponentials, reciprocals and the like that
    a multiprocessor has each cycle, 0 where these are instructions like others [1]; ``functions``:
    the library that makes functions of them. ``boost`` is
    the highest clock over ``frequency``, ``sustained`` that at which arrays that are all busy take
    the power that the chip may take; None: always ``frequency``. ``starting``: that of work that
    has gone on for less than some tenths of a second; None: ``boost``. ``slowest``: of the slowest
    of chips that wait for one another, over that (`crosstack.machine.slowest`). [1]
    """

    n_units: int
    n_multiprocessors: int
    work_per_cycle: float
    frequency: float
    rows: int = 1
    columns: int = 1
    depth: float | None = None
    voltage: float = 0.0
    utilization: float | None = None
    dataflow: Dataflow = Dataflow.BEST
    power: float = 0.0
    relative_rates: tuple[tuple[Dtype, float], ...] = ()
    relative_vector_rates: tuple[tuple[Dtype, float], ...] = ()
    accumulator_rates: tuple[tuple[Dtype, Dtype, float], ...] = ()
    accumulator: Dtype | None = None
    operand_rows: int = 0
    paired: int = 1
    cluster: int = 1
    special_per_cycle: float = 0.0
    functions: MathLibrary = MathLibrary.CUDA
    boost: float = 1.0
    sustained: float | None = None
    starting: float | None = None
    slowest: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        none, one = ("n_units", "n_multiprocessors", "operand_rows"), ("rows", "columns", "paired")
        for name, least in (*((n, 0) for n in none), *((n, 1) for n in (*one, "cluster"))):
            require_whole(name, getattr(self, name), minimum=least)
        if self.depth is not None:
            require_quantity("depth", self.depth, "B", above_zero=True)
        units = {"work_per_cycle": "FLOP", "frequency": "Hz", "voltage": "V", "power": "W"}
        units |= {"special_per_cycle": "1"}
        for name, unit in units.items():
            require_quantity(name, getattr(self, name), unit)
        if self.utilization is not None:
            require_quantity("utilization", self.utilization, "1", above_zero=True)
            require(self.utilization <= 1, "utilization", self.utilization, "above 0, at most 1")
        require_quantity("boost", self.boost, "1", above_zero=True)
        for name in ("sustained", "starting"):
            if (clock := getattr(self, name)) is not None:
                require_quantity(name, clock, "1", above_zero=True)
                require(clock <= self.boost, name, clock, f"above 0, at most boost, {self.boost:g}")
        require_quantity("slowest", self.slowest, "1", above_zero=True)
        require(self.slowest <= 1, "slowest", self.slowest, "above 0, at most 1")
        for name in ("relative_rates", "relative_vector_rates"):
            for dtype, share in getattr(self, name):
                require_quantity(f"{name}.{dtype}", share, "1", above_zero=True)
        for dtype, sums, share in self.accumulator_rates:
            path = f"accumulator_rates.{dtype}.{sums}"
            require_quantity(path, share, "1", above_zero=True)
            require(sums is not dtype.accumulator, path, share, "left out: that is the usual rate")

    @property
    def peak_throughput(self) -> float:
        """Peak rate: n_units work_per_cycle frequency. [FLOP/s]"""
        return self.n_units * self.work_per_cycle * self.frequency

    @property
    def throughput(self) -> float:
        """Rate that is reached: peak times utilization, where that is given. [FLOP/s]"""
        return self.peak_throughput * (1.0 if self.utilization is None else self.utilization)

    def relative_rate(self, dtype: Dtype) -> float | None:
        """Return the rate in numbers of a type over the peak, as the job adds up; None without."""
        dtype = Dtype(dtype).multiplied_as
        if self.accumulator is None or self.accumulator is dtype.accumulator:
            return dict(self.relative_rates).get(dtype)
        others = {(of, sums): share for of, sums, share in self.accumulator_rates}
        return others.get((dtype, self.accumulator))

    @property
    def steps_per_cycle(self) -> float:
        """Elements of K that the array takes in a cycle at the peak; 1 of a flat chip. [1]"""
        return self.work_per_cycle / (2 * self.rows * self.columns)

    def elements_deep(self, dtype: Dtype) -> int:
        """Return how many numbers of a type the array takes of K in a cycle, at least 1. [1]"""
        return 1 if self.depth is None else max(1, math.floor(self.depth / dtype.unscaled_size))
