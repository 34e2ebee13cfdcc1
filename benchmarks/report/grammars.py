"""The section of RESULTS.md about context-free grammars."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.report.compile import ENGINE_NAMES, PEERS
from benchmarks.report.layout import MIB, grouped, median_and_range, section, short_number, table, verdict
from benchmarks.runs import Row
from compiler.limits import DEFAULT_LIMITS

TITLES = {  # of the grammars, by name
    "json": "any JSON", "arithmetic": "arithmetic", "sql": "SQL dialect", "c_like": "C-like statements",
    "xml_like": "XML-like nesting",
}  # fmt: skip
TIMES = (1.0, 1.2, 1.5, 2.0)  # the budgets of cut texts, as multiples of the least
RATIO_MAX = 1.5  # of a beam search under a grammar, compared with one under a regular constraint
JSON_MS_MAX = 60.0  # to compile any JSON over o200k
NOTES = """
Times are those of the processor, measured while other work ran on the machine: absolute figures are too high by up to a
third, ratios are of runs made in the same turn. All engines read the same grammar in Lark's syntax, except
outlines-core, which takes the JSON schema `{}` with bounded nesting and no other grammar. "Wrong" counts verdicts on
the grammar's texts that differ from the grammar. Compile: milliseconds until the first mask, medians with ranges. Mask:
microseconds from a token to the next mask over all ids, p50 / p99 over the texts of the language. llguidance
precomputes nothing. A compile with its texts may take 60 s of wall time here (200 s where sizes grow), and a compile
had 10 s in the service then (`compile_s_max`).
"""
GROWTH_NOTES = """
Over o200k's vocabulary. "Rules": n rules that call each other, all of them alternatives of the start. "Nested rules": a
rule that calls a rule, n times. "Depth of the text": any JSON, a text of n brackets. "Forbidden words" and "required
words": any JSON beside n constraints in `all`, each of which keeps out a word anywhere, or asks for one; words that may
come in any order double the states, so that from three words on they are followed side by side. Rows of the peers are
of an earlier run of that day. A size is followed by milliseconds to compile, MiB of tables (ours) and the median
of masks in microseconds. A limit has a setting of its name. `grammar_chars_max` was raised for this table; by default
it refuses the sizes with a star before anything is read.
"""
TRUNCATION_NOTES = """
The share of texts in the language when generation ends at multiples of the least budget, EOS included. The built-in
model samples the rest of texts of the suite under each engine's masks, from the same beginnings and seeds. Ours keeps
only tokens that leave enough budget. JSON is judged by Python's reader, the rest by Lark's Earley parser.
"""
BEAM_NOTES = """
Milliseconds of the processor for a step of 16 beams with a model of GPT-2's shape and random weights, on one thread:
under a grammar, and under a regular constraint that nests once or twice, of similar token classes. Ratios are of pairs
of runs.
"""
SUITE_NOTES = """
Answers of a random model at the least budget, one and seven tokens above it, to each grammar of other systems' tests
that its home and we compile ([verdicts on their texts](../docs/grammars.md#suites-of-other-systems)), over the built-in
model's vocabulary: how many another parser accepts. The parsers are chosen as for the templates below; "our rules" is
recursive descent on the rules as we read them, where none of the systems reads the grammar. The answers that llguidance
rejects are empty, as XGrammar's tests ask of these two grammars.
"""
TEMPLATE_NOTES = """
The grammars of StructureBench (`constraint_templates`), whose files are not part of this repository: XGrammar's EBNF
(`.ebnf`) and Lark's syntax (`.cfg`). Compile: milliseconds over gpt2 / o200k_base. Texts are drawn from a grammar's
rules, and changed: how many get the same verdict from us and from the judge. Answers of a random model at the least
budget, one and seven tokens above it, over the built-in model's vocabulary: how many the judge accepts. The judge is
XGrammar for `.ebnf` (with empty alternatives written as `""`), and Lark's Earley parser for `.cfg`, or llguidance where
Lark refuses the grammar or is not ready after 10 s.
"""


def grammars_section(run: dict[str, Any]) -> str:
    """Compile and mask times of all engines, growth, truncation and beams."""
    versions = ", ".join(f"{ENGINE_NAMES[engine]} {version}" for engine, version in run["versions"].items())
    parts = [part(run[name]) for name, part in _PARTS.items() if run.get(name)]
    rules = ", ".join(f"{TITLES[name]} {count}" for name, count in run["rules"].items())
    return section("Context-free grammars", run, f"{NOTES.strip()} Rules: {rules}.", *parts, details=(versions,))


def _compile(rows: list[Row]) -> str:
    blocks = []
    for (vocabulary,), of_vocabulary in grouped(rows, "vocabulary").items():
        body = [
            _compile_row(name, engine, of_engine)
            for (name, engine), of_engine in grouped(of_vocabulary, "case", "engine").items()
        ]
        head = ["grammar", "engine", "compile", "mask p50 / p99", "wrong", "states", "table MiB"]
        blocks += [f"### Over {vocabulary}", table(head, body), _ratios(of_vocabulary)]
    return "\n\n".join(blocks)


def _any_json(rows: list[Row]) -> str:
    found = {kind: [row["ms"] for row in rows if row["written"] == kind] for kind in ("schema", "grammar")}
    figures = {kind: f"{median_and_range(values)} ms" for kind, values in found.items()}
    met = verdict(statistics.median(found["schema"]) <= JSON_MS_MAX)
    return (
        f"Any JSON over o200k in {JSON_MS_MAX:.0f} ms of the processor: {met} as a schema (`{{}}`), with "
        f"{figures['schema']} in {len(found['schema'])} runs; the grammar in Lark's syntax takes {figures['grammar']} "
        "in the same turns."
    )


def _compile_row(name: str, engine: str, rows: list[Row]) -> list[str]:
    head = [TITLES[name], ENGINE_NAMES[engine]]
    over = ", then over the time limit" * any(row["outcome"] == "time" for row in rows)
    failed, rows = rows[0], [row for row in rows if "mask_p50" in row]
    if not rows:
        return [*head, f"{failed['outcome']} {failed['message'][:60]}", "", "", "", ""]
    masks = (short_number(statistics.median(row[f"mask_{part}"] for row in rows)) for part in ("p50", "p99"))
    size = [str(int(rows[0]["states"])), f"{rows[0]['table_bytes'] / MIB:.2f}"] if "states" in rows[0] else ["", ""]
    wrong = f"{rows[0]['wrong']} of {rows[0]['texts']}{over}"
    return [*head, median_and_range(row["ms"] for row in rows), " / ".join(masks), wrong, *size]


def _ratios(rows: list[Row]) -> str:
    """A peer's time divided by ours in the same turn."""
    by_turn = {(row["case"], row["engine"], row["repeat"]): row for row in rows if "mask_p50" in row}
    body = []
    for name, title in TITLES.items():
        cells = []
        for engine in PEERS:
            for figure in ("ms", "mask_p50"):
                ratios = [
                    row[figure] / by_turn[name, "ours", repeat][figure]
                    for (case, peer, repeat), row in by_turn.items()
                    if case == name and peer == engine and (name, "ours", repeat) in by_turn
                ]
                cells.append(median_and_range(ratios) if ratios else "-")
        body.append([title, *cells])
    names = [f"{ENGINE_NAMES[engine]}, {figure}" for engine in PEERS for figure in ("compile", "mask")]
    return table(["divided by ours", *names], body)


def _growth(rows: list[Row]) -> str:
    body = []
    engines = [engine for engine in ENGINE_NAMES if any(row["engine"] == engine for row in rows)]
    for (series, size), of_size in grouped(rows, "series", "size").items():
        by_engine = {row["engine"]: row for row in of_size}
        star = "*" * (of_size[0]["chars"] > DEFAULT_LIMITS.grammar_chars_max)
        body.append([series, f"{size:,}{star}", *(_growth_cell(by_engine.get(engine)) for engine in engines)])
    head = ["what grows", "n", *(ENGINE_NAMES[engine] for engine in engines)]
    return "\n\n".join(["### How it grows", GROWTH_NOTES.strip(), table(head, body)])


def _growth_cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row["outcome"] == "ok" and "mask_p50" not in row:
        return f"{short_number(row['ms'])} ms, reads no text"
    if "mask_p50" not in row:
        after = f" after {short_number(row['ms'])} ms" if "ms" in row else ""
        return f"{row['outcome']} {row['message'][:40]}".strip() + after
    tables = [f"{row['table_bytes'] / MIB:.1f} MiB"] if "table_bytes" in row else []
    wrong = [f"{row['wrong']} wrong"] if row["wrong"] else []
    return ", ".join([f"{short_number(row['ms'])} ms", *tables, f"{short_number(row['mask_p50'])} us", *wrong])


def _truncation(rows: list[Row]) -> str:
    body = [
        [TITLES[row["case"]], ENGINE_NAMES[row["engine"]], f"{row['least'][0]} to {row['least'][1]}",
         *(f"{count} of {row['texts']} ({100 * count / row['texts']:.0f} %)" for count in row["in_language"])]
        for row in rows
    ]  # fmt: skip
    totals = []
    for (engine,), of_engine in grouped(rows, "engine").items():
        texts = sum(row["texts"] for row in of_engine)
        counts = [sum(row["in_language"][place] for row in of_engine) for place in range(len(TIMES))]
        totals.append(["all", ENGINE_NAMES[engine], "", *(f"{100 * count / texts:.0f} %" for count in counts)])
    head = ["grammar", "engine", "least tokens", *(f"{times:g} x" for times in TIMES)]
    return "\n\n".join(["### Cut at a budget", TRUNCATION_NOTES.strip(), table(head, [*body, *totals])])


def _beams(rows: list[Row]) -> str:
    kinds = ("grammar", "regular")
    body = [
        [TITLES[row["case"]], *(f"{row[f'{kind}_classes']:,}" for kind in kinds),
         *(short_number(row[f"{kind}_{part}"]) for part in ("search_ms", "forward_ms") for kind in kinds),
         median_and_range(row["search_ratio"]), median_and_range(row["ratio"])]
        for row in rows
    ]  # fmt: skip
    head = [
        "grammar", "classes", "regular classes", "search", "regular search", "model", "regular model",
        "ratio of searches", "ratio of steps",
    ]  # fmt: skip
    met = all(statistics.median(row["ratio"]) <= RATIO_MAX for row in rows)
    goal = f"At most {RATIO_MAX:g} times the time of a regular constraint: {verdict(met)}."
    return "\n\n".join(["### Beam search", BEAM_NOTES.strip(), table(head, body), goal])


def _suites(rows: list[Row]) -> str:
    body = [
        [row["suite"], row["judge"], str(row["grammars"]),
         f"{row['answers'] - len(row['rejected'])} of {row['answers']}",
         ", ".join(f"`{name}`" for name in dict.fromkeys(row["rejected"]))]
        for row in rows
    ]  # fmt: skip
    head = ["tests of", "judge", "grammars", "answers accepted", "rejected, of"]
    return "\n\n".join(["### Answers judged by other parsers", SUITE_NOTES.strip(), table(head, body)])


def _templates(rows: list[Row]) -> str:
    body = []
    for row in rows:
        compiled = " / ".join(short_number(row[name]) for name in ("gpt2", "o200k_base") if name in row)
        judged = [
            row["judge"], f"{row['texts'] - len(row['other_verdicts'])} of {row['texts']}", str(row["accepted"]),
            f"{row['in_language']} of {row['answers']}",
        ] if "texts" in row else [row.get("judge", ""), "", "", ""]  # fmt: skip
        refused = f"refused: {row['refused']}" if "refused" in row else compiled
        size = [str(int(row["states"])), f"{row['table_bytes'] / MIB:.2f}"] if "states" in row else ["", ""]
        body.append([row["template"], refused, *size, *judged])
    head = ["template", "compile", "states", "table MiB", "judge", "texts agree", "in the language", "answers accepted"]
    return "\n\n".join(["### StructureBench's templates", TEMPLATE_NOTES.strip(), table(head, body)])


_PARTS: dict[str, Callable[[list[Row]], str]] = {
    "compile": _compile, "any_json": _any_json, "growth": _growth, "truncation": _truncation, "beams": _beams,
    "suites": _suites, "templates": _templates,
}  # fmt: skip
