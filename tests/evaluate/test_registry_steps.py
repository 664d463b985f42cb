"""Steps of the library's models: the work and the weights that their shapes count."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracles.links import alike

from crosstack.errors import InputError
from crosstack.evaluate.distributed import Distributed
from crosstack.evaluate.predict import predict
from crosstack.evaluate.step_memory import transformer_memory
from crosstack.evaluate.step_settings import StepSettings
from crosstack.evaluate.transformer_step import transformer_step
from crosstack.io import library
from crosstack.io.library.machines import chip, system_on
from crosstack.mapping.strategy import Strategy, parse_strategy
from crosstack.model.collectives import NONE
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.architectures import NormPlace
from crosstack.workload.transformer_training import Exchange, Recompute, TransformerTraining

ADAM = StepSettings()
MODELS = {name: library.model(name) for name in library.names("models")}
EXPERTS = [name for name, model in MODELS.items() if model.experts is not None]
DENSE = [name for name, model in MODELS.items() if model.experts is None]


class Multiplied:
    """Nothing but products takes time: a second is a floating-point operation."""

    element_size = 2.0
    launch_overhead = 0.0
    arrival = NONE

    def product(self, m, k, n, batch=1):
        return 2.0 * batch * m * k * n

    def elementwise(self, work, traffic):
        return 0.0


def job(name, **changes):
    """Return a step of as many tokens as the shortest window lets look at all of them."""
    model = MODELS[name]
    sequence = min(512, model.window or 512)
    return TransformerTraining(model=model, batch=8, sequence=sequence, **changes)


def step(training, text="RC-1-1-d1-p1", times=None):
    strategy = parse_strategy(text)
    chips = Distributed(strategy=strategy, times=times or Multiplied(), links=alike(strategy, 1e30))
    return transformer_step(training, chips)


@pytest.mark.parametrize("name", DENSE)
def test_a_step_does_the_work_that_the_shape_counts(name):
    training = job(name)
    tokens = training.batch * training.sequence
    counted = training.model.forward_flop(training.sequence, causal=False).total
    assert step(training).time == pytest.approx(3 * tokens * counted, rel=1e-12)


# A multiple of the heads of keys and values, and a divisor of all others.
@pytest.mark.parametrize(
    "name", ["llama3-70b", "qwen3-8b", "gemma-7b", "gpt3-175b", "nemotron-4-15b"]
)
@pytest.mark.parametrize("exchange", Exchange)
@pytest.mark.parametrize("degree", [2, 8])
def test_chips_share_the_work_of_a_step(name, exchange, degree):
    training = job(name, exchange=exchange)
    alone, shared = step(training).time, step(training, f"RC-1-{degree}-d1-p1").time
    assert shared == pytest.approx(alone / degree, rel=1e-12)


def test_more_chips_than_heads_of_keys_have_copies_of_them():
    training = job("llama3-8b", exchange=Exchange.PAIRED)  # 32 heads on 8
    model, tokens = training.model, training.batch * training.sequence
    alone, shared = step(training).time, step(training, "RC-1-32-d1-p1").time
    copied = 6 * tokens * model.hidden * 2 * model.head_size * model.layers  # keys and values
    assert shared == pytest.approx((alone + (32 - 8) * copied) / 32, rel=1e-12)


@pytest.mark.parametrize("name", DENSE)
def test_a_chip_alone_keeps_the_parameters_that_the_shape_counts(name):
    (stage,) = transformer_memory(job(name), Strategy(), 2.0, ADAM).stages
    total = MODELS[name].parameters.total
    kept = stage.weights, stage.gradients, stage.optimizer_state
    assert kept == pytest.approx((2 * total, 2 * total, 12 * total), rel=1e-12)


@pytest.mark.parametrize("name", DENSE)
def test_stages_keep_the_parameters_and_a_tied_table_twice(name):
    model = MODELS[name]
    stages = transformer_memory(job(name), Strategy(lp=4), 2.0, ADAM).stages
    table = model.vocabulary * (model.embedding or model.hidden) * model.tied
    assert len(stages) == 4
    assert sum(s.weights for s in stages) == pytest.approx(
        2 * (model.parameters.total + table), rel=1e-12
    )


def test_norms_are_on_every_chip_of_a_split_and_the_rest_is_spread():
    count = MODELS["llama3-70b"].parameters
    (stage,) = transformer_memory(job("llama3-70b"), Strategy(kp2=8), 2.0, ADAM).stages
    spread = count.total - count.norms
    assert stage.weights == pytest.approx(2 * (spread / 8 + count.norms), rel=1e-12)


def test_a_gate_keeps_both_factors_and_shared_heads_keep_fewer_keys():
    plain = replace(MODELS["llama3-8b"], gated=False, kv_heads=32)

    def kept(model):
        training = TransformerTraining(model=model, batch=1, sequence=1024)
        (stage,) = transformer_memory(training, Strategy(), 2.0, ADAM).stages
        return stage.activations / (2 * 1024 * model.layers)

    gated = replace(plain, gated=True)
    assert kept(gated) - kept(plain) == pytest.approx(2 * plain.feed_forward)
    grouped = replace(plain, kv_heads=8)
    assert kept(plain) - kept(grouped) == pytest.approx(2 * 24 * 128)
    both = replace(plain, norms=NormPlace.BOTH)
    assert kept(both) - kept(plain) == pytest.approx(2 * plain.hidden)


@pytest.mark.parametrize("name", EXPERTS)
def test_experts_and_latent_attention_are_refused_by_their_field(name):
    model = MODELS[name]
    with pytest.raises(InputError) as refused:
        step(TransformerTraining(model=model, batch=8, sequence=64))
    fields = ["model.experts"] if model.latent is None else ["model.latent", "model.experts"]
    assert [problem.path for problem in refused.value.problems] == fields


def test_a_window_shorter_than_a_sequence_is_refused():
    training = replace(job("mistral-7b"), sequence=4097)
    with pytest.raises(InputError, match="model.window: .* at 4,096 at most, and 4,097 are there"):
        step(training)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("RC-1-16-d1-p1", "16 chips do not divide the heads, 28"),
        ("RC-1-14-d1-p1", "14 chips neither divide 4 heads of keys and values nor are a multiple"),
        ("CR-14-d1-p1", "14 chips neither divide 4 heads of keys and values nor are a multiple"),
    ],
)
def test_chips_that_do_not_split_the_heads_are_refused(text, says):
    with pytest.raises(InputError) as refused:
        step(job("qwen2.5-7b"), text)
    assert says in str(refused.value)


def test_a_tied_table_is_summed_once_where_it_is_one_and_at_both_ends_where_there_are_two():
    tied = job("llama3.2-1b")
    apart = replace(tied, model=replace(tied.model, tied=False))

    class Sent(Multiplied):
        def product(self, m, k, n, batch=1):
            return 0.0

    def sums(training, text):
        strategy = parse_strategy(text)
        chips = Distributed(strategy=strategy, times=Sent(), links=alike(strategy, 1.0))
        stages = transformer_step(training, chips).stages
        return stages[0].operations[0].reduce, stages[-1].operations[-1].reduce

    table = 2 * tied.model.vocabulary * tied.model.hidden  # bytes
    ring = 2 * table / 2  # of two replicas
    assert sums(apart, "RC-1-1-d2-p1") == pytest.approx((ring, ring))
    assert sums(tied, "RC-1-1-d2-p1") == pytest.approx((ring, 0.0))
    assert sums(apart, "RC-1-1-d2-p2") == pytest.approx((ring, ring))
    assert sums(tied, "RC-1-1-d2-p2") == pytest.approx((ring + table, ring + table))


def test_llama3_70b_on_512_h100_takes_what_its_work_takes_at_the_peak_and_no_less():
    """6 FLOP a weight and token, 12 s d a layer and token of attention; 989 TFLOP/s a chip."""
    model = MODELS["llama3-70b"]
    training = TransformerTraining(
        model=model, batch=2048, sequence=8192, microbatches=128, exchange=Exchange.SEQUENCE,
        recompute=Recompute.ATTENTION,
    )  # fmt: skip
    tokens, weights = 2048 * 8192, 70.55e9 - 128256 * 8192
    work = 6 * weights * tokens + 12 * 8192 * 8192 * 80 * tokens
    ideal = work / 512 / 989.4e12
    found = predict(
        training, Strategy(kp2=8, lp=4, dp=16), system_on("h100-dgx", chips=512),
        Roofline().times(chip("h100-sxm")), StepSettings(enforces_capacity=False),
    )  # fmt: skip
    parts = dict(found.parts)
    products = sum(
        time for name, time in parts.items()
        if any(word in name for word in ("queries", "scores", "values", "output", "feed-forward"))
    )  # fmt: skip
    # Products of the busiest stage at 70 to 75 % of the peak, scores written and read at a third
    # of it, two exchanges each way, scores and values once more.
    assert 1.9 < products / ideal < 2.4
    # What is between them: unfused softmax moves 22 words a score forward and back, 9 again.
    scores = 64 * 8192**2 * 2048 * 80 / 512
    softmax = parts["softmax forward"] + parts["softmax backward"]
    assert softmax == pytest.approx(scores * 31 * 2 / 3.35e12, rel=0.15)
    assert found.time == pytest.approx(sum(parts.values()), rel=1e-9)
