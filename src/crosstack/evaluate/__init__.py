"""What a mapping costs, and answers."""

from __future__ import annotations

from crosstack.evaluate.answer import Answer, evaluate_task, optimise
from crosstack.evaluate.evaluation import Evaluation, KernelTerms, PartitionTerms

__all__ = ["Answer", "Evaluation", "KernelTerms", "PartitionTerms", "evaluate_task", "optimise"]
