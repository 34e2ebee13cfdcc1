"""The section of RESULTS.md about cost and log-probability over the beam width."""

from __future__ import annotations

from typing import Any

from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.plots import drawn, picture
from benchmarks.report_tables import shown, table, where

FIGURE = RESULTS_DIRECTORY / "beam_widths.svg"
SEARCHES = ("banked", "abs", "unconstrained")
NOTES = """
Keyword sets of CommonGen in any order, the built-in model, 32 tokens, `length_penalty` 0: median seconds, mean
log-probability in nats, mean rows read by the model, for each beam width k. "unconstrained" is transformers' beam
search without a constraint, whose log-probability is of a text that need not hold the keywords.
"""


def beam_widths_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    rows = {(row["search"], row["beams"]): row for row in run["rows"]}
    widths = sorted({beams for _, beams in rows})
    body = []
    for width in widths:
        own = [rows[name, width] for name in SEARCHES]
        seconds, sums = [shown(row["seconds"]) for row in own], [f"{row['log_prob']:.1f}" for row in own]
        body.append([f"{width}", *seconds, *sums, *(f"{row['rows']:,.0f}" for row in own)])
    head = ["k", *(f"{what}, {name}" for what in ("s", "nats", "rows") for name in SEARCHES)]
    step = rows["banked", 64], rows["banked", 63]
    jump = f"64 beams take {step[0]['seconds'] / step[1]['seconds']:.2f} times the time of 63."
    parts = ["## Over the beam width", where(run, f"{run['cases']} cases"), NOTES, table(head, body), jump]
    parts.append(picture(FIGURE, "Seconds and log-probability over the beam width", lambda: _draw(rows, widths)))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _draw(rows: dict[tuple[str, int], dict[str, Any]], widths: list[int]) -> None:
    with drawn(FIGURE, (9.0, 3.6), columns=2) as (cost, quality):
        for name in SEARCHES:
            cost.plot(widths, [rows[name, width]["seconds"] for width in widths], marker="o", label=name)
        for name in ("banked", "abs"):
            quality.plot(widths, [rows[name, width]["log_prob"] for width in widths], marker="o", label=name)
        cost.set_yscale("log")
        for panel, words in ((cost, "seconds for a request"), (quality, "log-prob, nats")):
            panel.set_xscale("log", base=2)
            panel.set_xlabel("beams")
            panel.set_ylabel(words)
            panel.legend()
