"""Products in pairs: what is sent, by the formulas of the sources."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders.steps import plain, reshaped
from oracles.links import alike

from crosstack.errors import InputError
from crosstack.evaluate.distributed import Distributed
from crosstack.evaluate.step_memory import transformer_memory
from crosstack.evaluate.step_settings import StepSettings
from crosstack.evaluate.transformer_step import transformer_step
from crosstack.io.steps import step_named
from crosstack.mapping.strategy import parse_strategy
from crosstack.model.collectives import NONE
from crosstack.workload.transformer_training import Exchange, Recompute, TransformerTraining

MODEL = TransformerTraining(
    model=plain(layers=3, hidden=32, heads=4, feed_forward=64, vocabulary=128), batch=4, sequence=8
)
PAIRS = (Exchange.PAIRED, Exchange.SEQUENCE)


class Sent:
    """Nothing but links takes time: a second is a byte sent."""

    element_size = 2.0
    launch_overhead = 0.0
    arrival = NONE

    def product(self, m, k, n, batch=1):
        return 0.0

    def elementwise(self, work, traffic):
        return 0.0


class Multiplied(Sent):
    """Nothing but products takes time: a second is a multiplication."""

    def product(self, m, k, n, batch=1):
        return float(batch * m * k * n)


class Moved(Sent):
    """Nothing but elementwise kernels takes time: a second is a byte."""

    def elementwise(self, work, traffic):
        return float(traffic)


def step(times, exchange, degree=4, bandwidth=1.0, recompute=Recompute.NONE):
    strategy = parse_strategy(f"RC-1-{degree}-d1-p1")
    chips = Distributed(strategy=strategy, times=times, links=alike(strategy, bandwidth))
    model = replace(MODEL, exchange=exchange, recompute=recompute)
    (stage,) = transformer_step(model, chips).stages
    return stage


def layers(stage, way):
    return sum(getattr(o, way) for o in stage.operations[1:-1])


@pytest.mark.parametrize("exchange", PAIRS)
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_a_layer_adds_up_twice_each_way(exchange, way):
    # shoeybi2019megatron, section 3: two all-reduces of s b h forward and two backward, each
    # 2 (t - 1) / t of the bytes on a ring; korthikanti2023reducing, section 4.2.2: spread, the
    # same bytes.
    size = 2 * MODEL.batch * MODEL.sequence * MODEL.model.hidden
    expected = MODEL.model.layers * 2 * size * 2 * 3 / 4
    assert layers(step(Sent(), exchange), way) == pytest.approx(expected)


@pytest.mark.parametrize("exchange", Exchange)
@pytest.mark.parametrize("degree", [1, 2, 4])
def test_every_chip_multiplies_its_share(exchange, degree):
    alone = step(Multiplied(), exchange, 1, bandwidth=1e30)
    found = step(Multiplied(), exchange, degree, bandwidth=1e30)
    for way in ("forward", "backward"):
        assert getattr(found, way) == pytest.approx(getattr(alone, way) / degree)


def test_only_spread_tokens_are_summed_and_normed_once():
    whole, spread = (step(Moved(), e, bandwidth=1e30) for e in PAIRS)
    named = {e: {o.name: o.forward for o in s.operations} for e, s in zip(PAIRS, (whole, spread),
                                                                         strict=True)}  # fmt: skip
    for name in ("residual 1", "norm 2"):
        assert named[Exchange.PAIRED][name] == 4 * named[Exchange.SEQUENCE][name]
    assert named[Exchange.PAIRED]["softmax"] == named[Exchange.SEQUENCE]["softmax"]


def test_one_chip_exchanges_nothing_whatever_the_word():
    times = {e: step(Sent(), e, 1, bandwidth=1e9) for e in Exchange}
    assert len({(s.forward, s.backward) for s in times.values()}) == 1


def test_layers_computed_again_exchange_again():
    kept = step(Sent(), Exchange.PAIRED)
    again = step(Sent(), Exchange.PAIRED, recompute=Recompute.FULL)
    core = step(Sent(), Exchange.PAIRED, recompute=Recompute.ATTENTION)
    assert layers(again, "backward") == pytest.approx(
        layers(kept, "backward") + layers(kept, "forward")
    )
    assert core.backward == kept.backward


@pytest.mark.parametrize("strategy", ["CR-2-d1-p1", "RC-2-1-d1-p1", "RC-2-2-d1-p1"])
def test_rows_and_other_splits_are_not_paired(strategy):
    split = parse_strategy(strategy)
    chips = Distributed(strategy=split, times=Sent(), links=alike(split, 1.0))
    with pytest.raises(InputError, match="exchange: got paired"):
        transformer_step(replace(MODEL, exchange=Exchange.PAIRED), chips)


@pytest.mark.parametrize("name", ["gpt-22b", "gpt3-175b", "gpt-530b", "gpt-1t"])
@pytest.mark.parametrize(
    ("exchange", "recompute", "bytes_of"),
    [
        # korthikanti2023reducing, table 2, of a layer, over s b h; t chips; A = 5 a s / h.
        (Exchange.PAIRED, Recompute.NONE, lambda t, a: 10 + 24 / t + a / t),
        (Exchange.SEQUENCE, Recompute.NONE, lambda t, a: 34 / t + a / t),
        (Exchange.PAIRED, Recompute.ATTENTION, lambda t, a: 10 + 24 / t),
        (Exchange.SEQUENCE, Recompute.ATTENTION, lambda t, a: 34 / t),
        (Exchange.PAIRED, Recompute.FULL, lambda t, a: 2),
    ],
)
def test_activations_of_a_layer_are_those_of_table_2(name, exchange, recompute, bytes_of):
    model = replace(step_named(name), exchange=exchange, recompute=recompute)

    def kept(layers):
        asked = reshaped(model, layers=layers)
        return transformer_memory(
            asked, parse_strategy("RC-1-8-d1-p1"), 2.0, StepSettings()
        ).stages[0]

    layer = kept(2).activations - kept(1).activations
    wide = model.sequence * model.batch * model.model.hidden
    attention = 5 * model.model.heads * model.sequence / model.model.hidden
    assert layer == pytest.approx(bytes_of(8, attention) * wide)
