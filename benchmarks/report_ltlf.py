"""The section of RESULTS.md about LTLf, from results/ltlf.json as benchmarks.ltlf wrote it."""

from __future__ import annotations

from typing import Any

from benchmarks.report_tables import shown, table

NOTES = """
Milliseconds for all formulas of a family, one after the other, medians: ours from text to minimal automaton; MONA's
process alone; the whole of that engine, which is LTLf2DFA's parser and translation, MONA, and its guards expanded over
the letters. "Ahead": on how many formulas ours takes less than MONA's process alone. The automata are the same.
"""


def ltlf_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    head = ["family", "formulas", "most states", "ours ms", "MONA's process ms", "whole engine ms"]
    head += ["process / ours", "engine / ours", "geometric mean of process / ours", "ahead"]
    body = [
        [one["family"], f"{one['formulas']:,}", f"{one['states_max']:,}"]
        + [shown(one[name]) for name in ("native_ms", "process_ms", "engine_ms")]
        + [shown(one[name]) for name in ("process_over_native", "engine_over_native", "geometric_mean")]
        + [f"{one['ahead']:,}"]
        for one in run["rows"]
    ]
    least = [
        f"- {one['native_ms']:.1f} ms against {one['process_ms']:.1f} ms: `{one['formula'][:100]}` ({one['family']})"
        for one in run["least_ahead"]
    ]
    about = f"{run['date']}; {run['machine']}; medians of {run['repeats']}; `{run['command']}`"
    parts = ["## LTLf beside MONA", about, NOTES, table(head, body)]
    parts += ["The formulas on which ours is least ahead, or behind:", "\n".join(least)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
