"""Writes benchmarks/RESULTS.md and the README's summary from the figures under benchmarks/results/. Measures nothing.

python -m benchmarks.report
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.places import KEPT, REPORT, RESULTS_DIRECTORY
from benchmarks.report_batch import batch_section
from benchmarks.report_beam_widths import beam_widths_section
from benchmarks.report_chaos import chaos_section
from benchmarks.report_commongen import commongen_section
from benchmarks.report_compile import compile_section
from benchmarks.report_decode import decode_section
from benchmarks.report_fashion import fashion_section
from benchmarks.report_infilling import infilling_section
from benchmarks.report_load import load_section
from benchmarks.report_ltlf import ltlf_section
from benchmarks.report_page import page_section
from benchmarks.report_quality import quality_section
from benchmarks.report_readme import write_readme
from benchmarks.report_runtimes import runtimes_section
from benchmarks.report_scale import scale_section
from benchmarks.report_step import step_section
from benchmarks.report_truncation import truncation_section

HEADER = """# Results

Written by `python -m benchmarks.report` from the files under `results/`; [README.md](README.md) says what is measured
and how.
"""
SECTIONS = {
    "compile.json": compile_section,
    "scale.json": scale_section,
    "ltlf.json": ltlf_section,
    "search_quality.json": quality_section,
    "beam_widths.json": beam_widths_section,
    "decode.json": decode_section,
    "step.json": step_section,
    "batch.json": batch_section,
    "fashion.json": fashion_section,
    "truncation.json": truncation_section,
    "commongen.json": commongen_section,
    "infilling.json": infilling_section,
    "runtimes.json": runtimes_section,
    "load.json": load_section,
    "chaos.json": chaos_section,
    "page.json": page_section,
}


def write_report() -> None:
    """Rewrite RESULTS.md, and the README's summary, from the stored figures; what was not measured is not in them."""
    runs = stored_runs()
    parts = [section(runs[Path(name).stem]) for name, section in SECTIONS.items() if Path(name).stem in runs]
    REPORT.write_text("\n".join([HEADER, *parts]), encoding="utf-8")
    if RESULTS_DIRECTORY == KEPT:
        write_readme(runs)


def stored_runs() -> dict[str, Any]:
    """The files' contents by their names without .json."""
    paths = [RESULTS_DIRECTORY / name for name in SECTIONS]
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()}


if __name__ == "__main__":
    write_report()
