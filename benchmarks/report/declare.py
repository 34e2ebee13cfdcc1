"""The section of RESULTS.md about predictions under rules of Declare."""

from __future__ import annotations

from typing import Any

from benchmarks.report.layout import section, share_of, table
from benchmarks.runs import Row

NOTES = """
Public event logs and their rules of Declare, as axelmezini/suffix-prediction has them; its authors mined the rules from
the test part, so that the test traces satisfy them. The training part is the one with noise {noise}. The rest of each
test trace is predicted from its first activity, and from half of the median length, one and two more ("half"), with a
budget that 99 % of the training traces keep to. "Greedy" takes the most probable activity, "sampling" draws at
temperature 0.7 as the authors do, "beams" is the search of `/decode` with a scorer, of 8 beams. "Masks" forbid an
activity after which the rules cannot be met at any length, as engines do that know no distances. Ours prune by distance
to the budget, with the same searches and samples.
Satisfied: all rules hold of the whole predicted trace, by an evaluation of the formulas without an automaton.
Similarity: 1 minus the distance of Damerau and Levenshtein (neighbours that are swapped are not edited again) divided
by the longer length, of the rest alone. Times are milliseconds of the processor for one rest; a model's log-probs are
computed once for each beginning, so that a later system finds those of an earlier one.
"""
NEXT_TITLE = "The next event of each test trace, after each beginning:"
NEXT_HEAD = ("log", "model", "events", "right, free", "right, ours", "free keeps the rules")
SUFFIX_HEAD = ("log", "model", "from", "system", "satisfied", "similarity", "activities", "ms")
DIVIDED = "; only the test part was there: four fifths of it, by time, train"


def declare_section(run: dict[str, Any]) -> str:
    """Next events and suffixes by log, model and system."""
    logs = [
        f"- {row['log']}: {row['activities']} activities, {row['rules']} rules, {row['states']} states, compiled in "
        f"{row['compile_s']:.2f} s; {row['training']} training traces, of which {row['training_satisfied']} satisfy "
        f"the rules, {row['test']} test traces, of which {row['test_satisfied']} do{DIVIDED if row['divided'] else ''}."
        for row in run["rows"]
    ]
    models = [(row["log"], model) for row in run["rows"] for model in row["models"]]
    next_rows = [_next_cells(log, model) for log, model in models]
    suffix_rows = [_suffix_cells(log, model["model"], row) for log, model in models for row in model["suffixes"]]
    parts = ["\n".join(logs), table(SUFFIX_HEAD, suffix_rows), NEXT_TITLE, table(NEXT_HEAD, next_rows)]
    notes, details = NOTES.format(noise=run["noise"]), [f"data {run['commit']}"]
    return section("Suffixes under Declare", run, notes, *parts, details=details)


def _next_cells(log: str, model: Row) -> list[str]:
    found = model["next"]
    shares = (share_of(found[name], found["events"]) for name in ("right_free", "right_ours", "kept"))
    return [log, model["model"], f"{found['events']:,}", *shares]


def _suffix_cells(log: str, model: str, row: Row) -> list[str]:
    return [
        log, model, row["from"], row["system"], share_of(row["satisfied"], row["suffixes"]), f"{row['similarity']:.3f}",
        f"{row['length']:.1f}", f"{row['ms']:.2f}",
    ]  # fmt: skip
