"""What an engineer reads first of an answer: the step, where its time goes, what to change, a run.

Text, pages and predictions say the same from here.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from crosstack.evaluate.comparisons import COMPARED_RULES, GENERATIONS, is_of_tokens
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.next_plans import (
    PLACES,
    PROVED,
    Difference,
    RankedStrategies,
    decided_otherwise,
    places_of,
)
from crosstack.evaluate.plan import Plan
from crosstack.evaluate.step_account import Spent, StepAccount
from crosstack.evaluate.whole_run import WholeRun, cost_of, tokens_of_iteration, tokens_per_second
from crosstack.machine.calibration import is_calibrated
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import Mapping
from crosstack.model.objective import YEARS, Objective
from crosstack.report.html_parts import bar_table
from crosstack.report.plan_rows import room_words
from crosstack.report.wording import (
    DAY,
    HOUR,
    KWH,
    MILLION,
    Table,
    grouped,
    peak_words,
    percent,
    plural,
    table_of,
    time_words,
    usd,
)
from crosstack.units import format_quantity
from crosstack.workload.transformer_training import Recompute, Zero

Pairs = tuple[tuple[str, str], ...]

SPENT = {
    Spent.COMPUTE: "compute",
    Spent.RECOMPUTATION: "computing again in the backward pass",
    Spent.MEMORY: "waiting for main memory",
    Spent.NETWORK: "collectives in layers that nothing hides",
    Spent.LAUNCH: "launching kernels",
    Spent.EXCHANGE: "weights and gradients of layers that nothing hides",
    Spent.OFFLOAD: "activations to the host and back that nothing hides",
    Spent.SENDS: "sending activations on",
    Spent.WAITING: "waiting: the pipeline's bubble, and what it is sent",
    Spent.SUMS: "gradient sums after the last backward pass",
    Spent.UPDATE: "updating weights",
    Spent.GATHER: "sending updated weights round",
}
# What makes each smaller.
LEVERS = {
    Spent.COMPUTE: "larger products on a chip (larger microbatches, less tensor parallelism) come "
    "nearer to the peak, and fewer bits have a higher one",
    Spent.RECOMPUTATION: "main memory for more activations would save it (more stages, more shared "
    "by data-parallel chips, or more capacity)",
    Spent.MEMORY: "larger microbatches, more fusion or faster memory would save it",
    Spent.NETWORK: "less tensor parallelism, or faster links where it is, would save it",
    Spent.LAUNCH: "larger microbatches or fewer, fused kernels would save it",
    Spent.EXCHANGE: "larger microbatches, or fewer shares among data-parallel chips, would hide it",
    Spent.OFFLOAD: "less to keep (recomputation, more tensor parallelism), or a faster link to the "
    "host, would hide it",
    Spent.SENDS: "fewer stages, or faster links between them, would save it",
    Spent.WAITING: "more microbatches an iteration, fewer stages, or more pieces of each "
    "(interleaved) would fill it",
    Spent.SUMS: "a larger batch spreads it, faster links between data-parallel chips shorten it",
    Spent.UPDATE: "a larger batch spreads it, more shares of the optimizer's state shorten it",
    Spent.GATHER: "a larger batch spreads it, faster links between data-parallel chips shorten it",
}
PEAK = "  of it at the peak rate"
_FEW_RUNS = 10  # that a range is made of, so that it says little of others [1]
_LEAST = 5e-4  # share of the time below which a row says nothing


def step_numbers(answer: Plan) -> Pairs:
    """Return what a step takes and costs as (label, value), the time first."""
    e, c, task = answer.evaluation, answer.certificate, answer.task
    time = time_words(e.time)
    if c.searched and c.gap > 0 and c.metric is Objective.TIME:
        time += f", at best {time_words(c.bound)}"
    rate, chips = tokens_per_second(task.workload, e), task.system.n_chips * task.system.copies
    tokens = None if rate is None else f"{grouped(rate)}, {grouped(rate / chips)} a chip"
    skipped = "; scores that a mask leaves out are not executed"
    less = skipped if e.executed_work < 0.999 * e.work else ""
    every = ", as it counts scores that a mask leaves out" if less and e.utilization > 1 else ""
    memory = format_quantity(e.memory_used, "B")
    if math.isfinite(e.memory_capacity):
        share = percent(e.memory_used / e.memory_capacity)
        memory += f" of {room_words(answer)}, {share}"
    stages = len(e.memory.stages)
    fullest = f" of stage {e.memory.fullest}, the fullest" if stages > 1 else ""
    found = (
        ("step time", time),
        ("tokens a second", tokens),
        (
            "MFU, of the model's FLOP",
            f"{percent(e.utilization)} of {peak_words(task, answer.rules)}{every}",
        ),
        ("HFU, of what is executed", f"{percent(e.hardware_utilization)}{less}"),
        (f"memory of a chip{fullest}", memory),
        ("energy of a step", None if e.energy is None else format_quantity(e.energy.total, "J")),
        *_costs(answer),
        *_of_a_million(answer),
    )
    return tuple((label, value) for label, value in found if value is not None)


def _costs(answer: Plan) -> tuple[tuple[str, str | None], ...]:
    cost = cost_of(answer.task, answer.evaluation)
    bought = None if cost.price is None else f"{usd(cost.price)} {_paid(cost.electricity)}"
    billed = None if cost.electricity is None else usd(cost.electricity)
    return ("price of a step", bought), ("electricity of a step", billed)


def _paid(electricity: float | None) -> str:
    """Say what a price is of; what electricity costs beside it is said where that is known. [USD]

    There is no usual price of electricity.
    """
    alone = ", without electricity" if electricity is None else ""
    return f"of the purchase price over {YEARS:g} years{alone}"


def _of_a_million(answer: Plan) -> tuple[tuple[str, str | None], ...]:
    """Return what a million tokens take; nothing where none are counted."""
    if tokens_per_second(answer.task.workload, answer.evaluation) is None:
        return ()
    run = answer.whole_run(tokens_of_iteration(answer.task.workload))
    energy, price = run.of_tokens(MILLION)
    billed = None if run.electricity is None else usd(run.electricity * MILLION / run.tokens)
    return (
        ("energy of a million tokens", None if energy is None else format_quantity(energy, "J")),
        ("price of a million tokens", None if price is None else usd(price)),
        ("electricity of a million tokens", billed),
    )


def bound_sentence(answer: Plan, account: StepAccount) -> str:
    """Say what bounds the step."""
    share = dict(account.bound)[account.bound_by] / account.time if account.time else 0.0
    whose = "of the step"
    if answer.evaluation.n_stages > 1:
        whose = f"of the step of stage {account.stage}, which works longest"
    what = {Spent.MEMORY: "main memory"}.get(account.bound_by, SPENT[account.bound_by])
    return f"Bound by {what}: {percent(share)} {whose}."


def first_sentence(account: StepAccount) -> str:
    """Say what should change first, how, and what that saves at most."""
    name, saved = account.first
    if saved <= 0:
        return "Nothing takes time but compute at the peak."
    what = SPENT[name]
    if name is Spent.COMPUTE:
        reached = account.at_peak / dict(account.spent)[name]
        what = f"compute, which reaches {percent(reached)} of the peak"
    share = percent(saved / account.time)
    return (
        f"Change first: {what}. It would save at most {time_words(saved)} of a step, {share}; "
        f"{LEVERS[name]}."
    )


def expected_sentence(answer: Plan) -> str:
    """Say how long measured steps like an answer took, over what is said of them; or nothing."""
    if not is_of_tokens(answer.task.workload) or answer.rules.name != COMPARED_RULES:
        return ""
    framework, like = answer.task.system.chip.framework, answer.comparison
    if is_calibrated(answer.task.system):
        return "Not compared with measured steps: the machine is calibrated, they were not."
    chip = answer.task.system.chip.name
    if not any(chip in names for names in GENERATIONS.values()):
        return (
            f"No measured step on {chip} has been compared with ours: what its kernels reach "
            "follows from its rates and memories alone."
        )
    if framework is None:
        return "Not compared with measured steps, which frameworks drive: name one (--framework)."
    if like is None:
        return f"No measured step of {framework.name} on such chips has been compared with ours."
    low, middle, high = like.expected(answer.evaluation.time)
    what = "with" if like.experts else "without"
    few = ", which are few to go by" if like.runs < _FEW_RUNS else ""
    return (
        f"Expect {time_words(low)} to {time_words(high)}, half below {time_words(middle)}: of "
        f"{like.runs} measured steps of {like.framework} on {like.generation}, of models {what} "
        f"experts, eight in ten took {like.ratios.low:.2f} to {like.ratios.high:.2f} times what is "
        f"said of them ({', '.join(like.sources)}){few}."
    )


def _spent_words(name: Spent, stages: int) -> str:
    """Return what time goes to; one stage alone has no bubble."""
    alone = name is Spent.WAITING and stages == 1
    return "waiting for what other chips send" if alone else SPENT[name]


def spent_rows(answer: Plan, account: StepAccount) -> Table:
    """Return where the time of the busiest stage goes; what is next to nothing is left out."""
    stages = answer.evaluation.n_stages
    whose = f"stage {account.stage} of {stages}, the busiest," if stages > 1 else "the step"
    rows: list[tuple[str, float]] = []
    for name, time in account.spent:
        if time > _LEAST * account.time:
            rows.append((_spent_words(name, stages), time))
        if name is Spent.COMPUTE and time > 0:
            rows.append((PEAK, account.at_peak))
    rows.append(("sum", account.time))
    return table_of(
        rows,
        (f"what {whose} is made of", "<", lambda row: row[0]),
        ("time", ">", lambda row: time_words(row[1])),
        ("share", ">", lambda row: percent(row[1] / account.time) if account.time else ""),
    )


def spent_bars(answer: Plan, account: StepAccount) -> str:
    """Return `spent_rows` with a bar for each, without the sum."""
    rows = spent_rows(answer, account)
    named = [(name, f"{time}, {share}") for name, time, share in rows.rows[:-1]]
    times = dict(account.spent)
    stages = answer.evaluation.n_stages
    worth = {_spent_words(name, stages): time for name, time in times.items()}
    worth |= {PEAK: account.at_peak}
    bars = [(name, words, worth[name]) for name, words in named]
    most = max((length for _, _, length in bars), default=0.0)
    whose = f"stage {account.stage}, the busiest" if stages > 1 else "the step"
    return bar_table(f"in {whose}", "time, share", bars, most, "compute")


def timeline_sentence(answer: Plan, account: StepAccount) -> str:
    """Say what a timeline of stages shows."""
    count, pieces = answer.evaluation.n_microbatches, answer.mapping.interleave
    whose = "One stage"
    if answer.evaluation.n_stages > 1:
        whose = f"Stage {account.stage}, which works longest, among the others"
    split = f" through {pieces:,} pieces of every stage" if pieces > 1 else ""
    return f"{whose}, with {plural(count, 'microbatch')}{split}, numbered from 0."


def hero_pairs(answer: Plan) -> Pairs:
    """Return what is read with the time of a step: rates, memory, and what a run takes."""
    e, run = answer.evaluation, answer.run
    rate = tokens_per_second(answer.task.workload, e)
    full = e.memory_used / e.memory_capacity if math.isfinite(e.memory_capacity) else None
    like = answer.comparison
    low, _, high = (0.0, 0.0, 0.0) if like is None else like.expected(e.time)
    found = (
        ("expect", None if like is None else f"{time_words(low)} to {time_words(high)}"),
        ("tokens/s", None if rate is None else grouped(rate)),
        ("MFU", percent(e.utilization)),
        ("HFU", percent(e.hardware_utilization)),
        ("memory", None if full is None else percent(full)),
        ("run", None if run is None else long_time(run.time)),
        ("purchase share of the run", None if run is None or run.price is None else usd(run.price)),
    )
    return tuple((label, value) for label, value in found if value is not None)


# ---------------------------------------------------------------- a whole run


def long_time(time: float) -> str:
    """Return a time in days or hours where it is so long. [s]"""
    for unit, worth in (("days", DAY), ("hours", HOUR)):
        if time >= 2 * worth:
            return f"{grouped(time / worth)} {unit}"
    return time_words(time)


def energy_words(energy: float) -> str:
    """Return an energy as it is billed. [J]"""
    hours = energy / KWH
    return f"{grouped(hours)} kWh" if hours < 1000 else f"{grouped(hours / 1000)} MWh"


def run_numbers(run: WholeRun) -> Pairs:
    """Return what a run takes as (label, value); nothing of what is not known."""
    known = (
        ("steps", f"{run.iterations:,}"),
        ("time, nothing going wrong", long_time(run.time)),
        ("chip-hours", grouped(run.chip_time / HOUR)),
        ("energy", None if run.energy is None else energy_words(run.energy)),
        ("price", None if run.price is None else f"{usd(run.price)} {_paid(run.electricity)}"),
        ("electricity", None if run.electricity is None else usd(run.electricity)),
    )
    return tuple((label, value) for label, value in known if value is not None)


def run_title(run: WholeRun) -> str:
    """Return what a run is over."""
    return f"A run over {run.tokens:,.0f} tokens"


# ---------------------------------------------------------------- the plans next to it


def next_title(answer: Plan, ranked: RankedStrategies) -> str:
    """Return how many plans there are next to an answer, and of how many.

    They are the fastest, which is said where the answer is the best of something else.
    """
    metric = answer.certificate.metric
    by_time = "" if metric is Objective.TIME else f" (the answer is the best by {metric.value})"
    if not ranked.found:
        return f"No other of {ranked.total:,} strategies is left that fits"
    return (
        f"Next {plural(len(ranked.found), 'plan')}, the fastest of {ranked.total:,} strategies"
        f"{by_time}{_sure(ranked)}"
    )


def _sure(ranked: RankedStrategies) -> str:
    """Say how sure it is that plans are the fastest, each with its best mapping."""
    if ranked.exact:
        return ", proved so"
    if not any(ranked.bounds):
        blocks = plural(ranked.blocks, "block")
        return f", each with the kernels of its block as first mapped ({blocks})"
    last = ranked.found[-1][1].time
    others = "none left out is faster"
    if ranked.left < last:
        others = f"none left out takes less than {time_words(ranked.left)}"
    return f": each within its gap of the best mapping of its strategy, and {others}"


def next_rows(answer: Plan, ranked: RankedStrategies) -> Table:
    """Return what each of the next plans decides, takes and trades against the answer."""
    own = answer.evaluation
    said = [differences_words(answer.mapping, mapping) for mapping, _ in ranked.found]
    alike = {words for words, times in Counter(said).items() if times > 1}
    for k, (mapping, _) in enumerate(ranked.found):
        if said[k] in alike:  # they differ in where their degrees lie
            said[k] += f"; on levels {_places(places_of(mapping))}"

    rows = list(zip(ranked.found, said, strict=True))

    def gap(known: float | None) -> str:
        return "" if known is None else "none" if known <= PROVED else f"{100 * known:.2f} %"

    def slower(found: Evaluation) -> str:
        return f"{100 * (found.time / own.time - 1):+.2f} %"

    def memory(found: Evaluation) -> str:
        more = found.memory_used - own.memory_used
        return f"{'-' if more < 0 else '+'}{format_quantity(abs(more), 'B', 3)}"

    return table_of(
        [(*one, words, ranked.gap(k)) for k, (one, words) in enumerate(rows)],
        ("tensor", ">", lambda one: f"{one[0].degree(Parallelism.TENSOR):,}"),
        ("pipeline", ">", lambda one: f"{one[0].degree(Parallelism.PIPELINE):,}"),
        ("data", ">", lambda one: f"{one[0].degree(Parallelism.DATA):,}"),
        ("microbatch", ">", lambda one: f"{one[0].microbatch_size:,}"),
        ("time", ">", lambda one: time_words(one[1].time)),
        ("slower", ">", lambda one: slower(one[1])),
        ("gap", ">", lambda one: gap(one[3])),
        ("MFU", ">", lambda one: percent(one[1].utilization)),
        ("memory", ">", lambda one: format_quantity(one[1].memory_used, "B", 3)),
        ("more", ">", lambda one: memory(one[1])),
        ("decides otherwise", "<", lambda one: one[2]),
    )


def differences_words(here: Mapping, there: Mapping) -> str:
    """Say what another mapping decides otherwise."""
    return "; ".join(map(_difference, decided_otherwise(here, there))) or "the same"


def _difference(one: Difference) -> str:
    """Say one decision: what it is there, in place of here."""
    if one.decision == PLACES:
        return f"on levels {_places(one.there)}, not {_places(one.here)}"
    if isinstance(one.there, Zero):
        return f"{_SHARES[one.there]}, not {_SHARES[one.here]}"
    if isinstance(one.there, Recompute):
        return f"computes {_AGAIN[one.there]} again, not {_AGAIN[one.here]}"
    name = _DECISIONS.get(one.decision, one.decision.replace("_", " "))
    return f"{name} {_value(one.there)}, not {_value(one.here)}"


_DECISIONS = {
    "microbatch_size": "microbatch",
    "n_tiles": "tiles",
    "interleave": "pieces a stage",
    "recompute_layers": "layers that compute again",
}
_SHARES = {
    Zero.NONE: "no ZeRO",
    Zero.STATE: "ZeRO 1",
    Zero.GRADIENTS: "ZeRO 2",
    Zero.WEIGHTS: "ZeRO 3",
    Zero.HYBRID: "ZeRO 3 inside a server",
}
_AGAIN = {Recompute.NONE: "nothing", Recompute.ATTENTION: "attention", Recompute.FULL: "layers"}


def _value(value: Any) -> str:
    if value is None:
        return "all"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _places(places: tuple[tuple[int, str, int], ...]) -> str:
    levels: dict[int, list[str]] = {}
    for level, use, size in places:
        levels.setdefault(level, []).append(f"{use} {size}")
    return ", ".join(f"{level}: {' x '.join(uses)}" for level, uses in levels.items())
