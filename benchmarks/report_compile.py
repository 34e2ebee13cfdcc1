"""The section of RESULTS.md about cold compiles, from results/compile.json as benchmarks.compile wrote it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks.report_tables import MIB, geometric_mean, shown, spread, table
from benchmarks.suite import ENGINES, PEERS, PRECOMPUTING

_FIRST = (
    "A check that the constraints are the same: rows without a star where another number of tokens may begin a text."
)
Run = dict[str, Any]
Rows = dict[tuple[str, str], list[dict[str, Any]]]  # by case and engine, in the order measured
MS_MAX, PEAK_MIB_MAX, LOOK_UP_US_MAX = 1000.0, 200.0, 50.0  # what we set out to keep
_NAMES = {"ours": "ours", "outlines_core": "outlines-core", "xgrammar": "XGrammar", "llguidance": "llguidance"}
_CANNOT, _NO_FIGURE = "cannot express it", "-"
NOTES = """
Milliseconds until the first mask is ready, and peak MiB beyond the loaded vocabulary: the median, with the range where
there is one to see. The engines took turns on each constraint. "Cannot express it" is an engine without a way to say
the constraint; a limit or an error that stopped one is named. A star marks a constraint that the engine takes in a
simpler form than ours (listed below the tables). Look-ups are microseconds, p50 / p99, along random walks: which
classes of tokens may follow a state is what our search asks; "all ids" is the same spread over the vocabulary. The
others work out a bit mask over all ids.
"""


def _by_case(run: Run) -> Rows:
    rows: Rows = defaultdict(list)
    for row in run["rows"]:
        rows[row["case"], row["engine"]].append(row)
    return rows


def _figures(rows: Rows, case: str, engine: str, name: str) -> list[float]:
    """The figure of every repeat, empty unless all of them were finished."""
    found = rows.get((case, engine), [])
    return [row["figures"][name] for row in found] if all(row["outcome"] == "ok" for row in found) else []


def _stopped(rows: Rows, case: str, engine: str, limits: dict[str, float]) -> str:
    """Why an engine has no figures for a case."""
    found = rows.get((case, engine))
    if not found:
        return _CANNOT
    last = found[-1]
    words = {"time": f"over {limits['seconds']:g} s", "memory": f"over {limits['gigabytes']:g} GB"}
    return words.get(last["outcome"], str(last["outcome"]))


def _cell(run: Run, rows: Rows, case: dict[str, Any], engine: str, name: str, scale: float) -> str:
    values = [value / scale for value in _figures(rows, case["name"], engine, name)]
    star = "\\*" if case["notes"].get(engine) else ""
    return spread(values) + star if values else _stopped(rows, case["name"], engine, run["limits"])


def ratios(rows: Rows, cases: Iterable[str], engine: str, name: str) -> dict[str, float]:
    """Theirs over ours for each case both finish: the median over the pairs of one turn each."""
    found = {}
    for case in cases:
        pairs = zip(_figures(rows, case, engine, name), _figures(rows, case, "ours", name), strict=False)
        each = [theirs / our for theirs, our in pairs if our]
        if each:
            found[case] = statistics.median(each)
    return found


def _cost_table(run: Run, rows: Rows, name: str, scale: float) -> str:
    head = ["constraint", *(_NAMES[engine] for engine in ENGINES), *(f"{_NAMES[peer]} / ours" for peer in PEERS)]
    body = []
    names = [case["name"] for case in run["cases"]]
    against = {peer: ratios(rows, names, peer, name) for peer in PEERS}
    for case in run["cases"]:
        cells = [_cell(run, rows, case, engine, name, scale) for engine in ENGINES]
        quotients = [against[peer].get(case["name"]) for peer in PEERS]
        body.append([case["name"], *cells, *(_NO_FIGURE if one is None else shown(one) for one in quotients)])
    return table(head, body)


def _our_table(run: Run, rows: Rows) -> str:
    body = []
    for case in run["cases"]:
        found = {name: _figures(rows, case["name"], "ours", name) for name in _OUR_FIGURES}
        if found["states"]:
            middle = {name: statistics.median(values) for name, values in found.items()}
            counts = [f"{middle[name]:,.0f}" for name in ("states", "classes", "min_tokens")]
            body.append([case["name"], *counts, shown(middle["table_bytes"] / MIB)])
    return table(["constraint", "states", "classes", "least tokens", "table MiB"], body)


_OUR_FIGURES = ("states", "classes", "min_tokens", "table_bytes")


def _look_up_table(run: Run, rows: Rows) -> str:
    def cell(case: str, engine: str, kind: str) -> str:
        found = [_figures(rows, case, engine, f"{kind}_{which}") for which in ("p50", "p99")]
        return " / ".join(shown(statistics.median(values)) for values in found) if found[0] else _NO_FIGURE

    body = []
    for case in run["cases"]:
        name = case["name"]
        ours = [cell(name, "ours", "look_up"), cell(name, "ours", "expand")]
        body.append([name, *ours, *(cell(name, peer, "look_up") for peer in PEERS)])
    return table(["constraint", "ours", "ours, all ids", *(_NAMES[peer] for peer in PEERS)], body)


def _summary(run: Run, rows: Rows) -> str:
    names = [case["name"] for case in run["cases"]]
    answered = [name for name in names if _figures(rows, name, "ours", "ms")]
    lines = [f"- ours: {len(answered)} of {len(names)} constraints compiled"]
    for engine in PEERS:
        kind = "precomputes" if engine in PRECOMPUTING else "works masks out when asked"
        times, memory = (ratios(rows, names, engine, name) for name in ("ms", "peak_bytes"))
        stopped = [name for name in names if rows.get((name, engine)) and not _figures(rows, name, engine, "ms")]
        missing = sum(1 for name in names if not rows.get((name, engine)))
        line = f"- {_NAMES[engine]} ({kind}): cannot express {missing}, does not finish {len(stopped)}"
        if times:
            won = sum(1 for ratio in times.values() if ratio > 1)
            line += f"; over the {len(times)} that both finish, theirs over ours: time {_mean(times)}, ours faster on "
            line += f"{won}; memory {_mean(memory)}"
        lines.append(line)
    lines.append(_common(run, rows, names))
    return "\n".join(lines)


def _common(run: Run, rows: Rows, names: list[str]) -> str:
    """The geometric means over the rows that every engine that precomputes finishes."""
    engines = ("ours", *PRECOMPUTING)
    both = [name for name in names if all(_figures(rows, name, engine, "ms") for engine in engines)]
    if not both:
        return "- no constraint was finished by all engines that precompute"
    means = {
        engine: geometric_mean([statistics.median(_figures(rows, name, engine, "ms")) for name in both])
        for engine in engines
    }
    listed = ", ".join(f"{_NAMES[engine]} {shown(mean)} ms" for engine, mean in means.items())
    return f"- geometric mean over the {len(both)} that all engines that precompute finish: {listed}"


def _mean(found: dict[str, float]) -> str:
    values = [value for value in found.values() if value > 0]
    return f"{shown(geometric_mean(values))} ({shown(min(values))}-{shown(max(values))})" if values else _NO_FIGURE


def _worst(rows: Rows, names: list[str], figure: str, scale: float) -> tuple[float, str]:
    """The largest figure of ours, and where: the median of the repeats."""
    found = [(_figures(rows, name, "ours", figure), name) for name in names]
    return max((statistics.median(values) / scale, name) for values, name in found if values)


def _goals(run: Run, rows: Rows) -> str:
    names = [case["name"] for case in run["cases"] if _figures(rows, case["name"], "ours", "ms")]
    lines = []
    for figure, scale, cap, words in (
        ("ms", 1, MS_MAX, "ms, the slowest compile"),
        ("peak_bytes", MIB, PEAK_MIB_MAX, "MiB, the highest peak"),
        ("look_up_p99", 1, LOOK_UP_US_MAX, "us, the slowest p99 of a look-up by class"),
        ("expand_p99", 1, LOOK_UP_US_MAX, "us, the slowest p99 of a look-up spread over all ids"),
    ):
        value, where = _worst(rows, names, figure, scale)
        over = sum(1 for name in names if statistics.median(_figures(rows, name, "ours", figure)) / scale > cap)
        verdict = "kept" if not over else f"missed by {over} of {len(names)}"
        lines.append(f"- {shown(value)} {words} ({where}); goal {cap:g}: {verdict}")
    return "\n".join(lines)


def _losses(run: Run, rows: Rows) -> str:
    names = [case["name"] for case in run["cases"]]
    lines = []
    for engine in PEERS:
        lost = {name: ratio for name, ratio in ratios(rows, names, engine, "ms").items() if ratio < 1}
        each = [f"{name} ({shown(1 / ratio)})" for name, ratio in sorted(lost.items(), key=lambda pair: pair[1])]
        lines.append(f"- to {_NAMES[engine]}, {len(lost)}: {', '.join(each) or 'none'}")
    for name in names:
        found = rows.get((name, "ours"), [])
        if found and found[-1]["outcome"] != "ok":
            lines.append(f"- ours does not compile {name}: {found[-1]['outcome']}; {found[-1]['message']}")
    return "\n".join(lines)


def _stars(run: Run) -> str:
    notes: dict[str, list[str]] = defaultdict(list)
    for case in run["cases"]:
        for engine, note in case["notes"].items():
            if note:
                notes[f"{_NAMES[engine]}: {note}"].append(case["name"])
    return "\n".join(f"- {note}: {', '.join(names)}" for note, names in sorted(notes.items()))


def _first_masks(run: Run, rows: Rows) -> str:
    """Where an engine that takes the same language lets another number of tokens begin a text."""
    lines = []
    for case in run["cases"]:
        ours = _figures(rows, case["name"], "ours", "first_ids")
        for engine in PEERS:
            theirs = _figures(rows, case["name"], engine, "first_ids")
            if ours and theirs and not case["notes"].get(engine) and ours[0] != theirs[0]:
                lines.append(f"- {case['name']}, {_NAMES[engine]}: {theirs[0]:,.0f} tokens, ours {ours[0]:,.0f}")
    return "\n".join(lines) or "None."


def _errors(run: Run, rows: Rows) -> str:
    lines = []
    for case in run["cases"]:
        for engine in PEERS:
            found = rows.get((case["name"], engine), [])
            if found and found[-1]["outcome"] in ("refused", "failed"):
                message = " ".join(found[-1]["message"].split())[:160].replace("|", "\\|")
                lines.append(f"- {case['name']}, {_NAMES[engine]}: {message}")
    return "\n".join(lines) or "None."


def compile_section(run: Run) -> str:
    """The whole section as Markdown."""
    rows = _by_case(run)
    versions = ", ".join(f"{_NAMES[engine]} {version}" for engine, version in run["versions"].items())
    parts = ["## Cold compile", f"{run['date']}; {run['machine']}; {versions}; vocabulary {run['vocabulary']};"]
    parts[-1] += f" `{run['command']}`"
    parts += [NOTES, "### In short", _summary(run, rows), "### Goals", _goals(run, rows)]
    parts += ["### Every loss", "In brackets: how many times faster the other engine was.", _losses(run, rows)]
    parts += ["### Time, ms", _cost_table(run, rows, "ms", 1)]
    parts += ["### Peak memory, MiB", _cost_table(run, rows, "peak_bytes", MIB)]
    parts += ["### Look-up, microseconds", _look_up_table(run, rows), "### Our automata", _our_table(run, rows)]
    parts += ["### Simpler forms", _stars(run), "### Refusals and failures", _errors(run, rows)]
    parts += ["### Other first tokens", _FIRST, _first_masks(run, rows)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
