"""The section of RESULTS.md about CommonGen and Ordered CommonGen, from results/commongen.json."""

from __future__ import annotations

from typing import Any

from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.plots import drawn, picture
from benchmarks.report_tables import table, where

PLOT = RESULTS_DIRECTORY / "commongen.svg"

NOTES = """
{sets} sets of concepts of CommonGen's validation split, spread evenly; every answer may have {max_tokens} tokens. In
"Ordered CommonGen" the concepts are to come in their listed order. Each system runs in a process and an environment of
its own, on the same model, one after another on this machine. "concepts", "sets": the share of concepts that occur (by
lemma, or as one of the forms that come with the data; where the order counts, of those that come one after another from
the first), and of sets of which all do. ROUGE-L (best reference), BLEU-4, CIDEr: by rouge-score, sacrebleu and
pycocoevalcap, on the same words. "nats": the mean log-prob of the text with its end after its prompt, spelled as the
tokenizer spells it, under the model alone. "prepare": the median time until a constraint is ready, ms; "answer": the
median of the answer's own, ms; where every answer came. "failed": those that did not. A line without figures: the
system cannot say such a constraint.
"""
CHECK = """
The code that judges, on what other systems wrote for the whole split (outputs that were published with the data):
"""
MARKS = "os^vDP*X<>h"  # one more than there are colours, so that no two of many systems look alike
HEAD = (
    "system", "concepts", "sets", "ROUGE-L", "BLEU-4", "CIDEr", "nats", "words", "prepare", "answer", "failed",
)  # fmt: skip


def commongen_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    rows = run["rows"]
    sets = sorted({row["sets"] for row in rows})
    notes = NOTES.format(sets=" or ".join(map(str, sets)), max_tokens=run["max_tokens"])
    plot = picture(PLOT, "sets that are kept and CIDEr, a point for each system", lambda: draw_plot(rows))
    parts = ["## CommonGen", where(run), notes, *run.get("notes", ()), plot]
    for model, family in dict.fromkeys((row["model"], row["family"]) for row in rows):
        own = [row for row in rows if (row["model"], row["family"]) == (model, family)]
        parts += [f"### {family}, {model}", table(HEAD, [_cells(row) for row in own])]
        if failed := [row for row in own if row["errors"] and not cannot_say(row)]:
            lines = [f"- {row['system']}: {row['errors']} times, first: {row['error']}" for row in failed]
            parts.append("\n".join(["What did not come:", "", *lines]))
    figures = ("rouge_l", "bleu_4", "cider")
    check = [[row["system"], *(f"{row[name]:.1f}" for name in figures)] for row in run["stored"]]
    parts += [CHECK, table(("system", "ROUGE-L", "BLEU-4", "CIDEr"), check)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def draw_plot(rows: list[dict[str, Any]]) -> None:
    """For each model and task the share of sets that is kept and CIDEr, a mark for each system. Needs matplotlib."""
    tasks = list(dict.fromkeys((row["model"], row["family"]) for row in rows))
    systems = list(dict.fromkeys(row["system"] for row in rows))
    with drawn(PLOT, (4.2 * len(tasks), 4.4), columns=len(tasks)) as panels:
        for panel, (model, family) in zip(panels, tasks, strict=True):
            for row in rows:
                if (row["model"], row["family"]) == (model, family) and not cannot_say(row):
                    at = systems.index(row["system"])
                    x, y = [100 * row["whole"]], [row["cider"]]
                    panel.plot(x, y, marker=MARKS[at % len(MARKS)], linestyle="", color=f"C{at}", label=row["system"])
            panel.set(xlabel="sets of which all concepts occur, %", ylabel="CIDEr", title=f"{family}, {model}")
        panels[0].legend(fontsize=7)


def cannot_say(row: dict[str, Any]) -> bool:
    """Whether the system has no way to say any of the constraints."""
    return bool(row["errors"] == row["sets"] and row["error"].startswith("CannotSay"))


def _cells(row: dict[str, Any]) -> list[str]:
    if cannot_say(row):
        return [row["system"], *[""] * (len(HEAD) - 1)]
    log_prob = "" if row["log_prob"] is None else f"{row['log_prob']:.1f}"
    return [
        row["system"], f"{100 * row['coverage']:.1f} %", f"{100 * row['whole']:.0f} %", f"{row['rouge_l']:.1f}",
        f"{row['bleu_4']:.1f}", f"{row['cider']:.1f}", log_prob, f"{row['words']:.1f}",
        *("" if row["errors"] else f"{row[name]:.0f}" for name in ("prepare_ms", "answer_ms")),
        str(row["errors"]) if row["errors"] else "",
    ]  # fmt: skip
