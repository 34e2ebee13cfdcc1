"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the figures that a test draws.

    Without it a test could overwrite the published ones.
    """
    monkeypatch.setattr("benchmarks.report.layout.RESULTS_DIRECTORY", tmp_path)
    return tmp_path


@pytest.fixture
def tokenizer(captions_dir: Path, tmp_path: Path) -> Path:
    """The built-in model's tokenizer, compressed as the processes of engines read it."""
    file = tmp_path / "tokenizer.json.gz"
    file.write_bytes(gzip.compress((captions_dir / "tokenizer.json").read_bytes()))
    return file
