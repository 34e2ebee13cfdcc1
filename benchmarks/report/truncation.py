"""The section of RESULTS.md about short budgets, and its figure, from results/truncation.json."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.report.layout import figure_panels, picture, section, table
from benchmarks.runs import RESULTS_DIRECTORY

PLOT = RESULTS_DIRECTORY / "truncation.svg"
NOTES = """
{count} patterns of ten kinds (`benchmarks/tasks/truncation.py`), whose shortest texts have {low} to {high} tokens
(median {median:g}), including the end of the text. Each decoder gets each pattern with budgets of several times that
minimum. In the table: the share of its answers that match their pattern in full, by `re`; an answer that does not come
does not match. All run on the built-in model, one after another on this machine; the others greedily, as they support
no beams. "ms": the mean for one answer over all budgets, including compiling the pattern.
"""


def truncation_section(run: dict[str, Any]) -> str:
    """The share of answers that satisfy, by budget."""
    rows, tokens = run["rows"], run["tokens_min"]
    body = [
        [row["system"], *(f"{100 * _share(budget):.0f} %" for budget in row["by_times"]),
         f"{statistics.fmean(budget['ms'] for budget in row['by_times']):.0f}"]
        for row in rows
    ]  # fmt: skip
    notes = NOTES.format(count=len(tokens), low=tokens[0], high=tokens[-1], median=statistics.median(tokens))
    return section(
        "When the budget runs out", run, notes,
        table(["decoder", *(f"{budget['times']:g} x" for budget in rows[0]["by_times"]), "ms"], body),
        _examples(rows), picture(PLOT, "share of answers that satisfy, by budget", lambda: draw_plot(rows)),
    )  # fmt: skip


def _share(budget: dict[str, Any]) -> float:
    return float(budget["satisfied"] / budget["requests"])


def _examples(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        for example in row["missed"][:1]:
            answer = f"`{example['text']}`" if not example["error"] else f"nothing ({example['error']})"
            lines.append(f"- {row['system']}, `{example['pattern']}` within {example['budget']} tokens: {answer}")
    return "\n".join(["Examples of answers that do not match:", "", *lines]) if lines else ""


def draw_plot(rows: list[dict[str, Any]]) -> None:
    """The share that satisfies by the budget, a line for each decoder. Needs matplotlib."""
    with figure_panels(PLOT, (7, 3.6)) as (panel,):
        for row in rows:
            x = [budget["times"] for budget in row["by_times"]]
            panel.plot(x, [100 * _share(budget) for budget in row["by_times"]], marker="o", label=row["system"])
        panel.set_xlabel("budget, in least budgets")
        panel.set_ylabel("answers that satisfy, %")
        panel.legend(fontsize=8)
