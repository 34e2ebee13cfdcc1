"""No result of the compiler depends on the processor."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from compiler.codec import encode
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.vocab import vocabulary_from_tokenizer_json

ROOT = Path(__file__).resolve().parents[3]
CONSTRAINTS: tuple[dict[str, object], ...] = (
    {"regex": r"\w+(?: \w+){0,9}[.!?]"},
    {"regex": r"(?=.*é)[^\W\d]{2,40}\n?(?:\d{3}-){2}"},
    {"keywords": ["dog", ["run", "runs", "ran"], "ball"], "ordered": True},
    {"all": [{"ltlf": "G(dog -> X !cat) & F ball"}, {"min_words": 5, "max_words": 12, "sentences": 2}]},
    {"choice": [f"item {number * number} of {number}" for number in range(60)]},
    {"json_schema": {
        "type": "object", "required": ["name", "age"], "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 130},
            "kind": {"enum": ["a", "ab", "b", None]}, "tags": {"type": "array", "items": {"type": "string"}},
        },
    }},
    {"grammar": 'root ::= "(" root ")" | "[" root "," root "]" | [a-z]+', "syntax": "gbnf"},
)  # fmt: skip


def digests() -> list[str]:
    """Of each constraint, compiled for the built-in model."""
    tokenizer = (ROOT / "app/models/captions/tokenizer.json").read_text(encoding="utf-8")
    vocabulary = vocabulary_from_tokenizer_json(tokenizer, 4_096, (0,))
    compiled = (compile_spec(spec_from_json(constraint), vocabulary) for constraint in CONSTRAINTS)
    return [hashlib.sha256(encode(each, b"secret")).hexdigest() for each in compiled]


def test_old_and_new_processors_compile_the_same_automata() -> None:
    """The processor chooses the kernels of OpenBLAS and NumPy."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
    older = {"OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": " ".join(found)}
    command = [sys.executable, "-m", "tests.compiler.lifting.test_processors"]
    done = subprocess.run(command, env=os.environ | older, cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == digests()


if __name__ == "__main__":
    print(json.dumps(digests()))
