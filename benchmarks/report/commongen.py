"""The section of RESULTS.md about CommonGen and Ordered CommonGen, from results/commongen.json."""

from __future__ import annotations

from typing import Any

from benchmarks.report.layout import figure_panels, picture, section, table
from benchmarks.runs import RESULTS_DIRECTORY

PLOT = RESULTS_DIRECTORY / "commongen.svg"
NOTES = """
{sets} sets of concepts of CommonGen's validation split, spread evenly; every answer may have {max_tokens} tokens. In
"Ordered CommonGen" the concepts must occur in their listed order. Each system runs in a process and an environment of
its own, on the same model, one after another on this machine. "concepts", "sets": the share of concepts that occur (by
lemma, or as one of the forms that come with the data; if the order counts, the leading concepts that occur one after
another), and of sets of which all do. ROUGE-L (best reference), BLEU-4, CIDEr: by rouge-score, sacrebleu and
pycocoevalcap, on the same words. "nats": the mean log-prob of the text with its end after its prompt, as the tokenizer
spells it, under the model alone. "prepare": the median time until a constraint is ready, ms; "answer": the median of
the answer's own, ms; only for systems without failed answers. "failed": answers that did not come. A line without
figures: the system cannot express such a constraint.
"""
CHECK = """
The same scores of outputs that other systems' authors published with the data, for the whole split:
"""
MARKERS = "os^vDP*X<>h"  # one more than there are colours, so that no two systems look alike
HEAD = (
    "system", "concepts", "sets", "ROUGE-L", "BLEU-4", "CIDEr", "nats", "words", "prepare", "answer", "failed",
)  # fmt: skip


def commongen_section(run: dict[str, Any]) -> str:
    """One table for each model and family."""
    rows = run["rows"]
    sizes = sorted({row["sets"] for row in rows})
    notes = NOTES.format(sets=" or ".join(map(str, sizes)), max_tokens=run["max_tokens"])
    parts = [picture(PLOT, "complete sets and CIDEr, a point for each system", lambda: draw_plot(rows))]
    for model, family in dict.fromkeys((row["model"], row["family"]) for row in rows):
        group = [row for row in rows if (row["model"], row["family"]) == (model, family)]
        parts += [f"### {family}, {model}", table(HEAD, [_cells(row) for row in group])]
        if failed := [row for row in group if row["errors"] and not is_unsupported(row)]:
            lines = [f"- {row['system']}: {row['errors']} times, first: {row['error']}" for row in failed]
            parts.append("\n".join(["Failed answers:", "", *lines]))
    figures = ("rouge_l", "bleu_4", "cider")
    check = [[row["system"], *(f"{row[name]:.1f}" for name in figures)] for row in run["published"]]
    parts += [CHECK, table(("system", "ROUGE-L", "BLEU-4", "CIDEr"), check)]
    return section("CommonGen", run, notes, *parts)


def draw_plot(rows: list[dict[str, Any]]) -> None:
    """For each model and task the share of complete sets and CIDEr, a mark for each system. Needs matplotlib."""
    tasks = list(dict.fromkeys((row["model"], row["family"]) for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    with figure_panels(PLOT, (4.2 * len(tasks), 4.4), columns=len(tasks)) as panels:
        for panel, (model, family) in zip(panels, tasks, strict=True):
            for row in rows:
                if (row["model"], row["family"]) == (model, family) and not is_unsupported(row):
                    at = systems.index(row["system"])
                    style = {"marker": MARKERS[at % len(MARKERS)], "linestyle": "", "color": f"C{at}"}
                    panel.plot([100 * row["complete"]], [row["cider"]], label=row["system"], **style)
            panel.set(xlabel="sets of which all concepts occur, %", ylabel="CIDEr", title=f"{family}, {model}")
        panels[0].legend(fontsize=7)


def is_unsupported(row: dict[str, Any]) -> bool:
    """Whether the system cannot express any of the constraints."""
    return bool(row["errors"] == row["sets"] and row["error"].startswith("ConstraintNotSupported"))


def _cells(row: dict[str, Any]) -> list[str]:
    if is_unsupported(row):
        return [row["system"], *[""] * (len(HEAD) - 1)]
    log_prob = "" if row["log_prob"] is None else f"{row['log_prob']:.1f}"
    return [
        row["system"], f"{100 * row['coverage']:.1f} %", f"{100 * row['complete']:.0f} %", f"{row['rouge_l']:.1f}",
        f"{row['bleu_4']:.1f}", f"{row['cider']:.1f}", log_prob, f"{row['words']:.1f}",
        *("" if row["errors"] else f"{row[name]:.0f}" for name in ("prepare_ms", "answer_ms")),
        str(row["errors"]) if row["errors"] else "",
    ]  # fmt: skip
