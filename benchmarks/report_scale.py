"""The section of RESULTS.md about growth, and its plot, from results/scale.json as benchmarks.scale wrote it."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, Literal

from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.plots import drawn, picture
from benchmarks.report_tables import MIB, spread, table

PLOT = RESULTS_DIRECTORY / "scale.svg"
NOTES = """
Medians of the repeats, with the range where there is one to see; each compile cold, in a process of its own, on one
core. A law is fitted by least squares to the upper half of a series, where what does not grow has stopped to matter: as
a power of the size or as a factor for each step, whichever leaves the smaller error.
"""
Series = dict[int, dict[str, list[float]]]  # by size, then by figure: one value a repeat
Law = Literal["power", "factor"]
_FIGURES = {"ms": 1.0, "table_bytes": float(MIB), "peak_bytes": float(MIB)}
_WORDS = {"ms": "time", "table_bytes": "tables", "peak_bytes": "peak memory"}
_COUNTED_MAX = 1_000
_LEAST_POINTS = 3


def _series(run: dict[str, Any]) -> tuple[dict[str, Series], list[str]]:
    """The figures of every series, and in words what was not compiled."""
    found: dict[str, Series] = defaultdict(dict)
    missing: dict[str, None] = {}
    for row in run["rows"]:
        if row["outcome"] != "ok":
            missing[f"{row['series']}, {row['size'] or row['vocabulary']}: {row['outcome']}; {row['message']}"] = None
            continue
        at = found[row["series"]].setdefault(row["size"], {name: [] for name in _FIGURES})
        for name, scale in _FIGURES.items():
            at[name].append(row["figures"][name] / scale)
    return {name: dict(sorted(points.items())) for name, points in found.items()}, list(missing)


def _line(x: list[float], y: list[float]) -> tuple[float, float]:
    """The slope of the least-squares line, and the squared error that it leaves."""
    slope, offset = statistics.linear_regression(x, y)
    return slope, sum((value - slope * at - offset) ** 2 for at, value in zip(x, y, strict=True))


def fitted(sizes: list[int], values: list[float]) -> tuple[Law, float]:
    """How values grow with sizes: ("power", exponent) or ("factor", growth for each step of one).

    ValueError with fewer than two points, or a value that is not positive.
    """
    logs = [math.log(value) for value in values]
    exponent, power_error = _line([math.log(size) for size in sizes], logs)
    rate, factor_error = _line([float(size) for size in sizes], logs)
    few = sizes[-1] <= _COUNTED_MAX  # of a vocabulary's 200,000 ids nobody adds one at a time
    return ("factor", math.exp(rate)) if few and factor_error < power_error else ("power", exponent)


def law_in_words(sizes: list[int], values: list[float]) -> str:
    """The law of the upper half of a series, as a phrase."""
    half = max(_LEAST_POINTS, (len(sizes) + 1) // 2)
    law, number = fitted(sizes[-half:], values[-half:])
    return f"size to the power {number:.2f}" if law == "power" else f"{number:.2f} times for each one more"


def _laws(series: dict[str, Series]) -> str:
    lines = []
    for name, points in series.items():
        if len(points) < _LEAST_POINTS:
            continue
        sizes = list(points)
        medians = {figure: [statistics.median(points[size][figure]) for size in sizes] for figure in _FIGURES}
        words = [f"{_WORDS[figure]} as {law_in_words(sizes, found)}" for figure, found in medians.items() if min(found)]
        lines.append(f"- {name}, {sizes[0]:,} to {sizes[-1]:,}: {'; '.join(words)}")
    return "\n".join(lines)


def _table(points: Series) -> str:
    body = [[f"{size:,}", *(spread(at[name]) for name in _FIGURES)] for size, at in points.items()]
    return table(["size", "ms", "table MiB", "peak MiB"], body)


def plot(series: dict[str, Series], path: Path) -> None:
    """Draws time and table size of every series, one panel for each kind of size. Needs matplotlib."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in series:
        kinds[name.partition(":")[0].removesuffix(" in order")].append(name)
    figures = (("ms", "compile, ms"), ("table_bytes", "tables, MiB"))
    with drawn(path, (4 * len(kinds), 6), rows=len(figures), columns=len(kinds)) as panels:
        places = iter(panels)
        for what, label in figures:
            for kind, names in kinds.items():
                panel = next(places)
                for name in names:
                    values = [statistics.median(at[what]) for at in series[name].values()]
                    panel.plot(list(series[name]), values, marker="o", label=name.partition(": ")[2] or name)
                panel.set(xlabel=kind, ylabel=label, yscale="log")
                panel.legend(fontsize=7)


def scale_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown; draws the plot beside the figures where there is matplotlib."""
    series, missing = _series(run)
    parts = ["## Growth", f"{run['date']}; {run['machine']}; `{run['command']}`", NOTES]
    parts += [picture(PLOT, "Compile time and table size", lambda: plot(series, PLOT)), _laws(series)]
    parts += ["\n".join(f"- not compiled: {line}" for line in missing)] if missing else []
    for name, points in series.items():
        parts += [f"### By {name}", _table(points)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
