"""The section of RESULTS.md about many requests at once, from results/batch.json as benchmarks.batch wrote it."""

from __future__ import annotations

from typing import Any

from benchmarks.report_tables import spread, table, where

NOTES = """
Seconds for all requests, through one engine: one after another, and all at once. They differ in prompt, constraint
(keywords, formula, regex, JSON schema, template, combination), beams (1 to 16) and budget. Medians of pairs, with the
range. Every answer of the crowd is the one that its request gets alone, token for token; the run stops where it is not.
"""
RATIO_MAX = 0.5


def batch_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    pairs = run["pairs"]
    columns = [spread(pair[name] for pair in pairs) for name in ("alone_s", "crowd_s", "ratio")]
    head = ["requests", "tokens written", "one after another, s", "at once, s", "at once / one after another"]
    ratios = sorted(pair["ratio"] for pair in pairs)
    verdict = "kept" if ratios[len(ratios) // 2] <= RATIO_MAX else "missed"
    row = [f"{run['requests']}", f"{run['tokens']:,}", *columns]
    parts = ["## Many requests at once", where(run, "the built-in model"), NOTES, *run.get("notes", ())]
    parts.append(table(head, [row]))
    parts.append(f"Goal: at most {RATIO_MAX} of the time: {verdict}.")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
