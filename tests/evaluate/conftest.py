"""Kernel times of the public releases, derived anew: an oracle for whole steps.

`deepflow_code` describes them: tiles drawn at random for every level with a fixed seed, bytes of
each level from the tiles, the slowest level. Each release differs in the number of tiles, in what
a clipped tile becomes and in how the stationary operand is chosen.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from crosstack.chip.generated import generate
from crosstack.chip.generator_rules import GeneratorRules
from crosstack.io.deepflow import read_hardware

DATA = Path(__file__).resolve().parents[3] / "shared/data/deepflow"


class ReleaseTimes:
    """Kernel times of one chip under the release of 2025."""

    n_tiles = 20

    def __init__(self, chip, dataflow=None):
        self.word, self.launch_overhead = chip.word, chip.launch_overhead
        self.chip, self.flow = chip, dataflow
        self.levels = chip.levels
        self.tiles = [self._draw(i) for i in range(3)]
        self.seen = {}

    def _draw(self, level):
        capacity = self.chip.capacity_of_instance(self.levels[level]) / self.word
        side = math.ceil(2 ** math.floor(math.log2(math.sqrt(capacity / 2))))
        found = dict.fromkeys([(side, side, side), (side // 2, side, 2 * side)])
        random = np.random.RandomState(1)
        while len(found) < self.n_tiles:
            a, b = (2 ** random.randint(0, math.floor(math.log2(capacity)), 2)).tolist()
            room = (capacity - a * b) / (a + b if level <= 1 else b)
            if room >= 1:
                found[a, b, 2 ** math.floor(math.log2(math.floor(room)))] = None
        return np.array(list(found), float)

    def elementwise(self, work, traffic):
        """Bound by the registers, whatever memory the data is in."""
        return self._level_time(work, int(traffic), 0)

    def _level_time(self, work, traffic, level):
        bandwidth = self.levels[level].bandwidth
        rate = self.chip.compute.throughput
        with np.errstate(divide="ignore"):
            bound = traffic / bandwidth + self.levels[level].latency
            time = np.where(work / traffic < rate / bandwidth, bound, work / rate)
        return time if time.ndim else float(time)

    def product(self, m, k, n):
        if (m, k, n) not in self.seen:
            self.seen[m, k, n] = self._product(m, k, n) + self.launch_overhead
        return self.seen[m, k, n]

    def _slowest(self, work, traffic):
        times = [self._level_time(work, t, level) for level, t in enumerate(traffic)]
        return float(np.maximum.reduce(np.broadcast_arrays(*times)).min())

    def _product(self, m, k, n):
        word, unit = self.word, self.chip.compute
        work = m * n * (2 * k - 1)
        reuse = max(math.ceil(m / unit.rows), math.ceil(n / unit.rows), math.ceil(k / unit.depth))
        pair = 2 * unit.depth - 1
        registers = np.array(
            work * 2 * unit.depth / (unit.rows * pair) * word + work / (reuse * pair) * word
        )
        big, small = self.tiles[2][:, None], self.tiles[1][None]
        m2, k2, n2 = (np.minimum(big[..., i], size) for i, size in enumerate((m, k, n)))
        m1, k1, n1 = (np.minimum(small[..., i], size) for i, size in enumerate((m2, k2, n2)))
        cm, ck, cn = np.ceil(m / m2), np.ceil(k / k2), np.ceil(n / n2)
        fm, fk, fn = np.ceil(m2 / m1), np.ceil(k2 / k1), np.ceil(n2 / n1)
        runs = cm * ck * cn
        tiles = np.prod([np.ceil(s / big[..., i]) for i, s in enumerate((m, k, n))], axis=0)
        active = np.minimum(unit.n_bundles, tiles)
        shared = ((m1 * k1 + k1 * n1) * fm * fk * fn + m1 * n1 * fm * fn) * word * runs / active
        a, b, c = m2 * k2 * word, k2 * n2 * word, m2 * n2 * word
        read = (n // n2) * m * k * word, (m // m2) * k * n * word
        over = (m * k + k * n + m * n) * word > self.levels[3].capacity
        spilled = over * m * n * word
        innermost = {
            "m": (runs * a * fn + ck * cn * b + 2 * runs * c * fk,
                  read[0] + k * n * word + k // k2 * spilled),
            "k": (runs * a * fn + runs * b * fm + 2 * cm * cn * c,
                  read[0] + read[1] + spilled),
            "n": (cm * ck * a + runs * b * fm + 2 * runs * c * fk,
                  m * k * word + read[1] + k // k2 * spilled),
        }  # fmt: skip
        return min(
            self._slowest(work, (registers, shared, l2, memory))
            for l2, memory in innermost.values()
        )


class OlderTimes(ReleaseTimes):
    """Kernel times under the release of 2021: loops are permuted, tiles grow into what is free."""

    refills = True

    def _product(self, m, k, n):
        if self.flow is None:  # chosen for the first product, kept for all
            self.flow = "weight" if m >= max(k, n) else "output" if k >= max(m, n) else "activation"
        orders = {
            "weight": ((k, n, m), (n, k, m)),
            "activation": ((m, k, n), (k, m, n)),
            "output": ((m, n, k), (n, m, k)),
        }[self.flow]
        return min(self._ordered(*order) for order in orders)

    def _ordered(self, d1, d2, d3):
        word, width = self.word, self.chip.compute.rows
        work = d1 * d3 * (2 * d2 - 1)
        kept = {"weight": d1, "activation": d3, "output": d2}[self.flow]
        registers = work * (1 + 1 / (2 * math.ceil(kept / width))) / width * word
        which = np.indices((self.n_tiles,) * 3).reshape(3, -1)
        sizes = [np.full(which.shape[1], float(d)) for d in (d1, d2, d3)]
        runs, traffic = np.ones(which.shape[1]), []
        for level in (2, 1, 0):
            tile = self._clipped(self.tiles[level][which[level]].T, sizes, level)
            c1, c2, c3 = (np.ceil(s / t) for s, t in zip(sizes, tile, strict=True))
            outputs = c2 if level == 0 else 1
            moved = (
                sizes[0] * sizes[1] * c3 + sizes[1] * sizes[2] * c1 + sizes[0] * sizes[2] * outputs
            )
            traffic.insert(0, runs * moved * word)
            runs, sizes = runs * c1 * c2 * c3, tile
        return self._slowest(work, (np.array(registers), *traffic))

    def _clipped(self, tile, sizes, level):
        t1, t2, t3 = tile
        c1, c2, c3 = (np.minimum(t, s) for t, s in zip(tile, sizes, strict=True))
        if not self.refills:
            return [c1, c2, c3]
        room = t1 * t2 + t1 * t3 + t2 * t3
        cut = [c1 < t1, c2 < t2, c3 < t3]
        if level == 0:
            grown = [(room - c2 * c3) / (c2 + c3), (room - c1 * c3) / (c1 + c3),
                     (room - c1 * c2) / (c1 + c2)]  # fmt: skip
        else:
            grown = [(room - c2 * c3) / c2, room / (c1 + c3), (room - c1 * c2) / c2]
        some = cut[0] | cut[1] | cut[2]
        third = some & ~cut[2]
        first = some & cut[2] & ~cut[0]
        second = some & cut[2] & cut[0] & ~cut[1]
        grows = zip((first, second, third), grown, (c1, c2, c3), strict=True)
        found = [np.where(chosen, np.floor(size), cut_) for chosen, size, cut_ in grows]
        return [np.minimum(t, s) for t, s in zip(found, sizes, strict=True)]


class OldestTimes(OlderTimes):
    """Kernel times under the release of 2020: more tiles, none of them grows."""

    n_tiles = 30
    refills = False


RELEASES = {
    "2025": (GeneratorRules.deepflow_2025, ReleaseTimes),
    "2021": (GeneratorRules.deepflow_2021, OlderTimes),
    "2020": (GeneratorRules.deepflow_2021, OldestTimes),
}


@pytest.fixture(scope="session")
def release():
    """Return hardware file, chip and kernel times of a configuration; equal ones only once."""
    made = {}

    def make(year, path, overrides=()):
        key = year, str(path), tuple(overrides)
        if key not in made:
            hardware = read_hardware((DATA / "configs" / path).read_text(), str(path), overrides)
            rules, times = RELEASES[year]
            chip = generate(hardware.template, hardware.budget, rules()).hierarchy
            made[key] = hardware, chip, times(chip)
        return made[key]

    return make
