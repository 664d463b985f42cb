"""What the releases do that is not done by default."""

from dataclasses import replace
from pathlib import Path

import pytest
from builders.recorded import recorded_runs
from builders.steps import counted

from crosstack.errors import InputError
from crosstack.evaluate.predict import SUMMING, WAITING, predict
from crosstack.evaluate.step_settings import StepSettings
from crosstack.io.steps import step_named
from crosstack.machine.chip import Chip, Link
from crosstack.machine.compute import Compute
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.machine.packages import system_of_packages
from crosstack.mapping.strategy import NESTED, ParallelDimension, parse_strategy
from crosstack.model.kernels.roofline import Roofline
from crosstack.model.rules import PREDICTED, rule_names, rules_named
from crosstack.model.schedule.events import TaskGraphBuilder
from crosstack.model.schedule.events import simulate as by_default
from crosstack.published.deepflow.chips import links_of
from crosstack.published.deepflow.distributed import Distributed
from crosstack.published.deepflow.edges import Derate, EdgeSharing, stated_peers
from crosstack.published.deepflow.events import simulate
from crosstack.published.deepflow.lstm import LstmParts, lstm_graph
from crosstack.published.deepflow.ranks import peers_of
from crosstack.published.deepflow.release import RELEASES
from crosstack.published.deepflow.steps import step_of
from crosstack.workload.dtype import Dtype
from crosstack.workload.lstm import LstmModel
from crosstack.workload.optimizer import OPTIMIZERS
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import CHOICES

DATA = Path(__file__).resolve().parents[4] / "shared/data/deepflow"
KP1, KP2, DP, LP = ParallelDimension
GPT = replace(step_named("gpt-22b"), batch=64)
LSTM = LstmModel(batch=512, sequence=5, vocabulary=32768, layers=6, width=4096)
NAMES = list(RELEASES)


def chip(intra=6e11, inter=1e11, capacity=1e15):
    return Chip(
        compute=Compute(n_units=4, n_multiprocessors=4, work_per_cycle=512, frequency=1e9),
        levels=(MemoryLevel(name="L1", scope=Scope.MULTIPROCESSOR, capacity=2e7, bandwidth=1e13),),
        memories=(MemoryLevel(name="DRAM", capacity=capacity, bandwidth=1e12),),
        intra=Link(n_links=1, bandwidth=intra, latency=5e-6),
        inter=Link(n_links=1, bandwidth=inter, latency=5e-6),
        launch_overhead=5e-6,
    )


def stated(text, one, crossing, derate, release, **sizes):
    """Return the links where a file says what crosses packages and what is shared."""
    strategy, edges = (
        parse_strategy(text),
        EdgeSharing(crossing=frozenset(crossing), derates=(derate,) * 4),
    )
    peers = stated_peers(strategy, system_of_packages(one, **sizes), edges)
    return links_of(strategy, peers, RELEASES[release])


def predicted(name, workload, text, settings=None, **links):
    """Predict with kernels that take the same whatever the rules: steps alone are compared."""
    strategy, one = parse_strategy(text), chip(**links)
    system = system_of_packages(one, n_packages=strategy.n_chips)
    times = Roofline().times(one)
    if name == "paper":
        links = peers_of(strategy, system, NESTED)
        chips = Distributed(strategy=strategy, times=times, links=links)
        return step_of(workload, chips, settings)
    step = rules_named(name).step
    return step(workload, strategy, system, Dtype.BF16, settings, rules=counted(times))


@pytest.mark.parametrize("name", rule_names(PREDICTED))
def test_rules_are_found_by_their_name(name):
    assert rules_named(name).name == name


def test_unknown_rules_are_refused_with_the_nearest():
    with pytest.raises(InputError, match='Did you mean "deepflow-2025"'):
        rules_named("deepflow-2024")


