"""All published DFModel runs: what was printed, and how to compute the same with crosstack."""

from __future__ import annotations

from crosstack.published.case import Case
from crosstack.published.dfmodel.runs import PRINTED, published_case
from crosstack.published.dfmodel.serving import serving_cases


def dfmodel_cases() -> list[Case]:
    """Return every case, in the order of the published table."""
    named = [published_case(name) for name, told in PRINTED.items() if "task" in told]
    return [*named, *serving_cases()]
