"""Figures 20 and 21: Llama-3 on 16 SN40L, over splits of the chips and with a draft."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

from crosstack.charts import Mark
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.speculation import drafted_tokens, expected_tokens
from crosstack.io import library
from crosstack.published.case import Progress
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import TEXTS, Figure, Ours, figure, mapped, published_points
from crosstack.workload.architectures import Transformer

RULES = "dfmodel-e5+separate"
CHIPS, CONTEXT, BATCH = 16, 4096, 16384

# ---------------------------------------------------------------- Figure 20

TENSORS = (1, 2, 4, 8, 16)
TERMS = ("compute", "memory", "network")
TOKENS = {"prefill": float(CONTEXT), "decode": 1.0}  # of a request


def _as_published(name: str) -> Transformer:
    """Return a model as published runs have it: keys and values for every head, no gate."""
    model = library.model(name)
    return replace(model, kv_heads=model.heads, gated=False)


def _mapped(phase: str, tensor: int, link: float) -> Evaluation:
    """Return a phase on rings of ``link`` GB/s; one chip in a dimension is no dimension."""
    rings = (("ring", tensor, link, "tensor"), ("ring", CHIPS // tensor, link, "pipeline"))
    network = [ring for ring in rings if ring[1] > 1]
    model, run = _as_published("llama3-8b"), "sn40l"
    if phase == "prefill":
        run, workload = "sn40l_prefill", prefill(model, tokens=CONTEXT, global_batch_size=BATCH)
    else:
        workload = decode(model, context=CONTEXT, global_batch_size=BATCH, chips=tensor)
    return mapped(published_task(run, workload=workload, network=network), RULES).evaluation


def serving_sweep(progress: Progress) -> Figure:
    """Return Figure 20: TTFT, TPOT and throughput of both phases over five splits."""
    progress("five splits of 16 chips, both phases")
    rows, points, shares = [], [], {}
    for phase, tokens in TOKENS.items():
        shares[phase] = list[dict[str, float]]()
        logs = TEXTS["figures"]["serving"]["logs"][phase]
        for tensor, log in zip(TENSORS, logs, strict=True):
            name, e = f"TP{tensor} PP{CHIPS // tensor}", _mapped(phase, tensor, 50.0)
            # Log of a batch of 16,384, or what it follows from: utilization, work and peak. [s]
            seconds = log if isinstance(log, float) else log[0] / (log[1] * CHIPS * log[2])
            slow = _mapped(phase, tensor, 25.0).time
            layers, (partition,) = e.layers_per_stage * e.n_stages, e.partitions
            busy = {term: getattr(partition, f"{term}_time") * layers for term in TERMS}
            shares[phase].append({term: t / sum(busy.values()) for term, t in busy.items()})
            rates = (BATCH * tokens / time for time in (e.time, seconds, slow))
            rows.append((phase, name, e.latency * 1e3, *rates, *(t * 1e3 for t in busy.values())))
            place = f"LLM_Serving/DSE/{name.replace(' ', '_')}/llama3_8B_SN40L_{phase}"
            points.append((f"{phase}, {name}", seconds, e.time, "computed", place))
    steps = [(a, b) for a, b in itertools.pairwise(rows) if a[0] == b[0]]
    claims: dict[str, Ours] = {
        "decode": rows[-1][3],
        "measured": rows[-1][3],
        "latency": [b[2] < a[2] for a, b in steps],
        "throughput": [b[3] < a[3] for a, b in steps],
        "prefill terms": [s["network"] + s["compute"] > 0.5 for s in shares["prefill"]],
        "decode terms": [s["memory"] + s["network"] > 0.5 for s in shares["decode"]],
    }
    measured = {
        "name": "measured", "x": (16.0,), "y": (1100.0,), "colour": 3, "line": False,
        "mark": Mark.SQUARE,
    }  # fmt: skip
    return figure(
        "serving",
        rows=rows,
        claims=claims,
        points=published_points("serving", points),
        tensors=TENSORS,
        beside={"Throughput of decode": [measured]},
    )


# ---------------------------------------------------------------- Figure 21

WINDOWS = (1, 2, 3, 4, 5, 6, 7, 8)
RATES = (0.5, 0.6, 0.7, 0.8, 0.9)
DRAFTS, TARGET = ("68M", "8B", "70B"), "405B"
# Latency of one run in the logs (LLM_Serving/llama3_*_SN40L_seq*, commit f9cda5e3), by model and
# new tokens; that of the small models follows from the time of a batch over 1.001 x 16,384. [s]
LOGS = {
    ("68M", 1): 1.33036311345171 / 1.001 / 16384,
    ("8B", 1): 13.807383093731515 / 1.001 / 16384,
    ("70B", 5): 6197967.897669032e-9,
    ("405B", 5): 31475793.278873008e-9,
}


@cache
def _step(name: str, tokens: int) -> float:
    """Return the time that a model takes for ``tokens`` new tokens of one sequence. [s]

    The small model has eight layers in the published runs, two in miao2024specinfer.
    """
    model = _as_published("llama-68m" if name == "68M" else f"llama3-{name.lower()}")
    model = replace(model, layers=8 if name == "68M" else model.layers)
    work = decode(model, context=CONTEXT, tokens=tokens, global_batch_size=1, chips=CHIPS)
    # The common sharding splits attention by heads; 12 heads leave 4 of 16 chips idle.
    return mapped(published_task("sn40l", workload=work), RULES).evaluation.latency


def _rate(draft: str, window: int, acceptance: float, branches: int) -> float:
    """Tokens of a sequence per second: what a step adds over what it takes. [1/s]"""
    levels = drafted_tokens(window, branches)
    drafting = sum(_step(draft, new) for new in levels[:-1])
    added = expected_tokens(window, acceptance, branches)
    return added / (drafting + _step(TARGET, sum(levels)))


def _counted(draft: float, check: float, window: int, acceptance: float) -> float:
    """Return the rate as the public tool counts it: ``(K a + 1) / (K draft + check)``. [1/s]

    Every drafted token is accepted on its own, also after one that is not.
    """
    return (window * acceptance + 1) / (window * draft + check)


def counted_rate(draft: str, window: int, acceptance: float, *, target: str = TARGET) -> float:
    """Return the public tool's rate of two models, from our times. [1/s]"""
    return _counted(_step(draft, 1), _step(target, window + 1), window, acceptance)


