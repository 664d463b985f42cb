"""Both forms of a workload give the same arrays, and so the same choices."""

from __future__ import annotations

from dataclasses import fields
from random import Random

import numpy as np
import pytest
from builders.twice_written import at_least_one, gpt_forward, twice_written

from crosstack.model.arrays import GraphArrays, graph_arrays
from crosstack.model.choices import Choices
from crosstack.model.lowering import lowered
from crosstack.workload.llm import llm_forward


def differing(a: GraphArrays | Choices, b: GraphArrays | Choices) -> list[str]:
    """Names of the tables that are not the same, number by number."""
    return [
        f.name
        for f in fields(a)
        if f.name not in ("index", "clocked")
        and not (
            np.array_equal(getattr(a, f.name), getattr(b, f.name))
            and np.asarray(getattr(a, f.name)).dtype == np.asarray(getattr(b, f.name)).dtype
        )
    ]


class TestArrays:
    def test_a_layer_of_a_gpt_has_the_same_arrays_in_both_forms(self):
        old = llm_forward(hidden=24, sequence_length=10, n_heads=3, head_size=8)
        new = gpt_forward(sequence=10, heads=3, head=8)
        arrays = lowered(new, new.blocks[0].name, work=lambda operation: 1.0)
        assert differing(graph_arrays(old), arrays) == []

    @pytest.mark.parametrize("first", range(0, 1000, 100))
    def test_random_workloads_have_the_same_arrays_in_both_forms(self, first):
        for seed in range(first, first + 100):
            old, new, block = twice_written(Random(seed))
            arrays = lowered(new, block, work=at_least_one)
            assert differing(graph_arrays(old), arrays) == [], f"seed {seed}"
