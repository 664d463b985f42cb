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
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from crosstack.errors import InputError, Problem, require
from crosstack.machine.chip import Execution
from crosstack.machine.network import KINDS
from crosstack.machine.system import Dimension, Parallelism, System
from crosstack.mapping.degrees import FREE, Degrees, degree_of
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.mapping import Mapping as Decided
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

# Ranks of a group of layers are the nearest, then those whose chips exchange what is in a layer.
_OUTER = (
    (Parallelism.PIPELINE, Parallelism.DATA),
    (Parallelism.DATA, Parallelism.PIPELINE),
)
_INNER = (Parallelism.TENSOR, Parallelism.CONTEXT, Parallelism.EXPERT)

# Where it is free whether tensor-parallel chips cut experts, as a certificate says it.
EXPERTS_WHOLE = "experts are cut only where ep x tp does not divide them, over as few chips as do"

# Where it is free how many chips share a sequence: tokens of one that some do, and of each chip.
SHARED_TOKENS, LEAST_TOKENS = 8192, 2048


def network_sizes(system: System) -> Iterator[tuple[int, ...]]:
    """Yield every choice of dimension sizes that multiplies to the number of chips."""
    fixed = math.prod(d.size for d in system.network if d.size is not None)
    free = [i for i, d in enumerate(system.network) if d.size is None]

    def split(left: int, parts: int) -> Iterator[tuple[int, ...]]:
        if parts == 0:
            if left == 1:
                yield ()
            return
        if parts == 1:
            yield (left,)
            return
        for size in divisors(left):
            for others in split(left // size, parts - 1):
                yield (size, *others)

    for chosen in split(system.n_chips // fixed, len(free)):
        sizes = [d.size or 1 for d in system.network]
        for i, size in zip(free, chosen, strict=True):
            sizes[i] = size
        yield tuple(sizes)


Factors = tuple[tuple[Parallelism, int], ...]  # of one dimension, innermost first


def network_uses(
    system: System,
    *,
    shared: bool,
    degrees: Degrees = FREE,
    experts: int = 1,
    tokens: int = 1,
    cut: bool = False,
) -> Iterator[tuple[tuple[int, ...], tuple[Parallelism, ...], tuple[int, ...]]]:
    """Yield every (sizes, uses, dimensions) of a mapping.

    ``shared``: whether dimensions serve several parallelisms; ``experts``: over how many chips
    experts are spread at most, ``tokens``: what the number of those that share a sequence divides
    [1]; ``cut``: whether tensor-parallel chips may cut experts.
    """
    most = {Parallelism.EXPERT: experts, Parallelism.CONTEXT: tokens}
    for sizes in network_sizes(system):
        choices = [
            tuple(
                factors
                for factors in _factors(d, size, shared=shared, most=most)
                if all(degrees.may_have(use, degree) for use, degree in factors)
            )
            for d, size in zip(system.network, sizes, strict=True)
        ]
        ways = [choices]
        if shared and splits_rings(system):
            ways += _split_rings(system.network, sizes, choices, degrees, most)
        for each in itertools.chain.from_iterable(itertools.product(*way) for way in ways):
            if shared and not _consecutive(system.network, each):
                continue
            rows = [(size, use, i) for i, some in enumerate(each) for use, size in some]
            counts, uses, places = zip(*rows, strict=True)
            context = degree_of(Parallelism.CONTEXT, counts, uses)
            if tokens % context or not degrees.are_those_of(counts, uses):
                continue
            if experts_divide(counts, uses, experts, cut=cut):
                yield counts, uses, () if len(places) == len(sizes) else places


def experts_divide(
    sizes: tuple[int, ...], uses: tuple[Parallelism, ...], experts: int, *, cut: bool = False
) -> bool:
    """Whether chips have as many experts; tensor-parallel ones ``cut`` them, or have some each."""
    if Parallelism.EXPERT not in uses:
        return True
    expert = degree_of(Parallelism.EXPERT, sizes, uses)
    shared = 1 if cut else degree_of(Parallelism.TENSOR, sizes, uses)
    return expert == 1 or experts % (expert * shared) == 0


def fills_servers(system: System) -> bool:
    """Whether tensor parallelism is kept inside, on levels that it could leave half filled."""
    return sum(_switched(system.network)) > 1


def splits_rings(system: System) -> bool:
    """Whether several parallelisms may share a dimension whose chips have neighbours.

    Chips that run kernels side by side are mapped as ``ko2025dfmodel`` has it, a dimension for each
    (IV.C): each further use of the network takes them a search of partitions.
    """
    return system.chip.execution is Execution.TEMPORAL


def shares_ring(network: tuple[Dimension, ...], places: tuple[int, ...]) -> bool:
    """Whether several parallelisms share a dimension whose chips have neighbours.

    ``places``: the dimension of each, as of a mapping.
    """
    shared = {place for place, count in Counter(places).items() if count > 1}
    return any(KINDS[network[place].kind].by_neighbours for place in shared)


def _switched(network: tuple[Dimension, ...]) -> list[bool]:
    """Whether each level's use is free, and all its chips reach each other."""
    return [d.parallelism is None and not KINDS[d.kind].by_neighbours for d in network]


def _consecutive(network: tuple[Dimension, ...], each: tuple[Factors, ...]) -> bool:
    """Whether tensor parallelism fills every level that switches join before it leaves it.

    That is how ranks of a group are numbered (``narayanan2021megatron``, section 3.2): across
    servers what chips of a group send one another takes the ports that data parallelism needs.
    Chips that share a sequence come next (``grattafiori2024llama3``, section 3.3.2). A level whose
    use is given, or whose chips have neighbours, is as it is.
    """
    free = _switched(network)
    tensor, context = Parallelism.TENSOR, Parallelism.CONTEXT
    for outer, factors in enumerate(each):
        used = [use for use, size in factors if size > 1] if free[outer] else []
        inside = {
            use for inner in range(outer) if free[inner] for use, size in each[inner] if size > 1
        }
        if tensor in used and inside - {tensor}:
            return False
        if context in used and inside - {tensor, context}:
            return False
    return True


def _factors(
    dimension: Dimension, size: int, *, shared: bool, most: Mapping[Parallelism, int]
) -> Iterator[Factors]:
    """Yield what ``size`` chips of a dimension may be used for.

    ``most``: what numbers of chips of some uses divide; such a use is none at 1. [1]
    """
    if dimension.parallelism is not None or size == 1:
        yield ((dimension.parallelism or Parallelism.DATA, size),)
        return
    yield from (((use, size),) for use in Parallelism if most.get(use, size) % size == 0)
    row = KINDS[dimension.kind]
    if not shared or row.by_neighbours:
        return
    orders = _orders(most)
    if row.even and dimension.oversubscription == 1.0:
        orders = orders[:1]
    found: dict[Factors, None] = {}
    for order in orders:
        for counts in _factorisations(size, len(order)):
            degrees = zip(order, counts, strict=True)
            factors = tuple((use, degree) for use, degree in degrees if degree > 1)
            fits = all(most.get(use, degree) % degree == 0 for use, degree in factors)
            if len(factors) > 1 and fits:
                found[factors] = None
    yield from found


def _orders(most: Mapping[Parallelism, int]) -> list[tuple[Parallelism, ...]]:
    """Return the orders of ranks, the nearest first, of parallelisms that there may be any of."""
    inner = tuple(use for use in _INNER if most.get(use, 2) > 1)
    return [(*inner, *outer) for outer in _OUTER]


def _split_rings(
    network: tuple[Dimension, ...],
    sizes: tuple[int, ...],
    choices: list[tuple[Factors, ...]],
    degrees: Degrees,
    most: Mapping[Parallelism, int],
) -> Iterator[list[tuple[Factors, ...]]]:
    """Yield factors of every dimension where ranks fill those whose chips have neighbours.

    At least one of these serves several parallelisms; all others have their ``choices``.
    """
    rings = [
        i
        for i, d in enumerate(network)
        if d.parallelism is None and sizes[i] > 1 and KINDS[d.kind].by_neighbours
    ]
    found: dict[tuple[Factors, ...], None] = {}
    for order in _orders(most):
        for each in _filled([sizes[i] for i in rings], order):
            degrees_of = [pair for factors in each for pair in factors]
            if len(degrees_of) > len(rings) and all(
                most.get(use, size) % size == 0 and degrees.may_have(use, size)
                for use, size in degrees_of
            ):
                found[each] = None
    for each in found:
        own = dict(zip(rings, each, strict=True))
        yield [(own[i],) if i in own else some for i, some in enumerate(choices)]


def _filled(sizes: list[int], order: tuple[Parallelism, ...]) -> Iterator[tuple[Factors, ...]]:
    """Yield factors of every dimension, the innermost first, as ranks fill them in their order."""
    if not sizes:
        yield ()
        return
    for counts in _factorisations(sizes[0], len(order)):
        here = tuple(pair for pair in zip(order, counts, strict=True) if pair[1] > 1)
        for others in _filled(sizes[1:], order[order.index(here[-1][0]) :]):
            yield (here, *others)


def _factorisations(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Yield so many numbers whose product is ``size``, in every order. [1]"""
    if parts == 1:
        yield (size,)
        return
    for first in divisors(size):
        for others in _factorisations(size // first, parts - 1):
            yield (first, *others)


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
