"""The section of RESULTS.md about text infilling, from results/infilling.json."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.report.layout import figure_panels, picture, section, table
from benchmarks.runs import RESULTS_DIRECTORY

PLOT = RESULTS_DIRECTORY / "infilling.svg"
NOTES = """
{count} stories of the TinyStories corpus with gaps, a word, a run of words or a sentence each, by ILM's protocol
(`benchmarks/tasks/gapped_stories.py`). A system gets the first words and a regex of the rest, with a budget of half as
much again as the story's tokens. "whole": the share of answers that match the regex in full, by `re`; BLEU-4
(sacrebleu) and ROUGE-L (rouge-score) of the completed story against the original. All on the same model, each in a
process of its own. "prepare", "answer": medians in ms, and their mean over all shares. The stories models were trained
on this corpus: the figures compare systems, and say nothing about the models.
"""


def infilling_section(run: dict[str, Any]) -> str:
    """One table for each model."""
    rows = run["rows"]
    parts = [picture(PLOT, "answers that are whole, and BLEU-4, by the share that is masked", lambda: draw_plot(rows))]
    shares = sorted({row["share"] for row in rows})
    head = ["system", *(f"{name}, {share:.0%}" for share in shares for name in ("ROUGE-L", "BLEU-4", "whole"))]
    for model in dict.fromkeys(row["model"] for row in rows):
        body = []
        for system in dict.fromkeys(row["system"] for row in rows if row["model"] == model):
            by_share = {row["share"]: row for row in rows if (row["model"], row["system"]) == (model, system)}
            cells = [cell for share in shares for cell in _cells(by_share.get(share))]
            body.append([system, *cells, *_times(list(by_share.values()))])
        parts += [f"### {model}", table([*head, "prepare", "answer"], body)]
    return section("Text infilling", run, NOTES.format(count=rows[0]["stories"]), *parts)


def draw_plot(rows: list[dict[str, Any]]) -> None:
    """Answers that match and BLEU-4 by the share that is masked, a line for each system. Needs matplotlib."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    figures = (("coverage", 100, "answers that match, %"), ("bleu_4", 1, "BLEU-4"))
    with figure_panels(PLOT, (8, 3 * len(models)), rows=len(models), columns=len(figures)) as panels:
        for at, panel in enumerate(panels):
            model, (name, scale, label) = models[at // len(figures)], figures[at % len(figures)]
            for system in dict.fromkeys(row["system"] for row in rows):
                points = [row for row in rows if (row["model"], row["system"]) == (model, system)]
                x, y = [100 * row["share"] for row in points], [scale * row[name] for row in points]
                panel.plot(x, y, marker="o", label=system)
            panel.set(xlabel="masked, %", ylabel=label, title=model)
        panels[0].legend(fontsize=7)


def _cells(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    failed = f" ({row['errors']} failed)" if row["errors"] else ""
    return [f"{row['rouge_l']:.1f}", f"{row['bleu_4']:.1f}", f"{100 * row['coverage']:.0f} %{failed}"]


def _times(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{statistics.fmean(row[name] for row in rows):.0f}" for name in ("prepare_ms", "answer_ms")]