# Recorded runs of the 2025 release (deepflow_code): bandwidth of the links, degree of kp1, result.
@pytest.mark.parametrize(
    ("inter", "kp1", "expected"),
    [
        (551929731168.4873, 4, 275964865584.24365),
        (551929731168.4873, 8, 110385946233.69746),
        (551929731168.4873, 16, 137982432792.12183),
        (51605429864.25352, 2, 25802714932.12676),
    ],
)
def test_links_are_shared_by_degree(inter, kp1, expected):
    machine = chip(intra=0.0, inter=inter), {KP1}, Derate(inside=0)
    links = stated(f"RC-{kp1}-1-d1-p1", *machine, "deepflow-2025", n_packages=kp1)
    assert links[KP1].bandwidth == expected
    assert (links[DP].bandwidth, links[DP].latency) == (0.0, 5e-6)
    apart = stated(f"RC-{kp1}-1-d1-p1", *machine, "deepflow-2021", n_packages=kp1)
    assert apart[KP1].bandwidth == inter


def test_links_that_no_dimension_uses_are_halved_too():
    one = chip(intra=892228256040.1199)
    half = Derate(inside=2)
    links = stated("RC-4-1-d1-p1", one, set(), half, "deepflow-2025", chips_per_package=4)
    assert {link.bandwidth for link in links.values()} == {223057064010.02997}


def test_a_network_without_power_is_a_link():
    one = chip(inter=4.5e-5)
    links = stated("RC-2-1-d1-p1", one, {KP1}, Derate(), "deepflow-2021", n_packages=2)
    assert links[KP1].bandwidth == 4.5e-5


def test_a_remainder_is_nobodys_work():
    product = Product(m=1000, k=4096, n=4096)
    assert predicted("deepflow-2025", product, "RC-3-1-d1-p1").share == (333, 4096, 4096)
    assert predicted("paper", product, "RC-3-1-d1-p1").share == (334, 4096, 4096)


def test_a_free_task_sets_a_busy_link_free():
    build = TaskGraphBuilder(["link"])
    build.add("long", 10.0, resource="link")
    build.add("waits", 10.0, resource="link")
    build.add("free", 1.0)
    assert by_default(build.build()).makespan == 20.0
    assert simulate(build.build(), "link").makespan == 11.0
    assert simulate(build.build(), "no such link").makespan == 20.0


def recorded():
    return recorded_runs(
        DATA / "golden.jsonl", lambda run: run["kind"] == "LSTM" and "components" in run["output"]
    )


