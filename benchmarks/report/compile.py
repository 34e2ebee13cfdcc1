"""The sections of RESULTS.md about compile times, their growth, and MONA."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from itertools import product
from typing import Any, Literal

from benchmarks.report.layout import MIB, grouped, median_and_range, picture, section, short_number, table, verdict
from benchmarks.report.plots import draw_distributions

Run = dict[str, Any]
Rows = dict[tuple[str, str], list[dict[str, Any]]]  # by case and engine, in the order measured
MS_MAX, PEAK_MIB_MAX, LOOK_UP_US_MAX = 1000.0, 200.0, 50.0  # the goals
ENGINE_NAMES = {"ours": "ours", "outlines_core": "outlines-core", "xgrammar": "XGrammar", "llguidance": "llguidance"}
ENGINES = tuple(ENGINE_NAMES)
PEERS = ENGINES[1:]
PRECOMPUTING = PEERS[:2]  # llguidance computes a mask when it is looked up
_COUNTS = ("states", "classes", "min_tokens")
_LOOK_UPS = {  # the curves of the figure: an engine and a figure
    **{name: (engine, "look_up_p50") for engine, name in ENGINE_NAMES.items()}, "ours, all ids": ("ours", "expand_p50"),
}  # fmt: skip
_CANNOT, _NO_FIGURE = "cannot express it", "-"
NOTES = """
Milliseconds until the first mask is ready, and peak MiB beyond the loaded vocabulary: the median, with the range if its
ends differ as printed. The engines took turns on each constraint. "Cannot express it": the engine has no form for the
constraint; other words name the limit or the error that stopped an engine. A star marks a constraint that the engine
takes in a simpler form than ours (listed below the tables). Look-ups are microseconds, p50 / p99, along random walks:
our search looks up the classes of tokens that may follow a state; "all ids" is the same spread over the vocabulary. The
others compute a bit mask over all ids.
"""
FIRST_TOKENS_NOTES = """
A check that the constraints are the same: cases without a star in which another number of tokens may start a text.
"""
SCALE_NOTES = """
Medians of the repeats, with the range if its ends differ as printed; each compile cold, in a process of its own, on one
core. A law is fitted by least squares to the upper half of a series, where constant costs no longer matter: as a power
of the size or as a factor for each step, whichever has the smaller error.
"""
LTLF_NOTES = """
Milliseconds for all formulas of a family, one after the other, medians: ours from text to minimal automaton; MONA's
process alone; and the whole engine around it, which is LTLf2DFA's parser and translation, MONA, and the expansion of
its guards over the letters. "Ahead": on how many formulas ours takes less than MONA's process alone. The automata are
equal.
"""
Series = dict[int, dict[str, list[float]]]  # by size, then by figure: one value a repeat
Law = Literal["power", "factor"]
_SCALES = {"ms": 1.0, "table_bytes": float(MIB), "peak_bytes": float(MIB)}
_TITLES = {"ms": "time", "table_bytes": "tables", "peak_bytes": "peak memory"}
_COUNTABLE_MAX = 1_000
_POINTS_MIN = 3


def _figures(rows: Rows, case: str, engine: str, name: str) -> list[float]:
    """The figure of every repeat; empty if one did not finish."""
    repeats = rows.get((case, engine), [])
    return [row["figures"][name] for row in repeats] if all(row["outcome"] == "ok" for row in repeats) else []


def _failure(rows: Rows, case: str, engine: str, limits: dict[str, float]) -> str:
    """Why an engine has no figures for a case."""
    repeats = rows.get((case, engine))
    if not repeats:
        return _CANNOT
    outcome = str(repeats[-1]["outcome"])
    phrases = {"time": f"over {limits['seconds']:g} s", "memory": f"over {limits['gigabytes']:g} GB"}
    return phrases.get(outcome, outcome)


def _cell(run: Run, rows: Rows, case: dict[str, Any], engine: str, name: str, scale: float) -> str:
    values = [value / scale for value in _figures(rows, case["name"], engine, name)]
    star = "\\*" if case["notes"].get(engine) else ""
    return median_and_range(values) + star if values else _failure(rows, case["name"], engine, run["limits"])


def ratios(rows: Rows, cases: Iterable[str], engine: str, name: str) -> dict[str, float]:
    """Their figure over ours for each case that both finish. It is the median over the pairs of one turn each."""
    medians = {}
    for case in cases:
        pairs = zip(_figures(rows, case, engine, name), _figures(rows, case, "ours", name), strict=False)
        quotients = [theirs / ours for theirs, ours in pairs if ours]
        if quotients:
            medians[case] = statistics.median(quotients)
    return medians


def _cost_table(run: Run, rows: Rows, name: str, scale: float) -> str:
    head = ["constraint", *ENGINE_NAMES.values(), *(f"{ENGINE_NAMES[peer]} / ours" for peer in PEERS)]
    body = []
    names = [case["name"] for case in run["cases"]]
    against = {peer: ratios(rows, names, peer, name) for peer in PEERS}
    for case in run["cases"]:
        cells = [_cell(run, rows, case, engine, name, scale) for engine in ENGINES]
        quotients = [against[peer].get(case["name"]) for peer in PEERS]
        cells += [_NO_FIGURE if ratio is None else short_number(ratio) for ratio in quotients]
        body.append([case["name"], *cells])
    return table(head, body)


def _our_table(run: Run, rows: Rows) -> str:
    body = []
    for case in run["cases"]:
        figures = {name: _figures(rows, case["name"], "ours", name) for name in (*_COUNTS, "table_bytes")}
        if figures["states"]:
            medians = {name: statistics.median(values) for name, values in figures.items()}
            counts = [f"{medians[name]:,.0f}" for name in _COUNTS]
            body.append([case["name"], *counts, short_number(medians["table_bytes"] / MIB)])
    return table(["constraint", "states", "classes", "least tokens", "table MiB"], body)


def _look_up_table(run: Run, rows: Rows) -> str:
    def cell(case: str, engine: str, kind: str) -> str:
        tails = [_figures(rows, case, engine, f"{kind}_{tail}") for tail in ("p50", "p99")]
        return " / ".join(short_number(statistics.median(values)) for values in tails) if tails[0] else _NO_FIGURE

    body = []
    for case in run["cases"]:
        name = case["name"]
        ours = [cell(name, "ours", "look_up"), cell(name, "ours", "expand")]
        body.append([name, *ours, *(cell(name, peer, "look_up") for peer in PEERS)])
    return table(["constraint", "ours", "ours, all ids", *(ENGINE_NAMES[peer] for peer in PEERS)], body)


def _summary(run: Run, rows: Rows) -> str:
    names = [case["name"] for case in run["cases"]]
    compiled = [name for name in names if _figures(rows, name, "ours", "ms")]
    lines = [f"- ours: {len(compiled)} of {len(names)} constraints compiled"]
    for engine in PEERS:
        kind = "precomputes" if engine in PRECOMPUTING else "computes masks when looked up"
        times, memory = (ratios(rows, names, engine, name) for name in ("ms", "peak_bytes"))
        stopped_cases = [name for name in names if rows.get((name, engine)) and not _figures(rows, name, engine, "ms")]
        missing = sum(1 for name in names if not rows.get((name, engine)))
        line = f"- {ENGINE_NAMES[engine]} ({kind}): cannot express {missing}, does not finish {len(stopped_cases)}"
        if times:
            wins = sum(1 for ratio in times.values() if ratio > 1)
            line += f"; over the {len(times)} that both finish, theirs over ours: time {_mean(times)}, ours faster on "
            line += f"{wins}; memory {_mean(memory)}"
        lines.append(line)
    lines.append(_common(run, rows, names))
    return "\n".join(lines)


def _common(run: Run, rows: Rows, names: list[str]) -> str:
    """The geometric means over the cases that every precomputing engine finishes."""
    engines = ("ours", *PRECOMPUTING)
    common = [name for name in names if all(_figures(rows, name, engine, "ms") for engine in engines)]
    if not common:
        return "- no constraint was finished by all precomputing engines"
    means = {
        engine: statistics.geometric_mean([statistics.median(_figures(rows, name, engine, "ms")) for name in common])
        for engine in engines
    }
    means_text = ", ".join(f"{ENGINE_NAMES[engine]} {short_number(mean)} ms" for engine, mean in means.items())
    return f"- geometric mean over the {len(common)} that all precomputing engines finish: {means_text}"


def _mean(by_case: dict[str, float]) -> str:
    values = [value for value in by_case.values() if value > 0]
    if not values:
        return _NO_FIGURE
    mean, low, high = map(short_number, (statistics.geometric_mean(values), min(values), max(values)))
    return f"{mean} ({low}-{high})"


def _goals(run: Run, rows: Rows) -> str:
    names = [case["name"] for case in run["cases"] if _figures(rows, case["name"], "ours", "ms")]
    lines = []
    for figure, scale, goal, words in (
        ("ms", 1, MS_MAX, "ms, the slowest compile"),
        ("peak_bytes", MIB, PEAK_MIB_MAX, "MiB, the highest peak"),
        ("look_up_p99", 1, LOOK_UP_US_MAX, "us, the slowest p99 of a look-up by class"),
        ("expand_p99", 1, LOOK_UP_US_MAX, "us, the slowest p99 of a look-up spread over all ids"),
    ):
        medians = [(statistics.median(_figures(rows, name, "ours", figure)) / scale, name) for name in names]
        value, case = max(medians)
        over = sum(median > goal for median, _ in medians)
        result = verdict(not over) + (f" by {over} of {len(names)}" if over else "")
        lines.append(f"- {short_number(value)} {words} ({case}); goal {goal:g}: {result}")
    return "\n".join(lines)


def _losses(run: Run, rows: Rows) -> str:
    names = [case["name"] for case in run["cases"]]
    lines = []
    for engine in PEERS:
        by_case = sorted(ratios(rows, names, engine, "ms").items(), key=lambda pair: pair[1])
        losses = [f"{name} ({short_number(1 / ratio)})" for name, ratio in by_case if ratio < 1]
        lines.append(f"- to {ENGINE_NAMES[engine]}, {len(losses)}: {', '.join(losses) or 'none'}")
    for name in names:
        repeats = rows.get((name, "ours"), [])
        if repeats and repeats[-1]["outcome"] != "ok":
            lines.append(f"- ours does not compile {name}: {repeats[-1]['outcome']}; {repeats[-1]['message']}")
    return "\n".join(lines)


def _stars(run: Run) -> str:
    notes: dict[str, list[str]] = defaultdict(list)
    for case in run["cases"]:
        for engine, note in case["notes"].items():
            if note:
                notes[f"{ENGINE_NAMES[engine]}: {note}"].append(case["name"])
    return "\n".join(f"- {note}: {', '.join(names)}" for note, names in sorted(notes.items()))


def _first_tokens(run: Run, rows: Rows) -> str:
    """The cases where an engine allows another number of first tokens. The engine's language is the same."""
    lines = []
    for case, engine in product(run["cases"], PEERS):
        ours, theirs = (_figures(rows, case["name"], name, "first_ids") for name in ("ours", engine))
        if ours and theirs and not case["notes"].get(engine) and ours[0] != theirs[0]:
            lines.append(f"- {case['name']}, {ENGINE_NAMES[engine]}: {theirs[0]:,.0f} tokens, ours {ours[0]:,.0f}")
    return "\n".join(lines) or "None."


