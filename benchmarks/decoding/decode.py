"""Constrained decoding beside transformers' unconstrained beam search, and beside other constrained decoders.

    python -m benchmarks.decoding.decode [--points 16x4 512x64] [--pairs 3]

A point is a prompt length and a number of beams, at GPT-2's shape. Each run is a process of its own. Our search and
transformers' take turns, and each ratio is of the two runs of one turn. Writes results/decode.json and RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.decoding.constrained_decoders import DECODERS, decoder_figures
from benchmarks.decoding.gpt2 import LIBRARIES
from benchmarks.report import write_run
from benchmarks.runs import RESULTS_DIRECTORY, parser_of

POINTS = tuple((prompt, beams) for prompt in (16, 512) for beams in (4, 16, 64))
TOKENS = 32
_SECONDS_MAX = 900.0
_MESSAGE_CHARS = 300


def run_module(module: str, *args: object, threads: int) -> dict[str, Any]:
    """The JSON object that a module prints, run in a process of its own; its error if it fails."""
    environment = {"OMP_NUM_THREADS": str(threads), "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", module, *map(str, args), "--threads", str(threads)]
    process = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    if process.returncode:
        return {"error": (process.stderr.strip().splitlines() or ["it printed nothing"])[-1][:_MESSAGE_CHARS]}
    figures: dict[str, Any] = json.loads(process.stdout.strip().splitlines()[-1])
    return figures


def pairs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each point and turn."""
    for prompt, beams in args.points:
        for pair in range(args.pairs):
            row: dict[str, Any] = {"prompt": prompt, "beams": beams, "pair": pair}
            for library in LIBRARIES:
                row[library] = run_module(
                    "benchmarks.decoding.gpt2", library, prompt, beams, TOKENS, "--shared", args.shared,
                    threads=args.threads,
                )  # fmt: skip
                print(prompt, beams, library, row[library], flush=True)
            yield row


def peers(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The figures of each constrained decoder."""
    for name in DECODERS if args.peers else ():
        figures = decoder_figures(name, args.threads)
        print(figures, flush=True)
        yield figures


def _point(text: str) -> tuple[int, int]:
    prompt, _, beams = text.partition("x")
    return int(prompt), int(beams)


def main() -> None:
    parser = parser_of(__doc__, threads=2)
    parser.add_argument("--points", type=_point, nargs="*", default=list(POINTS), help="such as 16x4")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--keep", action="store_true", help="write no file")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers again and keep the stored points")
    args = parser.parse_args()
    if args.peers_only:
        stored = json.loads((RESULTS_DIRECTORY / "decode.json").read_text(encoding="utf-8"))
        write_run("decode", stored | {"peers": list(peers(args))})
        return
    run = {"threads": args.threads, "tokens": TOKENS, "rows": list(pairs(args)), "peers": list(peers(args))}
    if not args.keep and set(args.points) == set(POINTS) and args.peers:
        write_run("decode", run)


if __name__ == "__main__":
    main()
