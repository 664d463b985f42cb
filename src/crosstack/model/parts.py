"""The parts of a rule set that `map` reads: what each counts, and which way.

Every field says what it chooses between. The defaults are what crosstack holds right; what only a
release of a published tool does is a part of its own in `crosstack.published`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Self, get_type_hints

import numpy as np

from crosstack.errors import nearest, require, require_quantity
from crosstack.machine.chip import Chip, Execution
from crosstack.model.kernels.clock import KernelClock
from crosstack.records import meaning
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats, KernelGraph
from crosstack.workload.workload import Workload

if TYPE_CHECKING:
    from crosstack.model.kernels.attention import Attended


def check_fields(part: object, counts: Mapping[str, tuple[int, ...]] | None = None) -> None:
    """Raise `InputError` unless switches are switches, choices choices and numbers allowed.

    ``counts`` are the whole numbers that a field may be.
    """
    for name, allowed in (counts or {}).items():
        value = getattr(part, name)
        good = isinstance(value, int) and not isinstance(value, bool) and value in allowed
        listed = f"{', '.join(map(str, allowed[:-1]))} or {allowed[-1]}"
        require(good, name, value, listed)
    for name, kind in get_type_hints(type(part)).items():
        value = getattr(part, name)
        if kind is bool:
            require(isinstance(value, bool), name, value, "true or false")
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            close = nearest(value, list(kind), 1)
            hint = f'; nearest: "{close[0]}"' if close else ""
            names = f"a {kind.__name__} ({', '.join(kind)}){hint}"
            require(isinstance(value, kind), name, value, names)


SINGLE = Dtype.FP32.size  # of a number in single precision [B]


@dataclass(frozen=True, slots=True, kw_only=True)
class MainMemory:
    """What a chip keeps in its main memory: everything once."""

    gradient_bytes: float = field(
        default=2.0,
        metadata=meaning(
            "Bytes of gradients per parameter that training keeps in main memory; 2 for "
            "mixed-precision Adam (``rajbhandari2020zero``); 0 in ``dfmodel_code``. [B]"
        ),
    )
    optimizer_bytes: float = field(
        default=12.0,
        metadata=meaning(
            "The same of the optimizer's state: 12, a master copy and two moments; 0 in "
            "``dfmodel_code``. [B]"
        ),
    )
    gradient_passes: float = field(
        default=5.0,
        metadata=meaning(
            "How often an iteration moves all gradients at its end: they are read for their norm, "
            "read and written to clip it, read by the update and set to zero "
            "(``nvidia_megatron_core``: ``clip_grads``, ``zero_grad``). [1]"
        ),
    )

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)
        require_quantity("gradient_bytes", self.gradient_bytes, "B")
        require_quantity("optimizer_bytes", self.optimizer_bytes, "B")

    @property
    def keeps_activations(self) -> bool:
        """Whether what the backward pass reads is kept until it does.

        For all layers of a stage and all microbatches in flight (`crosstack.model.memory`).
        """
        return True

    def as_trained(self, workload: Workload) -> Self:
        """Return the same with the gradients and the optimizer that a workload says, if it does."""
        said: dict[str, float] = {}
        if workload.gradients is not None:
            said["gradient_bytes"] = workload.gradients.size
        if workload.optimizer is not None:
            said["optimizer_bytes"] = workload.optimizer.state
            said["gradient_passes"] = workload.optimizer.gradient_passes
        return replace(self, **said) if said else self

    def update_traffic(self, word: float) -> float:
        """Bytes of main memory that the update of a weight of ``word`` bytes reads and writes. [B]

        What the optimizer keeps is read and written, the weight written, and the gradient moved
        as often as `gradient_passes` says. Where that is more than once, the end of an iteration is
        several kernels (``nvidia_megatron_core``, ``_copy_model_grads_to_main_grads`` and
        ``_copy_main_params_to_model_params``): gradients that are shorter are first turned into
        single precision, in which they are moved until they are set to zero, and the weight is
        read of its copy in single precision.
        """
        state, gradient, passes = self.optimizer_bytes, self.gradient_bytes, self.gradient_passes
        apart = passes > 1 and state >= SINGLE
        turned = apart and gradient < SINGLE
        moved = 2 * gradient + passes * SINGLE if turned else passes * gradient
        return moved + 2 * state + word + apart * SINGLE

    def weights(self, weight: Floats, forward: Floats) -> Floats:
        """Bytes of weights, of those that each kernel uses and those of forward kernels. [B]

        A forward and a backward kernel share theirs.
        """
        return forward


def _roofline() -> KernelClock:
    from crosstack.model.kernels.roofline import Roofline  # only where kernels are timed

    return Roofline()


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How long kernels take, in the rate that a chip has for their type of number."""

    kernels: KernelClock = field(
        default_factory=_roofline,
        metadata=meaning("How the time of a kernel follows from the levels of a chip."),
    )

    @property
    def knows_types(self) -> bool:
        """Whether a rate depends on the type of number."""
        return True

    def peak_rate(self, chip: Chip, dtype: Dtype) -> float:
        """Rate of a chip in numbers of a type: its one peak where the chip knows none. [FLOP/s]

        Raises `InputError` if the chip has rates, but none for ``dtype``.
        """
        return chip.rate(dtype)

    def reached_rate(self, chip: Chip, dtype: Dtype) -> float:
        """Rate that no kernel beats: `peak_rate` times the utilization, if that is given. [FLOP/s]

        On a temporal chip kernels may also run on vector units.
        """
        reached = self.peak_rate(chip, dtype) * (chip.compute.utilization or 1.0)
        if chip.execution is Execution.TEMPORAL:
            peak = chip.throughput(dtype) * self.kernels.reached_share(chip)
            return max(peak, chip.vector_throughput(dtype))
        return reached

    def least_time(self, chip: Chip, work: Mapping[Dtype, float]) -> float:
        """Time of ``work`` by type that no kernels beat, at `reached_rate` of each. [s]"""
        return sum((done / self.reached_rate(chip, dtype) for dtype, done in work.items()), 0.0)

    def slower(self, chip: Chip, graph: KernelGraph) -> Floats:
        """Return how much longer work takes in what each kernel computes with, shape (n,). [1]

        At peak rates, over the one of what most products of the graph compute with.
        """
        peak, found = self.peak_rate(chip, graph.dtype), np.ones(graph.n)
        for dtype, those in graph.kernels_by_dtype:
            if those.any() and dtype is not graph.dtype:
                found[those] = peak / self.peak_rate(chip, dtype)
        return found

    def lane_rates(self, chip: Chip, graph: KernelGraph) -> Floats:
        """Return the rate of what kernels do beside the arrays, shape (n,). [FLOP/s]

        By what each computes (`crosstack.model.kernels.lanes`).
        """
        from crosstack.model.kernels.lanes import lane_rates  # only where kernels are timed

        return lane_rates(chip, graph)

    def attended(self, chip: Chip, graph: KernelGraph) -> Attended:
        """Return which kernels are in attentions that are one kernel each."""
        from crosstack.model.kernels.attention import attended  # as above

        return attended(chip, graph)

    def cycles_per_step(self, chip: Chip, dtype: Dtype, systolic: Bools) -> Floats:
        """Return how many cycles one step of a core takes in numbers of a type, by kernel. [1]

        The array takes peak over rate: one cycle where the rate is ``2 lanes stages cores
        frequency``. A lane does one operation a cycle, whatever the type, unless that were faster
        than the rate. Data sheets do not say what lanes reach in every type.

        Parameters
        ----------
        systolic : array of bool
            Which kernels run on the systolic array, not on its lanes.
        """
        rate = self.peak_rate(chip, dtype)
        lanes = float(chip.compute.rows) * chip.compute.n_units * chip.compute.frequency
        return np.where(systolic, chip.peak_throughput / rate, max(1.0, lanes / rate))
