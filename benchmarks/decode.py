"""Decoding with a constraint beside transformers' beam search without one, and beside other constrained decoders.

python -m benchmarks.decode [--points 16x4 512x64] [--pairs 3]

A point is a prompt length and a number of beams, at GPT-2's shape. Each run is a process of its own; ours and
transformers' take turns, and a ratio is of two runs of one turn. Writes results/decode.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.compile import about, add_shared_argument
from benchmarks.decode_peers import PEERS, measured
from benchmarks.decode_point import WHO
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report

POINTS = tuple((prompt, beams) for prompt in (16, 512) for beams in (4, 16, 64))
TOKENS = 32
_SECONDS_MAX = 900.0


def child(module: str, *args: object, threads: int) -> dict[str, Any]:
    """What a module prints as one JSON object, run in a process of its own; its error where it fails."""
    quiet = {"OMP_NUM_THREADS": str(threads), "TRANSFORMERS_VERBOSITY": "error", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", module, *map(str, args), "--threads", str(threads)]
    done = subprocess.run(
        command, env=os.environ | quiet, capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no word"])[-1][:300]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def pairs(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for prompt, beams in args.points:
        for pair in range(args.pairs):
            row: dict[str, Any] = {"prompt": prompt, "beams": beams, "pair": pair}
            for who in WHO:
                row[who] = child(
                    "benchmarks.decode_point",
                    who,
                    prompt,
                    beams,
                    TOKENS,
                    "--shared",
                    args.shared,
                    threads=args.threads,
                )
                print(prompt, beams, who, row[who], flush=True)
            yield row


def peers(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in PEERS if args.peers else ():
        found = measured(name, args.threads)
        print(found, flush=True)
        yield found


def _point(text: str) -> tuple[int, int]:
    prompt, _, beams = text.partition("x")
    return int(prompt), int(beams)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared_argument(parser)
    parser.add_argument("--points", type=_point, nargs="*", default=list(POINTS), help="such as 16x4")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    parser.add_argument("--keep", action="store_true", help="write no file")
    parser.add_argument("--peers-only", action="store_true", help="measure the peers anew, keep the stored points")
    args = parser.parse_args()
    if args.peers_only:
        stored = json.loads((RESULTS_DIRECTORY / "decode.json").read_text(encoding="utf-8"))
        _write(stored | {"peers": list(peers(args))})
        return
    run = about("benchmarks.decode") | {
        "threads": args.threads,
        "tokens": TOKENS,
        "rows": list(pairs(args)),
        "peers": list(peers(args)),
    }
    if args.keep or set(args.points) != set(POINTS) or not args.peers:
        return
    _write(run)


def _write(run: dict[str, Any]) -> None:
    (RESULTS_DIRECTORY / "decode.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
