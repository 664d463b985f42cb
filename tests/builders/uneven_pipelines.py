"""Random pipelines whose first and last stage have more to do, or fewer layers."""

from __future__ import annotations

from hypothesis import strategies as st

from crosstack.machine.chip import Overlap
from crosstack.model.schedule.zero_bubble import least_microbatches
from crosstack.model.stages import Pipeline
from crosstack.workload.transformer_training import Schedule

TIMES = st.sampled_from([0.0, 0.05, 0.3, 1.0, 2.5])


@st.composite
def pipelines(draw, schedule=Schedule.ONE_F_ONE_B):
    stages = draw(st.integers(1 if schedule is not Schedule.ZB_V else 2, 6))
    pieces = schedule.pieces or draw(st.sampled_from([1, 2, 3]))
    pieces = pieces if stages > 1 else 1
    rounds = draw(st.integers(1, 4 if pieces > 1 else 14))
    if schedule.defers_weights:
        rounds = max(4 * rounds, least_microbatches(stages, schedule))
    first, last = draw(TIMES), draw(TIMES)
    cut = pieces > 1 and schedule is Schedule.ONE_F_ONE_B
    beside = cut or schedule is Schedule.GPIPE or draw(st.booleans())
    return Pipeline(
        stages=stages,
        microbatches=rounds * stages if cut else rounds,
        layers=1,
        transfer=2 * draw(TIMES) if stages > 1 else 0.0,
        overlap=Overlap.ALL if beside else Overlap.NONE,
        training=True,
        schedule=schedule,
        interleave=pieces,
        forward=draw(st.sampled_from([1 / 3, 0.4])),
        weight_gradients=draw(st.sampled_from([0.1, 0.3, 0.5])),
        first=(first / 3, first),
        last=(last / 3, last),
    )
