"""The formulas that the optimiser and the evaluator share, and the rules that vary them."""

from __future__ import annotations

from crosstack.model.rules import Rules, rules_named

__all__ = ["Rules", "rules_named"]
