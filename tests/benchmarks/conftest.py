"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the figures that a test draws.

    Without it a test could overwrite the published ones.
    """
    monkeypatch.setattr("benchmarks.report.layout.RESULTS_DIRECTORY", tmp_path)
    return tmp_path
