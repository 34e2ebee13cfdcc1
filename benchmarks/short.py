"""Runs a short form of every benchmark to check this machine.

    python -m benchmarks.short [NAME ...]

The figures go to .cache/bench, with a RESULTS.md of their own. They come from few cases and single runs, so they say
little about the machine and nothing about the repository's figures. Exits with an error if one of the benchmarks did.
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
    "compiler.compile": "--engines ours --repeats 1",
    "compiler.scale": "--repeats 1",
    "compiler.ltlf": "--repeats 1",
    "decoding.step": "--repeats 2",
    "decoding.batch": "--repeats 1",
    "decoding.decode": "--points 16x4 --pairs 1",
    "quality.search_quality": "--models bigram --sets 10 --beams 1 8 16 --references 5 --threads 2",
    "tasks.fashion": "--repeats 1 --sequences 200",
    "tasks.truncation": "--patterns 5",
    "tasks.commongen": "--models captions --sets 4",
    "tasks.infilling": "--models stories260k --stories 4",
    "tasks.runtimes": "--beams 4 16 --sets 2 --repeats 1",
    "service.page": "--loads 3",
    "service.load": "--seconds 30 --cached-seconds 10",
    "service.scaling": "--workers 1 2 --seconds 5",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(COMMANDS)}; default: all")
    names = parser.parse_args().names or list(COMMANDS)
    shutil.rmtree(RESULTS, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    outcomes: dict[str, tuple[float, int]] = {}
    for name in names:
        command = [sys.executable, "-m", f"benchmarks.{name}", *shlex.split(COMMANDS[name])]
        print(f"== {shlex.join(command[1:])}", flush=True)
        start = time.monotonic()
        process = subprocess.run(command, cwd=ROOT, env=os.environ | {"ABS_RESULTS": str(RESULTS)}, check=False)
        outcomes[name] = time.monotonic() - start, process.returncode
    for name, (seconds, code) in outcomes.items():
        print(f"{name:24} {seconds:6.0f} s{f'  ended with {code}' if code else ''}")
    print(f"{'all':24} {sum(seconds for seconds, _ in outcomes.values()):6.0f} s; {RESULTS / 'RESULTS.md'}")
    if any(code for _, code in outcomes.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
