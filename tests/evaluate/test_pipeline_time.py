import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.evaluate.pipeline_time import Operation, Stage, pipeline_graph, pipeline_time
from crosstack.evaluate.timeline import simulate

times = st.floats(0, 10).map(lambda t: round(t, 3))
operations = st.builds(Operation, name=st.just("op"), forward=times, backward=times, reduce=times)
stages = st.lists(
    st.builds(Stage, operations=st.lists(operations, min_size=1, max_size=3).map(tuple),
              send=times),
    min_size=1,
    max_size=4,
)  # fmt: skip


@given(stages, st.integers(1, 5))
def test_the_closed_form_is_what_the_tasks_take(pipeline, microbatches):
    ran = simulate(pipeline_graph(pipeline, microbatches)).makespan
    assert pipeline_time(pipeline, microbatches) == pytest.approx(ran, rel=1e-12, abs=1e-12)


def one(forward, backward, reduce=0.0, send=0.0):
    operation = Operation(name="op", forward=forward, backward=backward, reduce=reduce)
    return Stage(operations=(operation,), send=send)


def test_one_stage_has_no_bubble():
    assert pipeline_time([one(1, 2)], 4) == 12


def test_the_bubble_is_that_of_gpipe():
    # m microbatches on s equal stages: (m + s - 1) (f + b), huang2019gpipe.
    assert pipeline_time([one(1, 2)] * 4, 8) == (8 + 3) * 3


def test_gradients_are_summed_while_earlier_operations_run():
    early = Operation(name="early", forward=1, backward=5)
    late = Operation(name="late", forward=1, backward=1, reduce=4)
    assert pipeline_time([Stage(operations=(early, late))]) == 2 + 6
