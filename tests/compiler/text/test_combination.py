"""Combinations of words, whole texts and character counts, compared with the definitions.

Every compilation path occurs.
"""

from __future__ import annotations

import itertools
import json
import random
from functools import cache, reduce
from typing import Any

import pytest

from compiler.codec import decode, encode
from compiler.engines import NATIVE
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.forms import constraint_tree
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import spec_from_json
from compiler.text import answer_text, check_text, to_char_dfa
from compiler.text import combination as combine
from compiler.vocab import byte_vocabulary
from tests.references.text import satisfies
from tests.tables import rows, table

A, B = {"keywords": ["a"]}, {"keywords": ["b"]}
ANY = {"regex": "(?s:.*)"}
CLASHING = {
    "dfa": {
        "start": "s",
        "accepting": ["s"],
        "transitions": [{"from": "s", "to": "s"}, {"from": "s", "to": "s", "when": "a"}],
    }
}
COMBINED = table("combinations")["constraints"]
TEXTS = ["".join(text) for length in range(6) for text in itertools.product("ab. ", repeat=length)]
FEW = TEXTS[:341] + TEXTS[341::7]  # all of at most four characters


@cache
def verdicts(constraint: str) -> dict[str, bool]:
    spec = spec_from_json(json.loads(constraint))
    return {text: satisfies(spec, text) for text in FEW}


