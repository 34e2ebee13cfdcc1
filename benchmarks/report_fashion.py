"""The section of RESULTS.md about Ordered Fashion-MNIST, and its figure, from results/fashion.json."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.plots import drawn, picture
from benchmarks.report_tables import table

PLOT = RESULTS_DIRECTORY / "fashion.svg"
PAPER = {("CNN", 0): (91.03, 64.09), ("CNN-LSTM", 0): (94.07, 74.69), ("abs", 10): (95.56, 80.66)}
GOALS = (("CNN", 0, 91.0, 0.0), ("abs", 10, 95.6, 80.7))  # in percent: images, sequences
NOTES = """
Images of clothes in sequences that satisfy the paper's 13 formulas: {allowed} sequences of labels do. Each sequence is
one of them, all with the same chance, {length:.2f} pieces long in the mean, with an image of Fashion-MNIST's test split
for each piece. {repeats} repeats, each with its own CNN, LSTM and {count:,} sequences; percent, mean over the repeats
and their range. "Satisfy": answers that satisfy the formulas. The search and the exact decoding read the log-probs of
the CNN that stands alone in the first row, and train nothing. The time is for one sequence, after the CNN.
"""


def fashion_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown; draws the figure where there is matplotlib."""
    repeats = run["repeats"]
    found = by_system(repeats)
    body = [
        [_name(system, beams), *(_percent(found[system, beams], part) for part in ("accuracy", "sequence_accuracy")),
         _papers(system, beams), _percent(found[system, beams], "satisfied"),
         f"{statistics.median(one['ms'] for one in found[system, beams]):.2f}"]
        for system, beams in found
    ]  # fmt: skip
    head = ["system", "images", "sequences", "paper", "satisfy", "ms"]
    notes = NOTES.format(
        allowed=repeats[0]["allowed"], length=statistics.fmean(one["length"] for one in repeats),
        repeats=len(repeats), count=repeats[0]["sequences"],
    )
    whole = [one["test_accuracy"] for one in repeats]
    parts = [
        "## Ordered Fashion-MNIST", f"{run['date']}; {run['machine']}; `{run['command']}`", notes, table(head, body),
        f"The CNN on the whole test split: {100 * statistics.fmean(whole):.2f} % of the images. {_goals(found)}",
        picture(PLOT, "accuracy by the number of beams", lambda: draw_plot(found)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def by_system(repeats: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """What each system, with so many beams, has scored in each repeat."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for one in repeats:
        for scored in one["scored"]:
            found.setdefault((scored["system"], scored["beams"]), []).append(scored)
    return found


def _name(system: str, beams: int) -> str:
    if beams:
        return f"CNN, `abs`, {beams} beam{'s' * (beams > 1)}"
    return {"exact": "CNN, exact decoding"}.get(system, system)


def _percent(rows: list[dict[str, Any]], part: str) -> str:
    values = [100 * row[part] for row in rows]
    middle, low, high = statistics.fmean(values), min(values), max(values)
    return f"{middle:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{middle:.2f} ({low:.2f}-{high:.2f})"


def _papers(system: str, beams: int) -> str:
    images, sequences = PAPER.get((system, beams), (None, None))
    return "" if images is None else f"{images} / {sequences}"


def _goals(found: dict[tuple[str, int], list[dict[str, Any]]]) -> str:
    said = []
    for system, beams, images, sequences in GOALS:
        rows = found[system, beams]
        own = [100 * statistics.fmean(row[part] for row in rows) for part in ("accuracy", "sequence_accuracy")]
        kept = own[0] >= images and own[1] >= sequences
        wanted = f"{images:g}" + (f" / {sequences:g}" if sequences else "")
        said.append(f"{_name(system, beams)}, {wanted}: {'kept' if kept else 'missed'}")
    return f"Goals: {'; '.join(said)}."


def draw_plot(found: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
    """The paper's figure: accuracy of images and of sequences by the number of beams. Needs matplotlib."""
    beams = sorted(k for system, k in found if system == "abs")
    with drawn(PLOT, (9, 3.4), columns=2) as panels:
        for panel, part, title, place in zip(
            panels, ("accuracy", "sequence_accuracy"), ("images", "sequences"), (0, 1), strict=True
        ):
            rows = [[100 * row[part] for row in found["abs", k]] for k in beams]
            panel.fill_between(beams, list(map(min, rows)), list(map(max, rows)), alpha=0.2, color="tab:blue")
            panel.plot(beams, [statistics.fmean(row) for row in rows], marker="o", color="tab:blue", label="CNN, abs")
            for system, colour in (("exact", "tab:green"), ("CNN-LSTM", "tab:orange"), ("CNN", "tab:red")):
                level = 100 * statistics.fmean(row[part] for row in found[system, 0])
                panel.axhline(level, color=colour, linestyle="--", label=_name(system, 0))
            paper = PAPER["abs", 10][place]
            panel.plot([10], [paper], marker="x", color="black", linestyle="", label="paper, 10 beams")
            panel.set_xscale("log", base=2)
            panel.set_xticks(beams, [str(k) for k in beams])
            panel.set_xlabel("beams")
            panel.set_title(f"{title} classified rightly, %")
        panels[0].legend(fontsize=8)
