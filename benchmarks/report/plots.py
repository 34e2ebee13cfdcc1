"""Draws figures beside the tables of several sections.

Each function draws into the panels of a figure. Figures have a white ground, so that dark pages show them, too.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.report.layout import grouped
from benchmarks.runs import Row

# of the figure of shapes: a method, its k, and ours, with or without batch invariance
_METHODS = (
    ("greedy", 1, "ours"), ("greedy", 1, "variant"), ("beams", 4, "ours"), ("beams", 16, "ours"),
    ("beams", 64, "ours"), ("sample", 16, "ours"),
)  # fmt: skip
_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # the marks of its axis
_MARKS = "oxsD^v"


def draw_distributions(
    curves: Sequence[Mapping[str, Sequence[float]]], labels: Sequence[str], panels: Sequence[Any]
) -> None:
    """Cumulative counts, a panel for each quantity.

    curves  by panel: the values of each system; a system that fails in some cases has fewer
    labels  by panel: of the axis of values
    """
    names = list(dict.fromkeys(name for curve in curves for name in curve))
    for panel, curve, label in zip(panels, curves, labels, strict=True):
        for name, values in curve.items():
            x, counts = sorted(values), range(1, len(values) + 1)
            panel.plot(x, counts, drawstyle="steps-post", color=f"C{names.index(name)}", label=f"{name}, {len(x)}")
        panel.set(xscale="log", xlabel=label, ylabel="constraints")
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8)


def draw_shapes(rows: Sequence[Row], panels: Sequence[Any]) -> None:
    """The median ratio of each model, a panel for each prompt."""
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    for panel, ((prompt,), group) in zip(panels, sorted(grouped(rows, "prompt").items()), strict=True):
        by_point = grouped(group, "method", "k", "shape")
        for at, (method, k, ours) in enumerate(_METHODS):
            points = [
                (statistics.median(row[ours] / row["transformers"] for row in by_point[method, k, shape]), y)
                for y, shape in enumerate(shapes) if ours in by_point.get((method, k, shape), [{}])[0]
            ]  # fmt: skip
            if points:
                x, y = zip(*points, strict=True)
                label = f"{method}, k = {k}" if k > 1 else f"{method}, batch variant" if ours == "variant" else method
                panel.plot(x, y, linestyle="", marker=_MARKS[at], color=f"C{at}", label=label)
        panel.axvline(1.0, color="black", linewidth=0.8)
        panel.set(xscale="log", xlabel="time of a step, ours / transformers", title=f"{prompt} tokens of prompt")
        panel.set_yticks(range(len(shapes)), shapes if panel is panels[0] else [])
        panel.set_ylim(len(shapes) - 0.5, -0.5)
        low, high = panel.get_xlim()
        ticks = [tick for tick in _RATIOS if low <= tick <= high]
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[-1].legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def draw_scaling(rows: Sequence[Row], panels: Sequence[Any]) -> None:
    """Answers per second and percentiles of a request's time, by workers."""
    workers = [row["workers"] for row in rows]
    alone = rows[0]["answers_per_s"] / rows[0]["workers"]
    rates, waits = panels
    rates.plot(workers, [alone * number for number in workers], linestyle="--", color="C7", label="in proportion")
    rates.plot(workers, [row["answers_per_s"] for row in rows], marker="o", label="measured")
    rates.set(xlabel="workers", ylabel="answers/s")
    rates.legend(fontsize=8)
    for name in ("p50", "p99"):
        waits.plot(workers, [row["request_s"][name] for row in rows], marker="o", label=name)
    waits.set(xlabel="workers", ylabel="seconds of a request")
    waits.legend(fontsize=8)
    for panel in panels:
        panel.set_xticks(workers)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)


def draw_tails(rows: Sequence[tuple[str, Mapping[str, float]]], tails: Sequence[str], panels: Sequence[Any]) -> None:
    """Percentiles of times on one axis, a line for each quantity."""
    (panel,) = panels
    for y, (_, times) in enumerate(rows):
        values = [times[name] for name in tails]
        panel.plot(values, [y] * len(values), color="C7", linewidth=1, zorder=1)
        for at, value in enumerate(values):
            label = tails[at] if not y else None
            panel.plot([value], [y], marker=_MARKS[at % len(_MARKS)], linestyle="", color=f"C{at}", label=label)
    panel.set(xscale="log", xlabel="milliseconds")
    panel.set_yticks(range(len(rows)), [title for title, _ in rows])
    panel.set_ylim(len(rows) - 0.5, -0.5)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
