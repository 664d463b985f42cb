"""Parallelism: what every network dimension is used for, and how large free dimensions are.

Sets and parameters: dimensions d with a size or none, a use or none; n chips.
Variables: size s_d and use u_d in {tensor, pipeline, data, expert, context} of every dimension, how
chips that share sequences exchange keys and values, and over how many chips each expert is cut.

(1) the sizes multiply to n; given sizes and uses stay;
(2) a dimension serves one parallelism (``ko2025dfmodel`` IV.C), or, where the rules let it be
    shared, factors of its size serve one each, in the order of ranks: tensor, context, pipeline,
    data, and where neighbours are nearer than others also tensor, context, data, pipeline; several
    dimensions of one parallelism are used as a hierarchy; of data, expert are nearest: their chips
    exchange tokens in every layer. Where all chips of a dimension reach each other through
    switches, it is shared on its own. Those whose chips have neighbours are, where these run
    kernels one by one, filled by ranks one after the other, so that a parallelism that begins on
    one ring may end on the next, as programs of TPUs have it (``jouppi2023tpuv4``);
(3) the batch divides by the data-parallel degree (of expert times data) and the microbatch size;
(4) a degree that is given is the product of all sizes with that use;
(5) experts divide by the expert and the tensor-parallel degree together where tensor-parallel
    chips have some of them each, by the expert degree where those cut each of them, and by that and
    the number of groups where groups of them do (`crosstack.model.expert_cut`); a model without
    experts, or rules that do not spread them, have no dimension of expert;
(6) chips that share sequences have two pieces of each, of as many tokens; of a model that
    attends to no other tokens of its own, or by rules that know no such chips, there are none;
    where they exchange heads (`crosstack.model.context`) these divide by the context and the
    tensor-parallel degree;
(7) repetitions that have weights in common, as words of a recurrence, are on one stage;
(8) the framework that drives the chips runs the degrees (`crosstack.model.runnable`).

Exact method: enumeration. Dimensions of one chip have no use, so those that differ only there are
listed once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from crosstack.errors import InputError, Problem, require
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.degrees import FREE, Degrees, degree_of
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.mapping import Mapping as Decided
from crosstack.mapping.network_uses import experts_divide, network_sizes, network_uses
from crosstack.mapping.sharding import given_choices
from crosstack.model.choice_index import choice_index
from crosstack.model.collectives import NetworkUse
from crosstack.model.context import exchanges_for, shared_tokens
from crosstack.model.expert_degrees import cuts_experts, spread
from crosstack.model.mesh_plan import MeshPlan, make_plan, placed_use
from crosstack.model.rules import Rules
from crosstack.model.runnable import unrunnable
from crosstack.model.tiles import divisors
from crosstack.workload.kernels import Placement
from crosstack.workload.passes.expert_parallel import cut_experts
from crosstack.workload.transformer_training import ContextExchange
from crosstack.workload.workload import Workload

# Where it is free whether tensor-parallel chips cut experts, as a certificate says it.
EXPERTS_WHOLE = "experts are cut only where ep x tp does not divide them, over as few chips as do"

# Where it is free how many chips share a sequence: tokens of one that some do, and of each chip.
SHARED_TOKENS, LEAST_TOKENS = 8192, 2048


@dataclass(frozen=True, slots=True)
class Use:
    """One use of the network, as of a `Mapping`, and microbatch sizes to try.

    The smallest, the largest and a middle size come first, to know early what they are good for;
    the others ascend.
    """

    sizes: tuple[int, ...]
    parallelism: tuple[Parallelism, ...]
    microbatches: tuple[int, ...]
    dimensions: tuple[int, ...] = ()
    context_exchange: ContextExchange = ContextExchange.RING
    expert_tensor: int = 1

    @classmethod
    def of(cls, decided: Decided | MeshPlan, microbatches: tuple[int, ...]) -> Use:
        """Return the use of a mapping or of a plan, with other microbatch sizes. [1]"""
        return cls(
            sizes=decided.sizes,
            parallelism=decided.parallelism,
            microbatches=microbatches,
            dimensions=decided.dimensions,
            context_exchange=decided.context_exchange,
            expert_tensor=decided.expert_tensor,
        )

    def plan(
        self, microbatch: int, workload: Workload, system: System, rules: Rules
    ) -> MeshPlan | None:
        """Return the plan of one microbatch size; None where it does not divide the batch."""
        use = self.sizes, self.parallelism, microbatch
        more = self.dimensions, self.context_exchange, self.expert_tensor
        return make_plan(workload, system, *use, rules, *more)

    def plans(
        self, microbatch: int, workload: Workload, system: System, rules: Rules
    ) -> list[MeshPlan]:
        """Return the plans of one microbatch size: one, and one that fills the second memory."""
        plan = self.plan(microbatch, workload, system, rules)
        tiers = (False, True) if system.chip.has_second_memory else (False,)
        return [] if plan is None else [replace(plan, spilled=spilled) for spilled in tiers]


def workload_uses(
    workload: Workload, system: System, constraints: Constraints, rules: Rules
) -> Iterator[Use | None]:
    """Yield every use of the network; None for one whose data degree does not divide the batch.

    There may be millions of those in a row, so a caller with little time is told of each. Pipelines
    longer than the model split every copy of a forward graph, into no more stages than it has
    kernels; stages beyond that idle, which may still be the fastest.

    Raises
    ------
    InputError
        If a use is given that the workload cannot have, or the framework does not run any.
    """
    batch, microbatch_size = workload.global_batch_size, constraints.microbatch_size
    if workload.placement is not Placement.SEARCHED:
        use = _placed_use(workload, system)
        batch //= system.n_chips if workload.placement is Placement.BATCH else 1
        tried = _tried(max(batch, 1), microbatch_size)
        for sizes in network_sizes(system):
            yield Use(sizes, (use,) * len(sizes), tried)
        return
    shared, degrees = rules.collectives.share_dimensions, constraints.degrees
    if workload.graph.shares_weights:
        degrees = _one_stage(workload, system, degrees)
    experts = spread(workload, rules)
    tokens, most = shared_tokens(workload, rules), most_sharing(workload, system, degrees)
    tokens = tokens if most > 1 else 1
    whole, cut = expert_ways(workload, constraints, rules)
    uses_of = network_uses(
        system, shared=shared, degrees=degrees, experts=experts, tokens=tokens, cut=cut
    )
    refused, left = None, False
    asked = Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA, Parallelism.CONTEXT
    for sizes, uses, dimensions in uses_of:
        tensor, pipeline, data, context = (degree_of(use, sizes, uses) for use in asked)
        if context > most:
            continue
        degree, own = {"tensor": tensor, "pipeline": pipeline}, (sizes, uses, dimensions)
        not_run = {
            chips: unrunnable(workload, system.chip.framework, **degree, expert_tensor=chips)
            for chips in expert_cuts(
                own, system, experts, degrees.expert_tensor, whole=whole, cut=cut
            )
        }
        cuts = [chips for chips, why in not_run.items() if why is None]
        if not cuts:
            refused = refused or next(filter(None, not_run.values()), None)
        elif batch % data:
            left = True
            yield None
        else:
            left = True
            tried = _tried(batch // data, microbatch_size)
            for exchange in exchanges_for(workload, system.chip.framework, tensor, context):
                if context == 1 or constraints.context_exchange in (None, exchange):
                    for chips in cuts:
                        yield Use(sizes, uses, tried, dimensions, exchange, chips)
    if refused is not None and not left:
        raise InputError(refused)


def expert_ways(workload: Workload, constraints: Constraints, rules: Rules) -> tuple[bool, bool]:
    """Return whether experts may be whole, and cut, with what is given of the sharding.

    Raises
    ------
    InputError
        If that is neither of whole experts nor of any that are cut, or not of those that are given.
    """
    named, etp = rules.traffic.traces_layouts, constraints.degrees.expert_tensor
    ways, refused = [etp in (None, 1), etp != 1 and cuts_experts(workload, rules)], None
    for cut in (False, True):
        if ways[cut]:
            graph = cut_experts(workload.graph) if cut else workload.graph
            index = choice_index(graph, workload.placement, named=named)
            try:
                given_choices(graph, constraints.sharding, index)
            except InputError as error:
                ways[cut], refused = False, refused or error
    if refused is not None and not any(ways):
        raise refused
    return ways[False], ways[True]


def expert_cuts(
    use: tuple[tuple[int, ...], tuple[Parallelism, ...], tuple[int, ...]],
    system: System,
    experts: int,
    given: int | None = None,
    *,
    whole: bool,
    cut: bool,
) -> Iterator[int]:
    """Yield over how many tensor-parallel chips each expert may be cut: one, some or all. [1]

    Where that is free, whole experts come to chips wherever they divide by all: they are larger
    products, and of every token a chip is sent what its own experts need, not what those of all
    need (`EXPERTS_WHOLE`). Where they do not, as few chips as make them divide cut each, for the
    same reasons: of others of the same network each chip has as many bytes of them.

    Parameters
    ----------
    use : tuple
        Sizes, uses and dimensions of the network, as of `network_uses`.
    experts : int
        Over how many chips they are spread at most. [1]
    given : int, optional
        Chips that each is cut over. [1]
    whole, cut : bool
        Which of both is allowed at all.
    """
    sizes, uses, places = use
    tensor, expert = (
        degree_of(each, sizes, uses) for each in (Parallelism.TENSOR, Parallelism.EXPERT)
    )
    whole = (whole or tensor == 1) and experts_divide(sizes, uses, experts)
    if whole and given in (None, 1):
        yield 1
    if given is None and whole and experts % (expert * tensor) == 0:
        return
    network = NetworkUse(dimensions=system.network, sizes=sizes, parallelism=uses, places=places)
    several = (n for n in divisors(tensor)[1:] if given in (None, n)) if cut else iter(())
    divide = (n for n in several if experts % (expert * tensor // n) == 0)
    yield from itertools.islice((n for n in divide if network.with_groups(n) is not None), 1)


def most_sharing(workload: Workload, system: System, degrees: Degrees) -> float:
    """Chips that share a sequence at most, where that is free. [1]

    With few tokens other ways to split the work are open, and products are thin: those of
    `SHARED_TOKENS` are shared, by chips that have `LEAST_TOKENS` each. Other degrees are searched
    where they are given, or follow from others.
    """
    others = None not in (degrees.tensor, degrees.pipeline, degrees.data)
    fixed = any(d.parallelism is Parallelism.CONTEXT for d in system.network)
    if degrees.context is not None or others or fixed:
        return math.inf
    tokens = workload.item_length
    return float(tokens // LEAST_TOKENS) if tokens >= SHARED_TOKENS else 1.0


def _tried(batch: int, microbatch_size: int | None) -> tuple[int, ...]:
    if microbatch_size:
        return (microbatch_size,)
    first, *others = divisors(batch)
    if len(others) < 2:
        return (first, *others)
    last = others.pop()
    return (first, last, others.pop(len(others) // 2), *others)


def may_split(workload: Workload, system: System, given: Degrees = FREE) -> bool:
    """Whether some use of the network splits every copy of the graph over several stages."""
    if workload.ends or workload.graph.shares_weights or system.chip.framework is not None:
        return False
    if workload.training or workload.placement is not Placement.SEARCHED:
        return False
    fixed = math.prod(d.size for d in system.network if d.size is not None)
    degrees = {1}
    pipeline = given.pipeline or system.n_chips
    for d in system.network:
        sizes = divisors(system.n_chips // fixed) if d.size is None else (d.size,)
        if d.parallelism is None:
            sizes = (1, *sizes)
        if d.parallelism in (None, Parallelism.PIPELINE):
            degrees = {a * b for a in degrees for b in sizes if pipeline % (a * b) == 0}
    return len(workload.graph) > 1 and max(degrees) >= 2 * workload.graph_repetitions


def _one_stage(workload: Workload, system: System, degrees: Degrees) -> Degrees:
    """Return degrees without a pipeline, of a workload whose repetitions share weights."""
    allowed = f"{{}}, as the {workload.n_layers} repetitions of {workload.name} share weights"
    pipeline = Parallelism.PIPELINE
    given = degrees.pipeline in (None, 1)
    require(given, "constraints.degrees", str(degrees), allowed.format("pp=1"))
    for i, d in enumerate(system.network):
        taken = d.parallelism is pipeline and d.size != 1
        others = allowed.format("tensor or data")
        require(not taken, f"system.network[{i}].parallelism", pipeline.value, others)
    return replace(degrees, pipeline=1)


def _placed_use(workload: Workload, system: System) -> Parallelism:
    """Return what the chips split of a workload that brings its own distribution."""
    use = placed_use(workload.placement)
    allowed = f"allowed for placement {workload.placement}: {use}, or none."
    problems = [
        Problem(f"system.network[{i}].parallelism", f"got {d.parallelism}; {allowed}")
        for i, d in enumerate(system.network)
        if d.parallelism not in (None, use)
    ]
    if problems or use is None:
        raise InputError(problems)
    return use
