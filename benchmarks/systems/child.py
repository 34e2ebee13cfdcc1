"""The program of a system's process, which answers one question a line.

    python -m benchmarks.systems.child MODULE:CLASS OPTIONS FOLDER CLOCK

`process.py` starts it with the Python of the system's environment. Each line of standard input is a JSON object with
"constraint", "prompt" and "max_tokens", each answer one with "text", "prepare_ms", "answer_ms" and "error". A
constraint is prepared again only if it differs from the one before. What a library prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, TextIO

from benchmarks.runs import CLOCKS, Clock
from benchmarks.systems.base import System, TextConstraint

_ERROR_CHARS = 200


def load_system(class_path: str, options: dict[str, Any], folder: str) -> System:
    """An instance of the class, with the model of the folder."""
    module, _, name = class_path.partition(":")
    system: System = getattr(importlib.import_module(module), name)(**options)
    system.open(folder)
    return system


def read_constraint(fields: dict[str, Any]) -> TextConstraint:
    """A constraint from JSON."""
    concepts = tuple(map(tuple, fields["concepts"]))
    return TextConstraint(fields["pattern"], tuple(fields["parts"]), concepts, fields["ordered"])


def serve(system: System, questions: TextIO, answers: TextIO, clock: Clock) -> None:
    """Answer until the input ends. A failure is answered with its error."""
    prepared: TextConstraint | None = None
    for line in questions:
        question = json.loads(line)
        constraint, text, error = read_constraint(question["constraint"]), "", ""
        start = ready = clock()
        try:
            if constraint != prepared:
                prepared = None
                system.constrain(constraint)
                prepared = constraint
            ready = clock()
            text = system.answer(question["prompt"], question["max_tokens"])
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"[:_ERROR_CHARS]
        end = clock()
        answer = {"text": text, "prepare_ms": (ready - start) * 1000, "answer_ms": (end - ready) * 1000, "error": error}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    class_path, options, folder, clock = sys.argv[1:]
    system = load_system(class_path, json.loads(options), folder)
    print(json.dumps({"ready": True}), file=answers, flush=True)
    serve(system, sys.stdin, answers, CLOCKS[clock])


if __name__ == "__main__":
    main()
