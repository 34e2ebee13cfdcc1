"""The section of RESULTS.md about the search's cost beside the model's, from results/step.json (benchmarks.step)."""

from __future__ import annotations

from typing import Any

from benchmarks.report_tables import shown, table, where

NOTES = """
A model of GPT-2's shape (124 million parameters, random weights) on the CPU, five keywords over its 50,257 tokens,
searched as the service does: for each step with k rows alive or more (banked begins with several times k) the forward
pass, and right after it all that the search does until the next. Medians over the steps; of the share also the middle
half.
"""
SHARE_MAX, BEAMS = 0.05, 64


def step_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    head = ["algorithm", "k", "forward pass, ms", "search, ms", "search / forward pass"]
    body = []
    for row in run["rows"]:
        low, high = (f"{100 * share:.1f}" for share in row["share_quarters"])
        share = f"{100 * row['share']:.1f} % ({low}-{high})"
        body.append([row["algorithm"], str(row["beams"]), shown(row["forward_ms"]), shown(row["search_ms"]), share])
    widest = max(row["share"] for row in run["rows"] if row["beams"] == BEAMS)
    verdict = "kept" if widest <= SHARE_MAX else "missed"
    parts = ["## The search beside the model", where(run), NOTES, *run.get("notes", ()), table(head, body)]
    parts.append(f"Goal: with {BEAMS} beams at most {100 * SHARE_MAX:.0f} % of the forward pass: {verdict}.")
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