def _errors(run: Run, rows: Rows) -> str:
    lines = []
    for case, engine in product(run["cases"], PEERS):
        repeats = rows.get((case["name"], engine), [])
        if repeats and repeats[-1]["outcome"] in ("refused", "failed"):
            message = " ".join(repeats[-1]["message"].split())[:160].replace("|", "\\|")
            lines.append(f"- {case['name']}, {ENGINE_NAMES[engine]}: {message}")
    return "\n".join(lines) or "None."


def _medians(run: Run, rows: Rows, curves: dict[str, tuple[str, str]]) -> dict[str, list[float]]:
    """The medians of each case that an engine finishes, by curve.

    curves  by name: an engine and a figure
    """
    figures = {
        label: [_figures(rows, case["name"], engine, name) for case in run["cases"]]
        for label, (engine, name) in curves.items()
    }
    return {label: [statistics.median(values) for values in cases if values] for label, cases in figures.items()}


def compile_section(run: Run) -> str:
    """Time, memory and look-ups of all engines."""
    rows = grouped(run["rows"], "case", "engine")
    versions = [f"{ENGINE_NAMES[engine]} {version}" for engine, version in run["versions"].items()]
    parts = {
        "In short": _summary(run, rows),
        "Goals": _goals(run, rows),
        "Every loss": "In brackets: how many times faster the other engine was.\n\n" + _losses(run, rows),
        "Time, ms": _cost_table(run, rows, "ms", 1),
        "Peak memory, MiB": _cost_table(run, rows, "peak_bytes", MIB),
        "Look-up, microseconds": _look_up_table(run, rows),
        "Our automata": _our_table(run, rows),
        "Simpler forms": _stars(run),
        "Refusals and failures": _errors(run, rows),
        "Other first tokens": f"{FIRST_TOKENS_NOTES.strip()}\n\n{_first_tokens(run, rows)}",
    }
    curves = [_medians(run, rows, {name: (engine, "ms") for engine, name in ENGINE_NAMES.items()}),
              _medians(run, rows, _LOOK_UPS)]  # fmt: skip
    draw = partial(draw_distributions, curves, ("ms until the first mask", "us of a look-up, median of a walk"))
    blocks = [picture("compile", "constraints by the time of a compile and a look-up", draw, (9, 3.6), (1, 2))]
    blocks += [block for title, part in parts.items() for block in (f"### {title}", part)]
    details = (", ".join(versions), f"vocabulary {run['vocabulary']}")
    return section("Cold compile", run, NOTES, *blocks, details=details)


