"""From a technology, a template and budgets to a chip."""
