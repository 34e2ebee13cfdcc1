"""The section of RESULTS.md about the schemas of MaskBench."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report.compile import ENGINE_NAMES
from benchmarks.report.layout import grouped, percentiles, section, share_of, table
from benchmarks.runs import RESULTS_DIRECTORY, Row, link

ROWS, COMPILE_ROWS = RESULTS_DIRECTORY / "maskbench.jsonl", RESULTS_DIRECTORY / "maskbench_compiles.jsonl"
CUT_TIMES = ("1", "1.5", "2")
_REASONS_SHOWN = 12
NOTES = """
Schemas of the repository guidance-ai/jsonschemabench, folder `maskbench/data`, each with instances and their verdicts.
Compiled: within the limits of time and memory, and ours within the service's own. "Valid accepted" and "invalid
rejected" count instances of what an engine compiles; the others decide by their masks on the instance as it is written
in the data, without white space, and ours as `/check` does. "As written" is the share of valid instances that the masks
accept as they are in the data, for us too: ours write one order and spelling, and bound the nesting of values that a
schema leaves open. Compile times are milliseconds of the processor until the first mask, mask times microseconds of the
processor from a token to the next mask over all ids, over at most 20 masks of each schema drawn at random.
"""
CUT_NOTES = """
Valid when cut: the share of texts that `jsonschema` accepts when generation under an engine's masks ends at 1, 1.5 and
2 times the least budget of our compiler, EOS included, over the schemas that both compile. "Random" takes the allowed
token with the highest random score. "Hurried" prefers EOS, and then closing quotes and brackets: it is the shortest
that a model could want to write. A text that is cut is judged as it stands. Texts on which `jsonschema` raises an error
are left out.
"""
COMPILE_NOTES = """
The compile of each schema, up to the first mask, without instances and generations. Compiled: within the service's own
limits of memory and tables, and in 10 s of the processor, as the service then had 10 s of wall time. Times are
milliseconds of the processor.
"""
CHECK_NOTES = """
Every instance of every schema, decided as `/check` does from the parsed value, also where a schema does not compile.
Undecided: the check outgrows a limit of the service. Refused: a keyword that is refused by name.
"""


def stored_rows(path: Path | None = None) -> list[Row]:
    """One row for each schema and engine, of a file of figures."""
    path = path or ROWS
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _by_engine(rows: list[Row]) -> dict[str, list[Row]]:
    groups = grouped(rows, "engine")
    return {name: groups[engine,] for engine, name in ENGINE_NAMES.items() if (engine,) in groups}


def maskbench_section(run: dict[str, Any]) -> str:
    """Verdicts and times of all engines, and the reasons of refusals."""
    by_engine = _by_engine(stored_rows())
    versions = ", ".join(f"{ENGINE_NAMES[engine]} {version}" for engine, version in run["versions"].items())
    limits = f"{run['limits']['seconds']:g} s and {run['limits']['gigabytes']} GB a schema"
    sample = f"{run['part']} part, seed {run['seed']}"
    details = (f"data {run['commit']}", sample, f"vocabulary {run['vocabulary']}", limits, versions)
    reasons = "\n".join(reasons_line(name, engine_rows) for name, engine_rows in by_engine.items())
    parts = [_overview(by_engine), CUT_NOTES, _cuts(by_engine), "### By origin", _origins(by_engine)]
    parts += ["### Why schemas do not compile", reasons, f"Every verdict by file: [{ROWS.name}]({link(ROWS)})."]
    return section("Schemas of MaskBench", run, NOTES, *parts, details=details)


def compiles_section(run: dict[str, Any]) -> str:
    """The share that compiles, the times, and the reasons of refusals."""
    by_engine = _by_engine(stored_rows(COMPILE_ROWS))
    details = [f"data {run['commit']}", f"{run['part']} part, seed {run['seed']}", f"vocabulary {run['vocabulary']}"]
    details.append(f"{run['limits']['gigabytes']} GB a schema")
    details += [f"{ENGINE_NAMES[engine]} {version}" for engine, version in run["versions"].items()]
    head = ["", "compiled", "ms, p50 / p90 / p99", "states, p50 / p90 / p99"]
    body = []
    for name, rows in by_engine.items():
        compiled = [row for row in rows if is_compiled(row)]
        figures = [[row[figure] for row in compiled if figure in row] for figure in ("ms", "states")]
        body.append([name, share_of(len(compiled), len(rows)), *(percentiles(each, (50, 90, 99)) for each in figures)])
    reasons = "\n".join(reasons_line(name, rows) for name, rows in by_engine.items())
    parts = [table(head, body), _origins(by_engine), "Why schemas do not compile:", reasons]
    parts.append(f"Every schema: [{COMPILE_ROWS.name}]({link(COMPILE_ROWS)}).")
    return section("Compiles of MaskBench's schemas", run, COMPILE_NOTES, *parts, details=details)


def checks_section(run: dict[str, Any]) -> str:
    """The verdicts of the check on all instances."""
    counts = Counter(run["counts"])
    details = (f"data {run['commit']}", f"{run['part']} part", f"{run['seconds']} s of the processor")
    header = ["instances that the data calls", "accepted", "rejected", "undecided"]
    rows = [
        [kind, *(f"{counts[f'{kind} {verdict}']:,}" for verdict in ("accepted", "rejected", "undecided"))]
        for kind in ("valid", "invalid")
    ]
    schemas = f"{counts['schemas']:,} schemas, {counts['refused']} of them refused."
    return section("Checks of MaskBench's instances", run, CHECK_NOTES, schemas, table(header, rows), details=details)


def summary_line() -> str:
    """The README's line: what compiles, and what is valid when cut."""
    by_engine = _by_engine(stored_rows())
    compiled = ", ".join(_compiled_beside(name, rows, by_engine["ours"]) for name, rows in by_engine.items())
    if whole := _compiled_shares(_by_engine(stored_rows(COMPILE_ROWS))):
        compiled += f"; of the whole final part, {whole}"
    cuts = ", ".join(f"{name} {share_of(*cut_verdicts(rows, 'hurried', -1))}" for name, rows in by_engine.items())
    return (
        f"Public JSON schemas (MaskBench) that compile: {compiled}. Valid texts where the allowed token is taken that "
        f"ends soonest (EOS, then closing quotes and brackets), up to twice the least budget: {cuts}."
    )


