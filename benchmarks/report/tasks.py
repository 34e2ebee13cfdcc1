"""The sections of RESULTS.md about the tasks, with their figures."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from benchmarks.report.layout import MIB, grouped, picture, section, short_number, table, verdict
from benchmarks.runs import Row

PAPER = {("CNN", 0): (91.03, 64.09), ("CNN-LSTM", 0): (94.07, 74.69), ("abs", 10): (95.56, 80.66)}
FASHION_GOALS = (("CNN", 0, 91.0, 0.0), ("abs", 10, 95.6, 80.7))  # in percent: images, sequences
FASHION_NOTES = """
Images of clothes in sequences that satisfy the paper's 13 formulas: {allowed} sequences of labels do. Each sequence is
one of them, all with the same chance, {length:.2f} pieces long in the mean, with an image of Fashion-MNIST's test split
for each piece. {repeats} repeats, each with its own CNN, LSTM and {count:,} sequences; percent, mean over the repeats
and their range. "Satisfy": answers that satisfy the formulas. The search and the exact decoding use the log-probs of
the CNN of the first row, without further training. The time is for one sequence, after the CNN.
"""
TRUNCATION_NOTES = """
{count} patterns of ten kinds (`benchmarks/tasks/truncation.py`), whose shortest texts have {low} to {high} tokens
(median {median:g}), including the end of the text. Each decoder gets each pattern with budgets of several times that
minimum. In the table: the share of its answers that match their pattern in full, by `re`; an answer that does not come
does not match. All run on the built-in model, one after another on this machine; the others greedily, as they support
no beams. "ms": the mean for one answer over all budgets, including compiling the pattern.
"""
COMMONGEN_NOTES = """
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
PUBLISHED_NOTES = """
The same scores of outputs that other systems' authors published with the data, for the whole split:
"""
POLICIES_NOTES = """
The tools and data of tau-bench and tau2, run offline, and rules over the order of events written from their policy
texts (`benchmarks/policies/domains.py`); the texts of both say the same of the order. An agent has {calls} calls, and
the same seeds for each system. "random" proposes any event with any arguments; "adversarial" proposes updates,
transfers and replies. A language model proposes names of tools, or a reply, which it draws after the last events in
words; arguments are drawn as for "random". An agent that gets nothing of what it wants proposes any event. "masks"
forbid an event after which a rule cannot be met by anything, as engines do that look one step ahead. "conform": all
rules hold at the end. "broken": a rule was broken by an event; "unmet": the conversation ended before a rule was met,
within the calls; "stuck": no event was allowed, a dead end. "decision ms" is the time of one decision after any number
of events, without the check of arguments; "model ms" is the median time in which a model draws eight names.
"""
SERVED_NOTES = """
Through the service: `POST /generate` with all tools, the rules and the calls that are left writes each event of a
conversation, with arguments of the built-in model's own; its prompt is the user's first message alone. Beside each
request, the same one is sent without the rules; its answer is not used. "a → b": without and with the rules. "overhead
ms" is the time of a request outside the search: HTTP, the rules' decision, and the compilation of the constraint where
no other request had it ("new constraints", with the median of their compilations). With rules the answers are calls,
which have more tokens than the replies that this model writes without them.
"""
MARKERS = "os^vDP*X<>h"  # one more than there are colours, so that no two systems look alike
COMMONGEN_HEAD = (
    "system", "concepts", "sets", "ROUGE-L", "BLEU-4", "CIDEr", "nats", "words", "prepare", "answer", "failed",
)  # fmt: skip
INFILLING_NOTES = """
{count} stories of the TinyStories corpus with gaps, a word, a run of words or a sentence each, by ILM's protocol
(`benchmarks/tasks/gapped_stories.py`). A system gets the first words and a regex of the rest, with a budget of half as
much again as the story's tokens. "whole": the share of answers that match the regex in full, by `re`; BLEU-4
(sacrebleu) and ROUGE-L (rouge-score) of the completed story against the original. All on the same model, each in a
process of its own. "prepare", "answer": medians in ms, and their mean over all shares. The stories models were trained
on this corpus: the figures compare systems, and say nothing about the models.
"""
HMM_NOTES = """
The HMMs of the look-ahead decoder. Ctrl-G's distillation initializes the states as clusters of the model's hidden
states at the tokens of sampled texts; then Baum-Welch over all of them. "nats": the mean log-likelihood of a text, with
its end or up to {length} tokens, of the texts of the estimation and of others that the model wrote. Times are those of
the processor, "sampling" that of all texts once; "peak" is the resident set of the process, with model and texts.
Ctrl-G's published HMMs have 32,768 states.
"""
RELEASES_NOTES = """
The systems that the other sections compare with, and the newest version that the index of packages had on that date.
Constrained beam search moved from transformers to its Hub, hence an older version. "The models of all" is PyTorch.
"""
INFILLING_PANELS = (("coverage", 100, "answers that match, %"), ("bleu_4", 1, "BLEU-4"))
Scores = dict[tuple[str, int], list[Row]]  # by system and number of beams


