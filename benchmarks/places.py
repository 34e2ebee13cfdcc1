"""Where figures are kept, and where the reports on them are written."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT = HERE / "results"  # what the repository tells of
RESULTS_DIRECTORY = Path(os.environ.get("ABS_RESULTS") or KEPT).resolve()
REPORT = HERE / "RESULTS.md" if RESULTS_DIRECTORY == KEPT else RESULTS_DIRECTORY / "RESULTS.md"


def link(path: Path) -> str:
    """A file of the results folder as the report names it."""
    return Path(os.path.relpath(path, REPORT.parent)).as_posix()
