"""Writes benchmarks/RESULTS.md from the figures under benchmarks/results/. Measures nothing.

python -m benchmarks.report
"""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report_batch import batch_section
from benchmarks.report_chaos import chaos_section
from benchmarks.report_commongen import commongen_section
from benchmarks.report_compile import compile_section
from benchmarks.report_decode import decode_section
from benchmarks.report_fashion import fashion_section
from benchmarks.report_load import load_section
from benchmarks.report_ltlf import ltlf_section
from benchmarks.report_page import page_section
from benchmarks.report_quality import quality_section
from benchmarks.report_scale import scale_section
from benchmarks.report_step import step_section
from benchmarks.report_truncation import truncation_section

HERE = Path(__file__).resolve().parent
RESULTS_DIRECTORY = HERE / "results"
HEADER = """# Results

Written by `python -m benchmarks.report` from the files under `results/`; [README.md](README.md) says what is measured
and how.
"""
SECTIONS = {
    "compile.json": compile_section,
    "scale.json": scale_section,
    "ltlf.json": ltlf_section,
    "search_quality.json": quality_section,
    "decode.json": decode_section,
    "step.json": step_section,
    "batch.json": batch_section,
    "fashion.json": fashion_section,
    "truncation.json": truncation_section,
    "commongen.json": commongen_section,
    "load.json": load_section,
    "chaos.json": chaos_section,
    "page.json": page_section,
}


def write_report() -> None:
    """Rewrite RESULTS.md from the stored figures; a benchmark that has not been run has no section."""
    parts = [HEADER]
    for name, section in SECTIONS.items():
        stored = RESULTS_DIRECTORY / name
        if stored.exists():
            parts.append(section(json.loads(stored.read_text(encoding="utf-8"))))
    (HERE / "RESULTS.md").write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    write_report()
