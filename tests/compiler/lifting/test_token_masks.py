"""Compares masks with distances, and results on several processors."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from compiler.codec import encode
from compiler.lifting import UNREACHABLE, TokenAutomaton, TokenMasks, from_table
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.vocab import byte_vocabulary, vocabulary_from_tokenizer_json


def check_masks(automaton: TokenAutomaton, states: np.ndarray, budgets: tuple[int, ...]) -> set[bool]:
    """Compare the masks of some states. Returns whether most ids were allowed, for each mask."""
    masks, most = TokenMasks(automaton), set()
    for state in states.tolist():
        distance = automaton.distance[automaton.successors(state)][automaton.token_class]
        for tokens_left in budgets:
            expected = distance <= tokens_left
            bits = masks.of_state(state, tokens_left)
            assert bits.dtype == np.uint32 and len(bits) == -(-automaton.vocabulary_size // 32)
            ids = np.flatnonzero(expected)
            words = np.zeros_like(bits)
            np.bitwise_or.at(words, ids // 32, np.uint32(1) << (ids % 32).astype(np.uint32))
            assert (bits == words).all()
            most.add(bool(expected.mean() > 0.5))
        assert (masks.of_state(state) == masks.of_state(state, UNREACHABLE - 1)).all()
    return most


@pytest.mark.parametrize(("kept", "few"), [(3, 1 << 14), (64, 1 << 14), (64, 0)])
def test_masks_of_random_tables_hold_the_ids_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, kept: int, few: int
) -> None:
    monkeypatch.setattr("compiler.lifting.token_masks._MASKS_KEPT", kept)
    monkeypatch.setattr("compiler.lifting.token_masks._FEW", few)
    random, most = np.random.default_rng(1), set()
    for columns in (1, 3, 40, 900):
        # Sizes of classes differ widely: some have more than a thousand ids, most have few.
        token_class = np.minimum(random.geometric(1 / columns, size=5_003), columns) - 1
        table = np.where(random.random((9, columns)) < 0.5, random.integers(9, size=(9, columns)), -1)
        automaton = from_table(token_class, table, random.random(9) < 0.3, 0, eos_ids=(7, 5_002))
        most |= check_masks(automaton, np.arange(automaton.states), (0, 1, 3, 50))
    assert most == {False, True}


@pytest.mark.parametrize("constraint", [
    {"regex": r"(?:a|é|日|😀)*\.?"},
    {"keywords": ["a", "b"], "ordered": True},
    {"json_schema": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
                     "additionalProperties": False}},
], ids=lambda constraint: next(iter(constraint)))  # fmt: skip
def test_masks_of_constraints_hold_the_ids_within_the_budget(constraint: dict[str, object]) -> None:
    automaton = compile_spec(spec_from_json(constraint), byte_vocabulary()).tokens
    assert isinstance(automaton, TokenAutomaton)
    check_masks(automaton, np.arange(min(automaton.states, 300)), (0, 1, 2, 5, 9))


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
    command = [sys.executable, "-m", "tests.compiler.lifting.test_token_masks"]
    done = subprocess.run(command, env=os.environ | older, cwd=ROOT, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == digests()


if __name__ == "__main__":
    print(json.dumps(digests()))
