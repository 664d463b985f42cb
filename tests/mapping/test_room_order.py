"""Claims about orders of partitions that main memory has room for, and why there is none."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from crosstack.mapping.group_covers import GroupCovers, partitions_of
from crosstack.mapping.ideals import make_order
from crosstack.mapping.room_conflicts import Held, Proof, barred, tensors_apart
from crosstack.mapping.room_order import in_room
from crosstack.workload.kernel_graph import bits

KERNELS = 7


def a_graph(rng: random.Random):
    """Kernels in a random order of precedence, and the tensors that each makes for its readers."""
    preds = [sum(1 << j for j in range(i) if rng.random() < 0.35) for i in range(KERNELS)]
    order = make_order(tuple(preds))
    made = [(i, mask) for i, mask in enumerate(order.succs) if mask]
    return order, tuple(made)


def peak_of(sequence, order, tensors):
    """Return what is alive at most in a sequence; None where precedence does not allow it."""
    done, peak = 0, 0.0
    for mask in sequence:
        after = done | mask
        if any(order.preds[i] & ~after for i in bits(mask)):
            return None
        alive = (s for s, maker, readers in tensors if after >> maker & 1 and readers & ~done)
        peak, done = max(peak, sum(alive)), after
    return peak


def least_peak(partitions, order, tensors):
    """Return what is alive at least at most, in any order; infinite where there is none."""
    each = (peak_of(one, order, tensors) for one in itertools.permutations(partitions))
    return min((peak for peak in each if peak is not None), default=math.inf)


def random_sets(rng: random.Random) -> tuple[int, ...]:
    """Return kernels dealt out to sets, some of several."""
    kernels, found = rng.sample(range(KERNELS), KERNELS), []
    while kernels:
        inside = [kernels.pop() for _ in range(min(len(kernels), rng.choice([1, 1, 2, 3])))]
        found.append(sum(1 << i for i in inside))
    return tuple(found)


@pytest.mark.parametrize("seed", range(30))
def test_there_is_an_order_where_one_of_all_orders_has_room(seed):
    rng = random.Random(seed)
    order, made = a_graph(rng)
    sets = random_sets(rng)
    tensors = [(rng.choice([1.0, 2.0, 5.0]), *each) for each in tensors_apart(sets, made)]
    least = least_peak(sets, order, tensors)
    for room in (least - 0.5, least, least + 1.0, 1e3):
        found = in_room(sets, order, tensors, room)
        if least <= room:
            assert peak_of(found.sequence, order, tensors) <= room
        else:
            assert not found.sequence
            assert room < found.needed <= least
            assert found.none_in(room)


def test_what_takes_long_is_not_known():
    order, made = a_graph(random.Random(1))
    sets = tuple(1 << i for i in range(KERNELS))
    found = in_room(sets, order, [(1.0, *each) for each in made], 1e3, most=2)
    assert not found.sequence
    assert not found.none_in(0.0)


def all_covers(kernels, rng: random.Random) -> GroupCovers:
    """Return a group of kernels with some covers by sets of them."""
    covers = set()
    for _ in range(12):
        left, cover = rng.sample(kernels, len(kernels)), []
        while left:
            inside = [left.pop() for _ in range(min(len(left), rng.choice([1, 2, 3])))]
            cover.append(sum(1 << i for i in inside))
        covers.add(tuple(sorted(cover)))
    sets = sorted({s for cover in covers for s in cover})
    held = [
        [next(n for n, s in enumerate(sets) if s in cover and s >> i & 1) for i in kernels]
        for cover in sorted(covers)
    ]
    return GroupCovers(tuple(kernels), tuple(sets), np.array(held))


def convex(mask: int, order) -> bool:
    """Whether no path leaves a set and comes back, as of sets that may be partitions."""
    ahead, behind = [0] * order.n, [0] * order.n
    for i in range(order.n):
        behind[i] = order.preds[i]
        for j in bits(order.preds[i]):
            behind[i] |= behind[j]
    for i in reversed(range(order.n)):
        for j in bits(order.succs[i]):
            ahead[i] |= ahead[j] | 1 << j
    after = before = 0
    for i in bits(mask):
        after, before = after | ahead[i], before | behind[i]
    return not after & before & ~mask


def test_what_a_conflict_bars_has_no_order_in_the_room():
    assert sum(count_bars(seed) for seed in range(40)) > 40


def count_bars(seed: int) -> int:
    """Return how many bars of random conflicts were looked at."""
    rng, count = random.Random(seed), 0
    order, made = a_graph(rng)
    groups = tuple(all_covers(list(kernels), rng) for kernels in ((0, 2, 3, 5), (1, 4, 6)))
    groups = tuple(
        GroupCovers(group.kernels, group.sets, np.array(good))
        for group in groups
        if (good := [h for h in group.held if all(convex(group.sets[s], order) for s in h)])
    )
    if len(groups) < 2:
        return 0
    domains = tuple((2 * i, 2 * i + 1) for i in range(KERNELS))
    results = np.array([rng.choice([1.0, 2.0, 4.0, 7.0]) for _ in range(2 * KERNELS)])
    for _ in range(10):
        covers = [rng.randrange(len(group.held)) for group in groups]
        codes = np.array([rng.choice(domain) for domain in domains])
        held = Held(np.zeros(2 * KERNELS), rng.choice([5.0, 9.0, 13.0]), (1.0, 0.0), 0.0, results)
        sets = partitions_of(groups, covers)
        several = tuple(s for s in sets if s & (s - 1))
        proof = Proof(order, several, tensors_apart(sets, made), results[codes], held.whole)
        if not proof.fails:
            continue
        conflict = proof.conflict(held.least_made(domains))
        bars = barred([conflict], groups, domains, held)
        assert any(all(own[covers[n]] for n, own in bar.covers.items()) for bar in bars)
        for bar in bars:
            check_bar(bar, groups, domains, held, order, made, rng)
            count += 1
    return count


def check_bar(bar, groups, domains, held, order, made, rng):
    """Look at some of what is barred: none of it has an order in the room."""
    for _ in range(5):
        covers = [rng.randrange(len(group.held)) for group in groups]
        for n, own in bar.covers.items():
            covers[n] = rng.choice(np.flatnonzero(own).tolist())
        codes = [rng.choice(domain) for domain in domains]
        for k, own in bar.choices.items():
            codes[k] = domains[k][rng.choice(np.flatnonzero(own).tolist())]
        sets = partitions_of(groups, covers)
        results = held.results[codes]
        tensors = [(results[maker], maker, mask) for maker, mask in tensors_apart(sets, made)]
        assert least_peak(sets, order, tensors) > held.whole
