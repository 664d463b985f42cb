"""The prediction of a job on a machine under a strategy, from what people write of them."""

from __future__ import annotations

from typing import Any

from crosstack.errors import require
from crosstack.evaluate.predict import Prediction, Program, Step
from crosstack.evaluate.step_settings import StepSettings
from crosstack.machine.system import System
from crosstack.mapping.given import split_given
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.strategy import Strategy, parse_order, parse_strategy, whole_order
from crosstack.model.rules import PREDICTED, Rules, chosen_rules
from crosstack.records import require_type
from crosstack.workload.dtype import Dtype
from crosstack.workload.published_steps import as_step


def predict_job(
    job: Step,
    system: System,
    given: str | Strategy = "tp=1",
    *,
    dtype: Dtype | str | None = None,
    order: str | None = None,
    settings: StepSettings | None = None,
    rules: Rules | str | None = None,
    mapping: Mapping | None = None,
    **changes: Any,
) -> Prediction:
    """Time a job under a strategy: what that leaves out is decided as well as can be.

    Parameters
    ----------
    job : Job, Workload, TransformerTraining, LstmModel or Product
        What is computed; programs of releases know steps of training alone.
    system : System
        What `crosstack.system` returns, or a machine of one's own.
    given : str or Strategy
        How it is spread over the chips, such as ``tp=8,pp=4,dp=16`` or ``RC-4-2-d8-p1``; a degree
        that is left out is 1. Other decisions may follow, see `crosstack.mapping.given`.
    dtype : Dtype or str, optional
        What is computed in; the job's own, or ``bf16``.
    order : str, optional
        Of ranks on the network, such as ``kp1,kp2,dp,lp``: the nearest chips first; for programs of
        releases.
    settings : StepSettings, optional
        Of optimizer and chip; the usual ones if left out.
    rules : Rules or str, optional
        What is counted; by name, or ``crosstack``.
    mapping : Mapping, optional
        Everything that is left out, as another prediction had it; it is decided if left out.
    **changes
        Of a transformer's step: ``microbatches``, ``exchange``, ``recompute``, ``schedule`` and
        ``interleave``; see `TransformerTraining`.

    Raises
    ------
    InputError
        If the strategy cannot split the job or needs more chips than there are.
    InfeasibleError
        If the step does not fit the main memory of a chip; says what would.
    """
    require_type("system", system, System)
    require_type("given", given, str | Strategy)
    require_type("settings", settings, StepSettings | None)
    require_type("order", order, str | None)
    chosen = chosen_rules(rules, PREDICTED)
    spread, decided = split_given(given, changes) if isinstance(given, str) else (given, {})
    step, own = as_step(job, changes | decided)
    computed = own or Dtype.BF16 if dtype is None else dtype
    require(computed in list(Dtype), "dtype", computed, ", ".join(Dtype))
    strategy = parse_strategy(spread or "tp=1") if isinstance(spread, str) else spread
    ranks = None if order is None else whole_order(strategy, parse_order(order))
    program: Program = chosen.step
    return program(
        step,
        strategy,
        system,
        Dtype(computed),
        settings,
        rules=chosen,
        order=ranks,
        mapping=mapping,
    )
