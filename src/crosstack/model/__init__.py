"""The formulas that the optimiser and the evaluator share, and the rules that vary them."""
