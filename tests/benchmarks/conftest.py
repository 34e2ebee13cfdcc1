"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test's own folder of figures: it leaves the committed ones alone."""
    monkeypatch.setattr("benchmarks.report.layout.RESULTS_DIRECTORY", tmp_path)
    return tmp_path
