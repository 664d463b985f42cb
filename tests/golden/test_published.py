"""The rows of `crosstack validate`: published runs of DFModel, measured runs and measured steps."""

from __future__ import annotations

import pytest
from builders.suites import rows_of

from crosstack.published.runner import SUITES

FAMILY = "published"
# The figures have a file of their own; counts of models are held to what is published.
NAMES = [name for name in SUITES if name not in ("figures", "models")]


@pytest.mark.parametrize("suite", NAMES)
def test_published_rows_are_what_they_were(suite, golden, row):
    golden.check(
        FAMILY,
        suite,
        [
            row(
                name=f"{found.case}: {found.quantity}",
                rules=found.rules,
                values={"ours": found.ours, "status": found.status},
            )
            for found in rows_of(suite)
        ],
    )


def test_every_suite_of_the_file_is_computed(golden):
    golden.check_cases(FAMILY, NAMES)
