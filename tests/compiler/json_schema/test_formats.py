"""Formats: random texts that their automata accept, against the checkers of `jsonschema`."""

from __future__ import annotations

import base64
import itertools
import json
import random
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from compiler.automata import char_complement, char_intersection, steps_to
from compiler.json_schema import FORMATS
from compiler.json_schema.formats import short_pattern
from compiler.json_schema.strings import format_dfa
from compiler.limits import Limits, ResourceGuard
from tests.compiler.json_schema.test_random_schemas import compiled, random_text
from tests.tables import table


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_texts_that_a_format_accepts_are_valid(name: str) -> None:
    rng = random.Random(name)
    schema = {"type": "string", "format": name}
    automaton = compiled(schema, depth=1)
    steps_to_end = steps_to(automaton.dfa.next_state, automaton.dfa.accepting)
    checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for _ in range(300):
        text = random_text(rng, automaton, steps_to_end)
        if name == "relative-json-pointer" and re.match('"[1-9][0-9]*0[0-9]', text):
            continue  # `jsonschema` refuses such numbers
        if name == "uri-template" and re.search(":[0-9]{4}", text):
            continue  # `uri-template` takes three digits at most
        assert checker.is_valid(json.loads(text)), text


def test_formats_compile_without_a_limit_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count(step=100)  # as on a machine that is busy
    monkeypatch.setattr("compiler.limits.time.monotonic", lambda: next(times))
    assert format_dfa(short_pattern("email"), "a name of its own").accepts("a@b")


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_regexes_that_a_check_accepts_are_read_by_python() -> None:
    rng, regexes = random.Random(3), format_dfa(FORMATS["regex"], "regex")
    steps_to_end = steps_to(regexes.dfa.next_state, regexes.dfa.accepting)
    for _ in range(2_000):
        re.compile(random_text(rng, regexes, steps_to_end))


def test_byte_accepts_exactly_what_base64_writes() -> None:
    rng, dfa = random.Random(4), format_dfa(FORMATS["byte"], "byte")
    verdicts = set()
    for size in [*range(9)] * 100:
        encoded = base64.b64encode(rng.randbytes(size)).decode()
        assert dfa.accepts(encoded), encoded
        for _ in range(4):
            place = rng.randrange(len(encoded) + 1)
            changed = encoded[:place] + rng.choice(("", *"AQz9+/=-_ \n")) + encoded[place + 1 :]
            assert dfa.accepts(changed) == _is_base64(changed), changed
            verdicts.add(_is_base64(changed))
    assert verdicts == {True, False}


def _is_base64(text: str) -> bool:
    """True where decoding and encoding lead back to the text."""
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode() == text
    except ValueError:
        return False


@pytest.mark.parametrize("name", [name for name in sorted(FORMATS) if short_pattern(name) != FORMATS[name]])
def test_short_texts_of_a_format_are_texts_of_it(name: str) -> None:
    guard = ResourceGuard(Limits())
    short, whole = format_dfa(short_pattern(name), name), format_dfa(FORMATS[name], name)
    outside = char_intersection([short, char_complement(whole)], guard)
    assert not outside.dfa.accepting.any()


@pytest.mark.parametrize("row", table("json_schema")["format"], ids=lambda row: row["format"])
def test_formats_beyond_the_suite_accept_and_reject(row: dict[str, Any]) -> None:
    automaton = compiled({"format": row["format"]})
    assert [text for text in row["accepts"] if not automaton.accepts(text)] == []
    assert [text for text in row["rejects"] if automaton.accepts(text)] == []


@pytest.mark.parametrize("row", table("json_schema")["pattern"], ids=lambda row: row["pattern"])
def test_patterns_have_the_meaning_of_ecmascript(row: dict[str, Any]) -> None:
    automaton = compiled({"pattern": row["pattern"]})
    assert [text for text in row["accepts"] if not automaton.accepts(json.dumps(text, ensure_ascii=False))] == []
    assert [text for text in row["rejects"] if automaton.accepts(json.dumps(text, ensure_ascii=False))] == []
