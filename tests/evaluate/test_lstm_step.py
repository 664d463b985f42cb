import json
from dataclasses import replace
from pathlib import Path

import pytest

from crosstack.errors import InputError
from crosstack.evaluate.distributed import Distributed, RingLink
from crosstack.evaluate.lstm_step import LstmParts, lstm_graph, lstm_step
from crosstack.evaluate.step_rules import StepRules
from crosstack.mapping.strategy import ParallelDimension, parse_strategy
from crosstack.model.schedule.events import simulate
from crosstack.workload.lstm import LstmModel

GOLDEN = Path(__file__).resolve().parents[3] / "shared/data/deepflow/golden.jsonl"
PARTS = {
    "Ef": "embedding_forward", "Cf": "cell_forward", "Sf": "softmax_forward",
    "Tf": "transfer_forward", "Eb": "embedding_backward", "Cb": "cell_backward",
    "Sb": "softmax_backward", "Tb": "transfer_backward", "Re": "reduce_embedding",
    "Rc": "reduce_cell", "Rs": "reduce_softmax",
}  # fmt: skip
RELEASE = StepRules.deepflow_2025()


def recorded():
    if not GOLDEN.exists():
        return [pytest.param(None, marks=pytest.mark.skip("the recorded runs are absent"))]
    rows = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return [
        pytest.param(r, id=r["id"])
        for r in rows
        if r["kind"] == "LSTM" and "components" in r["output"]
    ]


@pytest.mark.parametrize("row", recorded())
def test_recorded_parts_run_as_recorded(row):
    parts = row["output"]["components"]
    model = LstmModel(batch=1, sequence=int(parts["num_seq"]), vocabulary=1, width=1,
                      layers=int(parts["num_layer"]))  # fmt: skip
    own = LstmParts(**{name: parts[short] for short, name in PARTS.items()})
    lp = int(parts["lp"])
    for forward, key in ((True, "fwd_s"), (False, "bwd_s")):
        graph = lstm_graph(model, own, lp, forward=forward)
        ran = simulate(graph, freed_by_free_tasks=f"link {2 * lp - 2}")
        assert ran.makespan == pytest.approx(row["output"][key], rel=1e-12)


class Plain:
    """One FLOP and one byte take a nanosecond."""

    word = 2.0
    launch_overhead = 1e-6

    def product(self, m, k, n):
        return 2e-9 * m * k * n + self.launch_overhead

    def elementwise(self, work, traffic):
        return 1e-9 * (work + traffic)


MODEL = LstmModel(batch=64, sequence=5, vocabulary=128, layers=4, width=32)


def step(text, rules=None, model=MODEL, bandwidth=1e9):
    strategy = parse_strategy(text)
    links = {d: RingLink(bandwidth=bandwidth, latency=1e-6) for d in ParallelDimension}
    return lstm_step(model, Distributed(strategy=strategy, times=Plain(), links=links), rules)


def test_one_chip_does_everything_in_turn():
    parts = step("RC-1-1-d1-p1").parts
    words, layers = MODEL.sequence, MODEL.layers
    forward = words * (parts.embedding_forward + parts.softmax_forward)
    forward += words * layers * parts.cell_forward
    assert step("RC-1-1-d1-p1").forward.makespan == pytest.approx(forward)


@pytest.mark.parametrize("text", ["RC-2-1-d1-p1", "CR-4-d1-p1", "RC-1-1-d4-p1", "RC-1-1-d1-p3"])
def test_more_chips_with_free_links_are_faster(text):
    assert step(text, bandwidth=1e30).time < step("RC-1-1-d1-p1").time


def test_any_number_of_stages_that_the_layers_allow_runs():
    for lp in range(1, MODEL.layers + 3):
        assert step(f"RC-1-1-d1-p{lp}").time > 0
    with pytest.raises(InputError, match="stages"):
        step(f"RC-1-1-d1-p{MODEL.layers + 3}")


def test_two_stages_fail_in_the_release_alone():
    with pytest.raises(InputError, match="two stages"):
        step("RC-1-1-d1-p2", RELEASE)
    assert step("RC-1-1-d1-p2").time > 0


def test_the_copy_from_the_host_is_of_the_release_alone():
    with_copy, without = (step("RC-1-1-d1-p1", r).parts for r in (RELEASE, StepRules()))
    size = 2 * 64 * 32 * 2
    gap = with_copy.embedding_forward - without.embedding_forward
    assert gap == pytest.approx(size / (12.4 * 2**30))


def test_reductions_overlap_on_one_link_in_the_release_alone():
    slow = 1e5
    release = step("RC-1-1-d4-p1", RELEASE, bandwidth=slow)
    right = step("RC-1-1-d4-p1", bandwidth=slow)
    sums = MODEL.layers * right.parts.reduce_cell + right.parts.reduce_softmax
    assert right.backward.makespan > sums
    assert release.backward.makespan < sums


def test_a_split_that_leaves_a_remainder_is_refused():
    with pytest.raises(InputError, match="remainder"):
        step("RC-3-1-d1-p1")


def test_a_collective_over_no_link_is_an_error():
    with pytest.raises(InputError, match="no bandwidth"):
        step("RC-2-1-d1-p1", bandwidth=0.0)


def test_parameters_are_those_of_the_recorded_run():
    # deepflow_code, run lstm_V: 38,370,190,592 parameters.
    model = LstmModel(batch=2000, sequence=20, vocabulary=800_000, layers=2, width=19968,
                      projection=2048)  # fmt: skip
    assert model.parameters == 38_370_190_592


def waves(layers, words, at_once, lp=1):
    """Return when a forward pass ends whose cells take 1 s and whose other parts take none."""
    parts = dict.fromkeys(LstmParts.__dataclass_fields__, 0.0) | {"cell_forward": 1.0}
    model = LstmModel(batch=1, sequence=words, vocabulary=1, width=1, layers=layers)
    graph = lstm_graph(model, LstmParts(**parts), lp, forward=True, kernels_at_once=at_once)
    return simulate(graph).makespan


@pytest.mark.parametrize(("at_once", "time"), [(1, 6), (2, 4), (3, 4)])
def test_two_kernels_at_a_time_run_a_word_in_one_layer_beside_the_next_in_the_layer_below(
    at_once, time
):
    # Two layers, three words: c00, then c10 with c01, c11 with c02, and c12.
    assert waves(2, 3, at_once) == time


def test_as_many_kernels_at_a_time_as_layers_leave_the_longest_chain():
    assert waves(4, 6, 4) == 4 + 6 - 1
    assert waves(4, 6, 1) == 4 * 6


def test_a_release_runs_one_kernel_at_a_time():
    with pytest.raises(InputError, match="kernels_at_once: got 2; allowed: 1 under the rules"):
        replace(RELEASE, kernels_at_once=2)
