"""Constrained decoding beside transformers' unconstrained beam search, and beside other constrained decoders.

    python -m benchmarks.decoding.decode [--points 16x4 512x64] [--pairs 3]

A point is a prompt length and a number of beams, at GPT-2's shape. Each run is a process of its own. Our search and
transformers' take turns, and each ratio is of the two runs of one turn. The other decoders run on the built-in model,
each in a process and an environment of its own (`benchmarks.systems`): every one gets the same patterns, prompt and
budgets, a short one of two tokens more than the shortest text of the pattern has, and a long one. Writes
results/decode.json and RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from app.models import open_model_files
from app.settings import BUILT_IN_MODEL
from benchmarks.decoding.gpt2 import LIBRARIES
from benchmarks.report import write_run
from benchmarks.runs import RESULTS_DIRECTORY, parser_of
from benchmarks.systems.base import TextConstraint
from benchmarks.systems.catalogue import SYSTEMS
from benchmarks.systems.process import SystemProcess, SystemUnavailable, run_system
from compiler.pipeline import compile_spec
from compiler.spec import RegexSpec

POINTS = tuple((prompt, beams) for prompt in (16, 512) for beams in (4, 16, 64))
TOKENS = 32
_SECONDS_MAX = 900.0
_MESSAGE_CHARS = 300
PROMPT = "sentence:"
PATTERNS = (
    r"[A-Z][a-z]+( [a-z]+){3,9}\.",
    r"A [a-z ]*dog[a-z ]*park[a-z ]*\.",
    r"(The|A) (man|woman|girl|boy) [a-z ]+ and [a-z ]+\.",
    r"[A-Z][a-z ]{20,60}\.",
    r"[a-z ]*snow[a-z ]*hill[a-z ]*sled[a-z ]*\.",
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}: [a-z ]{10,40}\.",
    r'\{"who": "[a-z ]{3,20}", "where": "[a-z ]{3,20}"\}',
    r"([a-z]+, ){2,5}and [a-z]+",
)
SHORT_SLACK, LONG = 2, 64  # tokens beyond the shortest text; tokens
DECODERS = ("ours, 16 beams", "ours, 1 beam", "XGrammar", "outlines-core", "llguidance", "Outlines", "guidance")


def run_module(module: str, *args: object, threads: int) -> dict[str, Any]:
    """The JSON object that a module prints in a separate process. It is the module's error if that fails."""
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
                    "--clock", args.clock, threads=args.threads,
                )  # fmt: skip
                print(prompt, beams, library, row[library], flush=True)
            yield row


def satisfies(pattern: str, text: str) -> bool:
    """Whether a text matches in full. One leading space is ignored, as some tokenizers always write it."""
    return re.fullmatch(pattern, text.removeprefix(" ")) is not None


def tokens_min(patterns: tuple[str, ...]) -> dict[str, int]:
    """The tokens of each pattern's shortest text, including the end-of-text token."""
    vocabulary = open_model_files(BUILT_IN_MODEL).vocabulary
    return {pattern: compile_spec(RegexSpec(pattern), vocabulary).tokens.min_tokens for pattern in patterns}


def _figures(system: SystemProcess, budgets: dict[str, int]) -> dict[str, Any]:
    answers = {pattern: system.ask(TextConstraint(pattern), PROMPT, budget) for pattern, budget in budgets.items()}
    satisfied = sum(satisfies(pattern, answer.text) and not answer.error for pattern, answer in answers.items())
    return {
        "seconds": sum(answer.ms for answer in answers.values()) / 1000, "requests": len(answers),
        "satisfied": satisfied, "texts": [answer.text for answer in answers.values()],
    }  # fmt: skip


def decoder_figures(name: str, threads: int) -> dict[str, Any]:
    """The figures of one decoder, or the error of its start."""
    shortest = tokens_min(PATTERNS)
    try:
        with run_system(SYSTEMS[name], BUILT_IN_MODEL, threads) as system:
            system.ask(TextConstraint(PATTERNS[0]), PROMPT, LONG)  # the first answer of a process is slower
            short_figures = _figures(system, {pattern: tokens + SHORT_SLACK for pattern, tokens in shortest.items()})
            long_figures = _figures(system, dict.fromkeys(PATTERNS, LONG))
    except SystemUnavailable as error:
        return {"name": name, "error": str(error)}
    return {"name": name, "texts": len(PATTERNS), "short": short_figures, "long": long_figures}


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
    parser = parser_of(__doc__, threads=2, clock=True)
    parser.add_argument("--points", type=_point, nargs="*", default=list(POINTS), help="such as 16x4")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="keep the stored ones")
    parser.add_argument("--keep", action="store_true", help="write no file")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers again and keep the stored points")
    args = parser.parse_args()
    path = RESULTS_DIRECTORY / "decode.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"peers": []}
    if args.peers_only:
        write_run("decode", stored | {"peers": list(peers(args))})
        return
    run = {"threads": args.threads, "clock": args.clock, "tokens": TOKENS, "rows": list(pairs(args))}
    run["peers"] = list(peers(args)) if args.peers else stored["peers"]
    if not args.keep and set(args.points) == set(POINTS):
        write_run("decode", run)


if __name__ == "__main__":
    main()
