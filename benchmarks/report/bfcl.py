"""The section of RESULTS.md about the tools of BFCL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.report.compile import ENGINE_NAMES
from benchmarks.report.layout import MIB, grouped, percentiles, section, share_of, table
from benchmarks.report.maskbench import is_compiled, reasons_line, stored_rows
from benchmarks.runs import RESULTS_DIRECTORY, Row, link

ROWS = RESULTS_DIRECTORY / "bfcl.jsonl"
RUN = RESULTS_DIRECTORY / "bfcl.json"
ENGINES = ("ours", "xgrammar", "llguidance")
NOTES = """
All different tools of BFCL v4's public files (simple, multiple, parallel, live), with their types translated as BFCL
itself makes tools of OpenAI's form. A request has `tool_choice` "required", parallel calls, and the format of Hermes
and Qwen; ours is the constraint of the chat route, XGrammar's a structural tag (`tags_with_separator`), llguidance's a
Lark grammar with `%json`. XGrammar writes at most one white space in a place, the others one behind commas and colons.
Compiled: within {seconds:g} s and {gigabytes} GB, and ours within the service's own limits, of which that of time is
one of the processor's time. "Whole" texts have at most {whole} tokens, or the least budget where it is larger; half of
the steps take the allowed token with the highest random score, the others prefer EOS, then closing quotes and brackets.
"Cut" texts are random throughout and end at twice the least budget of our compiler. Valid: one or more calls of tools
of the request, whose arguments `jsonschema` accepts. "Valid of ended" counts the whole texts that EOS has ended, which
is the schema accuracy of calls that nothing cuts. Compile times are milliseconds of the processor until the first mask,
mask times microseconds from a token to the next mask over all ids, text times milliseconds of all masks of a whole
text.
"""
HEAD = (
    "tools", "engine", "compiled", "compile ms, p50 / p99", "states", "MiB", "mask us, p50 / p99", "text ms, p50 / p99",
    "valid of ended", "whole, valid", "cut, valid",
)  # fmt: skip


def bfcl_section(run: dict[str, Any]) -> str:
    """Compiles, valid calls and times by size and engine."""
    rows = stored_rows(ROWS)
    versions = [f"{ENGINE_NAMES[engine]} {version}" for engine, version in run["versions"].items()]
    details = [f"data {run['commit']}", f"{run['tools']:,} tools", f"vocabulary {run['vocabulary']}"]
    details += [f"seed {run['seed']}", *versions]
    by_size = grouped(rows, "size", "engine")
    sizes = sorted({size for size, _ in by_size})
    groups = [(size, engine) for size in sizes for engine in ENGINES if (size, engine) in by_size]
    body = [_cells(size, engine, by_size[size, engine]) for size, engine in groups]
    by_engine = grouped(rows, "engine")
    reasons = [reasons_line(ENGINE_NAMES[engine], by_engine[engine,]) for engine in ENGINES if (engine,) in by_engine]
    others = ", ".join(f"{reason} {count:,}" for reason, count in run["translated"].items() if reason != "ok")
    translated = share_of(run["translated"]["ok"], sum(run["translated"].values()))
    texts = f"Tools that we translate to automata over texts: {translated}{f'; {others}' if others else ''}."
    parts = [texts, table(HEAD, body), "Why requests do not compile:", "\n".join(reasons)]
    parts.append(f"Every request: [{ROWS.name}]({link(ROWS)}).")
    notes = NOTES.format(**run["limits"], whole=run["whole_tokens"])
    return section("Tools of BFCL", run, notes, *parts, details=details)


def _cells(size: int, engine: str, rows: Sequence[Row]) -> list[str]:
    compiled = [row for row in rows if is_compiled(row)]
    mask_us, text_ms = ([each for row in compiled for each in row.get(name, ())] for name in ("mask_us", "text_ms"))
    whole, cut = ([each for row in compiled for each in row.get(kind, ())] for kind in ("whole", "cut"))
    ended = [each for each in whole if each[0]]
    return [
        str(size), ENGINE_NAMES[engine], share_of(len(compiled), len(rows)),
        percentiles([row["ms"] for row in compiled]),
        percentiles([row["states"] for row in compiled if "states" in row]),
        percentiles([row["table_bytes"] / MIB for row in compiled if "table_bytes" in row]),
        percentiles(mask_us), percentiles(text_ms), *map(_valid, (ended, whole, cut)),
    ]  # fmt: skip


def _valid(verdicts: Sequence[tuple[bool, bool | None]]) -> str:
    """How many texts are valid, of those that the validator judges."""
    judged = [valid for _, valid in verdicts if valid is not None]
    return share_of(judged.count(True), len(judged))
