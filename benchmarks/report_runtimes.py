"""The section of RESULTS.md about seconds per request, and its figure, from results/runtimes.json."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.plots import drawn, picture
from benchmarks.report_tables import shown, table, where

PLOT = RESULTS_DIRECTORY / "runtimes.svg"
NOTES = """
Seconds per request on the built-in model, {sets} sets of CommonGen's concepts in any order, {max_tokens} tokens, the
automaton at hand: the median of {repeats} runs, each the mean of all sets, with their range; the methods take turns.
The HMM has 256 hidden states (Ctrl-G's had 32,768, on a GPU), and is our Python of the method: its time, in which the
table that it looks ahead with is worked out for each set, is no measure of others' code. The paper's table 2 gives, for
GPT-2 on a GPU, 0.74 s for its own search and 3.49 s for Ctrl-G with 4 beams, and 9.45 s and 12.01 s with 128: ratios of
0.21 and 0.79.
"""
AXES = {"beams": "beams", "tokens": "tokens, at most", "keywords": "keywords", "vocabulary": "tokens in the vocabulary"}


def runtimes_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown; draws the figure where there is matplotlib."""
    rows = run["rows"]
    beams = sorted({row["beams"] for row in rows})
    seconds = {(row["method"], row["beams"]): row["seconds"] for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    body = [[method, *(_spread(seconds[method, k]) for k in beams)] for method in methods]
    if "HMM" in methods:
        body += [[f"{method} / HMM", *(_ratio(seconds[method, k], seconds["HMM", k]) for k in beams)]
                 for method in methods if method.startswith("ours")]  # fmt: skip
    notes = NOTES.format(sets=run["sets"], max_tokens=run["max_tokens"], repeats=len(rows[0]["seconds"]))
    head = ["method", *(f"{k} beams" for k in beams)]
    plot = picture(PLOT, "seconds per request of ours, along four axes", lambda: draw_plot(run["growth"]))
    parts = ["## Seconds per request", where(run), notes, *run.get("notes", ()), table(head, body), plot]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def _ratio(ours: list[float], theirs: list[float]) -> str:
    return shown(statistics.median(one / other for one, other in zip(ours, theirs, strict=True)))


def draw_plot(rows: list[dict[str, Any]]) -> None:
    """Seconds per request of ours along each axis. Needs matplotlib."""
    with drawn(PLOT, (11, 2.8), columns=len(AXES)) as panels:
        for panel, (along, label) in zip(panels, AXES.items(), strict=True):
            own = sorted((row for row in rows if row["along"] == along), key=lambda row: row["value"])
            middle = [statistics.median(row["seconds"]) for row in own]
            panel.plot([row["value"] for row in own], middle, marker="o")
            panel.set_xlabel(label)
            panel.set_ylim(bottom=0)
        panels[0].set_ylabel("seconds per request")