def fashion_section(run: dict[str, Any]) -> str:
    """Accuracy by system and number of beams."""
    repeats = run["repeats"]
    scores = by_system(repeats)
    body = [
        [_fashion_name(system, beams), *(_percent(rows, figure) for figure in ("accuracy", "sequence_accuracy")),
         _paper_figures(system, beams), _percent(rows, "satisfied"),
         f"{statistics.median(row['ms'] for row in rows):.2f}"]
        for (system, beams), rows in scores.items()
    ]  # fmt: skip
    notes = FASHION_NOTES.format(
        allowed=repeats[0]["allowed"], length=statistics.fmean(repeat["length"] for repeat in repeats),
        repeats=len(repeats), count=repeats[0]["sequences"],
    )  # fmt: skip
    accuracy = 100 * statistics.fmean(repeat["test_accuracy"] for repeat in repeats)
    return section(
        "Ordered Fashion-MNIST", run, notes, table(["system", "images", "sequences", "paper", "satisfy", "ms"], body),
        f"The CNN on the whole test split: {accuracy:.2f} % of the images. {_fashion_goals(scores)}",
        picture("fashion", "accuracy by the number of beams", partial(draw_fashion, scores), (9, 3.4), (1, 2)),
    )  # fmt: skip


def by_system(repeats: list[Row]) -> Scores:
    """The scores of each repeat by system and number of beams."""
    return grouped((score for each in repeats for score in each["scored"]), "system", "beams")


def _fashion_name(system: str, beams: int) -> str:
    if beams:
        return f"CNN, `abs`, {beams} beam{'s' * (beams > 1)}"
    return {"exact": "CNN, exact decoding"}.get(system, system)


def _percent(rows: list[dict[str, Any]], figure: str) -> str:
    values = [100 * row[figure] for row in rows]
    mean, low, high = (f"{value:.2f}" for value in (statistics.fmean(values), min(values), max(values)))
    return mean if low == high else f"{mean} ({low}-{high})"


def _paper_figures(system: str, beams: int) -> str:
    images, sequences = PAPER.get((system, beams), (None, None))
    return "" if images is None else f"{images} / {sequences}"


def _fashion_goals(scores: Scores) -> str:
    goals = []
    for system, beams, images, sequences in FASHION_GOALS:
        rows = scores[system, beams]
        means = [100 * statistics.fmean(row[figure] for row in rows) for figure in ("accuracy", "sequence_accuracy")]
        target = f"{images:g}" + (f" / {sequences:g}" if sequences else "")
        is_met = means[0] >= images and means[1] >= sequences
        goals.append(f"{_fashion_name(system, beams)}, {target}: {verdict(is_met)}")
    return f"Goals: {'; '.join(goals)}."


