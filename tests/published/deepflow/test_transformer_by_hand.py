"""Operations of the transformer graph again, written down a second time from the formulas.

`deepflow_code`, release of 2025, its program for graphs; kernels are a stand-in whose times are
told apart by every argument.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from builders.steps import plain
from hypothesis import given
from hypothesis import strategies as st

from crosstack.mapping.strategy import ParallelDimension, Strategy
from crosstack.published.deepflow.chips import Chips, RingLink
from crosstack.published.deepflow.transformer import operations_of
from crosstack.workload.transformer_training import TransformerTraining

WORD, LAUNCH, HOST, SPEED, DELAY = 2.0, 3e-6, 12.4 * 2**30, 7e9, 2e-6


def gemm(m, k, n):
    return 1e-9 * (2 * m + 3 * k + 5 * n) + 1e-12 * m * k * n + LAUNCH


def pointwise(work, words):
    return 1e-9 * work + 3e-10 * words * WORD


TIMES = SimpleNamespace(
    element_size=WORD, launch_overhead=LAUNCH, product=gemm,
    elementwise=lambda work, traffic: pointwise(work, traffic / WORD),
)  # fmt: skip


def all_reduce(d0, d1, n):
    if n == 1:
        return 0.0
    size = WORD * d0 * d1
    step = size / n / SPEED + pointwise(0, 2 * size / n / WORD) + DELAY
    return 2 * step * (n - 1) + (pointwise(d0 * d1 / n, 3 * d0 * d1 / n) + LAUNCH) * (n - 1)


def by_hand(m, dp):
    """Forward and backward time of every operation of the first layer, embedding and head."""
    b, s, d, f, v, h = (
        math.ceil(m.batch / dp),
        m.sequence,
        m.model.hidden,
        m.model.feed_forward,
        m.model.vocabulary,
        m.model.heads,
    )

    def node(i, j, k):
        return gemm(i, j, k) + LAUNCH, gemm(i, k, j) + gemm(j, i, k) + LAUNCH

    scores, wide = b * h * s * s, b * s * d
    scaled = pointwise(scores, 2 * scores) + LAUNCH
    residual = pointwise(wide, 3 * wide) + LAUNCH
    norm = (
        pointwise(5 * wide, 9 * wide) + 3 * LAUNCH,
        pointwise(7 * wide, 11 * wide) + 4 * LAUNCH,
    )
    look = pointwise(0, 2 * b * d) + LAUNCH
    rows = b * s
    return [
        (look + 2 * b * d * WORD / HOST, look),
        node(rows, d, 3 * d),
        node(rows * h, d // h, s),
        (
            scaled + pointwise(3 * scores, 7 * scores) + 4 * LAUNCH,
            scaled + pointwise(5 * scores, 11 * scores) + 4 * LAUNCH,
        ),
        node(rows * h, s, d // h),
        node(rows, d, d),
        (residual, residual),
        norm,
        node(rows, d, f),
        node(rows, f, d),
        (residual, residual),
        norm,
        (
            gemm(rows, d, v) + pointwise(rows * (3 * v - 1), 7 * rows * v) + 4 * LAUNCH,
            gemm(rows, v, d) + gemm(d, rows, v) + pointwise(5 * rows * v, 11 * b * v) + 4 * LAUNCH,
        ),
    ]


def reductions(m, dp):
    """The gradient sums of embedding, one layer and head."""
    d, f, v = m.model.hidden, m.model.feed_forward, m.model.vocabulary
    layer = 0.0
    for rows, columns in ((d, 3 * d), (d, d), (f, d), (f, d)):
        count = rows * columns
        layer += all_reduce(rows, columns, dp)
        layer += pointwise(3 * count, 4 * count) + pointwise(4 * count, 3 * count)
    embedding = all_reduce(v, d, dp) + all_reduce(m.sequence, d, dp)
    return embedding, layer, all_reduce(d, v, dp)


@given(
    batch=st.integers(1, 9),
    sequence=st.integers(1, 30),
    heads=st.integers(1, 5),
    head=st.integers(1, 9),
    feed_forward=st.integers(1, 40),
    vocabulary=st.integers(1, 60),
    layers=st.integers(1, 3),
    dp=st.integers(1, 5),
)
def test_every_operation_is_its_formula(
    batch, sequence, heads, head, feed_forward, vocabulary, layers, dp
):
    model = TransformerTraining(
        model=plain(layers=layers, hidden=heads * head, heads=heads, feed_forward=feed_forward,
                    vocabulary=vocabulary), batch=batch, sequence=sequence,
    )  # fmt: skip
    links = {d: RingLink(bandwidth=SPEED, latency=DELAY) for d in ParallelDimension}
    operations = operations_of(model, Chips(strategy=Strategy(dp=dp), times=TIMES, links=links))
    for operation, (forward, backward) in zip(operations, by_hand(model, dp), strict=True):
        assert operation.forward == pytest.approx(forward, rel=1e-12), operation.name
        assert operation.backward == pytest.approx(backward, rel=1e-12), operation.name
    embedding, layer, head_sum = reductions(model, dp)
    assert operations[0].reduce == pytest.approx(embedding, rel=1e-12)
    assert sum(o.reduce for o in operations[1:12]) == pytest.approx(layer, rel=1e-12)
    assert operations[-1].reduce == pytest.approx(head_sum, rel=1e-12)
