"""The section of RESULTS.md about the truncation test, and its figure, from results/truncation.json."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.plots import drawn, picture
from benchmarks.report_tables import table, where

PLOT = RESULTS_DIRECTORY / "truncation.svg"
NOTES = """
{count} patterns of ten kinds (`truncation_patterns.py`), whose shortest texts take {low} to {high} tokens (median
{middle:g}), the end of the text among them. Each decoder is asked for each pattern with budgets of so many times that
least. In the table: the share of its answers that match their pattern in full, by `re`; an answer that does not come is
none. All run on the built-in model, one after another on this machine; the others greedily, as they know no beams.
"ms": the mean for one answer over all budgets, the pattern's compiling among it.
"""


def truncation_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown; draws the figure where there is matplotlib."""
    rows = run["rows"]
    times = [one["times"] for one in rows[0]["by_times"]]
    body = [
        [row["system"], *(f"{100 * _share(one):.0f} %" for one in row["by_times"]),
         f"{statistics.fmean(one['ms'] for one in row['by_times']):.0f}"]
        for row in rows
    ]  # fmt: skip
    least = run["least"]
    notes = NOTES.format(count=len(least), low=least[0], high=least[-1], middle=statistics.median(least))
    parts = [
        "## When the budget runs out", where(run), notes, *run.get("notes", ()),
        table(["decoder", *(f"{t:g} x" for t in times), "ms"], body),
        _examples(rows), picture(PLOT, "share of answers that satisfy, by budget", lambda: draw_plot(rows)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _share(one: dict[str, Any]) -> float:
    return float(one["satisfied"] / one["asked"])


def _examples(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        for one in row["missed"][:1]:
            said = f"`{one['text']}`" if not one["error"] else f"nothing ({one['error']})"
            lines.append(f"- {row['system']}, `{one['pattern']}` within {one['budget']} tokens: {said}")
    return "\n".join(["What was answered instead:", "", *lines]) if lines else ""


def draw_plot(rows: list[dict[str, Any]]) -> None:
    """The share that satisfies by the budget, a line for each decoder. Needs matplotlib."""
    with drawn(PLOT, (7, 3.6)) as (panel,):
        for row in rows:
            x = [one["times"] for one in row["by_times"]]
            panel.plot(x, [100 * _share(one) for one in row["by_times"]], marker="o", label=row["system"])
        panel.set_xlabel("budget, in least budgets")
        panel.set_ylabel("answers that satisfy, %")
        panel.legend(fontsize=8)