def draw_fashion(scores: Scores, panels: list[Any]) -> None:
    """The paper's figure: image and sequence accuracy by number of beams."""
    beams = sorted(k for system, k in scores if system == "abs")
    for panel, figure, title, at in zip(
        panels, ("accuracy", "sequence_accuracy"), ("images", "sequences"), (0, 1), strict=True
    ):
        rows = [[100 * row[figure] for row in scores["abs", k]] for k in beams]
        panel.fill_between(beams, list(map(min, rows)), list(map(max, rows)), alpha=0.2, color="tab:blue")
        panel.plot(beams, [statistics.fmean(row) for row in rows], marker="o", color="tab:blue", label="CNN, abs")
        for system, colour in (("exact", "tab:green"), ("CNN-LSTM", "tab:orange"), ("CNN", "tab:red")):
            level = 100 * statistics.fmean(row[figure] for row in scores[system, 0])
            panel.axhline(level, color=colour, linestyle="--", label=_fashion_name(system, 0))
        paper = PAPER["abs", 10][at]
        panel.plot([10], [paper], marker="x", color="black", linestyle="", label="paper, 10 beams")
        panel.set_xscale("log", base=2)
        panel.set_xticks(beams, [str(k) for k in beams])
        panel.set_xlabel("beams")
        panel.set_title(f"{title} classified rightly, %")
    panels[0].legend(fontsize=8)


def truncation_section(run: dict[str, Any]) -> str:
    """The share of answers that satisfy, by budget."""
    rows, tokens = run["rows"], run["tokens_min"]
    body = [
        [row["system"], *(f"{100 * _share(budget):.0f} %" for budget in row["by_times"]),
         f"{statistics.fmean(budget['ms'] for budget in row['by_times']):.0f}"]
        for row in rows
    ]  # fmt: skip
    notes = TRUNCATION_NOTES.format(count=len(tokens), low=tokens[0], high=tokens[-1], median=statistics.median(tokens))
    return section(
        "When the budget runs out", run, notes,
        table(["decoder", *(f"{budget['times']:g} x" for budget in rows[0]["by_times"]), "ms"], body),
        _examples(rows),
        picture("truncation", "share of answers that satisfy, by budget", partial(draw_truncation, rows), (7, 3.6)),
    )  # fmt: skip


def _share(budget: dict[str, Any]) -> float:
    return float(budget["satisfied"] / budget["requests"])


