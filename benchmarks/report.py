"""Writes benchmarks/RESULTS.md from the figures under benchmarks/results/. Measures nothing.

    python -m benchmarks.report
"""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS_DIRECTORY = HERE / "results"
MIB = 2**20
Row = dict[str, Any]  # one compile, as benchmarks.compile wrote it
PATTERNS = ("ascii", "unicode", "equal")  # the regexes that outlines-core is given
Shape = tuple[str, int, bool]  # vocabulary, number of keywords, ordered

HEADER = """# Results

Written by `python -m benchmarks.report` from the files under `results/`; [README.md](README.md) says what is measured
and how.
"""
COMPILE_NOTES = """
Medians over the concept sets, with the lowest and highest where they differ. Ours compiles the keyword constraint.
outlines-core gets a regex in three strengths: `unicode` has our words, but in order means only that the concepts occur
in this order somewhere (without an order it is our language exactly); `ascii` is simpler still, for only ASCII has word
characters; `equal` is our ordered language exactly, whose pattern is far larger, tried once for each shape.
Each ratio is of two compiles of one concept set, made one after the other. "Stopped" is a process that ran into the
time or the memory limit; a skipped size is one beyond a size that was stopped.
"""


def shape_of(row: Row) -> Shape:
    return row["vocabulary"], row["size"], row["ordered"]


def spread(values: Iterable[float], digits: int) -> str:
    """Median, and the range where there is one."""
    ordered = sorted(values)
    middle = f"{statistics.median(ordered):,.{digits}f}"
    low, high = f"{ordered[0]:,.{digits}f}", f"{ordered[-1]:,.{digits}f}"
    return middle if low == high else f"{middle} ({low}-{high})"


def table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def finished(rows: list[Row], engine: str) -> list[Row]:
    return [row["figures"] for row in rows if row["engine"] == engine and row["outcome"] == "ok"]


def cost(rows: list[Row], engine: str, field: str, scale: float, limits: dict[str, float]) -> str:
    """A cell: what an engine cost on a shape, or the limit that stopped it."""
    done = [figures[field] / scale for figures in finished(rows, engine)]
    stopped = {row["outcome"] for row in rows if row["engine"] == engine} - {"ok", "skipped"}
    words = {"time": f"{limits['seconds']:g} s", "memory": f"{limits['gigabytes']:g} GB", "failed": "failed"}
    limit = ", ".join(words[outcome] for outcome in sorted(stopped))
    if done:
        return spread(done, 0) + (f"; one stopped ({limit})" if stopped else "")
    if not stopped:
        return "skipped" if any(row["engine"] == engine for row in rows) else "-"
    return f"stopped ({limit})"


def ratios(rows: list[Row], engine: str, field: str) -> list[float]:
    """Theirs over ours, for each concept set that both finished."""
    done = {(row["set_number"], row["engine"]): row["figures"] for row in rows if row["outcome"] == "ok"}
    both = [number for number, name in done if name == engine and (number, "ours") in done]
    return [done[number, engine][field] / max(done[number, "ours"][field], 1) for number in both]


def shape_cells(shape: Shape) -> list[str]:
    vocabulary, size, ordered = shape
    return [vocabulary, f"{size} {'ordered' if ordered else 'unordered'}"]


def our_table(shapes: dict[Shape, list[Row]]) -> str:
    body = []
    for shape, rows in shapes.items():
        done = finished(rows, "ours")
        cells = [spread((one["ms"] for one in done), 0), spread((one["table_bytes"] / MIB for one in done), 2)]
        cells += [spread((one[field] for one in done), 0) for field in ("states", "classes", "min_tokens")]
        body.append([*shape_cells(shape), *cells, spread((one["peak_bytes"] / MIB for one in done), 0)])
    return table(["vocabulary", "keywords", "ms", "table MiB", "states", "classes", "least tokens", "peak MiB"], body)


def peer_table(shapes: dict[Shape, list[Row]], limits: dict[str, float]) -> str:
    body = []
    for shape, rows in shapes.items():
        cells = shape_cells(shape)
        for engine in PATTERNS:
            cells += [cost(rows, engine, "ms", 1, limits), cost(rows, engine, "peak_bytes", MIB, limits)]
        for field in ("ms", "peak_bytes"):
            for engine in PATTERNS[:2]:
                values = ratios(rows, engine, field)
                cells.append(spread(values, 1) if values else "-")
        body.append(cells)
    head = ["vocabulary", "keywords", *(f"{name} {unit}" for name in PATTERNS for unit in ("ms", "peak MiB"))]
    return table([*head, *(f"{name} / ours, {what}" for what in ("time", "memory") for name in PATTERNS[:2])], body)


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def summary(shapes: dict[Shape, list[Row]]) -> str:
    lines = []
    for engine in PATTERNS:
        for field, word in (("ms", "time"), ("peak_bytes", "memory")):
            pairs = [ratio for rows in shapes.values() for ratio in ratios(rows, engine, field)]
            if pairs:
                mean, low = geometric_mean(pairs), min(pairs)
                lines.append(
                    f"- {engine}, {word}: geometric mean {mean:.1f} over {len(pairs)} finished pairs, "
                    f"{low:.1f} to {max(pairs):.1f}; stopped ones not counted"
                )
    return "\n".join(lines) + "\n"


def compile_section(run: dict[str, Any]) -> str:
    shapes: dict[Shape, list[Row]] = defaultdict(list)
    for row in run["rows"]:
        shapes[shape_of(row)].append(row)
    parts = ["## Cold compile of keywords", f"{run['date']}; {run['machine']}; `{run['command']}`", COMPILE_NOTES]
    parts += ["### Ours", our_table(shapes), "### outlines-core 0.2.14, `Index` on a regex closed with `\\z`"]
    parts += [peer_table(shapes, run["limits"]), "### Theirs over ours", summary(shapes)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def write_report() -> None:
    """Rewrite RESULTS.md from the stored figures."""
    run = json.loads((RESULTS_DIRECTORY / "compile.json").read_text(encoding="utf-8"))
    (HERE / "RESULTS.md").write_text(HEADER + "\n" + compile_section(run), encoding="utf-8")


if __name__ == "__main__":
    write_report()
