"""Fusion as a mixed-integer linear program: an independent check of the shortest path.

Written from the statement of the problem (``ko2025dfmodel`` V.B), not from the formulas in
`crosstack.model`; it proves optimality among sequences of at most P partitions.

Sets: kernels i, partitions p = 0 .. P-1, flows f (a tensor with producer r(f) and readers J(f)),
steps s of a kernel's staircase (cores, seconds).
Parameters: compute c_i, network n_i, gradient g_i, own memory m_i, weight w_i [s]; SRAM b_i [B];
tile t_f, total u_f [B]; depth d_fj [1]; bandwidth [B/s]; capacity, room in main memory [B].
Variables:
    A_ip in {0,1}  kernel i runs in p [1]         K_ip = sum of A_iq over q <= p: i has run [1]
    W_fp, R_fp in [0,1]  f leaves p, f enters p [1]     D_fp >= 0  tiles of f held in p [1]
    L_fp in [0,1]  f is in main memory during p [1]     Y_isp in {0,1}  i takes step s in p [1]
    C_p, M_p, N_p, T_p >= 0  compute, memory, network and time of p [s]
    E_gp in {0,1}  p lies inside group g [1]            Z_p in {0,1}  p holds every kernel [1]

minimise sum_p T_p subject to

(1)  sum_p A_ip = 1; A_ip = 0 outside first_i .. last_i;
(2)  K_ip >= K_jp for i before j;
(3)  W_fp >= A_rp - A_jp and R_fp >= A_jp - A_rp for j in J(f);
(4)  D_fp >= 2 W_fp, 2 R_fp, d_fj (A_rp + A_jp - 1);
(5)  sum_i b_i A_ip + sum_f t_f D_fp <= capacity;
(6)  L_fp >= W_fp, K_r,p-1 - K_j,p-1;  sum_f u_f L_fp <= room;
(7)  C_p = sum_i c_i A_ip, or sum_s Y_isp = A_ip, C_p >= sum_s c_is Y_isp,
     sum_is cores_is Y_isp <= cores;
(8)  M_p >= sum_i (m_i + w_i) A_ip + sum_f u_f (W_fp + R_fp) / bandwidth - Z_p sum_i w_i;
     Z_p <= A_ip, and only where weights may stay;
(9)  N_p >= sum_i n_i A_ip + sum_i g_i A_ip, or both apart where they hide behind each other;
(10) T_p >= C_p, M_p, N_p; or their sum; or N_p plus C_p and M_p;
(11) A_ip <= E_gp for the kernels of a group g that must not mix, A_ip <= 1 - E_gp for the others;
(12) A_i,p+1 <= sum_k A_kp where nothing is pinned: no empty partition before a used one.

With pipeline stages q (`StageMilp`), each of the same number of partitions, the objective is the
slowest stage Z >= Z_q [s]; b sequences a microbatch, a border's time x + y per byte:

(13) Z_q >= b sum_(p in q) T_p and Z_q >= X_q where all overlaps, Z_q >= their sum otherwise;
(14) X_q >= x B_q + y b sum_f u_f C_fq; B_q >= C_fq >= K_r,q - K_j,q after the last p of q;
(15) sum_(p in q) sum_i k_i A_ip + b sum_f u_f L_fp <= capacity of the main memory for p in q;
(16) weights may stay where q has one partition, S_q <= 1 - A_ip for all but the first p of q, and
     then (8) subtracts them; (12) holds within a stage.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstack.errors import InputError, Problem, require, require_quantity, require_whole
from crosstack.quantities import compared
from oracles.status import SolveStatus

__all__ = ["FusionMilp", "MilpFlow", "MilpResult", "StageMilp", "solve_fusion"]

HELD_TILES = 2.0  # of a tensor that enters or leaves a partition
PROOF = 1e-9  # relative gap that counts as none
SCALE = 1e3  # size of time and SRAM inside the solver, far above its tolerances
OVERLAPS = ("all", "none", "compute_memory")

Terms = dict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MilpFlow:
    """A tensor: who makes it, (reader, depth in tiles) of each reader, bytes of a tile, of all."""

    producer: int
    readers: tuple[tuple[int, float], ...]
    tile: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMilp:
    """Pipeline stages to spread the partitions over, in order.

    ``kept`` is what each kernel keeps in the main memory of its stage, of ``capacity`` [B];
    ``sequences`` a microbatch [1]; ``fixed`` [s] and ``per_byte`` [s/B] of sending over a border.
    """

    count: int
    kept: tuple[float, ...]
    capacity: float
    sequences: int
    fixed: float
    per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionMilp:
    """Everything the program needs, as plain numbers; times in [s], sizes in [B].

    Parameters
    ----------
    n_partitions : int
        Most partitions, P; empty ones are allowed. [1]
    compute : tuple of float
        Seconds per kernel where they add up; ignored where ``stairs`` are given. [s]
    stairs : tuple of tuples of (cores, seconds), or None
        What each kernel may choose where cores are dealt.
    before : tuple of (int, int)
        Pairs of kernels of which the first runs no later than the second.
    first, last : tuple of int
        Partitions each kernel may have.
    unmixed : tuple of tuples of int
        Groups of kernels that never share a partition with a kernel outside the group.
    memory_room : float
        Bytes that tensors of one sequence may occupy in main memory; may be infinite. [B]
    overlap : str
        ``all``, ``none`` or ``compute_memory``: what hides behind what.
    network_takes_maximum : bool
        Whether ``network`` and ``data`` hide behind each other.
    weights_stay : bool
        Whether one partition of all kernels, or of all of a stage, pays no ``weight_time``.
    stages : StageMilp, optional
        Stages, each of ``n_partitions / stages.count`` partitions; then the objective is the
        slowest stage for one microbatch.
    """

    n_partitions: int
    compute: tuple[float, ...]
    network: tuple[float, ...]
    data: tuple[float, ...]
    own_memory: tuple[float, ...]
    weight_time: tuple[float, ...]
    sram: tuple[float, ...]
    flows: tuple[MilpFlow, ...]
    before: tuple[tuple[int, int], ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    bandwidth: float
    sram_capacity: float
    memory_room: float
    unmixed: tuple[tuple[int, ...], ...] = ()
    n_cores: int = 1
    stairs: tuple[tuple[tuple[int, float], ...], ...] | None = None
    overlap: str = "all"
    network_takes_maximum: bool = False
    weights_stay: bool = False
    stages: StageMilp | None = None

    def __post_init__(self) -> None:
        """Check shapes, and that every kernel fits the SRAM alone."""
        n = len(self.compute)
        require_whole("n_partitions", self.n_partitions)
        require_quantity("bandwidth", self.bandwidth, "B/s", above_zero=True)
        require_quantity("sram_capacity", self.sram_capacity, "B", above_zero=True)
        require(self.overlap in OVERLAPS, "overlap", self.overlap, ", ".join(OVERLAPS))
        per_kernel = ("network", "data", "own_memory", "weight_time", "sram", "first", "last")
        for name in per_kernel:
            given = len(getattr(self, name))
            require(given == n, name, given, f"one entry per kernel ({n})")
        if self.stages is not None:
            whole = self.n_partitions % self.stages.count == 0
            allowed = f"a multiple of the {self.stages.count} stages"
            require(whole, "n_partitions", self.n_partitions, allowed)
        problems = [
            Problem(
                f"sram[{i}]",
                "kernel {} alone needs {} of {}; this program does not cut weights.".format(
                    i, *compared(need, self.sram_capacity, "B")
                ),
            )
            for i in range(n)
            if (need := self._alone(i)) > self.sram_capacity
        ]
        if problems:
            raise InputError(problems)

    @property
    def n(self) -> int:
        """Number of kernels. [1]"""
        return len(self.compute)

    @property
    def per_stage(self) -> int:
        """Partitions of a stage. [1]"""
        return self.n_partitions // (1 if self.stages is None else self.stages.count)

    @property
    def pinned(self) -> bool:
        """Whether some kernel may not have every partition."""
        return any(self.first) or any(p != self.n_partitions - 1 for p in self.last)

    def _alone(self, i: int) -> float:
        touching = (f for f in self.flows if f.producer == i or any(j == i for j, _ in f.readers))
        return self.sram[i] + HELD_TILES * sum(f.tile for f in touching)


@dataclass(frozen=True, slots=True, kw_only=True)
class MilpResult:
    """What the solver found.

    ``objective`` [s] and ``partitions`` (of each kernel) are None without a solution; ``bound`` is
    a lower bound on any sequence of at most P partitions, as ``method`` says. ``runtime`` [s]
    """

    status: SolveStatus
    objective: float | None
    bound: float
    partitions: tuple[int, ...] | None
    method: str
    runtime: float

    @property
    def gap(self) -> float:
        """Relative distance of objective and bound; infinite without a solution. [1]"""
        if self.objective is None:
            return math.inf
        if self.objective <= 0:
            return 0.0
        return max(0.0, (self.objective - self.bound) / self.objective)


class _Program:
    """Columns and rows of the program, in the solver's units."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self.whole: list[int] = []
        self.starts: list[int] = []
        self.columns: list[int] = []
        self.values: list[float] = []
        self.least: list[float] = []

    def add(self, upper: float = 1.0, *, whole: bool = False, cost: float = 0.0) -> int:
        """Add a variable from 0 to ``upper``; return its column."""
        column = len(self.cost)
        self.cost.append(cost)
        self.lower.append(0.0)
        self.upper.append(upper)
        if whole:
            self.whole.append(column)
        return column

    def at_least(self, terms: Terms, least: float) -> None:
        """Require the sum of ``terms`` to be at least ``least``."""
        kept = {column: value for column, value in terms.items() if value}
        self.starts.append(len(self.columns))
        self.columns.extend(kept)
        self.values.extend(kept.values())
        self.least.append(least)

    def at_most(self, terms: Terms, most: float) -> None:
        """Require the sum of ``terms`` to be at most ``most``."""
        self.at_least({column: -value for column, value in terms.items()}, -most)

    def exactly(self, terms: Terms, value: float) -> None:
        """Require the sum of ``terms`` to be ``value``."""
        self.at_least(terms, value)
        self.at_most(terms, value)


