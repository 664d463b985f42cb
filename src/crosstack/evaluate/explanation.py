"""Where a number of an evaluation comes from, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from crosstack.errors import InputError, Problem, did_you_mean, require_whole
from crosstack.evaluate.evaluation import Evaluation, KernelTerms
from crosstack.machine.system import System
from crosstack.records import require_type
from crosstack.units import format_quantity


def explained(evaluation: Evaluation, system: System, partition: int, term: str) -> str:
    """Say where a partition's number comes from, in a sentence.

    Parameters
    ----------
    evaluation, system, partition
        What is priced, on which machine, and the number of the partition.
    term : str
        ``time``, ``compute``, ``memory``, ``network`` or ``sram``.

    Raises
    ------
    InputError
        For a partition or a term there is not.
    """
    require_whole("partition", partition, minimum=0)
    require_type("term", term, str)
    known = {p.number: p for p in evaluation.partitions}
    if partition not in known:
        allowed = ", ".join(map(str, known))
        raise InputError(Problem("partition", f"got {partition}; allowed: {allowed}."))
    p = known[partition]
    members = [k for k in evaluation.kernels if k.partition == partition]
    says: dict[str, str] = {
        "time": f"{_time(p.time)}, bound by {p.bound_by}: compute {_time(p.compute_time)}, "
        f"memory {_time(p.memory_time)}, network {_time(p.network_time)}"
        + (f", launch {_time(p.launch_time)}" if p.launch_time else ""),
        "compute": f"{_time(p.compute_time)}: "
        + ", ".join(f"{k.name} {_time(k.compute_time)}" for k in members),
        "memory": f"{_time(p.memory_time)}: {_bytes(p.memory_traffic)} at "
        f"{format_quantity(system.chip.main_memory.speed, 'B/s', 6)}"
        + (f"; {crossing}" if (crossing := _crossing(members)) else ""),
        "network": f"{_time(p.network_time)}: "
        + (
            ", ".join(
                f"{k.name} {k.collective} {_time(k.network_time)}"
                for k in members
                if k.network_time > 0
            )
            or "no communication"
        ),
        "sram": f"{_bytes(p.sram_used)} of {_bytes(p.sram_capacity)}, weights "
        f"{_bytes(sum(k.weight_size for k in members))} among them",
    }
    if term not in says:
        message = f'got "{term}".{did_you_mean(term, says)} Allowed: {", ".join(says)}.'
        raise InputError(Problem("term", message))
    return f"partition {partition}, {term}: {says[term]}."


def _time(value: float) -> str:
    return format_quantity(value, "s", 6)


def _bytes(value: float) -> str:
    return format_quantity(value, "B", 6)


def _crossing(kernels: Sequence[KernelTerms]) -> str:
    """Say what enters and leaves the graph, by kernel."""
    enters = [f"{k.name} {_bytes(k.entering)}" for k in kernels if k.entering]
    leaves = [f"{k.name} {_bytes(k.leaving)}" for k in kernels if k.leaving]
    said = [f"enters the graph: {', '.join(enters)}"] if enters else []
    said += [f"leaves it: {', '.join(leaves)}"] if leaves else []
    return "; ".join(said)
