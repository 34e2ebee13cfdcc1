"""The reasons for which CI may skip a test.

A table in CONTRIBUTING.md lists them. "…" stands for any text.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"


@cache
def reasons() -> tuple[str, ...]:
    section = PAGE.read_text(encoding="utf-8").partition("\n## Skipped tests\n")[2].partition("\n## ")[0]
    return tuple(re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE))


def is_listed(reason: str) -> bool:
    patterns = (".*".join(map(re.escape, one.split("…"))) for one in reasons())
    return any(re.fullmatch(pattern, reason, re.DOTALL) for pattern in patterns)


def fail_unlisted(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Fail a test in CI that is skipped for another reason."""
    if not report.skipped or not isinstance(report.longrepr, tuple) or not os.environ.get("CI"):
        return
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if not is_listed(reason):
        report.outcome = "failed"
        report.longrepr = f"skipped for a reason that the table in {PAGE.name} does not list: {reason}"
