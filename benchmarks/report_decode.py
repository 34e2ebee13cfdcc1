"""The section of RESULTS.md about decoding, from results/decode.json as benchmarks.decode wrote it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks.report_tables import MIB, shown, spread, table, where

TIME_MAX = {(16, 4): 0.9, (16, 16): 0.9, (16, 64): 0.9, (512, 4): 0.7, (512, 16): 0.25, (512, 64): 0.1}
MEMORY_MAX = {(512, 64): 0.2}  # elsewhere 1
NOTES = """
GPT-2's shape (124 million random weights), seconds for one request: ours under five keywords with inflections over
GPT-2's vocabulary, transformers' `generate(num_beams=k)` without a constraint. Neither may end before its budget does.
Peak memory is beyond the loaded model. Each run is a process of its own; medians of pairs, with the range. The ratio is
ours over transformers'. Ours has the model's linear layers packed for oneDNN when it loads them, which is part of its
speed, and holds a tied output layer twice: some 230 MiB more of loaded model here. transformers runs as it comes.
"""
PEER_NOTES = """
The built-in model, greedy where the decoder knows no beams: {texts} patterns, each with a short and a long budget of
tokens. "Satisfy": answers that match the pattern in full. Time is for all of them together, the constraints' compiling
among it.
"""


def decode_section(run: dict[str, Any]) -> str:
    """The whole section as Markdown."""
    points = sorted({(row["prompt"], row["beams"]) for row in run["rows"]})
    rows = {point: [row for row in run["rows"] if (row["prompt"], row["beams"]) == point] for point in points}
    head = ["prompt", "beams", "ours, s", "transformers, s", "ratio", "goal", "ours, MiB", "transformers, MiB", "ratio"]
    head += ["goal"]
    body = [_row(*point, rows[point]) for point in points]
    parts = ["## Decoding", where(run, f"{run['tokens']} tokens"), NOTES, *run.get("notes", []), table(head, body)]
    if run["peers"]:
        texts = max((peer.get("texts", 0) for peer in run["peers"]), default=0)
        parts += ["### Beside other constrained decoders", PEER_NOTES.format(texts=texts), _peers(run["peers"])]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _row(prompt: int, beams: int, rows: Sequence[dict[str, Any]]) -> list[str]:
    whole = [row for row in rows if "error" not in row["ours"] and "error" not in row["transformers"]]
    if not whole:
        return [str(prompt), str(beams), *["failed"] * 8]
    cells = [str(prompt), str(beams)]
    for field, unit, most in (
        ("seconds", 1, TIME_MAX[prompt, beams]),
        ("peak_bytes", MIB, MEMORY_MAX.get((prompt, beams), 1.0)),
    ):
        ours, theirs = ([row[who][field] / unit for row in whole] for who in ("ours", "transformers"))
        ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
        verdict = "kept" if statistics.median(ratios) <= most else "missed"
        cells += [spread(ours), spread(theirs), spread(ratios), f"{shown(most)}: {verdict}"]
    return cells


def _peers(peers: Sequence[dict[str, Any]]) -> str:
    body = []
    for peer in peers:
        if "error" in peer:
            body.append([peer["name"], peer["error"], "", "", ""])
            continue
        figures = [peer[budget] for budget in ("short", "long")]
        body.append(
            [
                peer["name"],
                *(cell for one in figures for cell in (f"{one['satisfied']} of {one['asked']}", shown(one["seconds"]))),
            ]
        )
    return table(["decoder", "satisfy, short budget", "s", "satisfy, long budget", "s"], body)
