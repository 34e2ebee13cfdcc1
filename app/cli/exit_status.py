"""The exit statuses of `abs`, which docs/command-line.md lists."""

from __future__ import annotations

OK, USAGE, UNSATISFIED, FAILED = 0, 2, 3, 4
UNSATISFIED_CODES = ("constraint_unsatisfiable", "budget_too_small")
