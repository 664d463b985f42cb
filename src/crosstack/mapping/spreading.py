"""What tensors move between partitions at least, however a large graph is cut.

A partition S touches tensors, which hold tiles in the SRAM, and holds weights there; both fit it.
So from any kernel v of S at most the SRAM's capacity of tensors and weights is near at hand, and
what else lies around v is *parted* from it: every path to it through tensors passes one that
leaves S and enters another partition.

Parameters: s [B], what every tensor (touched) and kernel (its weight) takes of the SRAM at least,
and what a tensor takes more for a reader that is deeper, where its producer is in the partition,
too; C_v [B], the capacity, or what v takes alone; t_f [s], to move tensor f over the border of a
partition. Variables: y_v >= 0 [s/B], and for each v a set U_v of tensors, kernels and depths around
it, to each of whose members u the amount y_v s_u is sent along a path of kernels from v; to a depth
along one that ends with its producer and a reader so deep, as it is parted if either is.

(1) maximise 2 x sum over v of y_v (s(U_v) - C_v);
(2) however the kernels of a tensor f are parted in two, what is sent through it from one side to
    the other is at most t_f.

Why that is a bound: a partition that has some of a tensor's kernels and not all moves it, so it
takes at least what is sent through it between its own and the others. What is sent from v to a
parted u leaves the partition of v and enters another one, and at least s(U_v) - C_v of the weight
around v is parted from it. These are the dual solutions of the spreading metrics of
`even1999fast`, of sets that are limited by what they touch. Any solution is a bound; a good one
comes from multiplicative weights (`garg2007faster`): the ways to part a tensor have lengths, U_v is
the ball with the least sum of s_u x distance over s(U_v) - C_v, and lengths grow exponentially with
what is sent. Of all that is sent, group of kernels by group and time by time, the best mixture is
the answer (`crosstack.mapping.packing`). The kernels of a tensor that has many are parted in every
way at once. As a partition holds every path between its kernels, what is sent to one that runs
between v and another may go by way of that other, and from there without passing a tensor
(`crosstack.mapping.between`): if it is parted from v, so is the other. These steps take time, and
only pay late.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crosstack.mapping.between import Precedence, Step
from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import Order, topological_chains
from crosstack.mapping.packing import most_packed
from crosstack.model.partition import ChipLoad, alone_sram
from crosstack.workload.kernel_graph import Floats, Ints

ROUNDS = 160  # of sending from all kernels
SOURCES = 500  # kernels from which is sent at a time, about
FIRST = 8  # times at first
STEPS = (1.0, 0.3)  # how much the fullest tensor grows at first and later, in its logarithm
LATE = 40  # times that all kernels have sent; from there on ways have steps without length
NEAR = (0.1, 0.05)  # balls so much worse than the best are used exp(-1) as much, at first and late
CAPACITIES = 2.5  # of tensors on either side of a kernel among which its ball is looked for
CELLS = 20_000  # of one table of distances, so that it stays near the processor
CELLS_A_UNIT = 500  # of array operations; see `crosstack.mapping.budget`
ROUNDING = 1e-9  # relative, of sums of what is sent
SENDING = 0.85  # of what may be spent; the rest is for the best mixture of what was sent
COLUMNS = 24  # parts of what is sent from all kernels, about
MOST_PRODUCTS = 400_000_000  # of columns, squared, and ways to part tensors
FEW = 5  # kernels of a tensor that are parted in every way
SHORTEST = 1e-9  # over the sum of all lengths by times, so that none is lost in rounding

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Links:
    """Ways from a kernel through a tensor to another, by number.

    Each passes ``cut``, ways to part a tensor, by ``share``: once, or half on either side of a
    tensor of many kernels, which is a node itself. Entries are listed by ``link``; ``flow`` is the
    tensor of each link.
    """

    tail: Ints
    head: Ints
    link: Ints
    cut: Ints
    share: Floats
    flow: Ints

    def lengths(self, cuts: Floats) -> Floats:
        """Sum of what each passes. [1/s]"""
        weights = self.share * cuts[self.cut]
        return np.asarray(np.bincount(self.link, weights=weights, minlength=len(self.tail)))

    def passed(self, sent: Floats, links: Ints, cuts: int) -> Floats:
        """What passes each of so many ways to part a tensor, if so much passes some links. [s]"""
        every = np.zeros(len(self.tail))
        every[links] = sent
        weights = self.share * every[self.link]
        return np.asarray(np.bincount(self.cut, weights=weights, minlength=cuts), dtype=float)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Kernels ``sources`` and what is around them, numbered in the window.

    Incidences of tensors and kernels are listed by tensor (``of_tensor``: its first; ``kernel``);
    ``link`` are the numbers of the links among all, ``tail`` where they begin, and ``layers`` are
    groups of them of which no two lead to one node: where they lead, where they begin, and their
    numbers in the window. Tensors of many kernels are nodes behind the kernels. Links of depths are
    listed by depth (``of_depth``: its first; ``ends``: numbers in the window). ``weight`` are those
    of tensors, kernels and depths, ``steps`` those of `crosstack.mapping.between`.
    """

    sources: Ints
    capacity: Floats
    weight: Floats
    of_tensor: Ints
    kernel: Ints
    nodes: int
    tail: Ints
    link: Ints
    layers: tuple[tuple[Ints, Ints, Ints], ...]
    of_depth: Ints
    ends: Ints
    steps: tuple[Step, ...]


