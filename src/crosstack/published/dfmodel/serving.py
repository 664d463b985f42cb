"""Published DFModel runs of serving: Llama-3 8B on 16 SN40L.

Sources: as `crosstack.published.dfmodel.cases`. The runs give every query head its own keys and
values and do not gate the feed-forward network, which the model itself does otherwise.
"""

from __future__ import annotations

from dataclasses import replace

from crosstack.io import library
from crosstack.machine.chip import Overlap
from crosstack.machine.system import DimensionKind, Parallelism
from crosstack.mapping.mapping import Constraints, Task
from crosstack.published.case import Case
from crosstack.published.dfmodel import machines as built
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.published.dfmodel.runs import published_case
from crosstack.workload.architectures import Transformer
from crosstack.workload.workload import Workload

__all__ = ["BATCH", "published_8b", "serving_cases", "sn40l"]

BATCH = 16384


def sn40l(
    workload: Workload,
    dimensions: tuple[tuple[DimensionKind, int, float, Parallelism], ...],
    link_power: tuple[float, ...],
    *,
    utilization: float | None = 0.9,
    latency: float = 150e-9,
) -> Task:
    """Return serving on 16 SN40L as published: one partition, the sharding of the log.

    ``utilization`` None counts cycles; ``latency`` is that of a link, in seconds.
    """
    machine = built.system(
        built.chip("SN40L", utilization=utilization, overlap=Overlap.NONE, price=33000, power=750),
        (1638.4, 68719476736.0),
        dimensions,
        link_power=link_power,
        latency=latency,
    )
    one = Constraints(microbatch_size=1, max_partitions=1)
    task = Task(workload=workload, system=machine, constraints=one)
    return built.given(task, "decode" if len(workload.graph) == 20 else "forward")


def published_8b() -> Transformer:
    """Return Llama-3 8B as published runs have it: keys and values for every head, no gate."""
    return replace(library.model("llama3-8b"), kv_heads=32, gated=False)


def _decode(chips: int) -> Workload:
    return decode(published_8b(), context=4096, global_batch_size=BATCH, chips=chips)


def serving_cases() -> list[Case]:
    """Return every case, in the order of the published table."""
    ring, slow = ((built.RING, 16, 50.0, built.TENSOR),), ((built.RING, 16, 25.0, built.TENSOR),)
    square = ((built.RING, 4, 50.0, built.TENSOR), (built.RING, 4, 50.0, built.PIPELINE))
    reading = prefill(published_8b(), tokens=4096, global_batch_size=BATCH)
    tensor = sn40l(_decode(16), ring, (0.0104,))
    return [
        published_case("Llama-3 8B decoding on 16 SN40L (TP16), context 4096", tensor),
        published_case(
            "Llama-3 8B decoding on 16 SN40L (TP16), links of 25 GB/s, older log",
            sn40l(_decode(16), slow, (0.0104,), utilization=None, latency=100e-9),
        ),
        published_case(
            "Llama-3 8B reading 4,096 tokens on 16 SN40L (TP16)", sn40l(reading, ring, (0.0104,))
        ),
        published_case(
            "Llama-3 8B decoding on 16 SN40L (TP4 PP4), context 4096",
            sn40l(_decode(4), square, (0.0104, 0.0)),
        ),
    ]
