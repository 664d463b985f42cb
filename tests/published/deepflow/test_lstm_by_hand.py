"""Parts of the LSTM step again, written down a second time from the formulas of the public tool.

`deepflow_code`, release of 2025; kernels are a stand-in whose times are told apart by every
argument, so that a wrong shape, a swapped axis or a missing launch shows.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.mapping.strategy import KernelSplit, ParallelDimension, Strategy
from crosstack.published.deepflow.chips import Chips, RingLink
from crosstack.published.deepflow.lstm import lstm_parts
from crosstack.workload.lstm import LstmModel

WORD, LAUNCH, HOST = 2.0, 3e-6, 12.4 * 2**30
SPEEDS = {"kp1": 1e9, "kp2": 3e9, "dp": 7e9, "lp": 11e9}
DELAYS = {"kp1": 1e-6, "kp2": 2e-6, "dp": 3e-6, "lp": 4e-6}


def gemm(m, k, n):
    return 1e-9 * (2 * m + 3 * k + 5 * n) + 1e-12 * m * k * n + LAUNCH


def pointwise(work, traffic):
    return 1e-9 * work + 3e-10 * traffic


TIMES = SimpleNamespace(
    element_size=WORD, launch_overhead=LAUNCH, product=gemm, elementwise=pointwise
)


def ring(d0, d1, n, dimension, *, reduces, both=False):
    """The ring of the release: transfers, then additions or one copy."""
    if n == 1:
        return 0.0
    size = WORD * d0 * d1
    step = size / n / SPEEDS[dimension] + pointwise(0, 2 * size / n) + DELAYS[dimension]
    total = step * (n - 1) * (2 if both else 1)
    if reduces:
        return total + (pointwise(d0 * d1 / n, 3 * size / n) + LAUNCH) * (n - 1)
    return total + pointwise(0, 3 * size) + LAUNCH


def gather(d0, d1, n, dimension):
    return ring(d0, d1, n, dimension, reduces=False)


def by_hand(model, s):
    """Every part by its formula; a and c are the degrees of the kernel split."""
    b, d, v, g = math.ceil(model.batch / s.dp), model.width, model.vocabulary, model.gates
    k, n, a, c, p = 2 * d, g * d, s.kp1, s.kp2, WORD
    if s.split is KernelSplit.CR:

        def forward(k_, n_):
            return gemm(b, k_ // a, n_) + ring(b, n_, a, "kp1", reduces=True)

        def backward(k_, n_):
            own = gemm(k_, b // a, n_) + gemm(b, n_ // a, k_)
            return own + gather(b, n_, a, "kp1")

        q = 4 * b * (n / a) * p
        sent = pointwise(0, 2 * q) + q / SPEEDS["kp1"]
        cell = pointwise(5 * b * n / a, 13 * b * n * p / a)
        cell_back = pointwise(5 * b * n / a + k * n / a, 13 * b * n * p / a + 6 * d * n * p / a)
        look = pointwise(0, 2 * b * d * p) + LAUNCH + gather(b, d, a, "kp1")
        parts = {
            "embedding_forward": look,
            "embedding_backward": look,
            "cell_forward": forward(k, n) + cell + 5 * LAUNCH + sent,
            "cell_backward": backward(k, n) + cell_back + 5 * LAUNCH + sent,
            "softmax_forward": forward(d, v) + pointwise(3 * b * v / a, 7 * b * v * p / a)
            + LAUNCH + gather(b, 1, a, "kp1"),
            "softmax_backward": backward(d, v) + pointwise(5 * b * v / a, 11 * b * v * p / a)
            + LAUNCH,
        }  # fmt: skip
    else:

        def forward(k_, n_):
            return gemm(b // a, k_, n_ // c) + gather(b // a, n_, c, "kp2")

        def backward(k_, n_):
            own = gemm(k_ / a, b, n_ / c) + gemm(b / a, n_, k_ / c)
            rows = gather(k_, b, a, "kp1") / 2 + gather(b, n_ / c, a, "kp1")
            return own + rows + gather(b / a, n_, c, "kp2") + gather(k_, n_, c, "kp2") / 2

        def sent(q):
            return pointwise(0, 2 * q) + q / SPEEDS["kp2"] if c > 1 else 0.0

        mine = (b / a) * (n / c)
        look = pointwise(0, 2 * (b / a) * (d / c) * p) + LAUNCH
        parts = {
            "embedding_forward": look,
            "embedding_backward": look + gather(b, d / c, a, "kp1"),
            "cell_forward": forward(k, n) + pointwise(5 * mine, 13 * mine * p) + 5 * LAUNCH
            + sent(mine * 4 * p),
            "cell_backward": backward(k, n)
            + pointwise(5 * mine + k * n / c, 13 * mine * p + 6 * d * n * p / c) + 5 * LAUNCH
            + sent(int(b * (n / c) * 4 * p)),
            "softmax_forward": forward(d, v)
            + pointwise(3 * (b / a) * (v / c), 7 * (b / a) * (v / c) * p) + LAUNCH
            + sent(p * (b / a) * c),
            "softmax_backward": backward(d, v)
            + pointwise(5 * (b / a) * (v / c), 11 * (b / a) * (v / c) * p) + LAUNCH,
        }  # fmt: skip
    if a * c == 1:
        look = pointwise(0, 2 * b * d * p) + LAUNCH
        parts = {
            "embedding_forward": look + 2 * b * d * p / HOST,
            "embedding_backward": look,
            "cell_forward": gemm(b, k, n) + pointwise(5 * b * n, 13 * b * n * p) + 5 * LAUNCH,
            "cell_backward": gemm(b, n, k) + gemm(k, b, n)
            + pointwise(5 * b * d + k * n, 13 * b * d * p + 6 * d * n * p) + 5 * LAUNCH,
            "softmax_forward": gemm(b, d, v) + pointwise(b * (3 * v - 1), 7 * b * v * p)
            + 4 * LAUNCH,
            "softmax_backward": gemm(d, b, v) + gemm(b, v, d)
            + pointwise(5 * b * v, 11 * b * v * p) + 4 * LAUNCH,
        }  # fmt: skip
    w = p * b * d / (a * c)
    transfer = 0.0
    if s.lp > 1:
        transfer = pointwise(0, 2 * w) + w / SPEEDS["lp"] + DELAYS["lp"]
    parts["transfer_forward"] = parts["transfer_backward"] = transfer

    def weight(rows, columns):
        held = (rows / a, columns) if s.split is KernelSplit.CR else (rows / a, columns / c)
        total = ring(*held, s.dp, "dp", reduces=True, both=True)
        applied = held
        if s.split is KernelSplit.RC:
            total += gather(rows, columns / c, a, "kp1")
            applied = (rows, columns / c)
        count = applied[0] * applied[1]
        return total + pointwise(3 * count, 4 * count * p) + pointwise(4 * count, 3 * count * p)

    parts["reduce_cell"], parts["reduce_softmax"] = weight(k, n), weight(d, v)
    parts["reduce_embedding"] = weight(v, d)
    return parts


degrees = st.sampled_from((1, 2, 4, 8))


@given(
    split=st.sampled_from(KernelSplit),
    kp1=degrees,
    kp2=degrees,
    dp=st.integers(1, 9),
    lp=st.sampled_from((1, 4)),
    rows=st.integers(1, 40),
    width=st.integers(1, 20),
    words=st.integers(1, 50),
    gates=st.integers(1, 5),
)
def test_every_part_is_its_formula(split, kp1, kp2, dp, lp, rows, width, words, gates):
    kp2 = 1 if split is KernelSplit.CR else kp2
    strategy = Strategy(split=split, kp1=kp1, kp2=kp2, dp=dp, lp=lp)
    model = LstmModel(
        batch=rows * 8 * dp - (dp - 1), sequence=3, vocabulary=64 * words, layers=2,
        width=8 * width, gates=gates,
    )  # fmt: skip
    links = {
        d: RingLink(bandwidth=SPEEDS[d.value], latency=DELAYS[d.value]) for d in ParallelDimension
    }
    found = lstm_parts(model, Chips(strategy=strategy, times=TIMES, links=links))
    for name, time in by_hand(model, strategy).items():
        assert getattr(found, name) == pytest.approx(time, rel=1e-12), name
