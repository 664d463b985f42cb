"""Claims about factors that rows tell: found where they follow, refused where they do not."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from builders.small_models import GPT, MIXTRAL

import crosstack
from crosstack.errors import InputError
from crosstack.evaluate import calibrate
from crosstack.evaluate.calibrate import PARTS, SOFT, fit_factors, fit_kernels, fit_runs
from crosstack.evaluate.kernel_scores import kernels_said, score_kernels
from crosstack.evaluate.lane_scores import MeasuredElements
from crosstack.evaluate.run_scores import MeasuredRun
from crosstack.evaluate.scores import MeasuredProduct
from crosstack.io import library
from crosstack.machine.calibration import FACTORS, Calibration
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function

H100 = library.chip("h100-sxm")
ALONE = np.array([[1.0, 0.1, 0.0], [0.1, 1.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.7, 0.0]] * 6)
NAMES = ("products", "memory", "launch")


def quiet(words):
    """Say nothing of what is done."""


def linear(parts, at=1e-3):
    """Return times of which ln falls by ``parts`` of ln products and ln memory, and rises by ln
    launch.
    """

    def times(under, rows):
        logs = np.log([1 / under.products, 1 / under.memory, under.launch])
        return at * np.exp(parts[rows] @ logs)

    return times


def all_of(times, under, count):
    return times(under, np.arange(count))


def fitted(fit):
    return {one.name: one.value for one in fit.fitted}


def test_factors_are_found_that_made_the_times():
    times, truth = linear(ALONE), Calibration(products=0.8, memory=0.6)
    fit = fit_factors(times, all_of(times, truth, len(ALONE)), NAMES, quiet)
    assert fitted(fit) == pytest.approx({"products": 0.8, "memory": 0.6}, rel=1e-6)
    assert (fit.calibration.products, fit.calibration.memory) == tuple(fitted(fit).values())
    assert fit.after.mean == pytest.approx(0.0, abs=1e-6)
    assert fit.held_out.mean == pytest.approx(0.0, abs=1e-6)
    logs = ALONE[:, :2] @ np.log([0.8, 0.6])  # without factors all are said too short by these
    assert fit.before.bias == pytest.approx(logs.mean())


def test_times_that_are_not_linear_are_predicted_again():
    def times(under, rows):  # some of both, one after the other
        share = np.linspace(0.1, 0.9, 20)[rows]
        return share / under.products + (1 - share) / under.memory

    measured = all_of(times, Calibration(products=0.5, memory=0.9), 20)
    fit = fit_factors(times, measured, NAMES[:2], quiet)
    assert fitted(fit) == pytest.approx({"products": 0.5, "memory": 0.9}, rel=0.01)


def test_rows_held_out_are_predicted_with_what_the_others_give():
    times, one = linear(np.ones((20, 3)) * [1.0, 0, 0]), np.ones(20)
    one[3] = 1.5
    fit = fit_factors(times, all_of(times, Calibration(), 20) * one, ("products",), quiet)
    # The row that is off moves the fit of all, but not that of the other parts.
    assert fit.calibration.products < 1.0
    assert fit.held_out.mean > fit.after.mean
    others = 20 - 20 // PARTS  # rows that a part is predicted from
    assert fit.held_out.rows == 20 > others


def test_a_row_that_is_far_off_counts_less_than_squared():
    times = linear(np.ones((21, 3)) * [1.0, 0, 0])
    measured = all_of(times, Calibration(), 21)
    measured[7] *= np.exp(2.0)
    found = fit_factors(times, measured, ("products",), quiet).calibration.products
    # 20 rows at e pull with 20 e, one at e - 2 with s at most: e = s / 20.
    assert np.log(found) == pytest.approx(-SOFT / 20, rel=0.02)


def test_a_factor_that_no_row_follows_is_refused_by_name():
    times = linear(ALONE)
    fit = fit_factors(times, all_of(times, Calibration(), len(ALONE)), NAMES, quiet)
    ((name, why),) = [(one.name, one.why) for one in fit.refused]
    assert name == "launch"
    assert why == f"no row follows the {FACTORS['launch'].of}"


def test_of_two_that_move_rows_alike_the_later_is_refused_by_name():
    parts = ALONE.copy()
    parts[:, 1] = 2 * parts[:, 0]
    times = linear(parts)
    fit = fit_factors(times, all_of(times, Calibration(products=0.7), len(parts)), NAMES, quiet)
    assert [one.name for one in fit.fitted] == ["products"]
    assert fit.refused[0].name == "memory"
    assert fit.refused[0].why == "moves rows as products does (1.000 alike)"


def test_one_that_moves_rows_as_two_together_do_is_refused_by_name():
    parts = ALONE.copy()
    parts[:, 2] = 1 - parts[:, 0] - parts[:, 1] / 2
    parts[:, 2] = -(parts[:, 0] + parts[:, 1])
    times = linear(parts)
    fit = fit_factors(times, all_of(times, Calibration(), len(parts)), NAMES, quiet)
    assert [one.name for one in fit.refused] == ["launch"]
    assert "products and memory together" in fit.refused[0].why


def test_one_that_rows_leave_open_is_refused_by_name():
    noise = np.random.default_rng(1).normal(0, 0.2, len(ALONE))
    parts = ALONE * [1.0, 1.0, 0.0] + [0, 0, 0.05] * (np.arange(len(ALONE)) % 3 == 0)[:, None]
    times = linear(parts)
    measured = all_of(times, Calibration(products=0.8), len(parts)) * np.exp(noise)
    fit = fit_factors(times, measured, NAMES, quiet)
    assert [one.name for one in fit.refused] == ["launch"]
    assert fit.refused[0].why.startswith(f"rows tell the {FACTORS['launch'].of} no closer than")


def test_intervals_hold_what_made_the_times_and_narrow_with_rows():
    truth, draws = Calibration(products=0.8, memory=0.6), 40

    def shares(copies):
        """Return the share of intervals that hold the truth, and how wide they are on average."""
        parts, held, width = np.tile(ALONE, (copies, 1)), 0, 0.0
        times = linear(parts)
        for seed in range(draws):
            noise = np.random.default_rng(seed).normal(0, 0.05, len(parts))
            measured = all_of(times, truth, len(parts)) * np.exp(noise)
            found = fit_factors(times, measured, NAMES[:2], quiet).fitted
            held += sum(one.low < getattr(truth, one.name) < one.high for one in found)
            width += np.log(found[0].high / found[0].low) / draws
        return held / 2 / draws, width

    (few, wide), (many, narrow) = shares(1), shares(4)
    assert min(few, many) > 0.88
    assert narrow == pytest.approx(wide / 2, rel=0.1)


def test_a_factor_stays_in_its_range_and_the_others_are_found_anew():
    times = linear(ALONE)
    at = np.log([1 / 0.38, 1 / 0.9, 1.0])  # products less than they may be
    measured = 1e-3 * np.exp(ALONE @ at)
    fit = fit_factors(times, measured, NAMES[:2], quiet)
    assert fit.calibration.products == FACTORS["products"].least
    assert [one.at_an_end for one in fit.fitted] == [True, False]
    # What is left of the errors has its least at memory alone, not at 0.9.
    left = ALONE @ (np.log([1 / 0.4, 1 / fit.calibration.memory, 1.0]) - at)
    pull = left / np.sqrt(1 + (left / SOFT) ** 2)
    assert pull @ ALONE[:, 1] == pytest.approx(0.0, abs=1e-3)


def test_few_rows_or_rows_that_tell_nothing_are_refused():
    times = linear(ALONE)
    with pytest.raises(InputError, match="rows: got 7; allowed: 8 or more"):
        fit_factors(times, all_of(times, Calibration(), 7), NAMES, quiet)
    flat = linear(ALONE * 0)
    with pytest.raises(InputError, match="got 24 that tell no factor .products: no row follows"):
        fit_factors(flat, all_of(flat, Calibration(), 24), NAMES, quiet)


def products(*sizes):
    return [MeasuredProduct(m=m, k=k, n=n, dtype=Dtype.BF16, time=1.0) for m, k, n in sizes]


def measured_on(rows, chip, beyond=0.0):
    times = kernels_said(rows, chip) + beyond
    return [replace(row, time=time) for row, time in zip(rows, times.tolist(), strict=True)]


BOTH = products(
    *((size, size, size) for size in (2048, 4096, 6144, 8192)),
    *((size, 8192, 1) for size in (8192, 16384, 32768, 65536)),
)


def test_factors_of_a_chip_are_found_from_its_products():
    truth = Calibration(products=0.8, memory=0.9)
    fit = fit_kernels([measured_on(BOTH, truth.chip(H100))], H100, tell=quiet)
    assert fitted(fit) == pytest.approx({"products": 0.8, "memory": 0.9, "launch": 1.0}, rel=0.01)


def test_the_shortest_of_a_set_tells_what_all_take_besides():
    rows = [
        MeasuredElements(function=Function.GELU, rows=n, columns=4096, dtype=Dtype.BF16, time=1.0)
        for n in (512, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288)
    ]
    made = measured_on(rows, Calibration(memory=0.7).chip(H100), beyond=40e-6)
    fit = fit_kernels([made], H100, tell=quiet)
    assert fit.before.rows == len(rows) - 1
    assert fit.before.mean == pytest.approx(score_kernels(made, H100).ours.mean)
    assert fit.calibration.memory == pytest.approx(0.7, rel=0.02)


def test_layers_that_cast_are_fitted_beyond_the_shortest_as_they_are_scored():
    rows = [
        MeasuredProduct(m=m, k=8192, n=8192, dtype=Dtype.FP8, time=1.0, cast=True)
        for m in (16, 1024, 2048, 4096, 6144, 8192, 12288, 16384, 24576, 32768)
    ]
    made = measured_on(rows, Calibration(products=0.8).chip(H100), beyond=30e-6)
    fit = fit_kernels([made], H100, tell=quiet)
    scored = score_kernels(made, H100).ours
    assert (fit.before.rows, fit.before.mean) == (scored.rows, pytest.approx(scored.mean))
    assert fit.calibration.products == pytest.approx(0.8, rel=0.02)


def test_so_many_kernels_are_spread_over_all():
    rows = measured_on(BOTH * 3, H100)
    assert fit_kernels([rows], H100, most=10, tell=quiet).before.rows == 10


def run_of(model=GPT):
    system = crosstack.system("a100-dgx-80gb", chips=16, framework="megatron")
    job = crosstack.Job(model=model, batch=8, sequence=16)
    return MeasuredRun(name="one", source="own", job=job, system=system, given="", time=1.0)


def test_steps_are_predicted_on_the_machine_with_factors(monkeypatch):
    launches, sent = np.array([1, 2, 3, 4] * 4), np.array([2e8] * 8 + [1e9] * 8)

    def said(run):
        system, row = run.system, int(run.name)
        time = launches[row] * system.chip.framework.dispatch
        return SimpleNamespace(time=time + sent[row] / system.network[1].bandwidth)

    monkeypatch.setattr(calibrate, "said_of", said)
    monkeypatch.setattr(calibrate, "time_as_mapped", lambda run, _: said(run).time)
    runs = [replace(run_of(), name=str(row)) for row in range(len(launches))]
    truth = Calibration(dispatch=1.5, ports=0.5)
    timed = [replace(run, time=said(run.under(truth)).time) for run in runs]
    told = []
    fit = fit_runs(timed, told.append)
    assert fitted(fit) == pytest.approx({"dispatch": 1.5, "ports": 0.5}, rel=0.01)
    assert [one.name for one in fit.refused] == ["products", "memory", "links"]
    assert told[0] == "rows as they are"


def test_a_run_has_the_imbalance_of_its_experts_and_no_other(monkeypatch):
    uneven = Calibration(imbalance=1.5)
    assert run_of(MIXTRAL).under(uneven).job.expert_imbalance == 1.5
    assert run_of().under(uneven).job == run_of().job

    def said(run):
        return SimpleNamespace(time=float(run.name) * run.job.expert_imbalance)

    monkeypatch.setattr(calibrate, "said_of", said)
    monkeypatch.setattr(calibrate, "time_as_mapped", lambda run, _: said(run).time)
    runs = [replace(run_of(MIXTRAL), name=f"{n}", time=1.5 * n) for n in range(1, 10)]
    assert fitted(fit_runs(runs, quiet)) == pytest.approx({"imbalance": 1.5})


@pytest.mark.parametrize(("launch", "told"), [(1.0, ["launch", "memory"]), (4.5, ["launch"])])
def test_one_that_others_hide_where_they_are_found_is_refused(launch, told):
    share = np.array([0.1, 0.35] * 12)  # of the time, without factors, that memory takes

    def times(under, rows):
        return share[rows] / under.memory + (1 - share[rows]) * under.launch

    noise = np.random.default_rng(3).normal(0, 0.1, 24)
    measured = all_of(times, Calibration(launch=launch), 24) * np.exp(noise)
    said = []
    fit = fit_factors(times, measured, ("launch", "memory"), said.append)
    assert [one.name for one in fit.fitted] == told
    assert said.count("rows with factors, 1 of 3") == 3 - len(told)  # and found anew without it
