"""A short form of every benchmark, one after another, with figures of their own: that all of them run here.

    python -m benchmarks.short [NAME ...]

What they measure goes to .cache/bench, with a RESULTS.md of its own; few cases and single runs say little of a machine,
and nothing of what the repository's figures say. Ends with an error where one of them did.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / ".cache" / "bench"
COMMANDS = {
    "compile": "--engines ours --repeats 1",
    "scale": "--repeats 1",
    "ltlf": "--repeats 1",
    "step": "--repeats 2",
    "batch": "--repeats 1",
    "decode": "--points 16x4 --pairs 1",
    "search_quality": "--models bigram --sets 10 --beams 1 8 16 --references 5 --threads 2",
    "fashion": "--repeats 1 --sequences 200",
    "truncation": "--patterns 5",
    "commongen": "--models captions --sets 4",
    "infilling": "--models stories260k --stories 4",
    "runtimes": "--beams 4 16 --sets 2 --repeats 1",
    "page": "--loads 3",
    "load": "--seconds 30 --cached-seconds 10",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}; all where none is given")
    names = parser.parse_args().names or list(COMMANDS)
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    took: dict[str, tuple[float, int]] = {}
    for name in names:
        command = [sys.executable, "-m", f"benchmarks.{name}", *shlex.split(COMMANDS[name])]
        print(f"== {shlex.join(command[1:])}", flush=True)
        began = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, env=os.environ | {"ABS_RESULTS": str(RESULTS)}, check=False)
        took[name] = time.monotonic() - began, done.returncode
    for name, (seconds, code) in took.items():
        print(f"{name:16} {seconds:6.0f} s{f'  ended with {code}' if code else ''}")
    print(f"{'all':16} {sum(seconds for seconds, _ in took.values()):6.0f} s; {RESULTS / 'RESULTS.md'}")
    if any(code for _, code in took.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
