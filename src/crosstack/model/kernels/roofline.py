"""Time of a kernel on a chip: the hierarchical roofline, over any number of memory levels.

`gemm_time` and `elementwise_time` take numbers or arrays; every term of the answer has a name.
`RooflineTimes` is what whole steps are timed with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import InfeasibleError, InputError, Problem
from crosstack.machine.hierarchy import ChipHierarchy, Dataflow
from crosstack.model.kernels.drawn_tiles import (
    largest_axis,
    nested_schedules,
    paired_schedules,
    roofline_time,
)
from crosstack.model.kernels.rules import KernelRules, TileSearch
from crosstack.model.kernels.systolic import chosen_dataflow
from crosstack.model.kernels.waves import best_schedules
from crosstack.units import format_quantity

__all__ = ["ElementwiseTime", "KernelTime", "RooflineTimes", "elementwise_time", "gemm_time"]

Floats = NDArray[np.float64]

# So many that the arrays of shapes and tiles stay in the processor's cache.
SHAPES_AT_ONCE = {TileSearch.EXHAUSTIVE: 512, TileSearch.PAIRED: 32, TileSearch.NESTED: 16}
COMPUTE, WAITING = "compute", "waiting"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTime:
    """A matrix product on a chip, or an array of them; every array has the shapes' shape.

    Parameters
    ----------
    time : ndarray
        The kernel, its launch included. [s]
    bound : ndarray of str
        What takes longest: ``"compute"``, a level's name, or ``"waiting"``.
    launch_time : float
        Before the kernel starts. [s]
    compute_time : ndarray
        Of the busiest bundle. [s]
    waiting_time : ndarray
        Latencies, fill, drain, and what cannot be hidden behind compute. [s]
    reduction_time : ndarray
        Second kernel that adds up the sums of a split K. [s]
    traffic : dict of str to ndarray
        Bytes that each level hands over or takes in, on the whole chip. [B]
    bandwidths : dict of str to ndarray
        What each level gives to the bundles that work, on average: a level of the chip all of its
        bandwidth, one of the bundles their share. [B/s]
    level_times : dict of str to ndarray
        What the traffic of each level takes: traffic over bandwidth. [s]
    passing : dict of str to ndarray
        Bytes that pass from one part of a level to another, besides; the measured bandwidth of a
        level in parts holds with them. [B]
    tiles : dict of str to ndarray, shape (..., 3)
        M, K and N of the product that each level serves at a time. [1]
    split : ndarray
        Parts of K that different bundles work on. [1]
    n_tiles : ndarray
        Tiles of C times parts of K. [1]
    dataflow : ndarray of str
        What stays in the arrays.
    utilization : ndarray
        ``2 M K N`` over what the chip could do in ``time``. [1]
    """

    time: Floats
    bound: NDArray[Any]
    launch_time: float
    compute_time: Floats
    waiting_time: Floats
    reduction_time: Floats
    traffic: dict[str, Floats]
    bandwidths: dict[str, Floats]
    level_times: dict[str, Floats]
    passing: dict[str, Floats]
    tiles: dict[str, Floats]
    split: Floats
    n_tiles: Floats
    dataflow: NDArray[Any]
    utilization: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ElementwiseTime:
    """A kernel without reuse: ``time`` [s] without a launch, and what it is ``bound`` by."""

    time: Floats
    bound: NDArray[Any]


def gemm_time(
    chip: ChipHierarchy,
    m: ArrayLike,
    k: ArrayLike,
    n: ArrayLike,
    *,
    rules: KernelRules | None = None,
    dataflow: Dataflow | None = None,
) -> KernelTime:
    """Time of an M x K by K x N product under its fastest tiling.

    Parameters
    ----------
    chip : ChipHierarchy
        With bundles, and a bandwidth at every level.
    m, k, n : array_like, shape (...)
        Sides, 1 or more; they need not be whole (a share of a product). [1]
    rules : KernelRules, optional
        How it is counted; the default is `KernelRules.crosstack`.
    dataflow : Dataflow, optional
        What stays in the arrays, instead of what the chip says.

    Returns
    -------
    KernelTime
        Arrays of shape (...).

    Raises
    ------
    InputError
        If a side is below 1, or the chip lacks compute or the bandwidth of a level.
    InfeasibleError
        If the operands do not fit in main memory.

    Notes
    -----
    ``t = launch + max(busiest bundle, traffic of main memory / bandwidth + latency)``, where the
    busiest bundle takes ``waiting + tiles x max over compute and levels``; the formulas are those
    of `crosstack.model.kernels.waves`. Rules of the public tool: ``t = launch + max over levels``
    of
    ``traffic / bandwidth + latency`` where memory binds, ``work / throughput`` elsewhere.

    References
    ----------
    ardalani2022deepflow, 6; williams2009roofline
    """
    rules = rules or _default_rules()
    _check_chip(chip)
    if dataflow is not None:
        chip = replace(chip, compute=replace(chip.compute, dataflow=dataflow))
    sides = _arrays({"m": m, "k": k, "n": n}, "at least 1, below 2^53", lambda side: side >= 1)
    flat_m, flat_k, flat_n = (side.ravel() for side in sides)
    if rules.search is TileSearch.EXHAUSTIVE:
        _check_fit(chip, flat_m, flat_k, flat_n)
    timed = _in_waves if rules.search is TileSearch.EXHAUSTIVE else _drawn
    step = SHAPES_AT_ONCE[rules.search]
    parts = [
        timed(chip, flat_m[i : i + step], flat_k[i : i + step], flat_n[i : i + step], rules)
        for i in range(0, flat_m.size, step)
    ]
    return _joined(parts, sides[0].shape)


def elementwise_time(
    chip: ChipHierarchy,
    work: ArrayLike,
    traffic: ArrayLike,
    *,
    rules: KernelRules | None = None,
) -> ElementwiseTime:
    """Time of ``work`` operations on ``traffic`` bytes that are used once, without a launch.

    Parameters
    ----------
    chip : ChipHierarchy
        With compute and bandwidth.
    work : array_like, shape (...)
        Operations. [FLOP]
    traffic : array_like, shape (...)
        Bytes read and written. [B]
    rules : KernelRules, optional
        How it is counted; the default is `KernelRules.crosstack`.

    Returns
    -------
    ElementwiseTime
        Arrays of shape (...).

    Raises
    ------
    InputError
        If either is negative or the chip lacks compute or bandwidth.

    Notes
    -----
    ``max(work / throughput, traffic / bandwidth + latency)`` of main memory, where the data is;
    no traffic takes no time. Rules of the public tool take the registers, and whole bytes.

    References
    ----------
    williams2009roofline
    """
    rules = rules or _default_rules()
    _check_chip(chip)
    given = {"work": work, "traffic": traffic}
    work, traffic = _arrays(given, "at least 0, below 1e300", lambda value: value >= 0, 1e300)
    if not rules.main_memory_bounds_elementwise:
        time = roofline_time(chip, 0, work, np.trunc(traffic))
        name = chip.levels[0].name
        limited = work * chip.levels[0].bandwidth < chip.compute.throughput * traffic
    else:
        memory = chip.main_memory
        computing = work / chip.compute.throughput
        moving = np.where(traffic > 0, traffic / memory.bandwidth + memory.latency, 0.0)
        time = np.asarray(np.maximum(computing, moving))
        limited, name = moving > computing, memory.name
    return ElementwiseTime(time=time, bound=np.where(limited, name, COMPUTE))


@lru_cache(maxsize=1)
def _default_rules() -> KernelRules:
    return KernelRules.crosstack()


def _arrays(
    given: dict[str, ArrayLike],
    allowed: str,
    good: Callable[[Floats], NDArray[np.bool_]],
    limit: float = 2.0**53,
) -> tuple[Floats, ...]:
    """Return the inputs as arrays of one shape; an error names the first element that is wrong."""
    found, problems = [], []
    for name, value in given.items():
        try:
            array = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            problems.append(Problem(name, f"got {str(value)[:40]!r}; allowed: numbers, {allowed}."))
            continue
        wrong = array[~(good(array) & (array < limit))]
        if wrong.size or not array.size:
            came = f"{wrong.flat[0]:g}" if wrong.size else "no number"
            problems.append(Problem(name, f"got {came}; allowed: numbers, {allowed}."))
        found.append(array)
    if problems:
        raise InputError(problems)
    try:
        return tuple(np.broadcast_arrays(*found))
    except ValueError:
        shapes = " and ".join(str(array.shape) for array in found)
        names = ", ".join(given)
        message = f"got shapes {shapes}; allowed: one shape, or shapes that broadcast."
        raise InputError(Problem(names, message)) from None


def _check_chip(chip: ChipHierarchy) -> None:
    """Refuse a chip on which a kernel would take for ever."""
    problems = []
    if chip.compute.throughput <= 0 or chip.compute.n_bundles < 1:
        problems.append(Problem("chip.compute", f"{chip.name} computes nothing; give it bundles."))
    for i, level in enumerate(chip.levels):
        if level.bandwidth <= 0:
            message = f"{level.name} of {chip.name} has no bandwidth; give it power and area."
            problems.append(Problem(f"chip.levels[{i}].bandwidth", message))
    if problems:
        raise InputError(problems)


def _check_fit(chip: ChipHierarchy, m: Floats, k: Floats, n: Floats) -> None:
    """Refuse products whose operands and output are larger than main memory."""
    matrices = np.stack([m * k, k * n, m * n]) * chip.word
    held = matrices.sum(axis=0)
    worst = int(held.argmax())
    memory = chip.main_memory
    largest = int(matrices[:, worst].argmax())
    alone = float(matrices[largest, worst])
    size = format_quantity(alone, "B", like=memory.capacity)
    shape = " x ".join(f"{extent[worst]:,.0f}" for extent in (m, k, n))
    if held[worst] > memory.capacity:
        raise InfeasibleError(
            resource=memory.name,
            demand=float(held[worst]),
            limit=memory.capacity,
            unit="B",
            where=f"the product {shape}, {'ABC'[largest]} alone {size},",
            levers=("more main memory", "split the product over more chips", "a shorter word"),
        )


def _in_waves(
    chip: ChipHierarchy, m: Floats, k: Floats, n: Floats, rules: KernelRules
) -> KernelTime:
    """Time products under the rules that search all tiles."""
    found = best_schedules(chip, m, k, n, rules)
    names = [level.name for level in chip.levels]
    time = found.time + chip.launch_overhead
    waiting = found.waiting_time + chip.launch_overhead
    moving = [moved / rate for moved, rate in zip(found.traffic, found.bandwidths, strict=True)]
    terms = np.stack([found.compute_time, *moving, waiting])
    labels = np.array([COMPUTE, *names, WAITING], object)
    return KernelTime(
        time=time,
        bound=labels[terms.argmax(axis=0)],
        launch_time=chip.launch_overhead,
        compute_time=found.compute_time,
        waiting_time=found.waiting_time,
        reduction_time=found.reduction_time,
        traffic=dict(zip(names, found.traffic, strict=True)),
        bandwidths=dict(zip(names, found.bandwidths, strict=True)),
        level_times=dict(zip(names, moving, strict=True)),
        passing=dict(zip(names, found.passing, strict=True)),
        tiles=dict(zip(names, found.tiles, strict=True)),
        split=found.split,
        n_tiles=found.n_tiles,
        dataflow=chosen_dataflow(chip.compute, chip.compute.dataflow, *found.reuse_shape),
        utilization=2 * m * k * n / (chip.compute.throughput * time),
    )


def _drawn(chip: ChipHierarchy, m: Floats, k: Floats, n: Floats, rules: KernelRules) -> KernelTime:
    """Time products under rules whose tiles are drawn."""
    if rules.search is TileSearch.PAIRED:
        found = paired_schedules(chip, m, k, n, rules.n_drawn)
    else:
        found = nested_schedules(chip, m, k, n, count=rules.n_drawn, refills=rules.tiles_refill)
    work = m * n * (2 * k - 1)
    names = [level.name for level in chip.levels]
    times = [roofline_time(chip, i, work, moved) for i, moved in enumerate(found.traffic)]
    computing = work / chip.compute.throughput
    labels = np.array([COMPUTE, *names], object)
    time = found.time + chip.launch_overhead
    rates = [np.full_like(m, level.bandwidth) for level in chip.levels]
    moving = [moved / rate for moved, rate in zip(found.traffic, rates, strict=True)]
    return KernelTime(
        time=time,
        bound=labels[np.stack([computing, *times]).argmax(axis=0)],
        launch_time=chip.launch_overhead,
        compute_time=computing,
        # The latency, where memory binds.
        waiting_time=np.maximum(found.time - np.maximum.reduce([computing, *moving]), 0.0),
        reduction_time=np.zeros_like(m),
        traffic=dict(zip(names, found.traffic, strict=True)),
        bandwidths=dict(zip(names, rates, strict=True)),
        level_times=dict(zip(names, moving, strict=True)),
        passing=dict(zip(names, map(np.zeros_like, found.traffic), strict=True)),
        tiles=dict(zip(names, found.tiles, strict=True)),
        split=np.ones_like(m),
        n_tiles=np.ones_like(m),
        dataflow=found.dataflow,
        utilization=2 * m * k * n / (chip.compute.throughput * time),
    )


def _joined(parts: list[KernelTime], shape: tuple[int, ...]) -> KernelTime:
    def join(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            return {name: join([value[name] for value in values]) for name in values[0]}
        if isinstance(values[0], float | int):  # of the chip, not of the shapes
            return values[0]
        whole = values[0] if len(values) == 1 else np.concatenate(values)
        return whole.reshape(shape + whole.shape[1:])

    return KernelTime(
        **{name: join([getattr(part, name) for part in parts]) for name in KernelTime.__slots__}
    )


class RooflineTimes:
    """Kernel times of one chip for whole steps; equal products are timed once.

    Parameters
    ----------
    chip : ChipHierarchy
        What computes.
    rules : KernelRules, optional
        How it is counted; the default is `KernelRules.crosstack`.
    """

    def __init__(self, chip: ChipHierarchy, rules: KernelRules | None = None) -> None:
        _check_chip(chip)
        self.chip, self.rules = chip, rules or _default_rules()
        self._dataflow: Dataflow | None = None
        self._products: dict[tuple[float, float, float], float] = {}

    @property
    def word(self) -> float:
        """Bytes of an element. [B]"""
        return self.chip.word

    @property
    def launch_overhead(self) -> float:
        """Of one kernel. [s]"""
        return self.chip.launch_overhead

    def product(self, m: float, k: float, n: float) -> float:
        """Time of an M x K by K x N product, its launch included; see `gemm_time`. [s]"""
        key = (m, k, n)
        if key not in self._products:
            if (
                self.rules.first_shape_sets_dataflow
                and self._dataflow is None
                and self.chip.compute.dataflow is Dataflow.BEST
            ):
                self._dataflow = largest_axis(m, k, n)
            kernel = gemm_time(self.chip, m, k, n, rules=self.rules, dataflow=self._dataflow)
            self._products[key] = float(kernel.time)
        return self._products[key]

    def prepare(self, shapes: list[tuple[float, float, float]]) -> None:
        """Time many products in one search; `product` then has them at hand."""
        new = [shape for shape in dict.fromkeys(shapes) if shape not in self._products]
        if not new:
            return
        self.product(*new[0])  # it may set the dataflow of all
        sides = np.array(new, dtype=np.float64).T
        found = gemm_time(self.chip, *sides, rules=self.rules, dataflow=self._dataflow)
        self._products.update(zip(new, found.time.tolist(), strict=True))

    def elementwise(self, work: float, traffic: float) -> float:
        """Time of ``work`` [FLOP] on ``traffic`` bytes without a launch. [s]"""
        return float(elementwise_time(self.chip, work, traffic, rules=self.rules).time)
