"""What a mapping costs, and answers."""

from __future__ import annotations

from crosstack.evaluate.evaluation import Evaluation, KernelTerms, PartitionTerms
from crosstack.evaluate.answer import Answer, evaluate_task, optimise

__all__ = ["Answer", "Evaluation", "KernelTerms", "PartitionTerms", "evaluate_task", "optimise"]
