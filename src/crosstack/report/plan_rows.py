"""What every report says of an answer, as rows: the headline, the key numbers, its tables.

Text, figures and pages show the same rows; nothing is computed here beyond formatting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from crosstack.evaluate.evaluation import Evaluation, PartitionTerms
from crosstack.evaluate.plan import Plan
from crosstack.machine.prices import Bill
from crosstack.machine.system import Parallelism
from crosstack.model.energy import missing_powers
from crosstack.model.memory import searched_recomputations
from crosstack.model.objective import Objective
from crosstack.report.wording import (
    CONTEXT,
    ZERO,
    Table,
    again_words,
    common_scale,
    elided_names,
    grouped,
    hidden_words,
    kind_words,
    latency_words,
    not_mapped,
    offload_words,
    one,
    peak_words,
    percent,
    plural,
    reserved_words,
    scaled,
    sharding_words,
    table_of,
    throughput_words,
    time_words,
    trained_by,
    usd,
    watts,
)
from crosstack.units import format_quantity
from crosstack.workload.transformer_training import Schedule, Zero

MOST_STAGES = 6  # that have a column of their own


def headline(answer: Plan) -> str:
    """Return what was mapped onto what, under which rules."""
    task = answer.task
    framework = task.system.chip.framework
    driven = "" if framework is None else f" driven by {framework.name}"
    return f"{task.workload.name} on {task.system.name}{driven}, rules {answer.rules.name}"


def key_numbers(answer: Plan) -> tuple[tuple[str, str], ...]:
    """Return the totals as (label, value), most important first."""
    e, c, workload = answer.evaluation, answer.certificate, answer.task.workload
    time = time_words(e.time)
    if c.searched and c.gap > 0 and c.metric is Objective.TIME:
        time += f", at best {time_words(c.bound)}"
    memory = format_quantity(e.memory_used, "B")
    if math.isfinite(e.memory_capacity):
        memory += f" of {room_words(answer)}"
    moved = sum(p.memory_traffic for p in e.partitions)
    crossing = sum(p.boundary_traffic for p in e.partitions)
    crossed = (("of it in and out of the graph", format_quantity(crossing, "B")),)
    typed = answer.rules.clock.knows_types and answer.task.system.chip.compute.relative_rates
    of_rate = f" of {peak_words(answer.task, answer.rules)}" if typed else ""
    return (
        ("iteration time", time),
        (f"{workload.graph_words[0]} time, one {workload.item}", time_words(e.layer_time)),
        ("throughput", throughput_words(workload, e.throughput)),
        ("utilization of the peak", f"{percent(e.utilization)}{of_rate}"),
        ("work of an iteration", format_quantity(e.work, "FLOP")),
        ("main memory used, one chip", memory),
        (f"memory traffic of a {workload.graph_words[0]}", format_quantity(moved, "B")),
        *(crossed if crossing else ()),
        ("FLOP per byte of memory traffic", _intensity(e.memory_intensity)),
        ("FLOP per byte of collectives", _intensity(e.network_intensity)),
        ("price", _total(e.price, usd(e.price.total))),
        ("power", _total(e.power, watts(e.power.total))),
        *_energy(answer),
    )


def _energy(answer: Plan) -> tuple[tuple[str, str], ...]:
    """Return an energy with the share that is drawn always, and what that is."""
    energy, label = answer.evaluation.energy, "energy of an iteration"
    if energy is None:
        missing = missing_powers(answer.task.system, answer.mapping.dimension_sizes)
        return ((label, f"not known: {', '.join(missing)} missing"),)
    total = format_quantity(energy.total, "J")
    if not energy.total:
        return ((label, total),)
    always = f"{percent(energy.static / energy.total)} of it always drawn"
    return (label, f"{total}, {always}"), ("always drawn", energy.basis.value)


def _total(bill: Bill, words: str) -> str:
    return f"{words}: {', '.join(bill.missing)}" if bill.missing else words


def _intensity(value: float) -> str:
    return grouped(value) if math.isfinite(value) else "nothing moves"


def splits(answer: Plan) -> tuple[tuple[str, str], ...]:
    """Return how the work is split, as (label, value)."""
    e, m, workload = answer.evaluation, answer.mapping, answer.task.workload
    layer = workload.graph_words[0]
    again = len(searched_recomputations(workload.graph, answer.rules)) > 1
    batch = plural(workload.global_batch_size, workload.item)
    uses: tuple[Parallelism, ...] = Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA
    shared = answer.degrees.context or 1
    if shared > 1:
        uses = (Parallelism.TENSOR, Parallelism.CONTEXT, *uses[1:])
    degrees = " x ".join(f"{use.value} {m.degree(use)}" for use in uses)
    if answer.degrees.expert is not None:
        degrees += f"; experts spread over {m.degree(Parallelism.EXPERT)} of data"
        groups = m.degree(Parallelism.TENSOR) // m.expert_tensor
        if m.expert_tensor > 1:
            degrees += f" and {groups} groups of tensor" if groups > 1 else ""
            degrees += f", each cut over {m.expert_tensor} of tensor"
    return (
        ("chips", f"{answer.task.system.n_chips:,} = {degrees}"),
        ("pipeline", _pipeline(answer)),
        ("batch", f"{batch}; each pipeline runs {e.n_microbatches:,} x {m.microbatch_size}"),
        (f"tiles of {one(workload.item)}", f"{m.n_tiles:,}"),
        *([("computed again in the backward pass", again_words(m, workload))] if again else []),
        *([("shared by data-parallel chips", ZERO[m.zero])] if m.zero is not Zero.NONE else []),
        *([("keys and values of a sequence", CONTEXT[m.context_exchange])] if shared > 1 else []),
        *([("sent beside the work", hidden_words(m.overlap))] if m.overlap is not None else []),
        *([("on the hosts", offload_words(m.offload))] if m.offload else []),
        *trained_by(workload),
        *not_mapped(workload),
        ("stage time, one microbatch", time_words(e.stage_time)),
        ("bubble factor", f"{e.bubble_factor:.4g}"),
        *([(f"launching a {layer}", _launching(e, m.microbatch_size))] if e.host_time else []),
    )


def _launching(e: Evaluation, microbatch_size: int) -> str:
    """Return how long the host takes to launch a layer, and who waits for whom."""
    layer = e.layer_time * microbatch_size
    waits = "is waited for by" if e.host_time > layer else "is ahead of"
    return f"{time_words(e.host_time)} of the host, which {waits} {time_words(layer)} of kernels"


def room_words(answer: Plan) -> str:
    """Say how much of the main memory of a chip there is for a mapping, and what is not."""
    capacity = format_quantity(answer.evaluation.memory_capacity, "B")
    return capacity + reserved_words(answer.task.system.chip)


def memory_rows(answer: Plan) -> Table:
    """Return what the main memory of a chip is used for, by stage.

    Of more stages than `MOST_STAGES` in the first, the fullest and the last.
    """
    account, capacity = answer.evaluation.memory, answer.evaluation.memory_capacity
    fullest, last = account.fullest, len(account.stages) - 1
    shown = range(last + 1) if last < MOST_STAGES else sorted({0, fullest, last})
    rows = []
    for row, sizes in account.rows():
        share = sizes[fullest] / account.peak if account.peak else 0.0
        cells = (format_quantity(sizes[stage], "B") for stage in shown)
        rows.append((row.replace("_", " "), *cells, percent(share)))
    if math.isfinite(capacity):
        full = [percent(account.totals[stage] / capacity) for stage in shown]
        rows.append((f"of {room_words(answer)}", *full, ""))
    away = answer.evaluation.host_memory
    for row, sizes in () if away is None else away.rows():
        cells = (format_quantity(sizes[stage], "B") for stage in shown)
        rows.append((f"on the host: {row.replace('_', ' ')}", *cells, ""))
    names = ["a chip"] if last == 0 else [f"stage {stage}" for stage in shown]
    header = ("main memory", *names, "share" if len(names) == 1 else f"of stage {fullest}")
    return Table(header=header, numeric=(False, *[True] * (len(names) + 1)), rows=tuple(rows))


def _pipeline(answer: Plan) -> str:
    e, m = answer.evaluation, answer.mapping
    stages = plural(e.n_stages, "stage")
    if not e.stages:
        order = f" in {m.interleave:,} pieces" if m.interleave > 1 else ""
        if m.schedule is not Schedule.ONE_F_ONE_B:
            order = f", {m.schedule}"
        layers = e.layers_per_stage * answer.task.workload.layers_in_graph
        return f"{stages}, {plural(layers, 'layer')} each{order}"
    copies = answer.task.workload.graph_repetitions
    used = f"{len(e.stages)} hold" + ("s" if len(e.stages) == 1 else "")
    if copies == 1:
        return f"{stages}, {used} the graph"
    return f"{stages}, {used} each of {copies:,} copies of the graph"


def beside_rows(answer: Plan) -> Table:
    """Return what runs before and behind the layers: how often, how long, and its longest kernels.

    No rows where nothing does.
    """
    ends = answer.evaluation.ends  # none under rules that count the layers alone
    n_before = min(len(answer.task.workload.before), len(ends))
    unit, worth, decimals = common_scale(t for e in ends for t in (e.time, e.count * e.time))
    stages = ["first"] * n_before + ["last"] * (len(ends) - n_before)
    return table_of(
        zip(ends, stages, strict=True),
        ("block", "<", lambda of: of[0].name),
        ("stage", "<", lambda of: of[1]),
        ("times", ">", lambda of: f"{of[0].count:,}"),
        (f"each [{unit}]", ">", lambda of: scaled(of[0].time, worth, decimals)),
        (f"all [{unit}]", ">", lambda of: scaled(of[0].count * of[0].time, worth, decimals)),
        ("longest", "<", lambda of: _longest(of[0].partitions)),
    )


def _longest(partitions: Sequence[PartitionTerms]) -> str:
    longest = sorted(partitions, key=lambda p: -p.time)[:2]
    return ", ".join(elided_names(p.kernels, 32) for p in longest)


def stage_rows(answer: Plan) -> Table:
    """Return the stages that hold a copy of the graph; no rows where they hold whole copies."""
    stages = answer.evaluation.stages
    unit, worth, decimals = common_scale(t for s in stages for t in (s.time, s.transfer_time))
    return table_of(
        stages,
        ("stage", ">", lambda s: str(s.number)),
        ("partitions", "<", lambda s: _from_to(s.partitions)),
        ("kernels", ">", lambda s: f"{len(s.kernels):,}"),
        ("work", ">", lambda s: scaled(s.work_time, worth, decimals)),
        ("transfer", ">", lambda s: scaled(s.transfer_time, worth, decimals)),
        (f"time [{unit}]", ">", lambda s: scaled(s.time, worth, decimals)),
        ("bound by", "<", lambda s: s.bound_by),
        ("memory", ">", lambda s: format_quantity(s.memory_used, "B")),
    )


def _from_to(numbers: Sequence[int]) -> str:
    return " to ".join(map(str, dict.fromkeys((numbers[0], numbers[-1]))))


def tables_of_parts(answer: Plan) -> tuple[tuple[str, Table], ...]:
    """Return the stages that split the graph and what runs beside the layers, where there are any.

    Each with its title.
    """
    parts = (
        ("Pipeline stages, for one microbatch", stage_rows(answer)),
        (f"Before and behind the layers, one {answer.task.workload.item}", beside_rows(answer)),
    )
    return tuple((title, rows) for title, rows in parts if rows.rows)


def network_rows(answer: Plan) -> Table:
    """Return the dimensions of the network and what each is used for."""
    m, network = answer.mapping, answer.task.system.network
    places = m.dimensions or range(len(network))
    return table_of(
        zip(places, m.sizes, m.parallelism, strict=True),
        ("dimension", ">", lambda use: str(use[0])),
        ("kind", "<", lambda use: kind_words(network[use[0]])),
        ("chips", ">", lambda use: f"{use[1]:,}"),
        ("used for", "<", lambda use: use[2].value),
        ("link", ">", lambda use: format_quantity(network[use[0]].bandwidth, "B/s")),
        ("latency", ">", lambda use: latency_words(network[use[0]])),
    )


def partition_rows(answer: Plan, *, name_width: int = 48) -> Table:
    """Return the partitions in the order they run; how full the SRAM is where tiles are counted."""
    partitions = answer.evaluation.partitions
    shown = shown_terms(partitions)
    times = [t for p in partitions for t in (*(p.terms[term] for term in shown), p.time)]
    unit, worth, decimals = common_scale(times)

    def term_column(term: str) -> tuple[str, str, Callable[[PartitionTerms], str]]:
        return term, ">", lambda p: scaled(p.terms[term], worth, decimals)

    sram = ("SRAM", ">", lambda p: f"{100 * p.sram_used / p.sram_capacity:.1f} %")
    return table_of(
        partitions,
        ("#", ">", lambda p: str(p.number)),
        ("kernels", "<", lambda p: elided_names(p.kernels, name_width)),
        *map(term_column, shown),
        (f"time [{unit}]", ">", lambda p: scaled(p.time, worth, decimals)),
        ("bound by", "<", lambda p: p.bound_by),
        *([sram] if any(p.sram_used for p in partitions) else []),
    )


def shown_terms(partitions: Sequence[PartitionTerms]) -> tuple[str, ...]:
    """Return the terms that partitions are made of; launches where a chip has them."""
    launches = any(p.launch_time for p in partitions)
    return ("compute", "memory", "network", *(["launch"] if launches else []))


def kernel_rows(answer: Plan) -> Table:
    """Return the kernels as they run, with their extents on a chip; cores where they own some."""
    kernels = sorted(answer.evaluation.kernels, key=lambda k: k.partition)
    cores = ("cores", ">", lambda k: "" if k.lanes is None else f"{k.lanes} x {k.stages}")
    cuts = ("weight cuts", ">", lambda k: str(k.weight_cuts))
    return table_of(
        kernels,
        ("#", ">", lambda k: str(k.partition)),
        ("kernel", "<", lambda k: k.name),
        ("split", "<", lambda k: sharding_words(k.sharding)),
        ("m", ">", lambda k: str(k.m)),
        ("k", ">", lambda k: str(k.k)),
        ("n", ">", lambda k: str(k.n)),
        ("compute", ">", lambda k: time_words(k.compute_time, 3)),
        ("network", ">", lambda k: time_words(k.network_time, 3) if k.network_time else ""),
        ("collective", "<", lambda k: k.collective.replace("_", "-")),
        *([cores] if any(k.lanes is not None for k in kernels) else []),
        *([cuts] if any(k.weight_cuts > 1 for k in kernels) else []),
    )


def bills(answer: Plan) -> Table:
    """Return price and power with their parts."""
    price, power = answer.evaluation.price, answer.evaluation.power
    return table_of(
        ("chips", "memory", "links", "switches", "total"),
        ("part", "<", str),
        ("price", ">", lambda part: usd(getattr(price, part))),
        ("power", ">", lambda part: watts(getattr(power, part))),
    )
