"""Tokens of the fullest chip's experts: those of draws by hand."""

from __future__ import annotations

import numpy as np
import pytest

from crosstack.evaluate.expert_loads import fullest_loads, raised


def drawn_by_hand(tokens, topk, experts, ep, exponent, seed):
    """Return tokens of experts of the fullest chip of one draw, moved one by one."""
    drawn = np.random.default_rng(seed).random(experts)
    low, high = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    rest = 1 - exponent
    weights = ((high**rest - low**rest) * drawn + low**rest) ** (1 / rest)
    whole = np.rint(weights / weights.sum() * tokens * topk)
    chips = np.minimum(whole, tokens).reshape(ep, -1)

    def give(many, step):
        for i in range(int(many)):
            chip = chips[i % ep]
            chip[chip.argmin() if step > 0 else chip.argmax()] += step

    give(whole.sum() - chips.sum(), 1)
    missing = tokens * topk - chips.sum()
    give(abs(missing), 1 if missing > 0 else -1)
    return chips[chips.sum(axis=1).argmax()]


@pytest.mark.parametrize("tokens", [8, 256, 8192])
@pytest.mark.parametrize(("experts", "topk", "ep"), [(128, 8, 1), (128, 8, 16), (256, 6, 4)])
def test_loads_are_the_mean_of_draws(tokens, experts, topk, ep):
    draws = [drawn_by_hand(tokens, topk, experts, ep, 1.2, 100 + i) for i in range(150)]
    loads = fullest_loads(tokens, topk, experts, ep, 1.2)
    assert len(loads) == experts // ep
    assert loads.sum() == pytest.approx(np.mean([each.sum() for each in draws]), rel=0.12)
    assert loads.max() <= tokens
    assert np.all(np.diff(loads) <= 0)
    some = np.mean([(each > 0).sum() for each in draws])
    assert np.minimum(loads, 1).sum() == pytest.approx(some, rel=0.12)


def test_one_chip_has_all_tokens():
    assert fullest_loads(512, 8, 128, 1, 1.01).sum() == pytest.approx(512 * 8)
    assert fullest_loads(512, 8, 128, 1, 1.0).sum() == pytest.approx(512 * 8)


def test_the_lowest_are_raised_to_one_height():
    found = raised(np.array([[5.0, 1.0, 2.0], [4.0, 4.0, 0.0]]), 3.0)
    assert found.tolist() == [[5.0, 3.0, 3.0], [4.0, 4.0, 3.0]]
    assert raised(found, 0.0) == pytest.approx(found)
