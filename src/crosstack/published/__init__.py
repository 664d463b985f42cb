"""Published figures, and the runner that checks them."""

from __future__ import annotations

from crosstack.published.case import Case, Check, Row
from crosstack.published.runner import SUITES, report_rows, run_suite, suite_summary

__all__ = ["SUITES", "Case", "Check", "Row", "report_rows", "run_suite", "suite_summary"]