def log_rate(target: str, window: int, acceptance: float) -> float:
    """Return the public tool's rate with the 8B as draft, from its logs of ``window + 1`` tokens.

    [1/s]
    """
    return _counted(LOGS["8B", 1], LOGS[target, window + 1], window, acceptance)


def speculative_decoding(progress: Progress) -> Figure:
    """Return Figure 21: tokens per second over window and acceptance, sequence and tree."""
    progress("runs of four models")
    plain = 1.0 / _step(TARGET, 1)
    progress("trees")
    rates = {
        (d, a): [(_rate(d, k, a, 1), counted_rate(d, k, a), _rate(d, k, a, 2)) for k in WINDOWS]
        for d, a in itertools.product(DRAFTS, RATES)
    }
    sequence, counted, tree = (
        {key: [each[i] for each in found] for key, found in rates.items()} for i in range(3)
    )
    best = {d: max(max(sequence[d, a]) for a in RATES) for d in DRAFTS}

    def rising(of: dict[tuple[str, float], list[float]]) -> list[bool]:
        """Return whether each longer window of the small drafts is as fast as the one before."""
        small = [of[d, a] for d in ("68M", "8B") for a in RATES]
        return [later >= earlier for row in small for earlier, later in itertools.pairwise(row)]

    claims: dict[str, Ours] = {
        "small draft": [max(tree["68M", a]) > max(tree[d, a]) for a in RATES for d in DRAFTS[1:]],
        "window": [tree["68M", a].index(max(tree["68M", a])) + 1 < WINDOWS[-1] for a in RATES],
        "drafts": [best[d] > best["70B"] for d in ("68M", "8B")],
        "acceptance": [
            more >= less
            for d in DRAFTS
            for a, b in itertools.pairwise(RATES)
            for less, more in zip(sequence[d, a], sequence[d, b], strict=True)
        ],
        "counted": rising(counted),
        "rising": rising(sequence),
    }
    points = [
        (f"{name}, {tokens} new tokens", log, _step(name, tokens), "computed",
         f"LLM_Serving/llama3_{name}_SN40L_seq{tokens}")
        for (name, tokens), log in LOGS.items()
    ]  # fmt: skip
    alone = {"name": "405B alone", "x": (1.0, 8.0), "y": (plain, plain), "colour": 4}
    five = TEXTS["figures"]["speculation"]["five"]
    held = published_points("speculation", points)
    return figure(
        "speculation",
        rows=[
            (*key, float(k), *each)
            for key, found in rates.items()
            for k, each in zip(WINDOWS, found, strict=True)
        ],
        claims=claims,
        points=[replace(row, note="" if "1 new" in row.case else five) for row in held],
        plain=plain,
        beside={"Sequence, acceptance 0.8": [alone], "Tree of 2^K, acceptance 0.8": [alone]},
    )
