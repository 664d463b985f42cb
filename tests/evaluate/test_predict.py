"""Claims about whole predictions, from a generated chip to a step."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders.steps import reshaped

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.predict import SUMMING, WAITING, predict
from crosstack.evaluate.step_settings import StepSettings
from crosstack.io.chip_file import read_chip
from crosstack.io.steps import step_named
from crosstack.machine.generate.generated import generate
from crosstack.machine.packages import system_of_packages
from crosstack.mapping.strategy import parse_strategy, strategies
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import Schedule

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/chips/n5_hbm3.yaml"
UNBOUNDED = StepSettings(enforces_capacity=False)
GPT = replace(step_named("gpt-22b"), batch=64)
LSTM = LstmModel(batch=512, sequence=5, vocabulary=32768, layers=6, width=4096)


@pytest.fixture(scope="module")
def chip():
    described = read_chip(EXAMPLE.read_text(), EXAMPLE.name)
    return generate(described.template, described.budget).chip


def predicted(workload, text, chip, settings=UNBOUNDED):
    strategy = parse_strategy(text) if isinstance(text, str) else text
    system = system_of_packages(chip, n_packages=strategy.n_chips)
    return predict(workload, strategy, system, Roofline().times(chip), settings)


def work_of(model):
    """Six operations a weight and token; scores and values of a transformer besides."""
    tokens = model.batch * model.sequence
    if isinstance(model, LstmModel):
        cell = 2 * model.width * model.gates * model.width
        return 6 * tokens * (model.layers * cell + model.width * model.vocabulary)
    return 3 * tokens * model.model.forward_flop(model.sequence, causal=False).total


@pytest.mark.parametrize("model", [GPT, LSTM], ids=["transformer", "LSTM"])
@pytest.mark.parametrize("n_chips", [1, 8, 64])
def test_no_strategy_beats_what_all_chips_compute_together(model, n_chips, chip):
    least = work_of(model) / n_chips / chip.compute.throughput
    found = [predicted(model, s, chip).time for s in strategies(n_chips, max_lp=8)]
    assert min(found) > least


def test_faster_links_never_slow_a_step(chip):
    fast = replace(chip, inter=replace(chip.inter, bandwidth=10 * chip.inter.bandwidth))
    for text in ("RC-2-4-d2-p4", "CR-8-d2-p4", "RC-1-1-d64-p1"):
        assert predicted(GPT, text, fast).time <= predicted(GPT, text, chip).time


def test_a_remainder_is_work_of_the_fullest_chip(chip):
    product = Product(m=1000, k=4096, n=4096)
    strategy = parse_strategy("RC-3-1-d1-p1")
    found = predicted(product, strategy, chip)
    assert found.share == (334, 4096, 4096)
    assert dict(found.parts)["product"] == Roofline().times(chip).product(334, 4096, 4096)


def test_a_training_run_is_as_many_steps_as_its_tokens_take(chip):
    tokens = 3.0 * GPT.batch * GPT.sequence
    found = predicted(replace(GPT, tokens=tokens), "RC-1-8-d1-p1", chip)
    assert found.run_time == pytest.approx(3 * found.time)
    assert predicted(GPT, "RC-1-8-d1-p1", chip).run_time is None


def test_the_timeline_takes_what_the_closed_form_says(chip):
    for text in ("RC-1-8-d1-p8", "RC-1-4-d4-p3"):
        found = predicted(replace(GPT, microbatches=4), text, chip)
        (timeline,) = found.timelines()
        assert timeline.makespan == pytest.approx(found.time, rel=1e-9)
        assert dict(found.busy) == pytest.approx(
            {name: time for name, time in timeline.busy().items() if name.startswith("stage")}
        )


STRATEGIES = ["RC-1-1-d1-p1", "RC-1-8-d1-p8", "RC-2-4-d2-p3", "CR-4-d4-p4", "RC-1-2-d8-p2"]
SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("1f1b", 2)]


@pytest.mark.parametrize("text", STRATEGIES)
@pytest.mark.parametrize(("schedule", "interleave"), SCHEDULES)
def test_pieces_of_a_step_of_a_transformer_add_up_to_it(text, schedule, interleave, chip):
    model = replace(reshaped(GPT, layers=24), batch=384, microbatches=24, interleave=interleave)
    adds_up(predicted(replace(model, schedule=Schedule(schedule)), text, chip))


@pytest.mark.parametrize("text", ["RC-1-1-d1-p1", "RC-2-4-d2-p2", "CR-2-d4-p4", "RC-1-1-d1-p8"])
def test_pieces_of_a_step_of_an_lstm_add_up_to_it(text, chip):
    adds_up(predicted(LSTM, text, chip))


@pytest.mark.parametrize("text", ["RC-1-1-d1-p1", "RC-4-2-d1-p1", "CR-8-d1-p1"])
def test_pieces_of_a_product_add_up_to_it(text, chip):
    adds_up(predicted(Product(m=1024, k=4096, n=2048), text, chip))


def adds_up(found):
    pieces = dict(found.parts)
    assert min(pieces.values()) >= 0
    assert sum(pieces.values()) == pytest.approx(found.time, rel=1e-9)
    if found.busiest is not None and "collective" not in pieces:
        left = pieces[WAITING] + pieces[SUMMING] if WAITING in pieces else 0.0
        assert dict(found.busy)[found.busiest] == pytest.approx(found.time - left, rel=1e-9)
        assert dict(found.busy)[found.busiest] == max(dict(found.busy).values())


@pytest.mark.parametrize("at_once", [2, 3])
@pytest.mark.parametrize("text", ["RC-1-8-d1-p1", "RC-1-8-d1-p4"])
def test_pieces_of_kernels_that_run_at_once_add_up_as_well(text, at_once, chip):
    settings = replace(UNBOUNDED, kernels_at_once=at_once)
    for model in (replace(reshaped(GPT, layers=4), microbatches=8), LSTM):
        found = predicted(model, text, chip, settings)
        adds_up(found)
        assert found.time < predicted(model, text, chip).time


def test_one_stage_waits_for_none(chip):
    found = dict(predicted(reshaped(GPT, layers=4), "RC-1-4-d4-p1", chip).parts)
    assert found[WAITING] == pytest.approx(0, abs=1e-12)
    assert found[SUMMING] > 0


def test_equal_stages_wait_for_the_bubble_of_a_pipeline(chip):
    # One forward, one backward, s stages and m microbatches: (s - 1) / m of the work is waited for.
    found = predicted(replace(reshaped(GPT, layers=32), microbatches=16), "RC-1-8-d1-p8", chip)
    work = dict(found.busy)[found.busiest]
    assert dict(found.parts)[WAITING] == pytest.approx(7 / 16 * work, rel=0.2)


def test_a_long_sequence_is_refused_by_the_name_of_its_scores_whatever_else_is_checked(chip):
    long = replace(GPT, sequence=131_072, batch=1)
    for settings in (StepSettings(), UNBOUNDED):
        with pytest.raises(InfeasibleError, match="main memory: keeping the attention scores"):
            predicted(long, "RC-1-8-d1-p1", chip, settings)


def test_a_step_of_too_many_tasks_is_refused_before_it_is_run(chip):
    with pytest.raises(InputError, match="tasks would have to be run one by one"):
        predicted(replace(LSTM, sequence=10**7), "RC-1-1-d1-p1", chip)
    with pytest.raises(InputError, match="up to 100,000"):
        predicted(reshaped(GPT, layers=10**6), "RC-1-8-d1-p1", chip)


def test_a_machine_smaller_than_the_strategy_is_refused(chip):
    strategy = parse_strategy("RC-1-8-d1-p1")
    with pytest.raises(InputError, match="needs 8 chips; there are 1"):
        predict(GPT, strategy, system_of_packages(chip), Roofline().times(chip))