def _series(run: dict[str, Any]) -> tuple[dict[str, Series], list[str]]:
    """The figures of every series, and a line per failed point."""
    series: dict[str, Series] = defaultdict(dict)
    missing: dict[str, None] = {}
    for row in run["rows"]:
        if row["outcome"] != "ok":
            missing[f"{row['series']}, {row['size'] or row['vocabulary']}: {row['outcome']}; {row['message']}"] = None
            continue
        point = series[row["series"]].setdefault(row["size"], {name: [] for name in _SCALES})
        for name, scale in _SCALES.items():
            point[name].append(row["figures"][name] / scale)
    return {name: dict(sorted(points.items())) for name, points in series.items()}, list(missing)


def _line(x: list[float], y: list[float]) -> tuple[float, float]:
    """The slope of the least-squares line, and its squared error."""
    slope, offset = statistics.linear_regression(x, y)
    return slope, sum((value - slope * at - offset) ** 2 for at, value in zip(x, y, strict=True))


def fitted_law(sizes: list[int], values: list[float]) -> tuple[Law, float]:
    """The growth of values with sizes: ("power", exponent) or ("factor", growth for each step of one).

    Raises ValueError for fewer than two points, or a value that is not positive.
    """
    logs = [math.log(value) for value in values]
    exponent, power_error = _line([math.log(size) for size in sizes], logs)
    rate, factor_error = _line([float(size) for size in sizes], logs)
    countable = sizes[-1] <= _COUNTABLE_MAX  # a factor for each single id of a vocabulary would mean nothing
    return ("factor", math.exp(rate)) if countable and factor_error < power_error else ("power", exponent)


