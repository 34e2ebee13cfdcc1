"""The README's table and figures, from the same files as RESULTS.md."""

from __future__ import annotations

import statistics
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.report.decoding import complete_pairs
from benchmarks.report.layout import grouped, table
from benchmarks.report.maskbench import summary_line
from benchmarks.report.quality import cases_ahead, families_ahead, gaps_at
from benchmarks.report.tasks import is_unsupported

README = Path(__file__).resolve().parents[2] / "README.md"
BEGIN, END = "<!-- measured: written by python -m benchmarks.report -->", "<!-- end of measured -->"
OURS, OURS_GREEDY = "ours, 16 beams", "ours, 1 beam"
HMMS = ("HMM, 256 states, 16 beams", "HMM, 1,024 states, 16 beams")
LISTED = (
    OURS, OURS_GREEDY, *HMMS, "constrained beams, 16", "guidance", "llguidance", "Outlines", "XGrammar",
    "LM Format Enforcer", "no constraint, 16 beams",
)  # fmt: skip
SHOWN_MODEL, GAPS_MODEL = "captions", "stories260k"  # of the tasks of the table; RESULTS.md has more
METHODS = {"ours, abs": "ours with the paper's search (`abs`)", "no constraint": "without a constraint"}
COLUMNS = 100  # of the README
COMPARED = {"rouge_l": "ROUGE-L", "bleu_4": "BLEU-4", "cider": "CIDEr"}
HMM_REASON = (
    "The HMM's automaton knows spellings, not words, so that a longer word counts for a concept, and if the order "
    "counts a later concept may also come before an earlier one: it chooses from more texts."
)
REASONS = {
    **dict.fromkeys(HMMS, HMM_REASON),
    "guidance": "guidance decodes greedily with one row a step, where 16 beams take up to 48 rows and 1 beam up "
    "to 3; its texts are less similar to the masked ones. A story with gaps has half as much budget again as it "
    "needs; with short budgets guidance satisfies few patterns, as the first columns show.",
}  # fmt: skip
Run = Mapping[str, Any]


def write_readme(runs: Mapping[str, Run]) -> None:
    """Replace the text between the marks. `runs` are the contents of the files of figures, by name."""
    before, _, remainder = README.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = remainder.partition(END)
    if end:
        README.write_text(f"{before}{BEGIN}\n\n{summary(runs)}\n{END}{after}", encoding="utf-8")


def summary(runs: Mapping[str, Run]) -> str:
    """Tables and sentences as Markdown; missing files have none."""
    parts = [shares(runs), "\n".join(_wrapped(line, "- ") for line in sentences(runs)), losses(runs)]
    return "\n\n".join(block for block in parts if block) + "\n"


def shares(runs: Mapping[str, Run]) -> str:
    """The share of answers that satisfy their constraint, by system and task."""
    columns: dict[str, dict[str, float]] = {}
    for row in runs.get("truncation", {}).get("rows", ()):
        for budget in row["by_times"]:
            if budget["times"] in (1.0, 2.0, 4.0):
                name = f"pattern, {budget['times']:g} x the least budget"
                columns.setdefault(name, {})[row["system"]] = budget["satisfied"] / budget["requests"]
    for row in runs.get("commongen", {}).get("rows", ()):
        if not is_unsupported(row) and row["model"] == SHOWN_MODEL:
            columns.setdefault(row["family"], {})[row["system"]] = row["complete"]
    for (model, system), rows in grouped(runs.get("infilling", {}).get("rows", ()), "model", "system").items():
        coverage = statistics.fmean(row["coverage"] for row in rows)
        if model == GAPS_MODEL:
            columns.setdefault("stories with gaps", {})[system] = coverage
    body = []
    for system in LISTED:
        cells = [f"{100 * column[system]:.0f} %" if system in column else "" for column in columns.values()]
        if any(cells):
            body.append([f"**{system}**" if system == OURS else system, *cells])
    head = ["share of answers that satisfy the constraint", *columns]
    return table(head, body) if columns else ""


