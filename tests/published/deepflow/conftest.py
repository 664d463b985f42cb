"""Chips and kernel times of the public releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosstack.io.deepflow import read_hardware
from crosstack.machine.generate.generated import generate
from crosstack.published.deepflow.generation import GENERATION_2021, GENERATION_2025
from crosstack.published.deepflow.kernels import tiles_of_2020, tiles_of_2021, tiles_of_2025

CONFIGS = Path(__file__).resolve().parents[4] / "shared/data/deepflow/configs"
RELEASES = {
    "2025": (GENERATION_2025, tiles_of_2025),
    "2021": (GENERATION_2021, tiles_of_2021),
    "2020": (GENERATION_2021, tiles_of_2020),
}


@pytest.fixture(scope="session")
def release():
    """Return a function from a release and a configuration to its file, chip and kernel times."""

    def make(year, path, overrides=()):
        hardware = read_hardware((CONFIGS / path).read_text(), str(path), overrides)
        generator, kernels = RELEASES[year]
        chip = generate(hardware.template, hardware.budget, generator).chip
        return hardware, chip, kernels().times(chip)

    return make
