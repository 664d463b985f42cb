"""How many examples a property test draws that takes long."""

from __future__ import annotations

from hypothesis import settings


def fewer(share: float) -> settings:
    """Return this share of the examples of the profile; `explore` draws more of them too."""
    return settings(max_examples=max(1, round(share * settings.default.max_examples)))
