"""One system, asked line by line. Started by `running.py`, with the Python of the system's environment.

    python -m benchmarks.systems.child MODULE:CLASS OPTIONS FOLDER

Reads {"wanted", "prompt", "max_tokens"} as JSON, a line each, and answers with {"text", "prepare_ms", "answer_ms",
"error"}. A constraint that is the same as the one before is not prepared anew. What a library prints goes to standard
error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import Any, TextIO

from benchmarks.systems.base import System, Wanted


def opened(where: str, options: dict[str, Any], folder: str) -> System:
    module, _, name = where.partition(":")
    system: System = getattr(importlib.import_module(module), name)(**options)
    system.open(folder)
    return system


def wanted_of(told: dict[str, Any]) -> Wanted:
    concepts = tuple(map(tuple, told["concepts"]))
    return Wanted(told["pattern"], tuple(told["parts"]), concepts, told["ordered"])


def serve(system: System, questions: TextIO, answers: TextIO) -> None:
    """Answer until there is no more to read. An answer that does not come is told as an error."""
    prepared: Wanted | None = None
    for line in questions:
        asked = json.loads(line)
        wanted, text, error = wanted_of(asked["wanted"]), "", ""
        began = ready = time.perf_counter()
        try:
            if wanted != prepared:
                prepared = None
                system.constrain(wanted)
                prepared = wanted
            ready = time.perf_counter()
            text = system.answer(asked["prompt"], asked["max_tokens"])
        except Exception as failed:
            error = f"{type(failed).__name__}: {failed}"[:200]
        ended = time.perf_counter()
        told = {"text": text, "prepare_ms": (ready - began) * 1000, "answer_ms": (ended - ready) * 1000, "error": error}
        print(json.dumps(told), file=answers, flush=True)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    where, options, folder = sys.argv[1:]
    system = opened(where, json.loads(options), folder)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    serve(system, sys.stdin, answers)


if __name__ == "__main__":
    main()
