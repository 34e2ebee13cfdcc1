"""Writes benchmarks/RESULTS.md and the README's summary from the figures under benchmarks/results/."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.report.bfcl import bfcl_section
from benchmarks.report.compile import compile_section, ltlf_section, scale_section
from benchmarks.report.declare import declare_section
from benchmarks.report.decoding import batch_section, decode_section, runtimes_section, shapes_section, step_section
from benchmarks.report.grammars import grammars_section
from benchmarks.report.maskbench import checks_section, compiles_section, maskbench_section
from benchmarks.report.quality import beam_widths_section, json_forms_section, quality_section
from benchmarks.report.readme import write_readme
from benchmarks.report.service import (
    chaos_section,
    load_section,
    page_section,
    published_section,
    queue_section,
    scaling_section,
)
from benchmarks.report.tasks import (
    commongen_section,
    fashion_section,
    hmm_section,
    infilling_section,
    policies_section,
    releases_section,
    truncation_section,
)
from benchmarks.runs import COMMITTED, REPORT, RESULTS_DIRECTORY, about, write_json

HEADER = """# Results

Written by `python -m benchmarks.report` from the files under `results/`; [README.md](README.md) describes what is
measured and how.
"""
SECTIONS = {  # by the name of the file of figures, in the order of the page
    "releases": releases_section,
    "compile": compile_section,
    "scale": scale_section,
    "ltlf": ltlf_section,
    "maskbench": maskbench_section,
    "maskbench_compiles": compiles_section,
    "maskbench_checks": checks_section,
    "bfcl": bfcl_section,
    "grammars": grammars_section,
    "search_quality": quality_section,
    "beam_widths": beam_widths_section,
    "json_forms": json_forms_section,
    "decode": decode_section,
    "step": step_section,
    "shapes_cpu": shapes_section,
    "shapes_cuda": shapes_section,
    "batch": batch_section,
    "fashion": fashion_section,
    "truncation": truncation_section,
    "commongen": commongen_section,
    "hmm": hmm_section,
    "infilling": infilling_section,
    "policies": policies_section,
    "declare": declare_section,
    "runtimes": runtimes_section,
    "load": load_section,
    "published": published_section,
    "queue": queue_section,
    "scaling": scaling_section,
    "chaos": chaos_section,
    "page": page_section,
}


def write_report() -> None:
    """Rewrite RESULTS.md, and the README's summary, from the stored figures. Missing files have no section."""
    runs = stored_runs()
    sections = [section(runs[name]) for name, section in SECTIONS.items() if name in runs]
    REPORT.write_text("\n".join([HEADER, *sections]), encoding="utf-8")
    if RESULTS_DIRECTORY == COMMITTED:
        write_readme(runs)


def stored_runs() -> dict[str, Any]:
    """The contents of the files of figures, by name."""
    paths = [RESULTS_DIRECTORY / f"{name}.json" for name in SECTIONS]
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()}


def write_run(name: str, figures: dict[str, Any]) -> None:
    """Store this run's figures and rewrite the report. The figures get the date, machine and command."""
    write_json(RESULTS_DIRECTORY / f"{name}.json", about() | figures)
    write_report()
