"""The README's table of what was measured, from the same files as RESULTS.md: no figure there is typed by hand."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.report_commongen import cannot_say
from benchmarks.report_fashion import by_system
from benchmarks.report_quality import ahead_and_asked, gaps_at, means_ahead_and_asked
from benchmarks.report_tables import table

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN, END = "<!-- measured: written by python -m benchmarks.report -->", "<!-- end of measured -->"
OURS, ALONE = "ours, 16 beams", "ours, 1 beam"
SHOWN = (
    OURS, ALONE, "HMM, 16 beams", "constrained beams, 16", "guidance", "llguidance", "Outlines", "XGrammar",
    "LM Format Enforcer", "no constraint, 16 beams",
)  # fmt: skip
PARTS = ("accuracy", "sequence_accuracy")
COMPARED = {"rouge_l": "ROUGE-L", "bleu_4": "BLEU-4", "cider": "CIDEr"}
REASONS = {
    "HMM, 16 beams": "The HMM's automaton knows spellings, not words, so that a longer word counts for a concept, and "
    "where the order counts a later concept may come before an earlier one, too: it has more texts to choose from.",
    "guidance": "guidance writes one text greedily, a row for each step, where 16 beams are up to 80 rows and 1 beam "
    "up to 4; what it fills in is less like what was masked. A story with gaps has half as much budget again as it "
    "takes; where the budget matters guidance keeps few patterns, as the first columns show.",
}  # fmt: skip
Run = Mapping[str, Any]


def write_readme(runs: Mapping[str, Run]) -> None:
    """Replace what stands between the marks. `runs` are the files' contents by their names without .json."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if end:
        README.write_text(f"{before}{BEGIN}\n\n{summary(runs)}\n{END}{after}", encoding="utf-8")