def law_phrase(sizes: list[int], values: list[float]) -> str:
    """The law of the upper half of a series, as a phrase."""
    half = max(_POINTS_MIN, (len(sizes) + 1) // 2)
    law, number = fitted_law(sizes[-half:], values[-half:])
    return f"size to the power {number:.2f}" if law == "power" else f"{number:.2f} times for each one more"


def _laws(series: dict[str, Series]) -> str:
    lines = []
    for title, points in series.items():
        if len(points) < _POINTS_MIN:
            continue
        sizes = list(points)
        medians = {figure: [statistics.median(points[size][figure]) for size in sizes] for figure in _SCALES}
        phrases = [
            f"{_TITLES[figure]} as {law_phrase(sizes, values)}" for figure, values in medians.items() if min(values)
        ]
        lines.append(f"- {title}, {sizes[0]:,} to {sizes[-1]:,}: {'; '.join(phrases)}")
    return "\n".join(lines)


def _scale_table(points: Series) -> str:
    body = [[f"{size:,}", *(median_and_range(point[name]) for name in _SCALES)] for size, point in points.items()]
    return table(["size", "ms", "table MiB", "peak MiB"], body)


def _picture(series: dict[str, Series]) -> str:
    """Time and table size of every series, one panel per size."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in series:
        kinds[name.partition(":")[0].removesuffix(" in order")].append(name)
    figures = (("ms", "compile, ms"), ("table_bytes", "tables, MiB"))

    def draw(panels: list[Any]) -> None:
        for panel, ((figure, label), kind) in zip(panels, product(figures, kinds), strict=True):
            for name in kinds[kind]:
                values = [statistics.median(point[figure]) for point in series[name].values()]
                panel.plot(list(series[name]), values, marker="o", label=name.partition(": ")[2] or name)
            panel.set(xlabel=kind, ylabel=label, yscale="log")
            panel.legend(fontsize=7)

    return picture("scale", "Compile time and table size", draw, (4 * len(kinds), 6), (len(figures), len(kinds)))


def scale_section(run: dict[str, Any]) -> str:
    """Growth of our compile time and tables."""
    series, missing = _series(run)
    parts = [_picture(series), _laws(series)]
    parts.append("\n".join(f"- not compiled: {line}" for line in missing))
    for name, points in series.items():
        parts += [f"### By {name}", _scale_table(points)]
    return section("Growth", run, SCALE_NOTES, *parts)


def ltlf_section(run: dict[str, Any]) -> str:
    """Our translation of formulas beside MONA's."""
    head = ["family", "formulas", "most states", "ours ms", "MONA's process ms", "whole engine ms"]
    head += ["process / ours", "engine / ours", "geometric mean of process / ours", "ahead"]
    times = ("native_ms", "process_ms", "engine_ms", "process_over_native", "engine_over_native", "geometric_mean")
    body = [
        [row["family"], f"{row['formulas']:,}", f"{row['states_max']:,}", *(short_number(row[name]) for name in times),
         f"{row['ahead']:,}"]
        for row in run["rows"]
    ]  # fmt: skip
    least_ahead = [
        f"- {row['native_ms']:.1f} ms against {row['process_ms']:.1f} ms: `{row['formula'][:100]}` ({row['family']})"
        for row in run["least_ahead"]
    ]
    return section(
        "LTLf beside MONA", run, LTLF_NOTES, table(head, body), "The formulas on which ours is least ahead, or behind:",
        "\n".join(least_ahead), details=(f"medians of {run['repeats']}",),
    )  # fmt: skip
