"""The sections of RESULTS.md about the time and memory of decoding."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks.report.layout import (
    MIB,
    grouped,
    median_and_range,
    picture,
    section,
    share_of,
    short_number,
    table,
    verdict,
)  # fmt: skip
from benchmarks.report.plots import draw_shapes

TIME_MAX = {(16, 4): 0.9, (16, 16): 0.9, (16, 64): 0.9, (512, 4): 0.7, (512, 16): 0.25, (512, 64): 0.1}
MEMORY_MAX = {(512, 64): 0.2}  # of the other points: 1
SHARE_MAX, SHARE_BEAMS = 0.05, 64
RATIO_MAX = 0.5
AXES = {"beams": "beams", "tokens": "tokens, at most", "keywords": "keywords", "vocabulary": "tokens in the vocabulary"}
DECODE_NOTES = """
GPT-2's shape (124 million random weights), seconds for one request: ours under five keywords with inflections over
GPT-2's vocabulary, transformers' `generate(num_beams=k)` without a constraint. Neither may end before its budget does.
Peak memory is beyond the loaded model. Each run is a process of its own; medians of pairs, with the range. The ratio is
ours over transformers'. Ours lets oneDNN compute the model's larger linear layers, which is part of its speed, and
holds a tied output layer twice: some 230 MiB more of loaded model here. transformers runs with its defaults.
"""
PEER_NOTES = """
The built-in model, greedy if the decoder supports no beams: {texts} patterns, each with a short and a long budget of
tokens. "Satisfy": answers that match the pattern in full. The time is for all of them together and includes compiling
the constraints.
"""
STEP_NOTES = """
A model of GPT-2's shape (124 million parameters, random weights) on the CPU, with five keywords over its 50,257 tokens
and the service's search: for each step with k rows alive or more (banked starts with several times k) the forward pass,
and right after it all work of the search until the next. Medians over the steps; of the share also the middle half.
"""
SHAPES_NOTES = """
Models of published configurations with random weights, milliseconds per step of one request of k rows: the choice of
tokens and one forward pass. Beams: ours under five keywords with inflections, beside transformers' `generate` without a
constraint, greedy where k is 1; ours reads 3k rows for k beams. Greedy decoding and sampling: ours, llguidance and
XGrammar under a regex that half of the tokens satisfy, the last two as logits processors of transformers. The
vocabulary is the nearest real one, padded to the model's. No text ends before its budget does. Medians of the turns,
and the ratio ours over transformers' with its range. "Plain": models that prefix sharing does not serve. "Model": the
forward pass within ours, and its rows. "Batch variant": ours without the promise that an answer's last bits are the
same whatever is served beside it (`ABS_BATCH_INVARIANT=no`), which transformers' greedy decoding does not make either.
"""
BEAMS_RATIO, GREEDY_RATIO = 0.9, 1.05  # at most, with a constraint over without
SHAPES_PEERS = ("llguidance", "xgrammar")
BATCH_NOTES = """
Seconds for all requests, through one engine: one after another, and all at once. They differ in prompt, constraint
(keywords, formula, regex, JSON schema, template, combination), beams (1 to 16) and budget. Medians of pairs, with the
range. Every concurrent answer equals the answer to the same request alone, token for token; a difference ends the run.
"""
RUNTIMES_NOTES = """
Seconds per request on the built-in model, {sets} sets of CommonGen's concepts in any order, {max_tokens} tokens, with a
cached automaton: the median of {repeats} runs, each the mean of all sets, with their range; the methods take turns.
The HMM has 256 hidden states (Ctrl-G's had 32,768, on a GPU), and is our Python of the method: its time, which includes
computing its look-ahead table for each set, is no measure of others' code. The paper's table 2 gives, for GPT-2 on a
GPU, 0.74 s for its own search and 3.49 s for Ctrl-G with 4 beams, and 9.45 s and 12.01 s with 128: ratios of 0.21 and
0.79.
"""


def decode_section(run: dict[str, Any]) -> str:
    """Time and memory beside transformers, and the other constrained decoders."""
    points = grouped(run["rows"], "prompt", "beams")
    head = ["prompt", "beams", "ours, s", "transformers, s", "ratio", "goal", "ours, MiB", "transformers, MiB", "ratio"]
    parts = [table([*head, "goal"], [_decode_row(prompt, k, rows) for (prompt, k), rows in sorted(points.items())])]
    if run["peers"]:
        texts = max((peer.get("texts", 0) for peer in run["peers"]), default=0)
        parts += ["### Beside other constrained decoders", PEER_NOTES.format(texts=texts), _peers(run["peers"])]
    return section("Decoding", run, DECODE_NOTES, *parts, details=(f"{run['tokens']} tokens",))


def _decode_row(prompt: int, beams: int, rows: Sequence[dict[str, Any]]) -> list[str]:
    cells = [str(prompt), str(beams)]
    pairs = complete_pairs(rows)
    if not pairs:
        return [*cells, *["failed"] * 8]
    for field, unit, ratio_max in (
        ("seconds", 1, TIME_MAX[prompt, beams]),
        ("peak_bytes", MIB, MEMORY_MAX.get((prompt, beams), 1.0)),
    ):
        ours, theirs = ([pair[library][field] / unit for pair in pairs] for library in ("ours", "transformers"))
        ratios = [our_ms / their_ms for our_ms, their_ms in zip(ours, theirs, strict=True)]
        goal = f"{short_number(ratio_max)}: {verdict(statistics.median(ratios) <= ratio_max)}"
        cells += [*(median_and_range(values) for values in (ours, theirs, ratios)), goal]
    return cells


def complete_pairs(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The turns in which neither library failed."""
    return [row for row in rows if "error" not in row["ours"] and "error" not in row["transformers"]]


def _peers(peers: Sequence[dict[str, Any]]) -> str:
    body = []
    for peer in peers:
        cells = [peer["error"], "", "", ""] if "error" in peer else []
        for budget in () if cells else ("short", "long"):
            figures = peer[budget]
            cells += [f"{figures['satisfied']} of {figures['requests']}", short_number(figures["seconds"])]
        body.append([peer["name"], *cells])
    return table(["decoder", "satisfy, short budget", "s", "satisfy, long budget", "s"], body)


def step_section(run: dict[str, Any]) -> str:
    """The search's time beside the forward pass."""
    body = []
    for row in run["rows"]:
        low, high = (f"{100 * share:.1f}" for share in row["share_quarters"])
        times = (short_number(row["forward_ms"]), short_number(row["search_ms"]))
        body.append([row["algorithm"], str(row["beams"]), *times, f"{100 * row['share']:.1f} % ({low}-{high})"])
    largest = max(row["share"] for row in run["rows"] if row["beams"] == SHARE_BEAMS)
    goal = f"with {SHARE_BEAMS} beams at most {100 * SHARE_MAX:.0f} % of the forward pass"
    return section(
        "The search beside the model", run, STEP_NOTES,
        table(["algorithm", "k", "forward pass, ms", "search, ms", "search / forward pass"], body),
        f"Goal: {goal}: {verdict(largest <= SHARE_MAX)}.",
    )  # fmt: skip


_SHAPES_MORE = {"variant": "batch variant, ms", "graphs": "with graphs, ms"}  # columns that some runs have


def shapes_section(run: dict[str, Any]) -> str:
    """Models of real shapes on a device, beside transformers and other masks."""
    body, changes, met = [], dict[str, str](), {"beams": [0, 0], "greedy": [0, 0], "variant": [0, 0]}
    more = {name: title for name, title in _SHAPES_MORE.items() if any(name in row for row in run["rows"])}
    for (shape, prompt, method, k), rows in grouped(run["rows"], "shape", "prompt", "method", "k").items():
        ratios = [row["ours"] / row["transformers"] for row in rows]
        about = [shape, f"{rows[0]['vocabulary']:,}", "shared" if rows[0]["shared_prefix"] else "plain"]
        times = [_median_of(rows, name) for name in ("ours", "model", *more, "transformers", *SHAPES_PEERS)]
        times[1] += f" ({rows[0]['rows']:g})" if "rows" in rows[0] else ""
        body.append([*about, str(prompt), method, str(k), *times, median_and_range(ratios)])
        changes[shape] = rows[0].get("changes", "")
        if goal := "greedy" if method == "greedy" else "beams" if method == "beams" and k > 1 else "":
            most = GREEDY_RATIO if goal == "greedy" else BEAMS_RATIO
            met[goal][0] += statistics.median(ratios) <= most
            met[goal][1] += 1
        if "variant" in rows[0]:
            met["variant"][0] += statistics.median(row["variant"] / row["transformers"] for row in rows) <= GREEDY_RATIO
            met["variant"][1] += 1
    head = ["model", "ids", "cache", "prompt", "method", "k", "ours, ms", "model (rows)",
            *more.values(), "transformers, ms", "llguidance, ms", "XGrammar, ms",
            "ratio"]  # fmt: skip
    goals = [
        f"- Beams take at most {BEAMS_RATIO} of the time of beams without a constraint: {share_of(*met['beams'])}",
        f"- Greedy decoding takes at most {GREEDY_RATIO} of its time without one: {share_of(*met['greedy'])}",
        f"- The same without batch invariance: {share_of(*met['variant'])}",
    ]
    goals = [goal for goal, (_, points) in zip(goals, met.values(), strict=True) if points]
    differing = [f"{shape} has {change}" for shape, change in changes.items() if change]
    first = run["rows"][0]
    layers = sorted({row["layers"] for row in run["rows"]})
    details = [first["dtype"]]
    if len(layers) == 1:
        details.append(f"the last {layers[0]} layers of each model")
    details += [f"{name} {release}" for name, release in run.get("versions", {}).items()]
    title = f"Models of real shapes on {run['device'] or 'the CPU'}"
    notes = SHAPES_NOTES + (f"\nConfigurations changed: {'; '.join(differing)}.\n" if differing else "")
    panels, shapes = len({row["prompt"] for row in run["rows"]}), len(changes)
    plot = picture(
        "shapes_cuda" if run["device"] else "shapes_cpu", "the time of a step over that of transformers, by model",
        partial(draw_shapes, run["rows"]), (4.8 * panels, 1.2 + 0.28 * shapes), (1, panels),
    )  # fmt: skip
    return section(title, run, notes, table(head, body), "\n".join(goals), plot, details=details)


def _median_of(rows: Sequence[dict[str, Any]], name: str) -> str:
    """The median of a field; empty where no row has it."""
    values = [row[name] for row in rows if name in row]
    return short_number(statistics.median(values)) if values else ""


def batch_section(run: dict[str, Any]) -> str:
    """Concurrent requests beside sequential ones."""
    pairs = run["pairs"]
    columns = [median_and_range(pair[name] for pair in pairs) for name in ("sequential_s", "concurrent_s", "ratio")]
    head = ["requests", "tokens written", "one after another, s", "at once, s", "at once / one after another"]
    ratios = sorted(pair["ratio"] for pair in pairs)
    return section(
        "Many requests at once", run, BATCH_NOTES,
        table(head, [[f"{run['requests']}", f"{run['tokens']:,}", *columns]]),
        f"Goal: at most {RATIO_MAX} of the time: {verdict(ratios[len(ratios) // 2] <= RATIO_MAX)}.",
        details=("the built-in model",),
    )  # fmt: skip


def runtimes_section(run: dict[str, Any]) -> str:
    """Seconds per request by method and number of beams."""
    rows = run["rows"]
    beams = sorted({row["beams"] for row in rows})
    seconds = {(row["method"], row["beams"]): row["seconds"] for row in rows}
    methods = list(dict.fromkeys(row["method"] for row in rows))
    body = [[method, *(_seconds(seconds[method, k]) for k in beams)] for method in methods]
    if "HMM" in methods:
        body += [[f"{method} / HMM", *(_ratio(seconds[method, k], seconds["HMM", k]) for k in beams)]
                 for method in methods if method.startswith("ours")]  # fmt: skip
    notes = RUNTIMES_NOTES.format(sets=run["sets"], max_tokens=run["max_tokens"], repeats=len(rows[0]["seconds"]))
    draw = partial(draw_runtimes, run["growth"])
    plot = picture("runtimes", "seconds per request of ours, along four axes", draw, (11, 2.8), (1, len(AXES)))
    return section(
        "Seconds per request", run, notes, table(["method", *(f"{k} beams" for k in beams)], body), plot
    )  # fmt: skip


def _seconds(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def _ratio(ours: list[float], theirs: list[float]) -> str:
    return short_number(statistics.median(value / baseline for value, baseline in zip(ours, theirs, strict=True)))


def draw_runtimes(rows: list[dict[str, Any]], panels: list[Any]) -> None:
    """Seconds per request of our search along each axis."""
    for panel, (along, label) in zip(panels, AXES.items(), strict=True):
        points = sorted((row for row in rows if row["along"] == along), key=lambda row: row["value"])
        medians = [statistics.median(row["seconds"]) for row in points]
        panel.plot([row["value"] for row in points], medians, marker="o")
        panel.set_xlabel(label)
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel("seconds per request")