@pytest.mark.parametrize("row", recorded())
def test_recorded_parts_run_as_recorded(row):
    parts = row["output"]["components"]
    model = LstmModel(batch=1, sequence=int(parts["num_seq"]), vocabulary=1, width=1,
                      layers=int(parts["num_layer"]))  # fmt: skip
    names = {"embedding": "E", "cell": "C", "softmax": "S"}
    lp = int(parts["lp"])
    for forward, key, way in ((True, "fwd_s", "f"), (False, "bwd_s", "b")):
        own = LstmParts(
            **{f"{name}_forward": parts[f"{short}f"] for name, short in names.items()},
            **{f"{name}_backward": parts[f"{short}b"] for name, short in names.items()},
            transfer_forward=parts[f"T{way}"],
            transfer_backward=parts[f"T{way}"],
            reduce_embedding=parts["Re"],
            reduce_cell=parts["Rc"],
            reduce_softmax=parts["Rs"],
        )
        ran = simulate(lstm_graph(model, own, lp, forward=forward), f"link {2 * lp - 2}")
        assert ran.makespan == pytest.approx(row["output"][key], rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_two_stages_fail(name):
    with pytest.raises(InputError, match="two stages"):
        predicted(name, LSTM, "RC-1-1-d1-p2")
    assert predicted("paper", LSTM, "RC-1-1-d1-p2").time > 0


@pytest.mark.parametrize("name", NAMES)
def test_embedding_vectors_come_from_the_host(name):
    release, default = (predicted(n, LSTM, "RC-1-1-d1-p1") for n in (name, "paper"))
    size = 2 * LSTM.batch * LSTM.width * 2
    gap = dict(release.parts)["embedding forward"] - dict(default.parts)["embedding forward"]
    assert gap == pytest.approx(LSTM.sequence * size / (12.4 * 2**30))


def test_reductions_overlap_on_the_last_link():
    release, default = (
        predicted(name, LSTM, "RC-1-1-d4-p1", inter=1e8) for name in ("deepflow-2021", "paper")
    )
    assert dict(release.parts)[SUMMING] < dict(default.parts)[SUMMING] / 2


def test_no_release_of_before_2025_trains_a_transformer():
    for name in ("deepflow-2021", "deepflow-2020"):
        with pytest.raises(InputError, match="products and LSTM language models"):
            predicted(name, GPT, "RC-1-1-d1-p1")


@pytest.mark.parametrize("name", ["deepflow-2025", "deepflow-2025-graph"])
@pytest.mark.parametrize(
    ("field", "value"), [("recompute", "full"), ("schedule", "1f1b"), ("exchange", "paired")]
)
def test_what_a_release_has_no_word_for_is_refused(name, field, value):
    with pytest.raises(InputError, match=f"{field}: got {value}; this release knows"):
        predicted(name, replace(GPT, **{field: CHOICES[field](value)}), "RC-1-1-d1-p1")


def test_the_graph_has_no_pipeline_and_leaves_the_kernel_split_out():
    with pytest.raises(InputError, match="no pipeline"):
        predicted("deepflow-2025-graph", GPT, "RC-1-1-d1-p2")
    alone, split = (
        predicted("deepflow-2025-graph", GPT, text).time
        for text in ("RC-1-1-d1-p1", "RC-4-1-d1-p1")
    )
    assert alone == split


def test_the_estimate_is_six_products_a_layer_three_times():
    found = predicted("deepflow-2025", GPT, "RC-1-1-d1-p1")
    assert found.timelines() == ()
    times = Roofline().times(chip())
    tokens, d, f = GPT.batch * GPT.sequence, GPT.model.hidden, GPT.model.feed_forward
    rows, head = tokens * GPT.model.heads, d // GPT.model.heads
    shapes = [(tokens, d, 3 * d), (rows, head, GPT.sequence), (rows, GPT.sequence, head),
              (tokens, d, d), (tokens, d, f), (tokens, f, d)]  # fmt: skip
    expected = 3 * GPT.model.layers * sum(times.product(*shape) for shape in shapes)
    assert found.time == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["deepflow-2025", "deepflow-2025-graph"])
def test_a_training_run_is_as_many_steps_as_its_tokens_take(name):
    found = predicted(name, replace(GPT, tokens=3.0 * GPT.batch * GPT.sequence), "RC-1-1-d2-p1")
    assert found.run_time == pytest.approx(3 * found.time)


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_does_not_fit_is_reported_and_timed(name):
    found = predicted(name, LSTM, "RC-1-1-d1-p1", capacity=1e9)
    assert found.memory.peak > 1e9
    assert found.time > 0


@pytest.mark.parametrize("name", NAMES)
def test_settings_that_a_release_lacks_are_refused(name):
    with pytest.raises(InputError, match="optimizer: got 'sgd'; allowed: nothing"):
        predicted(name, LSTM, "RC-1-1-d1-p1", StepSettings(optimizer=OPTIMIZERS["sgd"]))


@pytest.mark.parametrize("text", ["RC-1-1-d1-p1", "RC-2-4-d2-p1", "CR-2-d4-p4", "RC-1-1-d1-p8"])
@pytest.mark.parametrize("name", NAMES)
def test_pieces_of_a_step_of_an_lstm_add_up_to_it(name, text):
    adds_up(predicted(name, LSTM, text))


@pytest.mark.parametrize("name", ["deepflow-2025", "deepflow-2025-graph"])
@pytest.mark.parametrize("microbatches", [1, 4])
def test_pieces_of_a_transformer_add_up_to_it(name, microbatches):
    adds_up(predicted(name, replace(GPT, microbatches=microbatches), "RC-1-1-d2-p1"))


def adds_up(found):
    pieces = dict(found.parts)
    assert min(pieces.values()) >= 0
    assert sum(pieces.values()) == pytest.approx(found.time, rel=1e-9)
    if found.busiest is not None:
        left = pieces[WAITING] + pieces[SUMMING]
        assert dict(found.busy)[found.busiest] == pytest.approx(found.time - left, rel=1e-9)


def test_default_rules_are_predict_itself():
    assert rules_named("crosstack").step is predict