def _compiled_beside(name: str, rows: Sequence[Row], ours: Sequence[Row]) -> str:
    """The share that an engine compiles, beside ours of the same schemas."""
    share, names = share_of(sum(map(is_compiled, rows)), len(rows)), {row["name"] for row in rows}
    same = [row for row in ours if row["name"] in names]
    return f"{name} {share}" if len(same) == len(ours) else f"{name} {share} (ours {sum(map(is_compiled, same))})"


def _compiled_shares(by_engine: Mapping[str, Sequence[Row]]) -> str:
    shares = {name: share_of(sum(map(is_compiled, rows)), len(rows)) for name, rows in by_engine.items()}
    return ", ".join(f"{name} {share}" for name, share in shares.items())


def is_compiled(row: Row) -> bool:
    """Whether the compile ended well. The time limit may still have ended what followed."""
    return "ms" in row


def verdicts(rows: Iterable[Row], valid: bool, column: int) -> tuple[int, int]:
    """How many instances a column accepts and decides."""
    tests = [test for row in rows for test in row.get("tests", ())]
    decided = [test[column] for test in tests if test[0] is valid and test[column] is not None]
    return sum(decided), len(decided)


def cut_verdicts(rows: Iterable[Row], kind: str, index: int) -> tuple[int, int]:
    """How many texts are valid at a budget, and are judged."""
    complete = [row["cuts"][kind] for row in rows if len(row.get("cuts", {}).get(kind, ())) == len(CUT_TIMES)]
    judged = [cuts[index] for cuts in complete if cuts[index] is not None]
    return sum(judged), len(judged)


def _overview(by_engine: dict[str, list[Row]]) -> str:
    head = ["", "compiled", "valid accepted", "invalid rejected", "as written"]
    head += ["compile ms, p50 / p99", "mask us, p50 / p99"]
    body = []
    for name, rows in by_engine.items():
        compiled = [row for row in rows if is_compiled(row)]
        accepted, valid = verdicts(rows, True, 1)
        wrong, invalid = verdicts(rows, False, 1)
        body.append([
            name, share_of(len(compiled), len(rows)), f"{accepted:,} of {valid:,}",
            f"{invalid - wrong:,} of {invalid:,}", share_of(*verdicts(rows, True, 2)),
            percentiles([row["ms"] for row in compiled]),
            percentiles([time for row in compiled for time in row.get("mask_us", ())]),
        ])  # fmt: skip
    return table(head, body)


def _cuts(by_engine: dict[str, list[Row]]) -> str:
    kinds = ("random", "hurried")
    body = []
    for name, rows in by_engine.items():
        cells = [share_of(*cut_verdicts(rows, kind, index)) for kind in kinds for index in range(len(CUT_TIMES))]
        body.append([name, *cells])
    return table(["valid when cut", *(f"{kind}, {times} x" for kind in kinds for times in CUT_TIMES)], body)


def _origins(by_engine: dict[str, list[Row]]) -> str:
    counts = {name: grouped(rows, "origin") for name, rows in by_engine.items()}
    body = []
    for origin in sorted({origin for groups in counts.values() for (origin,) in groups}):
        rows = [groups.get((origin,), []) for groups in counts.values()]
        body.append([origin, *(f"{sum(map(is_compiled, each))} of {len(each)}" if each else "" for each in rows)])
    return table(["compiled, by origin", *counts], body)


def reasons_line(name: str, rows: Iterable[Row]) -> str:
    """Why an engine does not compile, the most common reasons first."""
    reasons = Counter(row.get("reason", row["outcome"]) for row in rows if not is_compiled(row))
    shown = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common(_REASONS_SHOWN))
    others = reasons.total() - sum(count for _, count in reasons.most_common(_REASONS_SHOWN))
    return f"- {name}: {shown or 'none'}{f', others {others}' if others else ''}"
