"""Two thousand random graphs: equal to every sequence there is; no random mapping beats a proof.

A partition is priced by the sentences that open `crosstack.model.partition` (`brute_step`), all
sets of kernels once; the best sequence is the shortest way through all sets that may have run.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from builders.random_mappings import least_of_all, prices, random_times
from builders.seeds import few_and_many

from crosstack.machine.chip import Overlap
from crosstack.mapping.fusion import fuse, make_problem

MAPPINGS = 10_000  # random ones of each graph or job, that fit
ROUNDING = 1 + 1e-9


@pytest.mark.parametrize("seeds", few_and_many(24, 2000), ids=len)
def test_the_best_sequence_is_the_best_of_all_and_none_beats_it(random_load, brute_step, seeds):
    proved = 0
    for seed in seeds:
        how = {
            "overlap": list(Overlap)[seed % 3],
            "utilization": seed % 4 > 0,
            "network_takes_maximum": seed % 5 == 0,
            "memory_price": (0.0, 0.0, 0.5)[seed // 3 % 3],
            "star": seed % 7 == 0,
            "twins": seed % 11 == 0,
            "temporal": seed % 13 == 0,
        }
        load = random_load(seed, 3 + seed % 6, **how)
        price = prices(load, brute_step)
        found, least = fuse(make_problem(load)), least_of_all(load.preds, price)
        assert (found is None) == math.isinf(least), seed
        if found is None:
            continue
        assert found.proved
        assert found.time == pytest.approx(least, rel=1e-9), seed
        times = random_times(load.preds, price, MAPPINGS, np.random.default_rng(seed))
        assert np.isfinite(times).all(), seed
        assert times.min() * ROUNDING >= found.bound, seed
        proved += 1
    assert proved > 0.9 * len(seeds)