def _examples(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        for example in row["missed"][:1]:
            answer = f"`{example['text']}`" if not example["error"] else f"nothing ({example['error']})"
            lines.append(f"- {row['system']}, `{example['pattern']}` within {example['budget']} tokens: {answer}")
    return "\n".join(["Examples of answers that do not match:", "", *lines]) if lines else ""


def draw_truncation(rows: list[Row], panels: list[Any]) -> None:
    """The share that satisfies by the budget, a line for each decoder."""
    (panel,) = panels
    for row in rows:
        x = [budget["times"] for budget in row["by_times"]]
        panel.plot(x, [100 * _share(budget) for budget in row["by_times"]], marker="o", label=row["system"])
    panel.set_xlabel("budget, in least budgets")
    panel.set_ylabel("answers that satisfy, %")
    panel.legend(fontsize=8)


def commongen_section(run: dict[str, Any]) -> str:
    """One table for each model and family."""
    tasks = grouped(run["rows"], "model", "family")
    sizes = sorted({row["sets"] for row in run["rows"]})
    notes = COMMONGEN_NOTES.format(sets=" or ".join(map(str, sizes)), max_tokens=run["max_tokens"])
    alt_text, draw = "complete sets and CIDEr, a point for each system", partial(draw_commongen, tasks)
    parts = [picture("commongen", alt_text, draw, (4.2 * len(tasks), 4.4), (1, len(tasks)))]
    for (model, family), group in tasks.items():
        parts += [f"### {family}, {model}", table(COMMONGEN_HEAD, [_commongen_cells(row) for row in group])]
        if failed := [row for row in group if row["errors"] and not is_unsupported(row)]:
            lines = [f"- {row['system']}: {row['errors']} times, first: {row['error']}" for row in failed]
            parts.append("\n".join(["Failed answers:", "", *lines]))
    figures = ("rouge_l", "bleu_4", "cider")
    check = [[row["system"], *(f"{row[name]:.1f}" for name in figures)] for row in run["published"]]
    parts += [PUBLISHED_NOTES, table(("system", "ROUGE-L", "BLEU-4", "CIDEr"), check)]
    return section("CommonGen", run, notes, *parts)


def draw_commongen(tasks: dict[tuple[str, str], list[Row]], panels: list[Any]) -> None:
    """Draws complete sets and CIDEr for each model and task. Each system has a mark."""
    systems = list(dict.fromkeys(row["system"] for group in tasks.values() for row in group))
    for panel, ((model, family), group) in zip(panels, tasks.items(), strict=True):
        for row in group:
            if not is_unsupported(row):
                at = systems.index(row["system"])
                style = {"marker": MARKERS[at % len(MARKERS)], "linestyle": "", "color": f"C{at}"}
                panel.plot([100 * row["complete"]], [row["cider"]], label=row["system"], **style)
        panel.set(xlabel="sets of which all concepts occur, %", ylabel="CIDEr", title=f"{family}, {model}")
    panels[0].legend(fontsize=7)


def is_unsupported(row: dict[str, Any]) -> bool:
    """Whether the system cannot express any of the constraints."""
    return bool(row["errors"] == row["sets"] and row["error"].startswith("ConstraintNotSupported"))


def _commongen_cells(row: dict[str, Any]) -> list[str]:
    if is_unsupported(row):
        return [row["system"], *[""] * (len(COMMONGEN_HEAD) - 1)]
    log_prob = "" if row["log_prob"] is None else f"{row['log_prob']:.1f}"
    return [
        row["system"], f"{100 * row['coverage']:.1f} %", f"{100 * row['complete']:.0f} %", f"{row['rouge_l']:.1f}",
        f"{row['bleu_4']:.1f}", f"{row['cider']:.1f}", log_prob, f"{row['words']:.1f}",
        *("" if row["errors"] else f"{row[name]:.0f}" for name in ("prepare_ms", "answer_ms")),
        str(row["errors"]) if row["errors"] else "",
    ]  # fmt: skip


def hmm_section(run: dict[str, Any]) -> str:
    """Size, time and likelihood of each HMM."""
    head = ["model", "states", "texts", "tokens", "rounds", "sampling, s", "estimation, s", "HMM, MiB", "peak, MiB",
            "nats", "nats, other texts"]  # fmt: skip
    body = [
        [row["model"], *(f"{row[name]:,}" for name in ("states", "texts", "tokens", "rounds")),
         *(f"{row[name]:.0f}" for name in ("sampling_s", "seconds")),
         *(short_number(row[name] / MIB) for name in ("bytes", "peak_bytes")),
         *(f"{row[name]:.1f}" for name in ("log_likelihood", "held_out"))]
        for row in run["rows"]
    ]  # fmt: skip
    return section("Hidden Markov models", run, HMM_NOTES.format(length=run["length"]), table(head, body))


def releases_section(run: dict[str, Any]) -> str:
    """The version of each system, with its date."""
    head = ("system", "package", "version", "released", "newest", "released")
    fields = ("system", "package", "version", "released", "newest", "newest_released")
    body = [[row[name] for name in fields] for row in run["rows"]]
    return section("Versions of the other systems", run, RELEASES_NOTES, table(head, body))


def infilling_section(run: dict[str, Any]) -> str:
    """One table for each model."""
    rows = run["rows"]
    by_model, shares = grouped(rows, "model"), sorted({row["share"] for row in rows})
    alt_text = "answers that are whole, and BLEU-4, by the share that is masked"
    shape, draw = (len(by_model), len(INFILLING_PANELS)), partial(draw_infilling, by_model)
    parts = [picture("infilling", alt_text, draw, (8, 3 * len(by_model)), shape)]
    head = ["system", *(f"{name}, {share:.0%}" for share in shares for name in ("ROUGE-L", "BLEU-4", "whole"))]
    for (model,), group in by_model.items():
        body = []
        for (system,), answers in grouped(group, "system").items():
            by_share = {row["share"]: row for row in answers}
            cells = [cell for share in shares for cell in _infilling_cells(by_share.get(share))]
            body.append([system, *cells, *_times(answers)])
        parts += [f"### {model}", table([*head, "prepare", "answer"], body)]
    return section("Text infilling", run, INFILLING_NOTES.format(count=rows[0]["stories"]), *parts)


def draw_infilling(by_model: dict[tuple[str], list[Row]], panels: list[Any]) -> None:
    """Draws matching answers and BLEU-4 by masked share, per system."""
    systems = dict.fromkeys(row["system"] for group in by_model.values() for row in group)
    cells = product(by_model.items(), INFILLING_PANELS)
    for panel, (((model,), group), (name, scale, label)) in zip(panels, cells, strict=True):
        for system in systems:
            points = [row for row in group if row["system"] == system]
            x, y = [100 * row["share"] for row in points], [scale * row[name] for row in points]
            panel.plot(x, y, marker="o", label=system)
        panel.set(xlabel="masked, %", ylabel=label, title=model)
    panels[0].legend(fontsize=7)


def _infilling_cells(row: dict[str, Any] | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    failed = f" ({row['errors']} failed)" if row["errors"] else ""
    return [f"{row['rouge_l']:.1f}", f"{row['bleu_4']:.1f}", f"{100 * row['coverage']:.0f} %{failed}"]


def _times(rows: list[dict[str, Any]]) -> list[str]:
    return [f"{statistics.fmean(row[name] for row in rows):.0f}" for name in ("prepare_ms", "answer_ms")]


def policies_section(run: dict[str, Any]) -> str:
    """Conformance of agents by domain, agent and system."""
    rows = [
        (row["domain"], row["agent"], row["system"], f"{row['conform']} of {row['conversations']}", str(row["broken"]),
         str(row["unmet"]), str(row["stuck"]), f"{row['calls']:.1f}",
         f"{row['decision_ms']['p50']:.2f} / {row['decision_ms']['p99']:.2f}" if row["decision_ms"] else "",
         f"{row['model_ms']:.0f}" if row["model_ms"] else "")
        for row in run["rows"]
    ]  # fmt: skip
    head = (
        "domain", "agent", "system", "conform", "broken", "unmet", "stuck", "calls", "decision ms, p50 / p99",
        "model ms",
    )  # fmt: skip
    sizes = [
        f"- {name}: {size['rules']} rules, {size['tools']} tools, {size['letters']} letters, {size['states']} states, "
        f"compiled in {size['compile_s']:.2f} s; {size['calls_needed']} calls are needed from the start."
        for name, size in run["sizes"].items()
    ]
    details = [f"tau-bench {run['commits']['tau_bench']}, tau2 {run['commits']['tau2']}"]
    notes = POLICIES_NOTES.format(calls=run["calls"])
    parts = [table(head, rows), "\n".join(sizes), *_served_parts(run)]
    return section("Policies of tau-bench and tau2", run, notes, *parts, details=details)


def _served_parts(run: dict[str, Any]) -> Iterator[str]:
    """The figures of the service, with their own origin."""
    served = run["served"]
    head = (
        "domain", "conform", "stuck", "calls", "requests", "tokens", "request ms, p50 / p99", "overhead ms, p50 / p99",
        "new constraints", "compile ms",
    )  # fmt: skip
    rows = []
    for row in served["rows"]:
        parts = [(row["without"][name], row["with"][name]) for name in ("request_ms", "overhead_ms")]
        rows.append((
            row["domain"], f"{row['conform']} of {row['conversations']}", str(row["stuck"]), f"{row['calls']:.1f}",
            str(row["with"]["requests"]), f"{row['without']['tokens']:.0f} → {row['with']['tokens']:.0f}",
            *(f"{a['p50']:.0f} / {a['p99']:.0f} → {b['p50']:.0f} / {b['p99']:.0f}" for a, b in parts),
            str(row["with"]["compiled"]), f"{row['with']['compile_ms']:.0f}" if row["with"]["compiled"] else "",
        ))  # fmt: skip
    yield SERVED_NOTES.strip("\n")
    yield "; ".join((served["date"], served["machine"], f"code {served['code']}", f"`{served['command']}`"))
    yield from served.get("notes", ())
    yield table(head, rows)
