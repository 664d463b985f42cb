"""The rule sets of DeepFlow: its paper, and the releases of the public tool.

Sources: ``ardalani2022deepflow``, ``deepflow_code`` at commits e8fc755 (2025-09-15, with its two
programs), 566c192 (2021-09-11) and e4e5d38 (2020-10-30), which generates chips as that of 2021.
Placement has not changed from 2020 to 2025.
"""

from __future__ import annotations

from crosstack.machine.generate.generation import Generation
from crosstack.model.parts import Clock
from crosstack.model.rules import Rules
from crosstack.published.deepflow.generation import GENERATION_2021, GENERATION_2025
from crosstack.published.deepflow.kernels import tiles_of_2020, tiles_of_2021, tiles_of_2025
from crosstack.published.deepflow.placement import BlockPlacement
from crosstack.published.deepflow.release import RELEASES
from crosstack.published.deepflow.steps import ReleaseSteps

__all__ = ["release"]

_CHIPS = {
    "deepflow-paper": Generation(sheds_units=True),
    "deepflow-2025": GENERATION_2025,
    "deepflow-2025-graph": GENERATION_2025,
    "deepflow-2021": GENERATION_2021,
    "deepflow-2020": GENERATION_2021,
}
_KERNELS = {
    "deepflow-2025": tiles_of_2025,
    "deepflow-2025-graph": tiles_of_2025,
    "deepflow-2021": tiles_of_2021,
    "deepflow-2020": tiles_of_2020,
}


def release(name: str) -> Rules:
    """Return the rule set of the paper or of a release."""
    if name not in RELEASES:
        return Rules(name=name, chips=_CHIPS[name])
    return Rules(
        name=name,
        clock=Clock(kernels=_KERNELS[name]()),
        step=ReleaseSteps(release=RELEASES[name]),
        chips=_CHIPS[name],
        placement=BlockPlacement(),
    )
