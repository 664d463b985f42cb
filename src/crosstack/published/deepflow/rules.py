"""The rule sets of DeepFlow: its paper (``ardalani2022deepflow``) and releases of the public tool.

The release of 2020 generates chips as that of 2021; placement has not changed from 2020 to 2025.
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

_MADE = {
    "deepflow-2025": (tiles_of_2025, GENERATION_2025),
    "deepflow-2025-graph": (tiles_of_2025, GENERATION_2025),
    "deepflow-2021": (tiles_of_2021, GENERATION_2021),
    "deepflow-2020": (tiles_of_2020, GENERATION_2021),
}


def release(name: str) -> Rules:
    """Return the rule set of the paper or of a release."""
    if name == "deepflow-paper":
        return Rules(name=name, chips=Generation(sheds_units=True))
    kernels, chips = _MADE[name]
    return Rules(
        name=name,
        clock=Clock(kernels=kernels()),
        step=ReleaseSteps(release=RELEASES[name]),
        chips=chips,
        placement=BlockPlacement(),
    )
