"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the figures that this test draws."""
    monkeypatch.setattr("benchmarks.report.layout.RESULTS_DIRECTORY", tmp_path)
    return tmp_path