@dataclass(slots=True)
class _Built:
    """The program with the columns that its parts share."""

    data: FusionMilp
    program: _Program
    time_unit: float
    at: list[list[int]]  # A_ip
    leaves: list[list[int]]  # W_fp
    enters: list[list[int]]  # R_fp
    times: list[int]  # T_p

    @property
    def partitions(self) -> range:
        return range(self.data.n_partitions)

    def done(self, i: int, p: int, value: float) -> Terms:
        """Return ``value`` x K_ip."""
        return {self.at[i][q]: value for q in range(p + 1)}

    def weighted(self, per_kernel: Iterable[float], p: int) -> Terms:
        """Return the sum of seconds over the kernels in p, in the solver's unit."""
        return {self.at[i][p]: x / self.time_unit for i, x in enumerate(per_kernel) if x}


def _sum(*parts: Terms) -> Terms:
    total: Terms = {}
    for part in parts:
        for column, value in part.items():
            total[column] = total.get(column, 0.0) + value
    return total


def _negated(terms: Terms) -> Terms:
    return {column: -value for column, value in terms.items()}


def _build(data: FusionMilp) -> _Built:
    program = _Program()
    seconds = sum(data.compute) + sum(data.network) + sum(data.own_memory) + sum(data.weight_time)
    seconds += sum(flow.total for flow in data.flows) / data.bandwidth
    count = data.n_partitions

    def grid(rows: int, *, whole: bool) -> list[list[int]]:
        return [[program.add(whole=whole) for _ in range(count)] for _ in range(rows)]

    built = _Built(
        data=data,
        program=program,
        time_unit=max(seconds, 1e-300) / SCALE,
        at=grid(data.n, whole=True),
        leaves=grid(len(data.flows), whole=False),
        enters=grid(len(data.flows), whole=False),
        times=[],
    )
    _placement(built)
    _streams(built)
    _main_memory(built)
    for p in built.partitions:
        _time(built, p)
    _kept_apart(built)
    if data.stages is not None:
        _stages(built, data.stages)
    return built


