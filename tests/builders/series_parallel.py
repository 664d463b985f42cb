"""Random small loads of one chip whose kernels and tensors make a series-parallel graph.

Tensors have up to four readers in branches of any length, kernels make several tensors, skips run
past parts, and tiles, weights and bytes may be nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from crosstack.machine.chip import Overlap
from crosstack.model.flows import Flow
from crosstack.model.partition import ChipLoad, alone_sram

SOURCE, SINK = -1, -2


@dataclass(slots=True)
class _Sketch:
    """Who makes each tensor and who reads it, of kernels so far."""

    rng: Random
    n: int = 0
    made: list[tuple[int, set[int]]] = field(default_factory=list)

    def kernel(self) -> int:
        self.n += 1
        return self.n - 1

    def between(self, x: int, y: int, n: int) -> None:
        """Put ``n`` kernels between two, in series, side by side, or behind one tensor of x."""
        rng, cut = self.rng, self.rng.randint(0, n)
        roll = rng.random()
        if roll < 0.45 or not n:
            readers = set[int]()
            self.made.append((x, readers))
            self.readers(readers, y, n)
        elif roll < 0.8:
            self.in_series(x, y, n)
        else:
            self.between(x, y, cut)
            self.between(x, y, n - cut)

    def in_series(self, x: int, y: int, n: int) -> None:
        middle, cut = self.kernel(), self.rng.randint(0, n - 1)
        self.between(x, middle, cut)
        self.between(middle, y, n - 1 - cut)

    def readers(self, readers: set[int], y: int, n: int) -> None:
        """Put ``n`` kernels between a tensor and y."""
        rng, roll = self.rng, self.rng.random()
        if not n:
            readers.add(y)
        elif roll < 0.4:
            first, cut = self.kernel(), rng.randint(0, n - 1)
            self.readers(readers, first, cut)
            self.between(first, y, n - 1 - cut)
        else:
            cut = rng.randint(0, n)
            self.readers(readers, y, cut)
            self.readers(readers, y, n - cut)


def random_series(template: ChipLoad, seed: int, n: int) -> ChipLoad:
    """Return a load of ``n`` kernels like ``template`` in all that is not drawn."""
    rng = Random(seed * 7919 + 3)
    while True:
        sketch = _Sketch(rng)
        ends = [sketch.kernel() if rng.random() < 0.6 else end for end in (SOURCE, SINK)]
        if n - sketch.n >= 0:
            sketch.between(*ends, n - sketch.n)
        if sketch.n == n:
            return _drawn(template, sketch)


def load_of(
    template: ChipLoad, held: Sequence[float], flows: Sequence[Flow], **changes: Any
) -> ChipLoad:
    """Return a load of kernels that hold so much SRAM, all of it weight, and these tensors. [B]"""
    n = len(held)
    preds, succs = [0] * n, [0] * n
    for flow in flows:
        succs[flow.producer] |= flow.mask
        for reader, _ in flow.readers:
            preds[reader] |= 1 << flow.producer
    for first, last in changes.pop("follows", ()):  # an order that no tensor asks for
        preds[last] |= 1 << first
        succs[first] |= 1 << last
    none = (0.0,) * n
    touching = [
        tuple(f for f, flow in enumerate(flows) if flow.producer == i or flow.mask >> i & 1)
        for i in range(n)
    ]
    load = replace(
        template,
        n=n,
        names=tuple(f"k{i}" for i in range(n)),
        preds=tuple(preds),
        succs=tuple(succs),
        order=tuple(_order(preds)),
        compute=none,
        staircases=None,
        cycle_time=none,
        shapes=((0, 0, 0, False),) * n,
        network=none,
        data=none,
        own_memory=none,
        entering=none,
        leaving=none,
        weight_time=tuple(map(float, held)),
        sram=tuple(map(float, held)),
        weight=tuple(map(float, held)),
        flows=tuple(flows),
        flows_of=tuple(touching),
        kept=none,
        backward=0,
        unmixed=(),
        bandwidth=1.0,
    )
    return replace(load, **changes)


def flow_of(producer: int, readers: Mapping[int, int], tile: float, total: float) -> Flow:
    """Return a tensor with readers of these depths."""
    mask = sum(1 << reader for reader in readers)
    return Flow(producer, tuple(sorted(readers.items())), tile, total, mask)


def _drawn(template: ChipLoad, sketch: _Sketch) -> ChipLoad:
    rng, n = sketch.rng, sketch.n
    flows = [
        flow_of(
            producer,
            {reader: rng.choice((1, 1, 2, 3)) for reader in sorted(readers - {SINK})},
            float(rng.choice((0, 1, 1, 2, 3, 5))),
            float(rng.choice((0, 1, 2, 4, 4, 7))),
        )
        for producer, readers in sketch.made
        if producer != SOURCE and readers - {SINK}
    ]

    def drawn(*values: float) -> tuple[float, ...]:
        return tuple(float(rng.choice(values)) for _ in range(n))

    load = load_of(
        template,
        drawn(0, 0, 1, 2, 5),
        flows,
        compute=drawn(0, 1, 3, 9),
        network=drawn(0, 0, 0, 2),
        data=drawn(0, 0, 0, 1),
        own_memory=drawn(0, 1, 2),
        stream_depth=rng.choice((1, 2, 2, 3)),
        overlap=rng.choice(list(Overlap)),
        network_takes_maximum=rng.random() < 0.3,
        resident_alone=rng.random() < 0.3,
        memory_price=rng.choice((0.0, 0.0, 0.5)),
        network_price=rng.choice((0.0, 0.0, 0.5)),
    )
    if n > 1 and rng.random() < 0.2:
        first, last = sorted(rng.sample(range(n), 2))
        pair = load.order[first], load.order[last]
        more = load_of(template, load.sram, flows, follows=[pair])
        load = replace(load, preds=more.preds, succs=more.succs, order=more.order)
    return replace(load, sram_capacity=_capacity(load, rng))


def _capacity(load: ChipLoad, rng: Random) -> float:
    """SRAM from less than some kernel takes alone, whose weight is cut, to room for all. [B]"""
    alone = [alone_sram(load, i) for i in range(load.n)]
    every = sum(load.sram) + sum(3 * flow.tile for flow in load.flows)
    least, most = max(alone), max(every, *alone)
    share = rng.choice((0.0, 0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0))
    capacity = round(least + share * (most - least))
    if rng.random() < 0.1:
        capacity = round(rng.uniform(0.5, 1.0) * least)
    return float(max(capacity, 1))


def _order(preds: list[int]) -> list[int]:
    """Kernels in an order that each may run in."""
    done, found = 0, list[int]()
    while len(found) < len(preds):
        i = next(i for i, before in enumerate(preds) if not done >> i & 1 and before & ~done == 0)
        done |= 1 << i
        found.append(i)
    return found
