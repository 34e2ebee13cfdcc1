"""The section of RESULTS.md about Ordered Fashion-MNIST, and its figure, from results/fashion.json."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.report.layout import figure_panels, picture, section, table, verdict
from benchmarks.runs import RESULTS_DIRECTORY

PLOT = RESULTS_DIRECTORY / "fashion.svg"
PAPER = {("CNN", 0): (91.03, 64.09), ("CNN-LSTM", 0): (94.07, 74.69), ("abs", 10): (95.56, 80.66)}
GOALS = (("CNN", 0, 91.0, 0.0), ("abs", 10, 95.6, 80.7))  # in percent: images, sequences
NOTES = """
Images of clothes in sequences that satisfy the paper's 13 formulas: {allowed} sequences of labels do. Each sequence is
one of them, all with the same chance, {length:.2f} pieces long in the mean, with an image of Fashion-MNIST's test split
for each piece. {repeats} repeats, each with its own CNN, LSTM and {count:,} sequences; percent, mean over the repeats
and their range. "Satisfy": answers that satisfy the formulas. The search and the exact decoding use the log-probs of
the CNN of the first row, without further training. The time is for one sequence, after the CNN.
"""


def fashion_section(run: dict[str, Any]) -> str:
    """Accuracy by system and number of beams."""
    repeats = run["repeats"]
    scores = by_system(repeats)
    body = [
        [_name(system, beams), *(_percent(rows, figure) for figure in ("accuracy", "sequence_accuracy")),
         _paper_figures(system, beams), _percent(rows, "satisfied"),
         f"{statistics.median(row['ms'] for row in rows):.2f}"]
        for (system, beams), rows in scores.items()
    ]  # fmt: skip
    notes = NOTES.format(
        allowed=repeats[0]["allowed"], length=statistics.fmean(each["length"] for each in repeats),
        repeats=len(repeats), count=repeats[0]["sequences"],
    )  # fmt: skip
    accuracy = 100 * statistics.fmean(each["test_accuracy"] for each in repeats)
    return section(
        "Ordered Fashion-MNIST", run, notes, table(["system", "images", "sequences", "paper", "satisfy", "ms"], body),
        f"The CNN on the whole test split: {accuracy:.2f} % of the images. {_goals(scores)}",
        picture(PLOT, "accuracy by the number of beams", lambda: draw_plot(scores)),
    )  # fmt: skip


def by_system(repeats: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """The scores of each repeat by system and number of beams."""
    scores: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for each in repeats:
        for score in each["scored"]:
            scores.setdefault((score["system"], score["beams"]), []).append(score)
    return scores


def _name(system: str, beams: int) -> str:
    if beams:
        return f"CNN, `abs`, {beams} beam{'s' * (beams > 1)}"
    return {"exact": "CNN, exact decoding"}.get(system, system)


def _percent(rows: list[dict[str, Any]], figure: str) -> str:
    values = [100 * row[figure] for row in rows]
    mean, low, high = statistics.fmean(values), min(values), max(values)
    return f"{mean:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{mean:.2f} ({low:.2f}-{high:.2f})"


def _paper_figures(system: str, beams: int) -> str:
    images, sequences = PAPER.get((system, beams), (None, None))
    return "" if images is None else f"{images} / {sequences}"


def _goals(scores: dict[tuple[str, int], list[dict[str, Any]]]) -> str:
    goals = []
    for system, beams, images, sequences in GOALS:
        rows = scores[system, beams]
        means = [100 * statistics.fmean(row[figure] for row in rows) for figure in ("accuracy", "sequence_accuracy")]
        target = f"{images:g}" + (f" / {sequences:g}" if sequences else "")
        goals.append(f"{_name(system, beams)}, {target}: {verdict(means[0] >= images and means[1] >= sequences)}")
    return f"Goals: {'; '.join(goals)}."


def draw_plot(scores: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
    """The paper's figure: accuracy of images and of sequences by the number of beams. Needs matplotlib."""
    beams = sorted(k for system, k in scores if system == "abs")
    with figure_panels(PLOT, (9, 3.4), columns=2) as panels:
        for panel, figure, title, at in zip(
            panels, ("accuracy", "sequence_accuracy"), ("images", "sequences"), (0, 1), strict=True
        ):
            rows = [[100 * row[figure] for row in scores["abs", k]] for k in beams]
            panel.fill_between(beams, list(map(min, rows)), list(map(max, rows)), alpha=0.2, color="tab:blue")
            panel.plot(beams, [statistics.fmean(row) for row in rows], marker="o", color="tab:blue", label="CNN, abs")
            for system, colour in (("exact", "tab:green"), ("CNN-LSTM", "tab:orange"), ("CNN", "tab:red")):
                level = 100 * statistics.fmean(row[figure] for row in scores[system, 0])
                panel.axhline(level, color=colour, linestyle="--", label=_name(system, 0))
            paper = PAPER["abs", 10][at]
            panel.plot([10], [paper], marker="x", color="black", linestyle="", label="paper, 10 beams")
            panel.set_xscale("log", base=2)
            panel.set_xticks(beams, [str(k) for k in beams])
            panel.set_xlabel("beams")
            panel.set_title(f"{title} classified rightly, %")
        panels[0].legend(fontsize=8)