def _placement(built: _Built) -> None:
    """(1), (2) and (12)."""
    data, program, at = built.data, built.program, built.at
    for i in range(data.n):
        program.exactly({at[i][p]: 1.0 for p in built.partitions}, 1.0)
        for p in built.partitions:
            if not data.first[i] <= p <= data.last[i]:
                program.upper[at[i][p]] = 0.0
    for i, j in data.before:
        for p in built.partitions:
            program.at_least(_sum(built.done(i, p, 1.0), built.done(j, p, -1.0)), 0.0)
    if data.pinned:
        return
    for p in range(data.n_partitions - 1):
        if (p + 1) % data.per_stage == 0:
            continue
        used = {at[k][p]: 1.0 for k in range(data.n)}
        for i in range(data.n):
            program.at_least(_sum(used, {at[i][p + 1]: -1.0}), 0.0)


def _streams(built: _Built) -> None:
    """(3), (4) and (5)."""
    data, program, at = built.data, built.program, built.at
    unit = data.sram_capacity / SCALE
    for p in built.partitions:
        demand: Terms = {at[i][p]: size / unit for i, size in enumerate(data.sram)}
        for f, flow in enumerate(data.flows):
            made, leaves, enters = at[flow.producer][p], built.leaves[f][p], built.enters[f][p]
            tiles = program.add(math.inf)
            program.at_least({tiles: 1.0, leaves: -HELD_TILES}, 0.0)
            program.at_least({tiles: 1.0, enters: -HELD_TILES}, 0.0)
            for reader, depth in flow.readers:
                program.at_least({leaves: 1.0, made: -1.0, at[reader][p]: 1.0}, 0.0)
                program.at_least({enters: 1.0, made: 1.0, at[reader][p]: -1.0}, 0.0)
                program.at_least({tiles: 1.0, made: -depth, at[reader][p]: -depth}, -depth)
            demand[tiles] = flow.tile / unit
        program.at_most(demand, SCALE)


