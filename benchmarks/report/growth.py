"""The sections of RESULTS.md about the growth of compile time and tables, and about LTLf beside MONA."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from itertools import product
from typing import Any, Literal

from benchmarks.report.layout import (
    MIB,
    median_and_range,
    picture,
    section,
    short_number,
    table,
)  # fmt: skip

SCALE_NOTES = """
Medians of the repeats, with the range if its ends differ as printed; each compile cold, in a process of its own, on one
core. A law is fitted by least squares to the upper half of a series, where constant costs no longer matter: as a power
of the size or as a factor for each step, whichever has the smaller error.
"""
LTLF_NOTES = """
Milliseconds for all formulas of a family, one after the other, medians: ours from text to minimal automaton; MONA's
process alone; and the whole engine around it, which is LTLf2DFA's parser and translation, MONA, and the expansion of
its guards over the letters. "Ahead": on how many formulas ours takes less than MONA's process alone. The automata are
equal.
"""
Series = dict[int, dict[str, list[float]]]  # by size, then by figure: one value a repeat
Law = Literal["power", "factor"]
_FIGURES = {"ms": 1.0, "table_bytes": float(MIB), "peak_bytes": float(MIB)}
_NAMES = {"ms": "time", "table_bytes": "tables", "peak_bytes": "peak memory"}
_COUNTABLE_MAX = 1_000
_POINTS_MIN = 3


def _series(run: dict[str, Any]) -> tuple[dict[str, Series], list[str]]:
    """The figures of every series, and a line for each point that was not compiled."""
    series: dict[str, Series] = defaultdict(dict)
    missing: dict[str, None] = {}
    for row in run["rows"]:
        if row["outcome"] != "ok":
            missing[f"{row['series']}, {row['size'] or row['vocabulary']}: {row['outcome']}; {row['message']}"] = None
            continue
        point = series[row["series"]].setdefault(row["size"], {name: [] for name in _FIGURES})
        for name, scale in _FIGURES.items():
            point[name].append(row["figures"][name] / scale)
    return {name: dict(sorted(points.items())) for name, points in series.items()}, list(missing)


def _line(x: list[float], y: list[float]) -> tuple[float, float]:
    """The slope of the least-squares line, and its squared error."""
    slope, offset = statistics.linear_regression(x, y)
    return slope, sum((value - slope * at - offset) ** 2 for at, value in zip(x, y, strict=True))


def fitted_law(sizes: list[int], values: list[float]) -> tuple[Law, float]:
    """The growth of values with sizes: ("power", exponent) or ("factor", growth for each step of one).

    Raises ValueError for fewer than two points, or a value that is not positive.
    """
    logs = [math.log(value) for value in values]
    exponent, power_error = _line([math.log(size) for size in sizes], logs)
    rate, factor_error = _line([float(size) for size in sizes], logs)
    countable = sizes[-1] <= _COUNTABLE_MAX  # a factor for each single id of a vocabulary would mean nothing
    return ("factor", math.exp(rate)) if countable and factor_error < power_error else ("power", exponent)


def law_phrase(sizes: list[int], values: list[float]) -> str:
    """The law of the upper half of a series, as a phrase."""
    half = max(_POINTS_MIN, (len(sizes) + 1) // 2)
    law, number = fitted_law(sizes[-half:], values[-half:])
    return f"size to the power {number:.2f}" if law == "power" else f"{number:.2f} times for each one more"


def _laws(series: dict[str, Series]) -> str:
    lines = []
    for title, points in series.items():
        if len(points) < _POINTS_MIN:
            continue
        sizes = list(points)
        medians = {figure: [statistics.median(points[size][figure]) for size in sizes] for figure in _FIGURES}
        phrases = [
            f"{_NAMES[figure]} as {law_phrase(sizes, values)}" for figure, values in medians.items() if min(values)
        ]
        lines.append(f"- {title}, {sizes[0]:,} to {sizes[-1]:,}: {'; '.join(phrases)}")
    return "\n".join(lines)


def _table(points: Series) -> str:
    body = [[f"{size:,}", *(median_and_range(point[name]) for name in _FIGURES)] for size, point in points.items()]
    return table(["size", "ms", "table MiB", "peak MiB"], body)


def _picture(series: dict[str, Series]) -> str:
    """Time and table size of every series, one panel for each kind of size."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in series:
        kinds[name.partition(":")[0].removesuffix(" in order")].append(name)
    figures = (("ms", "compile, ms"), ("table_bytes", "tables, MiB"))

    def draw(panels: list[Any]) -> None:
        for panel, ((figure, label), kind) in zip(panels, product(figures, kinds), strict=True):
            for name in kinds[kind]:
                values = [statistics.median(point[figure]) for point in series[name].values()]
                panel.plot(list(series[name]), values, marker="o", label=name.partition(": ")[2] or name)
            panel.set(xlabel=kind, ylabel=label, yscale="log")
            panel.legend(fontsize=7)

    return picture("scale", "Compile time and table size", draw, (4 * len(kinds), 6), (len(figures), len(kinds)))


def scale_section(run: dict[str, Any]) -> str:
    """Growth of our compile time and tables."""
    series, missing = _series(run)
    parts = [_picture(series), _laws(series)]
    parts.append("\n".join(f"- not compiled: {line}" for line in missing))
    for name, points in series.items():
        parts += [f"### By {name}", _table(points)]
    return section("Growth", run, SCALE_NOTES, *parts)


def ltlf_section(run: dict[str, Any]) -> str:
    """Our translation of formulas beside MONA's."""
    head = ["family", "formulas", "most states", "ours ms", "MONA's process ms", "whole engine ms"]
    head += ["process / ours", "engine / ours", "geometric mean of process / ours", "ahead"]
    times = ("native_ms", "process_ms", "engine_ms", "process_over_native", "engine_over_native", "geometric_mean")
    body = [
        [row["family"], f"{row['formulas']:,}", f"{row['states_max']:,}", *(short_number(row[name]) for name in times),
         f"{row['ahead']:,}"]
        for row in run["rows"]
    ]  # fmt: skip
    least_ahead = [
        f"- {row['native_ms']:.1f} ms against {row['process_ms']:.1f} ms: `{row['formula'][:100]}` ({row['family']})"
        for row in run["least_ahead"]
    ]
    return section(
        "LTLf beside MONA", run, LTLF_NOTES, table(head, body), "The formulas on which ours is least ahead, or behind:",
        "\n".join(least_ahead), details=(f"medians of {run['repeats']}",),
    )  # fmt: skip