def least_moved(
    load: ChipLoad, order: Order, *, of_use: Callable[[float], bool], budget: Budget
) -> float:
    """Return a lower bound on the time that tensors move between partitions. [s]

    Parameters
    ----------
    of_use : callable
        Whether a bound of so much would be of any use. [s]
    budget : Budget
        What is left to spend; the best so far comes back once it is spent.
    """
    if load.temporal is not None or not any(flow.moved for flow in load.flows):
        return 0.0
    cuts, alike, links, place = _ways(load, order)
    used, depths = cuts > 0, _depths(load, links, place)
    windows, every = list(_windows(load, links, depths, place)), -(-load.n // SOURCES)
    parts = max(1, COLUMNS // (len(windows) * every))
    kept = max(1, math.isqrt(MOST_PRODUCTS // len(cuts)))
    columns = deque[tuple[float, Floats]](maxlen=kept)
    length = np.where(used, 1 / np.where(used, cuts * alike, 1.0), np.inf)
    length[used] /= float((length[used] * cuts[used]).sum())
    ratio, reach, sending = math.inf, 0.0, budget.part(SENDING)
    for number in range(ROUNDS * every):
        lengths, least, sets = links.lengths(length), math.inf, list[tuple[float, Floats]]()
        late = number >= LATE * every
        for window in windows:
            some = slice(number % every, None, every)
            gained, through, near = _send(window, lengths, ratio, some, parts, late, sending)
            least = min(least, near)
            for brings, sent in zip(gained, through, strict=True):
                sets.append((brings, links.passed(sent, window.link, len(cuts))))
        if math.isinf(least):
            break
        more = np.sum([passed for _, passed in sets], axis=0)
        whole = sum(brings for brings, _ in sets), more
        columns.extend(sets if len(windows) * every <= COLUMNS else [whole])
        share, ratio = more[used] / cuts[used], least
        # Lengths scaled to a ratio of 1 solve the problem of the metric: more is not to be had.
        reach = max(reach, 2 / least) if number % every else 2 / least
        length[used] *= np.exp(STEPS[number >= FIRST] / float(share.max()) * share)
        length[used] /= float((length[used] * cuts[used]).sum())
        length[used] = np.maximum(length[used], SHORTEST / cuts[used])
        if sending.over() or (number % every == every - 1 and not of_use(reach)):
            break
    budget.spend(sending.used)
    found = [(brings, passed) for brings, passed in columns if brings > 0]
    if not found:
        return 0.0
    fills = np.array([passed[used] / cuts[used] for _, passed in found])
    return 2 * most_packed(np.array([b for b, _ in found]), fills, budget) * (1 - ROUNDING)


def _ways(load: ChipLoad, order: Order) -> tuple[Floats, Ints, _Links, Ints]:
    """Return the time of each way to part a tensor [s], and how many there are of that tensor.

    And links between kernels, and their places.

    Kernels are numbered by their places, in the order of their levels.
    """
    place = np.empty(load.n, dtype=np.int64)
    place[topological_chains(order)[1]] = np.arange(load.n)
    times, alike, ends, nodes = list[float](), list[int](), list[Pair](), load.n
    entries, tensor = list[tuple[int, int, float]](), list[int]()
    for number, flow in enumerate(load.flows):
        kernels = place[[flow.producer, *(r for r, _ in flow.readers)]].tolist()
        first, time = len(times), flow.moved / load.bandwidth
        if len(kernels) > FEW:
            times.append(time)
            alike.append(1)
            for kernel in kernels:
                entries += [(len(ends), first, 0.5), (len(ends) + 1, first, 0.5)]
                ends += [(kernel, nodes), (nodes, kernel)]
                tensor += [number, number]
            nodes += 1
            continue
        parted = range(1, 2 ** (len(kernels) - 1))  # masks without the last kernel
        times += [time] * len(parted)
        alike += [len(parted)] * len(parted)
        for a, b in itertools.permutations(range(len(kernels)), 2):
            entries += [
                (len(ends), first + k, 1.0)
                for k, mask in enumerate(parted)
                if (mask >> a ^ mask >> b) & 1
            ]
            ends.append((kernels[a], kernels[b]))
            tensor.append(number)
    tail, head = np.array(ends).T
    link, cut, share = zip(*entries, strict=True)
    links = _Links(
        tail=tail,
        head=head,
        link=np.array(link),
        cut=np.array(cut),
        share=np.array(share),
        flow=np.array(tensor),
    )
    return np.array(times), np.array(alike), links, place


@dataclass(frozen=True, slots=True, kw_only=True)
class _Depths:
    """What tensors take more of the SRAM for deep readers: ``weight`` [B], by number.

    A partition takes it that holds both ends of one of its links; pairs of ``depth`` and ``link``
    are listed by depth.
    """

    weight: Floats
    depth: Ints
    link: Ints


def _depths(load: ChipLoad, links: _Links, place: Ints) -> _Depths:
    """Return the depths of all tensors whose kernels are few."""
    weight, pairs = list[float](), list[tuple[int, int]]()
    first = np.searchsorted(links.flow, np.arange(len(load.flows) + 1)).tolist()
    for number, flow in enumerate(load.flows):
        if len(flow.readers) >= FEW:
            continue
        reached, known = load.stream_depth, {int(place[r]): depth for r, depth in flow.readers}
        producer = int(place[flow.producer])
        near = [
            (link, known[int(links.tail[link] + links.head[link] - producer)])
            for link in range(first[number], first[number + 1])
            if producer in (links.tail[link], links.head[link])
        ]
        for depth in sorted({d for d in known.values() if d > load.stream_depth}):
            pairs += [(len(weight), link) for link, d in near if d >= depth]
            weight.append((depth - reached) * flow.tile)
            reached = depth
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return _Depths(weight=np.array(weight), depth=table[:, 0], link=table[:, 1])


def _windows(load: ChipLoad, links: _Links, depths: _Depths, place: Ints) -> Iterator[_Window]:
    """Yield kernels by their places, some at a time, with what is around them."""
    n, depth, precedence = load.n, load.stream_depth, Precedence.of(load, place)
    sequence = np.argsort(place)
    deepest = [max(d for _, d in flow.readers) for flow in load.flows]
    touched = np.array(
        [flow.tile * min(depth, d) for flow, d in zip(load.flows, deepest, strict=True)]
    )
    held = np.array(load.sram)
    around = held.copy()
    np.add.at(around, [flow.producer for flow in load.flows], touched)
    up_to = np.concatenate([[0.0], np.cumsum(around[sequence])])
    capacity = np.maximum(load.sram_capacity, [alone_sram(load, i) for i in range(n)])
    capacity = capacity * (1 + ROUNDING)
    flow_of = np.array([f for i in range(n) for f in load.flows_of[i]], dtype=np.int64)
    kernel_of = place[np.repeat(np.arange(n), [len(f) for f in load.flows_of])]
    first = 0
    while first < n:
        reach = CAPACITIES * float(capacity[sequence[first]])
        low = int(np.searchsorted(up_to, up_to[first] - reach))
        last, high = first, first
        while last < n and (last == first or (last - first) * (high - low) < CELLS):
            last = min(n, last + 16)
            high = min(n, int(np.searchsorted(up_to, up_to[last] + reach)))
        inside = (kernel_of >= low) & (kernel_of < high)
        tensors, tensor = np.unique(flow_of[inside], return_inverse=True)
        by_tensor = np.argsort(tensor, kind="stable")
        near = [(ends >= low) & (ends < high) | (ends >= n) for ends in (links.tail, links.head)]
        link = np.flatnonzero(near[0] & near[1])
        nodes, ends = np.unique(
            np.concatenate([np.arange(low, high), links.tail[link], links.head[link]]),
            return_inverse=True,
        )
        tail, head = ends[high - low :].reshape(2, -1)
        here = np.full(len(links.tail), -1)
        here[link] = np.arange(len(link))
        known = np.flatnonzero(here[depths.link] >= 0)
        deep, of_depth = np.unique(depths.depth[known], return_index=True)
        yield _Window(
            sources=np.arange(first, last) - low,
            capacity=capacity[sequence[first:last]],
            weight=np.concatenate(
                [touched[tensors], held[sequence[low:high]], depths.weight[deep]]
            ),
            of_tensor=np.searchsorted(tensor[by_tensor], np.arange(len(tensors))),
            kernel=(kernel_of[inside] - low)[by_tensor],
            nodes=len(nodes),
            tail=tail,
            link=link,
            layers=_layers(tail, head),
            of_depth=of_depth,
            ends=here[depths.link[known]],
            steps=precedence.steps(np.arange(first, last), low, high),
        )
        first = last


def _layers(tail: Ints, head: Ints) -> tuple[tuple[Ints, Ints, Ints], ...]:
    """Return links in groups of which no two lead to one node: heads, tails and links of each."""
    link = np.argsort(head, kind="stable")
    number = np.arange(len(link)) - np.searchsorted(head[link], head[link])
    each = [link[number == k] for k in range(int(number.max(initial=-1)) + 1)]
    return tuple((head[those], tail[those], those) for those in each)


def _send(
    window: _Window,
    lengths: Floats,
    reference: float,
    some: slice,
    parts: int,
    late: bool,
    budget: Budget,
) -> tuple[list[float], Floats, float]:
    """Send from some sources of a window what is best along these lengths.

    Returns the benefit of each part of the sources [s], what it sends through each link of the
    window [s], up to a common factor, and the least ratio of lengths to benefit. [1/s]
    """
    length, weight = lengths[window.link], window.weight
    sources, capacity = window.sources[some], window.capacity[some]
    none = list[float](), np.zeros((0, len(length))), math.inf
    if not len(sources):
        return none
    steps = [(head, tail, more[:, some]) for head, tail, more in window.steps if late]
    to_tensor, to_node = _distances(window, length, sources, steps, budget)
    kernels = len(weight) - to_tensor.shape[1] - len(window.of_depth)
    distance = np.concatenate(
        [to_tensor, to_node[:, :kernels], _to_depths(window, length, to_node)], axis=1
    )
    rank = np.argsort(distance, axis=1)
    near = np.take_along_axis(distance, rank, axis=1)
    sizes = weight[rank]
    costs = np.cumsum(np.where(sizes > 0, near * np.maximum(sizes, 1e-300), 0.0), axis=1)
    parted = np.cumsum(sizes, axis=1) - capacity[:, None]
    ratios = np.where(parted > 0, costs / np.where(parted > 0, parted, 1.0), np.inf)
    ends, rows = ratios.argmin(axis=1), np.arange(len(sources))
    ratio, benefit = ratios[rows, ends], parted[rows, ends]
    least = float(ratio.min())
    if math.isinf(least):
        return none
    good = np.isfinite(ratio)
    worse = np.where(good, ratio, least) / min(least, reference) - 1
    amount = np.where(good, np.exp(-worse / NEAR[late]) / np.where(good, benefit, 1.0), 0.0)
    sent = np.zeros(distance.shape)
    inside = np.arange(distance.shape[1])[None, :] <= ends[:, None]
    np.put_along_axis(sent, rank, inside * sizes * amount[:, None], axis=1)
    parts = min(parts, len(sources))
    part = np.arange(len(sources)) * parts // len(sources)
    through = _through(window, length, steps, sources, (to_tensor, to_node), sent, part)
    gained = np.bincount(part, weights=amount * np.where(good, benefit, 0.0), minlength=parts)
    return gained.tolist(), through, least


def _distances(
    window: _Window, length: Floats, sources: Ints, steps: Sequence[Step], budget: Budget
) -> tuple[Floats, Floats]:
    """Return lengths of ways from sources to tensors, where a kernel of theirs is, and to nodes.

    Shapes (sources, tensors) and (sources, nodes).
    """
    rows = len(sources)
    away = np.full((window.nodes, rows), np.inf)  # a node's are beside each other
    away[sources, np.arange(rows)] = 0.0
    layers = [(head, tail, length[link][:, None]) for head, tail, link in window.layers]
    ways = rows * (len(length) + sum(len(head) for head, _, _ in steps))
    shorter = True
    while shorter:
        budget.spend(CALL + ways // CELLS_A_UNIT)
        before = away.copy()
        for head, tail, more in (*layers, *steps):
            away[head] = np.minimum(away[head], away[tail] + more)
        shorter = bool((away < before).any())
    to_node = np.ascontiguousarray(away.T)
    to_tensor = np.minimum.reduceat(to_node[:, window.kernel], window.of_tensor, axis=1)
    return to_tensor, to_node


def _to_depths(window: _Window, length: Floats, to_node: Floats) -> Floats:
    """Return lengths of ways from sources to depths, whose last link is one of theirs.

    Shape (sources, depths).
    """
    behind = to_node[:, window.tail[window.ends]] + length[window.ends]
    if not len(window.ends):
        return behind
    return np.asarray(np.minimum.reduceat(behind, window.of_depth, axis=1))


def _last_links(window: _Window, length: Floats, to_node: Floats) -> Ints:
    """Return the last link of the shortest way from sources to depths, shape (sources, depths)."""
    behind = to_node[:, window.tail[window.ends]] + length[window.ends]
    least = np.minimum.reduceat(behind, window.of_depth, axis=1)
    counts = np.diff(np.append(window.of_depth, len(window.ends)))
    here = behind == np.repeat(least, counts, axis=1)
    return np.maximum.reduceat(np.where(here, window.ends, -1), window.of_depth, axis=1)


def _through(
    window: _Window,
    length: Floats,
    steps: Sequence[Step],
    sources: Ints,
    distances: tuple[Floats, Floats],
    sent: Floats,
    part: Ints,
) -> Floats:
    """Return what passes each link when ``sent`` goes to all items by shortest ways.

    Shape (parts, links), where ``part`` is that of each source.
    """
    to_tensor, to_node = distances
    rows, nodes = to_node.shape
    tensors, everyone = to_tensor.shape[1], np.arange(len(sources))
    kernels = sent.shape[1] - len(window.of_depth)
    # The kernel of each tensor that is reached first, and the link to each node.
    counts = np.diff(np.append(window.of_tensor, len(window.kernel)))
    here = to_node[:, window.kernel] == np.repeat(to_tensor, counts, axis=1)
    before = np.maximum.reduceat(np.where(here, window.kernel, -1), window.of_tensor, axis=1)
    away, entered = np.ascontiguousarray(to_node.T), np.full((nodes, rows), -1)
    for head, tail, last in window.layers:
        here = away[tail] + length[last][:, None] == away[head]
        entered[head] = np.where(here, last[:, None], entered[head])
    tails, links = [window.tail], len(length)
    for head, tail, more in steps:  # numbered behind the links
        last = links + np.arange(len(head))
        entered[head] = np.where(away[tail] + more == away[head], last[:, None], entered[head])
        tails.append(tail)
        links += len(head)
    begins, shape = np.concatenate(tails), (int(part[-1]) + 1, links)
    through = np.zeros(shape[0] * shape[1])

    def arrive(row: Ints, at: Ints, amount: Floats) -> Floats:
        """Add up what arrives at nodes; what has come to its source is there."""
        cells = np.bincount(row * nodes + at, weights=amount, minlength=rows * nodes)
        found: Floats = cells.reshape(rows, nodes).astype(np.float64)
        found[everyone, sources] = 0.0
        return found

    row, tensor = np.nonzero(sent[:, :tensors])
    waiting = arrive(row, before[row, tensor], sent[row, tensor])
    waiting[:, : kernels - tensors] += sent[:, tensors:kernels]
    row, depth = np.nonzero(sent[:, kernels:])
    if len(row):
        link = _last_links(window, length, to_node)[row, depth]
        amount = sent[row, kernels + depth]
        at = part[row] * shape[1] + link
        through += np.bincount(at, weights=amount, minlength=len(through))
        waiting += arrive(row, window.tail[link], amount)
    waiting[everyone, sources] = 0.0
    while True:
        row, node = np.nonzero(waiting)
        if not len(row):
            return through.reshape(shape)[:, : len(length)]
        link, amount = entered[node, row], waiting[row, node]
        at = part[row] * shape[1] + link
        through += np.bincount(at, weights=amount, minlength=len(through))
        waiting = arrive(row, begins[link], amount)
