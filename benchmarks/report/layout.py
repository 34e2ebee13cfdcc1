"""Sections, tables, numbers and figures of the report. Knows no benchmark.

Figures need matplotlib, which is imported when one is drawn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runs import RESULTS_DIRECTORY, Row, link

MIB = 2**20
Draw = Callable[[list[Any]], None]  # draws into the panels of a figure, row by row


def section(title: str, run: Mapping[str, Any], notes: str, *parts: str, details: Sequence[str] = ()) -> str:
    """A Markdown section: the figures' origin, notes, and non-empty parts.

    The notes stored with the run follow the others.

    details  of the run, besides its date, machine, threads, commit and command
    """
    codes = dict.fromkeys(row["code"] for row in run.get("rows", ()) if "code" in row) or [run["code"]]
    threads = [f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}"] if "threads" in run else []
    threads += ["processor time"] if run.get("clock") == "process" else []
    origin = "; ".join((
        run["date"], run["machine"], *threads, *details, f"code {', '.join(codes)}", f"`{run['command']}`"
    ))
    blocks = (f"## {title}", origin, notes, *run.get("notes", ()), *parts)
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"


def verdict(is_met: bool) -> str:
    """Whether a goal is met."""
    return "met" if is_met else "missed"


def goal_list(goals: Iterable[tuple[str, bool]]) -> str:
    """A list of goals with their verdicts."""
    return "\n".join(f"- {goal}: {verdict(is_met)}" for goal, is_met in goals)


def short_number(value: float) -> str:
    """A number with two or more significant digits: 0.43, 4.3, 43, 4,300."""
    if value and abs(value) < 1:
        return f"{value:.2f}"
    return f"{value:.1f}" if abs(value) < 10 else f"{value:,.0f}"


def median_and_range(values: Iterable[float]) -> str:
    """The median, and the range if its ends differ as printed."""
    ordered = sorted(values)
    median, low, high = map(short_number, (statistics.median(ordered), ordered[0], ordered[-1]))
    return median if low == high else f"{median} ({low}-{high})"


def share_of(part: int, total: int) -> str:
    """A part of a total, also in per cent."""
    return f"{part:,} of {total:,} ({part / total:.1%})".replace("%", " %") if total else "-"


def percentiles(values: Sequence[float], percents: tuple[int, ...] = (50, 99)) -> str:
    """Some percentiles of values."""
    return " / ".join(short_number(float(value)) for value in np.percentile(values, percents)) if values else "-"


def table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def grouped(rows: Iterable[Row], *names: str) -> dict[tuple[Any, ...], list[Row]]:
    """The rows by their values of some fields, in their order."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups


def picture(name: str, alt_text: str, draw: Draw, inches: tuple[float, float], shape: tuple[int, int] = (1, 1)) -> str:
    """A link to a figure, redrawn if matplotlib is available. It is empty if there is no file.

    shape  the rows and columns of its panels
    """
    path = RESULTS_DIRECTORY / f"{name}.svg"
    with suppress(ImportError):
        _draw_figure(path, draw, inches, shape)
    return f"![{alt_text}]({link(path)})" if path.exists() else ""


def _draw_figure(path: Path, draw: Draw, inches: tuple[float, float], shape: tuple[int, int]) -> None:
    """Draw a figure and write it to an SVG file. Raises ImportError."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams["svg.hashsalt"] = path.stem  # the same figures give the same file
    figure, panels = pyplot.subplots(*shape, figsize=inches, layout="constrained", squeeze=False)
    try:
        draw(list(panels.flatten()))
        figure.savefig(path, metadata={"Date": None})
    finally:
        pyplot.close(figure)