def _main_memory(built: _Built) -> None:
    """(6) and (15)."""
    data, program, stages = built.data, built.program, built.data.stages
    capacity = math.inf if stages is None else stages.capacity
    if math.isinf(data.memory_room) and math.isinf(capacity):
        return
    unit = max(sum(flow.total for flow in data.flows), 1.0) / SCALE
    for p in built.partitions:
        demand: Terms = {}
        for f, flow in enumerate(data.flows):
            alive = program.add()
            demand[alive] = flow.total / unit
            program.at_least({alive: 1.0, built.leaves[f][p]: -1.0}, 0.0)
            for reader, _ in flow.readers if p else ():
                made = built.done(flow.producer, p - 1, -1.0)
                read = built.done(reader, p - 1, 1.0)
                program.at_least(_sum({alive: 1.0}, made, read), 0.0)
        if math.isfinite(data.memory_room):
            program.at_most(demand, data.memory_room / unit)
        if stages is not None and math.isfinite(capacity):
            first = p - p % data.per_stage
            held = {
                built.at[i][q]: size / unit
                for i, size in enumerate(stages.kept)
                for q in range(first, first + data.per_stage)
            }
            alive_of_all = {c: v * stages.sequences for c, v in demand.items()}
            program.at_most(_sum(held, alive_of_all), capacity / unit)


