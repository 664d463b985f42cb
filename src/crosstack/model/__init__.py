"""The formulas that the optimiser and the evaluator share, and the rules that vary them."""

from __future__ import annotations

from crosstack.model.rules import ModelRules, rules_named

__all__ = ["ModelRules", "rules_named"]
