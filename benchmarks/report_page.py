"""The section of RESULTS.md about a new user's way and the page, from results/page.json."""

from __future__ import annotations

import statistics
from typing import Any

FIRST_PICTURE_MS, ALL_S, PAGE_BYTES = 1000.0, 300.0, 2_000_000
NOTES = """
From a clone to an answer in the page, on a machine where nothing is installed but Python, make and git: what the
machine takes, and what typing does, commands copied at 32.5 words a minute and the constraint thought up at 19, as
people of average skill do (Karat et al., 1999); without reading. Most of `make demo` is the fetching and unpacking of
PyTorch.
"""


def page_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    seconds, paints = run["seconds"], run["first_paint_ms"]
    typing = sum(run["typing_seconds"].values())
    whole, paint = sum(seconds.values()) + typing, statistics.median(paints)
    steps = ", ".join(f"{name} {took:.1f} s" for name, took in seconds.items())
    steps += f"; typing {run['typed']} characters {typing:.1f} s"
    drawn = statistics.median(run["drawn_ms"])
    loads = (
        f"The page, loaded {len(paints)} times with an empty cache: first picture after {paint:.0f} ms in the median "
        f"({min(paints):.0f} to {max(paints):.0f}), the automaton drawn after {drawn:.0f} ms, "
        f"{run['bytes'] / 1e6:.2f} MB in all."
    )
    goals = (
        ("a new user's way in under five minutes", whole < ALL_S),
        ("of which typing is the longest part", typing > max(seconds.values())),
        ("the first picture under one second on loopback", paint < FIRST_PICTURE_MS),
        ("the page under 2 MB", run["bytes"] < PAGE_BYTES),
    )
    told = "\n".join(f"- {goal}: {'kept' if kept else 'missed'}" for goal, kept in goals)
    head = f"{run['date']}; {run['machine']}; `{run['command']}`"
    title = "## A new user's way, and the page"
    return "\n\n".join((title, head, NOTES.strip("\n"), f"{steps}: {whole:.0f} s in all.", loads, told)) + "\n"