def _time(built: _Built, p: int) -> None:
    """(7) to (10)."""
    data, program = built.data, built.program
    time_of_p = program.add(math.inf, cost=1.0 if data.stages is None else 0.0)
    built.times.append(time_of_p)
    compute, memory, network = (program.add(math.inf) for _ in range(3))
    _compute(built, p, compute)
    crossing = {
        column: flow.total / data.bandwidth / built.time_unit
        for f, flow in enumerate(data.flows)
        for column in (built.leaves[f][p], built.enters[f][p])
    }
    weights = sum(data.weight_time) / built.time_unit
    read = built.weighted(data.own_memory, p)
    terms = _sum(read, built.weighted(data.weight_time, p), crossing)
    if data.weights_stay and weights and data.stages is not None:
        program.at_least(_sum({memory: 1.0}, _negated(_sum(read, crossing))), 0.0)
        terms[_stays(built, p)] = -weights
    elif data.weights_stay and weights:
        everything = program.add(whole=True)
        for i in range(data.n):
            program.at_most({everything: 1.0, built.at[i][p]: -1.0}, 0.0)
        terms[everything] = -weights
    program.at_least(_sum({memory: 1.0}, _negated(terms)), 0.0)
    tensor, gradient = built.weighted(data.network, p), built.weighted(data.data, p)
    parts = [tensor, gradient] if data.network_takes_maximum else [_sum(tensor, gradient)]
    for part in parts:
        program.at_least(_sum({network: 1.0}, _negated(part)), 0.0)
    together = {
        "all": ([compute], [memory], [network]),
        "none": ([compute, memory, network],),
        "compute_memory": ([compute, network], [memory, network]),
    }[data.overlap]
    for added in together:
        program.at_least({time_of_p: 1.0, **dict.fromkeys(added, -1.0)}, 0.0)


def _stays(built: _Built, p: int) -> int:
    """(16): the column that says that partition p is all its stage has."""
    program, count = built.program, built.data.per_stage
    stays = program.add(whole=True)
    if p % count:
        program.upper[stays] = 0.0
    for q in range(p + 1, p - p % count + count):
        for i in range(built.data.n):
            program.at_most({stays: 1.0, built.at[i][q]: 1.0}, 1.0)
    return stays


def _stages(built: _Built, stages: StageMilp) -> None:
    """(13) and (14)."""
    data, program = built.data, built.program
    slowest = program.add(math.inf, cost=1.0)
    for q in range(stages.count):
        inside = range(q * data.per_stage, (q + 1) * data.per_stage)
        any_sent = program.add(whole=True)
        sent = {any_sent: stages.fixed / built.time_unit}
        for flow in data.flows:
            crosses = program.add()
            program.at_least({any_sent: 1.0, crosses: -1.0}, 0.0)
            sent[crosses] = stages.per_byte * stages.sequences * flow.total / built.time_unit
            for reader, _ in flow.readers:
                made = built.done(flow.producer, inside[-1], -1.0)
                read = built.done(reader, inside[-1], 1.0)
                program.at_least(_sum({crosses: 1.0}, made, read), 0.0)
        work = {built.times[p]: float(stages.sequences) for p in inside}
        together = [work, sent] if data.overlap == "all" else [_sum(work, sent)]
        for part in together:
            program.at_least(_sum({slowest: 1.0}, _negated(part)), 0.0)


def _compute(built: _Built, p: int, compute: int) -> None:
    """(7)."""
    data, program = built.data, built.program
    if data.stairs is None:
        terms = built.weighted(data.compute, p)
        program.at_least(_sum({compute: 1.0}, _negated(terms)), 0.0)
        return
    cores: Terms = {}
    for i, steps in enumerate(data.stairs):
        picked = {program.add(whole=True): step for step in steps}
        program.exactly({**dict.fromkeys(picked, 1.0), built.at[i][p]: -1.0}, 0.0)
        taken = {column: -seconds / built.time_unit for column, (_, seconds) in picked.items()}
        program.at_least({compute: 1.0, **taken}, 0.0)
        cores.update({column: float(count) for column, (count, _) in picked.items()})
    program.at_most(cores, float(data.n_cores))


