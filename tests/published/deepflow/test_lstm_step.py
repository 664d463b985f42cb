import pytest
from oracles.links import alike

from crosstack.errors import InputError
from crosstack.mapping.strategy import parse_strategy
from crosstack.model.collectives import Arrival
from crosstack.published.deepflow.distributed import Distributed
from crosstack.published.deepflow.lstm import lstm_step
from crosstack.workload.lstm import LstmModel


class Plain:
    """One FLOP and one byte take a nanosecond."""

    element_size = 2.0
    launch_overhead = 1e-6
    arrival = Arrival(moving=1e-9, adding=0.5e-9, launch=1e-6)

    def product(self, m, k, n):
        return 2e-9 * m * k * n + self.launch_overhead

    def elementwise(self, work, traffic):
        return 1e-9 * (work + traffic)


MODEL = LstmModel(batch=64, sequence=5, vocabulary=128, layers=4, width=32)


def step(text, model=MODEL, bandwidth=1e9):
    strategy = parse_strategy(text)
    links = alike(strategy, bandwidth, 1e-6)
    return lstm_step(model, Distributed(strategy=strategy, times=Plain(), links=links))


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
