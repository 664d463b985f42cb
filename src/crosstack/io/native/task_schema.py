"""The shape of a native YAML file: the fields of a machine, of constraints, and of a whole file."""

from __future__ import annotations

from typing import Annotated

from crosstack.io.native.schema import (
    Bandwidth,
    Bytes,
    BytesAboveZero,
    Count,
    Dollars,
    DtypeName,
    FileModel,
    Flag,
    Frequency,
    Index,
    LibraryModel,
    Names,
    ParallelismName,
    Rate,
    Seconds,
    Share,
    Text,
    UnitPower,
    UnitPrice,
    Watts,
    one_of,
    quantity,
)
from crosstack.io.native.workload_schema import WorkloadFile
from crosstack.machine.chip import Execution, Fusion, Overlap
from crosstack.machine.compute import Dataflow
from crosstack.machine.memory import Scope
from crosstack.machine.system import AllReduceAlgorithm, DimensionKind
from crosstack.workload.transformer_training import Recompute, Schedule


class ComputeFile(FileModel):
    """See `crosstack.machine.compute.Compute`."""

    n_units: Count
    n_multiprocessors: Count
    work_per_cycle: Annotated[float, quantity("FLOP", above_zero=True)]
    frequency: Frequency
    rows: Count = 1
    columns: Count = 1
    depth: BytesAboveZero | None = None
    voltage: Annotated[float, quantity("V")] = 0.0
    utilization: Share | None = None
    dataflow: Annotated[Dataflow, one_of(Dataflow)] = Dataflow.BEST
    power: Watts = 0.0
    relative_rates: dict[DtypeName, Share] | None = None
    relative_vector_rates: dict[DtypeName, Share] | None = None
    accumulator_rates: dict[DtypeName, dict[DtypeName, Share]] | None = None
    accumulator: DtypeName | None = None


class LevelFile(FileModel):
    """See `crosstack.machine.memory.MemoryLevel`."""

    name: Text
    scope: Annotated[Scope, one_of(Scope)] = Scope.CHIP
    capacity: Bytes | None = None
    bandwidth: Annotated[float, quantity("B/s")] | None = None
    latency: Seconds = 0.0
    energy_per_bit: Annotated[float, quantity("J")] = 0.0
    static_power: Watts = 0.0
    line_size: BytesAboveZero = 1.0
    partitions: Count = 1
    banks: Count | None = None
    bank_capacity: BytesAboveZero | None = None


class LinkFile(FileModel):
    """See `crosstack.machine.chip.Link`."""

    n_links: Index
    bandwidth: Annotated[float, quantity("B/s")]
    latency: Seconds
    frequency: Annotated[float, quantity("bit/s")] = 0.0
    voltage: Annotated[float, quantity("V")] = 0.0
    power: Watts = 0.0


class ChipFile(LibraryModel):
    """See `crosstack.machine.chip.flat_chip`, or `Chip` where ``compute`` is given.

    ``rates`` are in [FLOP/s], or over the peak of the cells. [1]
    """

    name: Text | None = None
    n_cores: Count | None = None
    lanes: Count | None = None
    stages: Count | None = None
    frequency: Frequency | None = None
    sram_capacity: BytesAboveZero | None = None
    utilization: Share | None = None
    memory_units: Count | None = None
    memory_unit_capacity: BytesAboveZero | None = None
    rates: dict[DtypeName, Rate] | None = None
    relative_rates: dict[DtypeName, Share] | None = None
    overlap: Annotated[Overlap, one_of(Overlap)] | None = None
    price: Dollars | None = None
    power: Watts | None = None
    compute: ComputeFile | None = None
    levels: list[LevelFile] | None = None
    memories: list[LevelFile] | None = None
    intra: LinkFile | None = None
    inter: LinkFile | None = None
    execution: Annotated[Execution, one_of(Execution)] | None = None
    fusions: list[Annotated[Fusion, one_of(Fusion)]] | None = None
    launch_overhead: Seconds | None = None
    idle_power: Watts | None = None


class MemoryFile(LibraryModel):
    """See `crosstack.machine.memory.main_memory`; a capacity of null is unlimited."""

    name: Text | None = None
    bandwidth: Bandwidth | None = None
    capacity: BytesAboveZero | None = None
    second_bandwidth: Bandwidth | None = None
    second_capacity: BytesAboveZero | None = None


class DimensionFile(LibraryModel):
    """See `crosstack.machine.system.Dimension`; ``library`` names a link."""

    kind: Annotated[DimensionKind, one_of(DimensionKind)]
    size: Count | None = None
    bandwidth: Bandwidth | None = None
    latency: Seconds | None = None
    parallelism: ParallelismName | None = None
    link_power: UnitPower | None = None
    link_price: UnitPrice | None = None
    switch_price: UnitPrice | None = None
    switch_power: UnitPower | None = None
    shape: list[Count] | None = None
    oversubscription: Share | None = None
    pod_size: Count | None = None
    reduces: Flag | None = None


class TopologyFile(LibraryModel):
    """A topology by name: sizes and links of its dimensions, innermost first."""

    sizes: list[Count | None] | None = None
    link: Names
    parallelism: list[ParallelismName | None] | None = None


class PricesFile(FileModel):
    """See `crosstack.machine.system.Prices`; what is left out comes from the library entries."""

    link: UnitPrice | None = None
    switch: UnitPrice | None = None
    memory: UnitPrice | None = None
    switch_power: UnitPower | None = None
    memory_power: UnitPower | None = None


class SystemFile(FileModel):
    """See `crosstack.machine.system.System`; ``on``, ``fabric`` and ``link`` are names.

    They are those of the library, see `crosstack.io.library.system_on`.
    """

    name: Text | None = None
    chip: ChipFile | None = None
    memory: MemoryFile | None = None
    n_chips: Count | None = None
    network: list[DimensionFile] | None = None
    topology: TopologyFile | None = None
    prices: PricesFile | None = None
    domain_size: Count | None = None
    copies: Count = 1
    all_reduce: Annotated[AllReduceAlgorithm, one_of(AllReduceAlgorithm)] | None = None
    on: Text | None = None
    fabric: Text | None = None
    link: Text | None = None


class DegreesFile(FileModel):
    """See `crosstack.mapping.degrees.Degrees`."""

    tensor: Count | None = None
    pipeline: Count | None = None
    data: Count | None = None


class ConstraintsFile(FileModel):
    """See `crosstack.mapping.mapping.Constraints`."""

    degrees: DegreesFile | None = None
    microbatch_size: Count | None = None
    n_tiles: Count | None = None
    tile_size: Count | None = None
    max_partitions: Count | None = None
    kernel_by_kernel: Flag = False
    separate_directions: Flag = False
    recompute: Annotated[Recompute, one_of(Recompute)] | None = None
    schedule: Annotated[Schedule, one_of(Schedule)] = Schedule.ONE_F_ONE_B
    interleave: Count | None = None
    partitions: dict[str, Index] | None = None
    sharding: dict[str, Text] | None = None


class HeadFile(FileModel):
    """What stands in a file beside its sections."""

    name: Text | None = None
    rules: Text | None = None


class TaskFile(HeadFile):
    """The whole file."""

    workload: WorkloadFile
    system: SystemFile
    constraints: ConstraintsFile | None = None