def _kept_apart(built: _Built) -> None:
    """(11)."""
    data, program = built.data, built.program
    for group in data.unmixed:
        for p in built.partitions:
            inside = program.add(whole=True)
            for i in range(data.n):
                if i in group:
                    program.at_most({built.at[i][p]: 1.0, inside: -1.0}, 0.0)
                else:
                    program.at_most({built.at[i][p]: 1.0, inside: 1.0}, 1.0)


def _passed(program: _Program, time_limit: float, gap: float, threads: int) -> Any:
    """Return a solver that holds the program."""
    import highspy

    make: Any = highspy.Highs  # its signature is not typed
    make.resetGlobalScheduler(True)  # a second run may ask for another number of threads
    solver = make()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", gap)
    solver.setOptionValue("mip_abs_gap", 1e-9)
    solver.setOptionValue("mip_feasibility_tolerance", 1e-9)
    solver.setOptionValue("primal_feasibility_tolerance", 1e-9)
    solver.setOptionValue("threads", threads)
    if math.isfinite(time_limit):
        solver.setOptionValue("time_limit", time_limit)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.cost), len(program.least)
    model.col_cost_ = np.array(program.cost)
    model.col_lower_, model.col_upper_ = np.array(program.lower), np.array(program.upper)
    model.row_lower_ = np.array(program.least)
    model.row_upper_ = np.full(len(program.least), highspy.kHighsInf)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.array([*program.starts, len(program.columns)])
    model.a_matrix_.index_ = np.array(program.columns)
    model.a_matrix_.value_ = np.array(program.values)
    kinds = [highspy.HighsVarType.kContinuous] * len(program.cost)
    for column in program.whole:
        kinds[column] = highspy.HighsVarType.kInteger
    model.integrality_ = kinds
    solver.passModel(model)
    return solver


def solve_fusion(
    data: FusionMilp, *, time_limit: float = math.inf, gap: float = 0.0, threads: int = 1
) -> MilpResult:
    """Fuse kernels into at most ``data.n_partitions`` partitions, with HiGHS.

    Parameters
    ----------
    data : FusionMilp
        What has to be fused.
    time_limit : float
        Seconds after which the best solution so far comes back with its bound. [s]
    gap : float
        Relative gap at which to stop. [1]
    threads : int
        Of the solver. [1]

    Raises
    ------
    RuntimeError
        If the solver fails.
    """
    started = time.perf_counter()
    built = _build(data)
    solver = _passed(built.program, time_limit, gap, threads)
    solver.run()
    return _result(built, solver, time.perf_counter() - started)


def _result(built: _Built, solver: Any, runtime: float) -> MilpResult:
    import highspy

    states = highspy.HighsModelStatus
    ended, info = solver.getModelStatus(), solver.getInfo()
    method = f"HiGHS, a proof for at most {built.data.n_partitions} partitions"
    if ended in (states.kInfeasible, states.kUnboundedOrInfeasible):
        return MilpResult(
            status=SolveStatus.INFEASIBLE,
            objective=None,
            bound=math.inf,
            partitions=None,
            method=method,
            runtime=runtime,
        )
    if ended not in (states.kOptimal, states.kTimeLimit):
        raise RuntimeError(f"HiGHS stopped with {solver.modelStatusToString(ended)}")
    solved = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    objective = float(info.objective_function_value) * built.time_unit if solved else None
    bound = max(0.0, float(info.mip_dual_bound) * built.time_unit)
    status = SolveStatus.LIMIT
    if objective is not None:
        bound = min(bound, objective)
        if ended == states.kOptimal:
            proved = bound >= objective * (1 - PROOF)
            status = SolveStatus.OPTIMAL if proved else SolveStatus.FEASIBLE
    return MilpResult(
        status=status,
        objective=objective,
        bound=bound,
        partitions=_read(built, list(solver.getSolution().col_value)) if solved else None,
        method=method,
        runtime=runtime,
    )


def _read(built: _Built, values: list[float]) -> tuple[int, ...]:
    """Return the partition of each kernel: where its row of A is largest."""
    return tuple(int(np.argmax([values[column] for column in row])) for row in built.at)
