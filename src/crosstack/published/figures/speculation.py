"""Figure 21: speculative decoding of Llama-3 405B on 16 SN40L."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache

from crosstack.charts import Chart, HeatMap, LineChart, Measure, Series
from crosstack.evaluate.speculation import drafted_tokens, expected_tokens
from crosstack.io import library
from crosstack.published.case import Row
from crosstack.published.dfmodel.graphs.serving import decode
from crosstack.published.dfmodel.machines import RING, TENSOR
from crosstack.published.dfmodel.serving import sn40l
from crosstack.published.figures.figure import (
    Figure,
    Ours,
    Progress,
    claim,
    figure,
    mapped,
)
from crosstack.workload.architectures import Transformer

RULES = "dfmodel-e5+separate"
CHIPS, CONTEXT = 16, 4096
WINDOWS = (1, 2, 3, 4, 5, 6, 7, 8)
RATES = (0.5, 0.6, 0.7, 0.8, 0.9)
# As in the published runs: no gate, every query head with keys and values of its own; the small
# model has eight layers there, two in miao2024specinfer.
DRAFTS = ("68M", "8B", "70B")
TARGET = "405B"
Rates = dict[str, list[list[float]]]
# Latency of one run in the logs (LLM_Serving/llama3_*_SN40L_seq*, commit f9cda5e3), by model and
# new tokens; the 68M's follows from the time of its batch over 1.001 x 16,384. [s]
LOGS = (
    ("68M", 1, 1.33036311345171 / 1.001 / 16384, "llama3_68M_SN40L_seq1"),
    ("8B", 1, 13.807383093731515 / 1.001 / 16384, "llama3_8B_SN40L_seq1"),
    ("70B", 5, 6197967.897669032e-9, "llama3_70B_SN40L_seq5"),
    ("405B", 5, 31475793.278873008e-9, "llama3_405B_SN40L_seq5"),
)


def _model(name: str) -> Transformer:
    key = "llama-68m" if name == "68M" else f"llama3-{name.lower()}"
    model = library.model(key)
    layers = 8 if name == "68M" else model.layers
    return replace(model, kv_heads=model.heads, gated=False, layers=layers)


@cache
def _step(name: str, tokens: int) -> float:
    """Return the time that a model takes for ``tokens`` new tokens of one sequence. [s]"""
    work = decode(_model(name), context=CONTEXT, tokens=tokens, global_batch_size=1, chips=CHIPS)
    # The common sharding splits attention by heads; 12 heads leave 4 of 16 chips idle.
    task = sn40l(work, ((RING, CHIPS, 50.0, TENSOR),), (0.0104,))
    return mapped(task, RULES).evaluation.latency


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
    """Return the public tool's rate with the 8B as draft, from its own logs. [1/s]

    Raises
    ------
    KeyError
        If no log of the target checks ``window + 1`` tokens.
    """
    logs = {(name, tokens): time for name, tokens, time, _ in LOGS}
    return _counted(logs["8B", 1], logs[target, window + 1], window, acceptance)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoded:
    """Rates by draft, acceptance and window, and that of the target alone. [1/s]"""

    plain: float
    sequence: Rates
    counted: Rates  # as the public tool counts
    tree: Rates


def _best(of: Rates, draft: str) -> float:
    return max(rate for row in of[draft] for rate in row)


def _best_windows(of: Rates, draft: str) -> list[int]:
    return [WINDOWS[row.index(max(row))] for row in of[draft]]


def _rising(of: Rates) -> list[bool]:
    """Return whether each longer window of the small drafts is as fast as the one before it."""
    rows = [row for d in ("68M", "8B") for row in of[d]]
    return [later >= earlier for row in rows for earlier, later in itertools.pairwise(row)]


def _claims(found: _Decoded) -> dict[str, Ours]:
    sequence, tree = found.sequence, found.tree
    kept = [
        sequence[d][i + 1][k] >= sequence[d][i][k]
        for d in DRAFTS for i in range(len(RATES) - 1) for k in range(len(WINDOWS))
    ]  # fmt: skip
    others = [
        max(tree["68M"][i]) > max(tree[d][i]) for i in range(len(RATES)) for d in ("8B", "70B")
    ]
    return {
        "small draft": others,
        "window": [window < max(WINDOWS) for window in _best_windows(tree, "68M")],
        "drafts": [_best(sequence, d) > _best(sequence, "70B") for d in ("68M", "8B")],
        "acceptance": kept,
        "counted": _rising(found.counted),
        "rising": _rising(sequence),
    }


def _points() -> tuple[Row, ...]:
    return tuple(
        claim("Fig. 21", f"{name}, {tokens} new tokens", log, _step(name, tokens), unit="s",
              quantity="latency", tolerance=2e-3, rules=RULES,
              source=f"LLM_Serving/{folder}",
              note="" if tokens == 1 else "5 tokens attend to 4,101 others here, 4,096 there")
        for name, tokens, log, folder in LOGS
    )  # fmt: skip


def _charts(found: _Decoded) -> tuple[Chart, ...]:
    lines = [
        LineChart(
            title=title,
            x=Measure(label="window K", unit="tokens", ticks=tuple(map(float, WINDOWS))),
            y=Measure(label="rate of a sequence", unit="tokens/s"),
            series=(
                *(
                    Series(name=f"draft {d}", x=tuple(map(float, WINDOWS)), y=tuple(of[d][3]),
                           colour=c)
                    for c, d in enumerate(DRAFTS)
                ),
                Series(name="405B alone", x=(1.0, 8.0), y=(found.plain, found.plain), colour=4),
            ),
        )
        for title, of in (
            ("Sequence, acceptance 0.8", found.sequence),
            ("Tree of 2^K, acceptance 0.8", found.tree),
        )
    ]  # fmt: skip
    heat = [
        HeatMap(
            title=title,
            value=Measure(label="rate of a sequence", unit="tokens/s"),
            columns=tuple(str(k) for k in WINDOWS),
            rows=tuple(f"{a:g}" for a in RATES),
            column_title="window K [tokens]",
            row_title="acceptance",
            values=tuple(map(tuple, of)),
        )
        for title, of in (
            ("Sequence, draft 8B", found.sequence["8B"]),
            ("Tree, draft 68M", found.tree["68M"]),
        )
    ]
    return (*lines, *heat)


def speculative_decoding(progress: Progress) -> Figure:
    """Return Figure 21: tokens per second over window and acceptance, sequence and tree."""
    progress("runs of four models")
    plain = 1.0 / _step(TARGET, 1)
    sequence = {d: [[_rate(d, k, a, 1) for k in WINDOWS] for a in RATES] for d in DRAFTS}
    counted = {d: [[counted_rate(d, k, a) for k in WINDOWS] for a in RATES] for d in DRAFTS}
    progress("trees")
    tree = {d: [[_rate(d, k, a, 2) for k in WINDOWS] for a in RATES] for d in DRAFTS}
    found = _Decoded(plain=plain, sequence=sequence, counted=counted, tree=tree)
    return figure(
        "speculation",
        rows=tuple(
            (d, a, float(k), sequence[d][i][j], counted[d][i][j], tree[d][i][j])
            for d in DRAFTS for i, a in enumerate(RATES) for j, k in enumerate(WINDOWS)
        ),
        claims=_claims(found),
        points=_points(),
        charts=_charts(found),
        plain=plain,
    )  # fmt: skip
