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
from crosstack.published.case import Case, Check
from crosstack.published.dfmodel.machines import (
    FORWARD_SHARDING,
    PIPELINE,
    RING,
    TENSOR,
    axes,
    chip,
    given,
    system,
)
from crosstack.workload.architectures import Transformer
from crosstack.workload.serving import decode, prefill
from crosstack.workload.workload import Workload

__all__ = ["BATCH", "published_8b", "serving_cases", "sn40l"]

BATCH = 16384
# Columns of `AXES`: elementwise kernels are whole on every chip, as far as they may be.
DECODE_SHARDING = (4, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 4, 4, 1, 1, 2, 4, 4)
SLACK = "the published number is 1.001 times what its terms add up to"
OLDER = (
    "the input of this log is not stored; its terms say it: 4,097 cycles at 1.6 GHz, so no "
    "utilization is given; 60 hops of 100 ns, and 614.4 ns for 16,384 B at 25 GB/s, so the "
    "bytes of an all-reduce are counted once"
)


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
    machine = system(
        chip("SN40L", utilization=utilization, overlap=Overlap.NONE, price=33000, power=750),
        (1638.4, 68719476736.0),
        dimensions,
        link_power=link_power,
        latency=latency,
    )
    one = Constraints(microbatch_size=1, max_partitions=1)
    task = Task(workload=workload, system=machine, constraints=one)
    return given(task, axes(DECODE_SHARDING if len(workload.graph) == 20 else FORWARD_SHARDING))


def published_8b() -> Transformer:
    """Return Llama-3 8B as published runs have it: keys and values for every head, no gate."""
    return replace(library.model("llama3-8b"), kv_heads=32, gated=False)


def _decode(chips: int) -> Workload:
    return decode(published_8b(), context=4096, global_batch_size=BATCH, chips=chips)


def serving_cases() -> list[Case]:
    """Return every case, in the order of the published table."""
    ring, slow = ((RING, 16, 50.0, TENSOR),), ((RING, 16, 25.0, TENSOR),)
    square = ((RING, 4, 50.0, TENSOR), (RING, 4, 50.0, PIPELINE))
    reading = prefill(published_8b(), tokens=4096, global_batch_size=BATCH)
    price = Check("price", 558214.400390625)
    power = Check("power", 16272.835688598687)
    tensor = sn40l(_decode(16), ring, (0.0104,))
    return [
        Case(
            name="Llama-3 8B decoding on 16 SN40L (TP16), context 4096",
            source="LLM_Serving/DSE/TP16_PP1/llama3_8B_SN40L_decode, log d818f8ba",
            rules="dfmodel-e5+separate",
            task=tensor,
            checks=(
                Check("layer_time", 26309.18408121639e-9),
                Check("latency", 841893.8905989245e-9),
                Check("time", 13.793589503572779),
                Check("work", 264059991621632.0),
                price,
                power,
            ),
            proved=True,
        ),
        Case(
            name="Llama-3 8B decoding on 16 SN40L (TP16), links of 25 GB/s, older log",
            source="LLM_Serving/DSE/TP16_PP1/llama3_8B_SN40L_decode (log b9a3e2f9)",
            rules="dfmodel-e4",
            task=sn40l(_decode(16), slow, (0.0104,), utilization=None, latency=100e-9),
            checks=(
                Check("layer_time", 25815.02471388839e-9),
                Check("time", 13.534507677195116),
                Check("utilization", 0.0019083393561428064),
                Check("price", 556214.400390625),
                Check("power", 16266.075688533718),
                Check("work", 264059991621632.0),
            ),
            proved=True,
            note=OLDER,
        ),
        Case(
            name="Llama-3 8B reading 4,096 tokens on 16 SN40L (TP16)",
            source="LLM_Serving/DSE/TP16_PP1/llama3_8B_SN40L_prefill",
            rules="dfmodel-e5+separate",
            task=sn40l(reading, ring, (0.0104,)),
            checks=(
                Check("time", 1427.5368855839604, "at most"),
                Check("utilization", 0.06422955939688933, "at least"),
                Check("work", 9.374040314232177e17),
                price,
                power,
            ),
            proved=True,
            note=SLACK,
        ),
        Case(
            name="Llama-3 8B decoding on 16 SN40L (TP4 PP4), context 4096",
            source="LLM_Serving/DSE/TP4_PP4/llama3_8B_SN40L_decode",
            rules="dfmodel-e5+separate",
            task=sn40l(_decode(4), square, (0.0104, 0.0)),
            checks=(
                Check("time", 9.062498970081323, "at most"),
                Check("utilization", 0.00285003438363719, "at least"),
                Check("price", 576614.400390625),
                Check("power", 16309.235689349705),
            ),
            proved=True,
            note=SLACK,
        ),
    ]