@pytest.fixture(params=["side by side", "letter by letter"])
def combination_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Selects each of the two compilation paths in turn. The second is that of large combinations."""
    if request.param == "letter by letter":
        monkeypatch.setattr(combine, "_JOINT_INNER_STATES_MAX", -1)
        monkeypatch.setattr(combine, "_INNER_STATES_MAX", -1)


@pytest.mark.usefixtures("combination_path")
@pytest.mark.parametrize("constraint", COMBINED, ids=str)
@pytest.mark.sample(24)
def test_a_combination_accepts_exactly_the_texts_its_definition_accepts(constraint: str) -> None:
    automaton = compile_text(spec_from_json(json.loads(constraint)))
    assert {text: check_text(automaton, text).satisfied for text in FEW} == verdicts(constraint)


@pytest.mark.usefixtures("combination_path")
@pytest.mark.parametrize("constraint", COMBINED, ids=str)
@pytest.mark.sample(24)
def test_flattening_a_combination_keeps_its_language(constraint: str) -> None:
    spec, guard = spec_from_json(json.loads(constraint)), ResourceGuard(Limits())
    texts = to_char_dfa(constraint_tree(spec, NATIVE, guard), guard)
    assert {text: texts.accepts(text) for text in FEW} == verdicts(constraint)


@pytest.mark.usefixtures("combination_path")
@pytest.mark.parametrize("constraint", COMBINED, ids=str)
@pytest.mark.sample(24)
def test_min_tokens_is_the_length_of_the_shortest_text(constraint: str) -> None:
    spec = spec_from_json(json.loads(constraint))
    compiled = compile_spec(spec, byte_vocabulary())
    strips_space = compiled.text.strips_space

    def is_accepted(raw: str) -> bool:
        return satisfies(spec, raw) or (strips_space and raw.startswith(" ") and satisfies(spec, raw[1:]))

    shortest = next(raw for raw in TEXTS if is_accepted(raw))
    assert compiled.tokens.min_tokens == len(shortest) + 1
    assert satisfies(spec, answer_text(compiled.text, shortest))


@pytest.mark.usefixtures("combination_path")
def test_one_leading_space_is_stripped_even_if_patterns_allow_it() -> None:
    for constraint in ({"regex": " *b"}, {"all": [{"regex": " *b"}, B]}, {"all": [{"regex": " *b"}, {"max_chars": 4}]}):
        assert answer_text(compile_text(spec_from_json(constraint)), " b") == "b"


@pytest.mark.usefixtures("combination_path")
def test_character_counts_follow_both_readings_of_a_leading_space() -> None:
    for pattern, further in (("(?s:.*)a(?s:.*)", True), ("[ab]*a", False)):  # whether texts may begin with a space
        spec = spec_from_json({"all": [{"regex": pattern}, {"max_chars": 3}]})
        tokens = compile_spec(spec, byte_vocabulary()).tokens
        for raw, verdict in ((" bba", True), ("bbba", False), ("  ba", further), ("   a", further), ("  bba", False)):
            state = reduce(tokens.advance, raw.encode(), tokens.start)
            assert (tokens.distance[state] == 1) == verdict, (pattern, raw)


@pytest.mark.parametrize(
    ("constraint", "field"),
    [
        ({"all": [A, {"regex": "a("}]}, "all.1.regex"),
        ({"any": [{"not": {"ltlf": "F ("}}]}, "any.0.not.ltlf"),
        ({"all": [A, {"infill": "<|infill_wrod|>"}]}, "all.1.infill"),
        ({"json_schema": {"type": "string", "constraint": {"regex": "a("}}}, "json_schema.constraint.regex"),
        ({"all": [ANY, {"not": CLASHING}]}, "all.1.not.dfa.transitions.1"),
        (
            {"json_schema": {"type": "string", "constraint": {"all": [ANY, CLASHING]}}},
            "json_schema.constraint.all.1.dfa.transitions.1",
        ),
    ],
)
def test_an_error_inside_a_combination_names_its_path(constraint: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == field):
        compile_text(spec_from_json(constraint))


@pytest.mark.parametrize(
    ("part", "field", "construct"), rows("text", "a_refused_construct_inside_a_combination_names_its_path")
)
def test_a_refused_construct_inside_a_combination_names_its_path(part: Any, field: str, construct: str) -> None:
    with pytest.raises(SpecUnsupported, check=lambda error: (error.field, error.construct) == (field, construct)):
        compile_text(spec_from_json({"all": [A, {"not": part}]}))


PARTS: dict[str, Any] = {"all": [{"regex": f"a{number}|b"} for number in range(300)]}


@pytest.mark.parametrize(
    "constraint", [PARTS, {"json_schema": {"type": "string", "constraint": PARTS}}], ids=["all", "json"]
)
def test_a_combination_of_too_many_parts_is_refused(constraint: dict[str, Any]) -> None:
    with pytest.raises(LimitExceeded, check=lambda error: error.limit == "parts_max"):
        compile_text(spec_from_json(constraint))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sample(10)
def test_a_constraint_in_a_json_string_ignores_its_escapes(seed: int) -> None:
    draw = random.Random(seed)
    inner = draw.choice(
        [A, {"max_chars": 2}, {"regex": '["\\\\\n]+'}, {"not": {"regex": ".*\\\\.*"}}, {"choice": ['"', "\t"]}]
    )
    spec = spec_from_json({"json_schema": {"type": "string", "constraint": inner}})
    automaton = compile_text(spec)
    for _ in range(60):
        content = "".join(draw.choice('"\\\n\tab é') for _ in range(draw.randint(0, 4)))
        text = json.dumps(content, ensure_ascii=False)
        assert check_text(automaton, text).satisfied == satisfies(spec_from_json(inner), content), text


WHOLE = (
    {"regex": " ?[\\w-]{1,3}(?: \\w+)*"},
    {"regex": "[^é]*|é "},
    {"choice": [" a", "é日", ""]},
    {"all": [ANY, {"regex": " ?[ab]+| +b"}]},
)


@pytest.mark.parametrize("leading_space", ["strip", "forbid"])
@pytest.mark.parametrize("constraint", WHOLE, ids=str)
@pytest.mark.sample(4)
def test_the_per_character_path_accepts_the_same_texts(
    constraint: dict[str, Any], leading_space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compares the path for many inner-character states with the usual one."""
    if "all" not in constraint:
        constraint = {**constraint, "leading_space": leading_space}
    spec, vocabulary = spec_from_json(constraint), byte_vocabulary()
    expected = compile_spec(spec, vocabulary)
    monkeypatch.setattr(combine, "_INNER_STATES_MAX", -1)
    spelled = compile_spec(spec, vocabulary)
    assert spelled.text.display_dfa is spelled.text.letters and expected.text.display_dfa is not expected.text.letters
    assert spelled.tokens.min_tokens == expected.tokens.min_tokens
    for length in range(5):
        for raw in map("".join, itertools.product(" aé-", repeat=length)):
            states = expected.tokens.start, spelled.tokens.start
            for byte in raw.encode():
                states = expected.tokens.advance(states[0], byte), spelled.tokens.advance(states[1], byte)
                assert expected.tokens.distance[states[0]] == spelled.tokens.distance[states[1]], raw
            assert (
                check_text(expected.text, raw).satisfied
                == check_text(spelled.text, raw).satisfied
                == satisfies(spec, raw)
            )
            assert check_text(expected.text, raw).violated_at == check_text(spelled.text, raw).violated_at
            assert answer_text(expected.text, raw) == answer_text(spelled.text, raw)
    assert (
        decode(encode(spelled, b"secret"), b"secret", vocabulary.fingerprint).state_distances == spelled.state_distances
    )