def sentences(runs: Mapping[str, Run]) -> list[str]:
    """A line for each further result."""
    lines = []
    if run := runs.get("search_quality"):
        by_beams = {beams: gaps_at(run["rows"], beams) for beams in (16, 64)}
        ranges = [
            f"with {beams} beams {min(gaps):.1f} to {max(gaps):.1f} %" for beams, gaps in by_beams.items() if gaps
        ]
        ahead, cases = cases_ahead(run["rows"])
        wins, families = families_ahead(run["rows"])
        lines.append(
            f"By how much the answers cost more than the best known ones, in {len(by_beams[16])} families of "
            f"constraints: {', '.join(ranges)}. With 8 beams, ours are more probable in the mean of {wins} of "
            f"{families} families than those of the paper's algorithm with 128, and at least as probable in "
            f"{ahead:,} of {cases:,} cases."
        )
    if run := runs.get("decode"):
        lines.append("Time for a request under five keywords, as a multiple of that of transformers' own beam search "
                    f"without a constraint, GPT-2's shape on a CPU: {_ratios(run)}. Beams share "
                    "their prompt, and k beams read 3k rows.")  # fmt: skip
    if run := runs.get("runtimes"):
        lines.append("Seconds for a request with 16 beams, 32 tokens, the built-in model, all in this service's "
                    f"engine: {_seconds(run, 16)}.")  # fmt: skip
    if "maskbench" in runs:
        lines.append(summary_line())
    if run := runs.get("maskbench_checks"):
        counts: Counter[str] = Counter(run["counts"])
        instances = counts.total() - counts["schemas"] - counts["refused"]
        wrong = counts["valid rejected"] + counts["invalid accepted"]
        undecided = counts["valid undecided"] + counts["invalid undecided"]
        lines.append(f"Verdicts of `/check` on {instances:,} instances of {counts['schemas']:,} such schemas: {wrong} "
                     f"wrong, {undecided} undecided; {counts['refused']} schema refused by name.")  # fmt: skip
    if run := runs.get("page"):
        seconds, typing = run["seconds"], sum(run["typing_seconds"].values())
        lines.append(f"From a clone to an answer in the page: {sum(seconds.values()) + typing:.0f} s, {typing:.0f} of "
                    f"them typing at the speed of people of average skill, {seconds['make demo']:.0f} `make demo`, "
                    "which fetches PyTorch.")  # fmt: skip
    return lines


def _ratios(run: Run) -> str:
    ratios = []
    for (prompt, beams), rows in sorted(grouped(run["rows"], "prompt", "beams").items()):
        pairs = complete_pairs(rows)
        ratio = statistics.median(row["ours"]["seconds"] / row["transformers"]["seconds"] for row in pairs)
        ratios.append(f"{ratio:.2f} ({prompt} tokens of prompt, {beams} beams)")
    return ", ".join(ratios)


def _seconds(run: Run, beams: int) -> str:
    rows = [row for row in run["rows"] if row["beams"] == beams]
    names = [METHODS.get(row["method"], row["method"]) for row in rows]
    return ", ".join(f"{name} {statistics.median(row['seconds']):.2f}" for name, row in zip(names, rows, strict=True))


def losses(runs: Mapping[str, Run]) -> str:
    """The tasks where another system beats our 16 beams.

    It does so by a score of the texts, or by being as safe and faster.
    """
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for row in runs.get("commongen", {}).get("rows", ()):
        if not is_unsupported(row):
            task = f"{row['family']}, {row['model']}"
            tasks.setdefault(task, {})[row["system"]] = row | {"satisfied": row["complete"]}
    for row in runs.get("infilling", {}).get("rows", ()):
        task = f"{row['share']:.0%} masked, {row['model']}"
        tasks.setdefault(task, {})[row["system"]] = row | {"satisfied": row["coverage"]}
    lines = [line for task, rows in tasks.items() for line in _better(task, rows)]
    if not lines:
        return ""
    reasons = dict.fromkeys(reason for name, reason in REASONS.items() if any(f" {name} " in line for line in lines))
    head = "Another system scores higher than ours with 16 beams, or satisfies every constraint of a task in less time:"
    bullets = "\n".join(_wrapped(line, "- ") for line in lines)
    return "\n\n".join([_wrapped(head), bullets, *map(_wrapped, reasons)])


def _wrapped(text: str, mark: str = "") -> str:
    return textwrap.fill(text, COLUMNS, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)


def _better(task: str, rows: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    other_rows = [row for name, row in rows.items() if not name.startswith("ours")]
    if OURS not in rows or not other_rows:
        return
    for metric, name in COMPARED.items():
        if metric in rows[OURS]:
            best = max(other_rows, key=lambda row: float(row[metric]))
            if best[metric] > rows[OURS][metric]:
                yield (
                    f"{task}: {name} {rows[OURS][metric]:.1f}, {best['system']} {best[metric]:.1f} "
                    f"({100 * best['satisfied']:.0f} % satisfy the constraint)"
                )
    safe = [row for row in other_rows if row["satisfied"] == 1.0 and "answer_ms" in row]
    for row in safe:
        if _ms(row) < _ms(rows[OURS]):
            greedy = f", ours with 1 beam {_ms(rows[OURS_GREEDY]):.0f}" if OURS_GREEDY in rows else ""
            yield f"{task}: {_ms(rows[OURS]):.0f} ms for an answer, {row['system']} {_ms(row):.0f}{greedy}"


def _ms(row: Mapping[str, Any]) -> float:
    return float(row["prepare_ms"] + row["answer_ms"])