def summary(runs: Mapping[str, Run]) -> str:
    """Tables and sentences as Markdown; what was not measured is left out."""
    parts = [shares(runs), "\n".join(f"- {line}" for line in sentences(runs)), losses(runs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def shares(runs: Mapping[str, Run]) -> str:
    """The share of answers that keep their constraint, by system and task."""
    columns: dict[str, dict[str, float]] = {}
    for row in runs.get("truncation", {}).get("rows", ()):
        for one in row["by_times"]:
            if one["times"] in (1.0, 2.0, 4.0):
                name = f"pattern, {one['times']:g} x the least budget"
                columns.setdefault(name, {})[row["system"]] = one["satisfied"] / one["asked"]
    for row in runs.get("commongen", {}).get("rows", ()):
        if not cannot_say(row):
            columns.setdefault(f"{row['family']}, {row['model']}", {})[row["system"]] = row["whole"]
    gaps: dict[tuple[str, str], list[float]] = {}
    for row in runs.get("infilling", {}).get("rows", ()):
        gaps.setdefault((row["model"], row["system"]), []).append(row["coverage"])
    for (model, system), kept in gaps.items():
        columns.setdefault(f"stories with gaps, {model}", {})[system] = statistics.fmean(kept)
    body = []
    for system in SHOWN:
        cells = [f"{100 * column[system]:.0f} %" if system in column else "" for column in columns.values()]
        if any(cells):
            body.append([f"**{system}**" if system == OURS else system, *cells])
    head = ["share of answers that keep the constraint", *columns]
    return table(head, body) if columns else ""


def sentences(runs: Mapping[str, Run]) -> list[str]:
    """A line for each further claim."""
    said = []
    if run := runs.get("search_quality"):
        near = {beams: gaps_at(run["rows"], beams) for beams in (16, 64)}
        told = [f"with {beams} beams {min(gaps):.1f} to {max(gaps):.1f} %" for beams, gaps in near.items() if gaps]
        ahead, asked = ahead_and_asked(run["rows"])
        more, families = means_ahead_and_asked(run["rows"])
        said.append(
            f"How probable the answers are, in nats below the best known, in {len(near[16])} families of constraints: "
            f"{', '.join(told)}. With 8 beams, beside the paper's algorithm with 128: more probable in the mean of "
            f"{more} of {families} families, and at least as probable in {ahead:,} of {asked:,} cases."
        )
    if run := runs.get("decode"):
        said.append("Time for a request under five keywords, as a multiple of transformers' beam search without a "
                    f"constraint, GPT-2's shape on a CPU: {_ratios(run)}.")  # fmt: skip
    if run := runs.get("runtimes"):
        said.append(f"Seconds for a request with 16 beams, 32 tokens, the built-in model: {_seconds(run, 16)}.")
    if run := runs.get("fashion"):
        said.append(f"Ordered Fashion-MNIST, images and sequences classified rightly: {_fashion(run)}.")
    if run := runs.get("page"):
        seconds, typing = run["seconds"], sum(run["typing_seconds"].values())
        said.append(f"From a clone to an answer in the page: {sum(seconds.values()) + typing:.0f} s, {typing:.0f} of "
                    f"them typing at the speed of people of average skill, {seconds['make demo']:.0f} `make demo`, "
                    "which fetches PyTorch.")  # fmt: skip
    return said


def _ratios(run: Run) -> str:
    found = []
    for prompt, beams in sorted({(row["prompt"], row["beams"]) for row in run["rows"]}):
        rows = [row for row in run["rows"] if (row["prompt"], row["beams"]) == (prompt, beams)]
        whole = [row for row in rows if "error" not in row["ours"] and "error" not in row["transformers"]]
        ratio = statistics.median(row["ours"]["seconds"] / row["transformers"]["seconds"] for row in whole)
        found.append(f"{ratio:.2f} ({prompt} tokens of prompt, {beams} beams)")
    return ", ".join(found)


def _seconds(run: Run, beams: int) -> str:
    rows = [row for row in run["rows"] if row["beams"] == beams]
    return ", ".join(f"{row['method']} {statistics.median(row['seconds']):.2f}" for row in rows)


def _fashion(run: Run) -> str:
    scored, told = by_system(run["repeats"]), []
    for system, beams in (("CNN", 0), ("CNN-LSTM", 0), ("abs", 10), ("exact", 0)):
        images, sequences = (100 * statistics.fmean(row[part] for row in scored[system, beams]) for part in PARTS)
        told.append(f"{f'{system} with {beams} beams' if beams else system} {images:.1f} and {sequences:.1f} %")
    return ", ".join(told)


def losses(runs: Mapping[str, Run]) -> str:
    """Where another system is better than ours with 16 beams by what the texts are judged by, or as safe and faster."""
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for row in runs.get("commongen", {}).get("rows", ()):
        if not cannot_say(row):
            tasks.setdefault(f"{row['family']}, {row['model']}", {})[row["system"]] = row | {"kept": row["whole"]}
    for row in runs.get("infilling", {}).get("rows", ()):
        task = f"{row['share']:.0%} masked, {row['model']}"
        tasks.setdefault(task, {})[row["system"]] = row | {"kept": row["coverage"]}
    found = [line for task, rows in tasks.items() for line in _better(task, rows)]
    if not found:
        return ""
    why = [reason for name, reason in REASONS.items() if any(f" {name} " in line for line in found)]
    head = "Where another is better than ours with 16 beams, or keeps every constraint of a task in less time:"
    return "\n\n".join([head, "\n".join(f"- {line}" for line in found), *why])


def _better(task: str, rows: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    others = [row for name, row in rows.items() if not name.startswith("ours")]
    if OURS not in rows or not others:
        return
    for metric, name in COMPARED.items():
        if metric in rows[OURS]:
            best = max(others, key=lambda row: float(row[metric]))
            if best[metric] > rows[OURS][metric]:
                yield (
                    f"{task}: {name} {rows[OURS][metric]:.1f}, {best['system']} {best[metric]:.1f} "
                    f"({100 * best['kept']:.0f} % keep the constraint)"
                )
    safe = [row for row in others if row["kept"] == 1.0 and "answer_ms" in row]
    for row in safe:
        if _ms(row) < _ms(rows[OURS]):
            alone = f", ours with 1 beam {_ms(rows[ALONE]):.0f}" if ALONE in rows else ""
            yield f"{task}: {_ms(rows[OURS]):.0f} ms for an answer, {row['system']} {_ms(row):.0f}{alone}"


def _ms(row: Mapping[str, Any]) -> float:
    return float(row["prepare_ms"] + row["answer_ms"])
