"""Figure 20: Llama-3 8B on 16 SN40L, tensor against pipeline parallelism."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.charts import BarChart, Bars, Chart, LineChart, Mark, Measure, Series
from crosstack.evaluate.evaluation import Evaluation
from crosstack.machine.system import DimensionKind, Parallelism
from crosstack.published.case import Row
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.published.dfmodel.machines import PIPELINE, RING, TENSOR
from crosstack.published.dfmodel.serving import BATCH, published_8b, sn40l
from crosstack.published.figures.figure import (
    Figure,
    Ours,
    Progress,
    claim,
    figure,
    mapped,
)
from crosstack.workload.workload import Workload

__all__ = ["serving_sweep"]

RULES = "dfmodel-e5+separate"
CHIPS, CONTEXT = 16, 4096
TENSORS = (1, 2, 4, 8, 16)
# From the logged utilization, the work and the peak of 16 chips. [s]
PREFILL_TP4 = 9.374040314232177e17 / (0.2502512683794399 * 16 * 638976.0095214844e9)
# Logged time of a batch of 16,384 (LLM_Serving/DSE, commit d818f8ba), by tensor-parallel chips;
# the tool prints 1.001 times what its terms add up to for most of them. [s]
LOGS = {
    "decode": (8.76962478865311, 8.814903719569173, 9.062498970081323, 10.014235457349288,
               13.807383093731515),
    "prefill": (102.07309599289825, 190.10175085290595, PREFILL_TP4, 719.4737454666181,
                1427.5368855839604),
}  # fmt: skip
SLACK = 0.0015
PHASES = ("prefill", "decode")
TERMS = ("compute", "memory", "network")
NAMES = tuple(f"TP{t} PP{CHIPS // t}" for t in TENSORS)
TOKENS = {"prefill": float(CONTEXT), "decode": 1.0}  # of a request
Dimensions = tuple[tuple[DimensionKind, int, float, Parallelism], ...]


def _workload(phase: str, tensor: int) -> Workload:
    if phase == "prefill":
        return prefill(published_8b(), tokens=CONTEXT, global_batch_size=BATCH)
    return decode(published_8b(), context=CONTEXT, global_batch_size=BATCH, chips=tensor)


def _network(tensor: int, link: float) -> Dimensions:
    """Return the rings of a split; one chip in a dimension is no dimension. [GB/s]"""
    sizes = ((RING, tensor, link, TENSOR), (RING, CHIPS // tensor, link, PIPELINE))
    return tuple(dimension for dimension in sizes if dimension[1] > 1)


def _mapped(phase: str, tensor: int, link: float) -> Evaluation:
    network = _network(tensor, link)
    task = sn40l(_workload(phase, tensor), network, (0.0104,) * len(network))
    return mapped(task, RULES).evaluation


def _busy(e: Evaluation) -> dict[str, float]:
    """Return what a request takes in all stages, term by term. [s]"""
    layers = e.layers_per_stage * e.n_stages
    (partition,) = e.partitions
    return {term: getattr(partition, f"{term}_time") * layers for term in TERMS}


def _part(busy: dict[str, float], *terms: str) -> float:
    return sum(busy[term] for term in terms) / sum(busy.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Served:
    """Both phases over the splits, with links of 50 GB/s and of 25 GB/s."""

    fast: dict[str, list[Evaluation]]
    slow: dict[str, list[Evaluation]]

    @property
    def latency(self) -> dict[str, list[float]]:
        """Time to the first token, or between tokens. [s]"""
        return {phase: [e.latency for e in self.fast[phase]] for phase in PHASES}

    @property
    def rate(self) -> dict[str, list[float]]:
        """Tokens per second. [1/s]"""
        return {
            phase: [BATCH * TOKENS[phase] / e.time for e in self.fast[phase]] for phase in PHASES
        }

    @property
    def busy(self) -> dict[str, list[dict[str, float]]]:
        """What a request takes in all stages, term by term. [s]"""
        return {phase: [_busy(e) for e in self.fast[phase]] for phase in PHASES}


def _claims(found: _Served) -> dict[str, Ours]:
    decoded = found.rate["decode"][-1]
    both = [(phase, i) for phase in PHASES for i in range(len(TENSORS) - 1)]
    return {
        "decode": decoded,
        "measured": decoded,
        "latency": [found.latency[p][i + 1] < found.latency[p][i] for p, i in both],
        "throughput": [found.rate[p][i + 1] < found.rate[p][i] for p, i in both],
        "prefill terms": [_part(b, "network", "compute") > 0.5 for b in found.busy["prefill"]],
        "decode terms": [_part(b, "memory", "network") > 0.5 for b in found.busy["decode"]],
    }


def _points(found: _Served) -> tuple[Row, ...]:
    return tuple(
        claim("Fig. 20", f"{phase}, {name}", log, e.time, unit="s", quantity="time",
              tolerance=SLACK, rules=RULES,
              source=f"LLM_Serving/DSE/{name.replace(' ', '_')}/llama3_8B_SN40L_{phase}")
        for phase in PHASES
        for name, log, e in zip(NAMES, LOGS[phase], found.fast[phase], strict=True)
    )  # fmt: skip


def _charts(found: _Served) -> tuple[Chart, ...]:
    words = {"prefill": "TTFT", "decode": "TPOT"}
    charts = [
        BarChart(
            title=f"{words[phase]}: {phase}, one request",
            y=Measure(label=words[phase], unit="ms", worth=1e-3),
            groups=NAMES,
            bars=tuple(
                Bars(name=term, values=tuple(b[term] for b in found.busy[phase]), colour=k)
                for k, term in enumerate(TERMS)
            ),
            stacked=True,
        )
        for phase in PHASES
    ]
    lines = [
        LineChart(
            title=f"Throughput of {phase}",
            x=Measure(label="tensor-parallel chips", log=True, ticks=tuple(map(float, TENSORS))),
            y=Measure(label="throughput", unit="1000 tokens/s", worth=1e3),
            series=(
                Series(name="ours", x=tuple(map(float, TENSORS)), y=tuple(found.rate[phase])),
                Series(
                    name="published log",
                    x=tuple(map(float, TENSORS)),
                    y=tuple(BATCH * TOKENS[phase] / s for s in LOGS[phase]),
                    published=True,
                ),
                Series(name="ours, 25 GB/s links", x=tuple(map(float, TENSORS)),
                       y=tuple(BATCH * TOKENS[phase] / e.time for e in found.slow[phase]),
                       colour=1),
                *(
                    (Series(name="measured", x=(16.0,), y=(1100.0,), colour=3, line=False,
                            mark=Mark.SQUARE),)
                    if phase == "decode" else ()
                ),
            ),
        )
        for phase in PHASES
    ]  # fmt: skip
    return (*charts, *lines)


def serving_sweep(progress: Progress) -> Figure:
    """Return Figure 20: TTFT, TPOT and throughput of both phases over five splits."""
    progress("five splits of 16 chips, both phases")
    found = _Served(
        fast={phase: [_mapped(phase, t, 50.0) for t in TENSORS] for phase in PHASES},
        slow={phase: [_mapped(phase, t, 25.0) for t in TENSORS] for phase in PHASES},
    )
    return figure(
        "serving",
        rows=tuple(
            (phase, NAMES[i], found.latency[phase][i] * 1e3, found.rate[phase][i],
             BATCH * TOKENS[phase] / log,
             BATCH * TOKENS[phase] / found.slow[phase][i].time,
             *(found.busy[phase][i][term] * 1e3 for term in TERMS))
            for phase in PHASES
            for i, log in enumerate(LOGS[phase])
        ),
        claims=_claims(found),
        points=_points(found),
        charts=_charts(found),
    )  # fmt: skip
