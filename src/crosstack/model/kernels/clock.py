"""What every kernel clock is asked for and gives back: how long kernels take on a chip.

A clock times matrix products and elementwise kernels, many at once. Each answer tells the work of
the device from what main memory moves, operand by operand: an operand that is on the chip already
moves nothing. `product_time` asks any clock, `ChipTimes` remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import InputError, Problem
from crosstack.machine.chip import Chip
from crosstack.machine.compute import Dataflow
from crosstack.model.collectives import Arrival
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats

COMPUTE = "compute"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelTime:
    """A matrix product on a chip, or an array of them; every array has the shapes' shape.

    ``time``: the kernel, its launch included [s]; ``work_time``: what the device takes if main
    memory moves nothing, launch and reduction apart [s]; ``bound``: what takes longest:
    ``"compute"``, a level's name, or ``"waiting"``; ``launch_time``: before the kernel starts [s];
    ``compute_time``: of the busiest multiprocessor [s]; ``waiting_time``: latencies, fill, drain,
    and what cannot be hidden behind compute [s]; ``reduction_time``: second kernel that adds up the
    sums of a split K [s]; ``operands``: bytes of main memory that the M x K and the K x N factor
    and the result move [B]; ``traffic``: bytes that each level hands over or takes in, on the whole
    chip [B]; ``bandwidths``: what each level gives to the multiprocessors that work, on average: a
    level of the chip all of its bandwidth, one of the multiprocessors their share [B/s];
    ``level_times``: what the traffic of each level takes: traffic over bandwidth [s];
    ``delay_time``: what main memory takes beyond that, where it is not in ``waiting_time`` [s];
    ``passing``: bytes that pass from one part of a level to another, besides; the measured
    bandwidth of a level in parts holds with them [B]; ``tiles``: M, K and N of the product that
    each level serves at a time [1]; ``split``: parts of K that different multiprocessors work on
    [1]; ``n_tiles``: tiles of C times parts of K [1]; ``dataflow``: what stays in the arrays;
    ``utilization``: ``2 M K N`` over what the chip could do in ``time`` [1].
    """

    time: Floats
    work_time: Floats
    bound: NDArray[Any]
    launch_time: float
    delay_time: float
    compute_time: Floats
    waiting_time: Floats
    reduction_time: Floats
    operands: Floats
    traffic: dict[str, Floats]
    bandwidths: dict[str, Floats]
    level_times: dict[str, Floats]
    passing: dict[str, Floats]
    tiles: dict[str, Floats]
    split: Floats
    n_tiles: Floats
    dataflow: NDArray[Any]
    utilization: Floats


class KernelClock(Protocol):
    """How the time of a kernel is counted, on whatever chip.

    A product is ``batch`` products of M x K by K x N, each with factors of its own; sides are 1 or
    more and need not be whole (a share of a product). [1]
    """

    def __hash__(self) -> int:
        """Equal clocks are told apart by nothing: what they found is kept for both."""
        return hash(type(self))

    @property
    def shapes_at_once(self) -> int:
        """So many that the arrays of shapes and tiles stay in the processor's cache. [1]"""
        ...

    def products(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> KernelTime:
        """Return the times of products of one type, arrays of one dimension."""
        ...

    def elementwise(self, chip: Chip, dtype: Dtype, work: Floats, traffic: Floats) -> Floats:
        """Time of ``work`` [FLOP] on ``traffic`` bytes that are used once, without a launch. [s]

        By default ``max(work / throughput, traffic / bandwidth + latency)`` of main memory, where
        the data is (``williams2009roofline``); no traffic takes no time.
        """
        memory = chip.main_memory
        computing = work / chip.vector_throughput(dtype)
        moving = np.where(traffic > 0, traffic / memory.speed + memory.latency, 0.0)
        return np.asarray(np.maximum(computing, moving))

    def result_time(self, chip: Chip, dtype: Dtype, numbers: Floats, moved: Floats) -> Floats:
        """Time of a result that nothing hides, beyond that of numbers of ``dtype``. [s]

        Nothing, unless the clock tells where tiles wait.

        Parameters
        ----------
        numbers, moved : array
            Numbers of the result [1], and what moves of each as a tile is put down: it may be
            wider than operands, and added to what is there. [B]
        """
        return np.zeros(np.broadcast_shapes(np.shape(numbers), np.shape(moved)))

    def least(
        self, chip: Chip, dtype: Dtype, m: float, k: float, n: float, batch: float = 1.0
    ) -> float:
        """Time of a product that no tiling beats, its launch included. [s]"""
        ...

    def reached_share(self, chip: Chip) -> float:
        """Share of the peak of a chip that no product passes. [1]"""
        return 1.0

    def clock_share(self, chip: Chip, work: Floats, inside: Floats, memory: Floats) -> Floats:
        """Return the clock over that of the chip's rates, 1 where it is always that. [1]

        Parameters
        ----------
        work, inside, memory : array
            Times of the arrays, if all are busy, of all on the chip, and of main memory. [s]
        """
        return np.ones_like(work)

    def check_fit(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> None:
        """Raise `InfeasibleError` for a product that main memory cannot hold, if that counts."""
        ...

    def times(self, chip: Chip, dtype: Dtype = Dtype.BF16) -> ChipTimes:
        """Return the kernel times of one chip for whole steps."""
        return ChipTimes(chip, self, dtype)


def product_time(
    clock: KernelClock,
    chip: Chip,
    m: ArrayLike,
    k: ArrayLike,
    n: ArrayLike,
    *,
    batch: ArrayLike = 1.0,
    dtype: Dtype = Dtype.BF16,
    dataflow: Dataflow | None = None,
) -> KernelTime:
    """Time of ``batch`` products of M x K by K x N, one kernel, on a chip with multiprocessors.

    Raises `InputError` if a side is below 1, or the chip lacks compute or the bandwidth of a level.
    Raises `InfeasibleError` if the operands do not fit in main memory.

    Parameters
    ----------
    m, k, n, batch : array_like, shape (...)
        Sides, 1 or more, which need not be whole (a share of a product); products, each with
        factors of its own. [1]
    dataflow : Dataflow, optional
        What stays in the arrays, instead of what the chip says.

    Returns
    -------
    KernelTime
        Arrays of shape (...).
    """
    check_chip(chip)
    if dataflow is not None:
        chip = chip.with_compute(dataflow=dataflow)
    given = {"m": m, "k": k, "n": n, "batch": batch}
    sides = _arrays(given, "at least 1, below 2^53", lambda side: side >= 1)
    flat = [side.ravel() for side in sides]
    clock.check_fit(chip, dtype, *flat)
    step = clock.shapes_at_once
    parts = [
        clock.products(chip, dtype, *(side[i : i + step] for side in flat))
        for i in range(0, flat[0].size, step)
    ]
    return _joined(parts, sides[0].shape)


def check_chip(chip: Chip) -> None:
    """Refuse a chip on which a kernel would take for ever.

    Raises `InputError` if it lacks compute or the bandwidth of a level.
    """
    problems = []
    if chip.compute.throughput <= 0 or chip.compute.n_multiprocessors < 1:
        message = f"{chip.name} computes nothing; give it multiprocessors."
        problems.append(Problem("chip.compute", message))
    for i, level in enumerate(chip.storage):
        if not level.bandwidth:
            message = f"{level.name} of {chip.name} has no bandwidth; give it power and area."
            problems.append(Problem(f"chip.levels[{i}].bandwidth", message))
    if problems:
        raise InputError(problems)


def _arrays(
    given: dict[str, ArrayLike],
    allowed: str,
    good: Callable[[Floats], Bools],
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
        message = f"got shapes {shapes}; allowed: one shape, or shapes that broadcast."
        raise InputError(Problem(", ".join(given), message)) from None


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


Shape = tuple[float, float, float, float]
"""M, K, N and batch of a product. [1]"""


class ChipTimes:
    """Kernel times of one chip for whole steps; equal products are timed once."""

    def __init__(self, chip: Chip, clock: KernelClock, dtype: Dtype = Dtype.BF16) -> None:
        check_chip(chip)
        self.chip, self.clock, self.dtype = chip, clock, dtype
        self.arrival = Arrival.of(chip, dtype)
        self._products: dict[Shape, float] = {}

    @property
    def element_size(self) -> float:
        """Bytes of an element. [B]"""
        return self.dtype.size

    @property
    def launch_overhead(self) -> float:
        """Of one kernel. [s]"""
        return self.chip.launch_overhead

    def elementwise(self, work: float, traffic: float) -> float:
        """Time of ``work`` [FLOP] on ``traffic`` bytes without a launch. [s]"""
        given: dict[str, ArrayLike] = {"work": work, "traffic": traffic}
        arrays = _arrays(given, "at least 0, below 1e300", lambda value: value >= 0, 1e300)
        return float(self.clock.elementwise(self.chip, self.dtype, *arrays))

    def product(self, m: float, k: float, n: float, batch: float = 1.0) -> float:
        """Time of ``batch`` products of M x K by K x N, one kernel with its launch. [s]"""
        key = (m, k, n, batch)
        if key not in self._products:
            self.prepare([key])
        return self._products[key]

    def prepare(self, shapes: Sequence[Shape]) -> None:
        """Time many products in one search; `product` then has them at hand."""
        new = [shape for shape in dict.fromkeys(shapes) if shape not in self._products]
        if new:
            found = self._timed(*np.array(new, dtype=np.float64).T)
            self._products.update(zip(new, found.time.tolist(), strict=True))

    def _timed(self, m: Floats, k: Floats, n: Floats, batch: Floats) -> KernelTime:
        return product_time(self.clock, self.chip, m, k, n, batch=batch, dtype=self.dtype)
