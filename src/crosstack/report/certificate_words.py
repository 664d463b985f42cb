"""How sure an answer is, in words: what is proved, why a search stopped, what would close a gap."""

from __future__ import annotations

import math

from crosstack.evaluate.plan import Plan
from crosstack.mapping.mapping import Certificate, Status, Stop
from crosstack.model.objective import Objective
from crosstack.report.wording import percent, time_words
from crosstack.units import format_quantity

LARGE_GAP = 0.1  # above it an answer is not shown as if it were one

_METHOD = "at the end of the method, which can neither improve nor bound what is left"
# Why a search stopped, and what else would let it go on.
_STOPPED = {
    Stop.TIME_LIMIT: ("stopped at the time limit", ", or more time (--time-limit)"),
    Stop.WORK_LIMIT: ("stopped at the limit on work", ", or more work (--work-limit)"),
    Stop.INTERRUPT: ("interrupted", ", or let the search run on"),
    Stop.METHOD: (_METHOD, "; more time does not help"),
    # A result that was saved when the reason was not.
    None: ("stopped before a proof", ", or more time (--time-limit)"),
}


def is_open(answer: Plan) -> bool:
    """Return whether a search left a gap too large to take its answer for the best."""
    c = answer.certificate
    return c.searched and c.gap > LARGE_GAP * (1 + 1e-9)


_BETTER = {
    Objective.TIME: "is faster",
    Objective.ENERGY: "takes less energy",
    Objective.PRICE: "costs less",
    Objective.ENERGY_DELAY: "takes less energy times time",
}


def objective_words(certificate: Certificate, value: float) -> str:
    """Return a value of what was minimised, with its unit."""
    metric = certificate.metric
    return time_words(value) if metric is Objective.TIME else format_quantity(value, metric.unit)


def certificate_sentence(answer: Plan) -> str:
    """Say in one sentence how sure the answer is and what it covers."""
    c = answer.certificate
    kind = "mapping"
    before = answer.rules.decisions.before_time
    if before:  # the time is proved among these only
        kind = f"mapping whose sharding {before}"
    spaces = (("free", c.free), ("given", c.given))
    covered = [f"{label}: {', '.join(names)}" for label, names in spaces if names]
    aside = f" ({'; '.join(covered)})" if covered else ""
    found, runtime = objective_words(c, c.objective), time_words(c.runtime, 2)
    if c.status is Status.OPTIMAL:
        better = _BETTER[c.metric]
        return f"Proved optimal: no {kind} {better} than {found}{aside}, found in {runtime}."
    if c.status is Status.INFEASIBLE:
        return f"Infeasible: no {kind} fits{aside}, decided in {runtime}."
    if not c.searched:
        return f"Given mapping, {found}: nothing was searched, so nothing is proved."
    ended = f"found in {runtime}"
    if c.status is Status.LIMIT:
        ended = f"{_STOPPED[c.stopped][0]} after {runtime}"
    found, gap = f"Best found: {found}", percent(c.gap, 2)
    bound = f"no {kind} can beat {objective_words(c, c.bound)}"
    if is_open(answer):
        return f"NOT PROVED, a gap of {gap}. {found}; {bound}{aside}; {ended}."
    return f"{found}; {bound} (gap {gap}){aside}, {ended}."


def closing_sentence(answer: Plan) -> str:
    """Say what to give so that a large gap closes; empty where there is no such gap."""
    if not is_open(answer):
        return ""
    c = answer.certificate
    limit = c.status is Status.LIMIT
    more = _STOPPED[c.stopped][1] if limit else ", or ask for a smaller one (--gap)"
    return f"To close the gap give {_gives(answer)}{more}."


def _gives(answer: Plan) -> str:
    """Return what can be given: the use of the chips as found, unless the kernels hold it up."""
    c, m, given = answer.certificate, answer.mapping, answer.task.constraints
    workload = answer.task.workload
    values: dict[str, object] = {}
    if c.stopped is not Stop.METHOD:
        for i, dimension in enumerate(answer.task.system.network):
            if dimension.size is None:
                values[f"system.network[{i}].size"] = m.dimension_sizes[i]
        if "parallelism" in c.free and math.prod(m.sizes) > 1:
            values["constraints.degrees"] = str(answer.degrees)
        if given.microbatch_size is None and workload.global_batch_size > 1:
            values["constraints.microbatch_size"] = m.microbatch_size
        if "number of tiles" in c.free and workload.sequence_length > 1:
            values["constraints.n_tiles"] = m.n_tiles
    if values:
        return f"what is free; here it is {_settings(answer, values)}"
    if "partitions" in c.free:
        alone = _settings(answer, {"constraints.kernel_by_kernel": "true"})
        return f"the partitions of some kernels (constraints.partitions), or of all: {alone}"
    return "a smaller graph"


def _settings(answer: Plan, values: dict[str, object]) -> str:
    """Return fields and their values, as a command takes them where the file has our names."""
    names = answer.task.paths
    if names:
        own = {path: names.get(path, _OPTIONS.get(path, path)) for path in values}
        return ", ".join(f"{own[path]} ({value})" for path, value in values.items())
    return " ".join(
        f"{_OPTIONS[path]} {value}" if path in _OPTIONS else f"--set '{path}={value}'"
        for path, value in values.items()
    )


_OPTIONS = {
    "constraints.degrees": "--given",
    "constraints.microbatch_size": "--microbatch-size",
}
