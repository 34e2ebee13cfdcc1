"""Writes RESULTS.md, its figures, and the README's summary: `python -m benchmarks.report`."""

from __future__ import annotations

from benchmarks.report import write_report

if __name__ == "__main__":
    write_report()
