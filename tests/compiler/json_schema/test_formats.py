"""Formats and patterns against `jsonschema`, and long lists of values."""

from __future__ import annotations

import base64
import ipaddress
import itertools
import json
import random
import re
import string
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from compiler.automata import CharDfa, char_complement, char_intersection, is_empty, steps_to, texts_dfa
from compiler.errors import LimitExceeded, SpecSyntaxError
from compiler.json_schema import FORMATS, schema_dfa, schema_violation
from compiler.json_schema.formats import short_pattern
from compiler.json_schema.strings import format_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_text
from compiler.regex import parse_ecmascript
from compiler.spec import JsonSchemaSpec, check_input_size, spec_from_json
from compiler.text import PushdownText, TextAutomaton, check_text
from tests.compiler.json_schema.test_random_schemas import compiled, embed, random_text
from tests.references.node import modern_node, node_verdicts
from tests.servers.cluster import FULL
from tests.tables import table


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_texts_that_a_format_accepts_are_valid(name: str) -> None:
    rng = random.Random(name)
    schema = {"type": "string", "format": name}
    automaton = compiled(schema, depth=1)
    steps_to_end = steps_to(automaton.dfa.next_state, automaton.dfa.accepting)
    checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for _ in range(300 if FULL else 80):
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


def regexes() -> list[str]:
    """Texts of the format `regex`."""
    rng, dfa = random.Random(3), format_dfa(FORMATS["regex"], "regex")
    steps_to_end = steps_to(dfa.dfa.next_state, dfa.dfa.accepting)
    return [random_text(rng, dfa, steps_to_end) for _ in range(1_000)]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_regexes_that_a_check_accepts_are_patterns() -> None:
    for regex in regexes():
        re.compile(regex)
        parse_ecmascript(regex, ResourceGuard(Limits()))


@pytest.mark.long  # the test above is the short form
def test_regexes_that_a_check_accepts_are_patterns_of_node() -> None:
    assert None not in node_verdicts(modern_node(), regexes(), [])


def test_byte_accepts_exactly_what_base64_writes() -> None:
    rng, dfa = random.Random(4), format_dfa(FORMATS["byte"], "byte")
    verdicts = set()
    for size in [*range(9)] * 50:
        encoded = base64.b64encode(rng.randbytes(size)).decode()
        assert dfa.accepts(encoded), encoded
        for _ in range(4):
            place = rng.randrange(len(encoded) + 1)
            changed = encoded[:place] + rng.choice(("", *"AQz9+/=-_ \n")) + encoded[place + 1 :]
            assert dfa.accepts(changed) == _is_base64(changed), changed
            verdicts.add(_is_base64(changed))
    assert verdicts == {True, False}


PYDANTIC: dict[str, Any] = {
    "base64": base64.b64decode, "base64url": base64.urlsafe_b64decode,
    "ipv4network": ipaddress.IPv4Network, "ipv6network": ipaddress.IPv6Network,
    "ipv4interface": ipaddress.IPv4Interface, "ipv6interface": ipaddress.IPv6Interface,
    "ipvanyaddress": ipaddress.ip_address, "ipvanynetwork": ipaddress.ip_network,
    "ipvanyinterface": ipaddress.ip_interface,
}  # fmt: skip


@pytest.mark.parametrize("name", PYDANTIC)
def test_formats_of_pydantic_are_read_by_its_types(name: str) -> None:
    rng, dfa = random.Random(name), format_dfa(FORMATS[name], name)
    steps_to_end = steps_to(dfa.dfa.next_state, dfa.dfa.accepting)
    for _ in range(80):
        PYDANTIC[name](random_text(rng, dfa, steps_to_end))


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


PATIENT = Limits(compile_s_max=300)  # the machine may be busy
FEW_STATES = Limits(compile_s_max=300, dfa_states_max=12_000)
VALUES: list[Any] = ["", "a", "ab", 'q"\\\n', "é€\U0001f600", "b0", 0, 1, -3, 2.5, True, None, [1, "a"], {"k": "v"}]


def strings(count: int) -> list[str]:
    draw = random.Random(1)
    return sorted({"".join(draw.choices(string.ascii_lowercase, k=13)) for _ in range(count)})


def same(left: CharDfa, right: CharDfa) -> bool:
    pairs = (left, right), (right, left)
    guard = ResourceGuard(PATIENT)
    return all(is_empty(char_intersection([one, char_complement(other)], guard).dfa) for one, other in pairs)


def test_a_list_outgrows_the_states_of_other_automata() -> None:
    listed = strings(2_000)
    compiled = compile_text(spec_from_json({"json_schema": {"enum": listed}}), FEW_STATES)
    assert isinstance(compiled, TextAutomaton) and compiled.display_dfa.states > FEW_STATES.dfa_states_max
    assert check_text(compiled, json.dumps(listed[7])).satisfied
    assert not check_text(compiled, json.dumps(listed[7][:-1])).satisfied


def test_a_long_list_of_a_property_is_a_rule() -> None:
    listed = strings(2_000)
    schema = {"type": "object", "properties": {"code": {"enum": listed}, "n": {"type": "integer"}}}
    compiled = compile_text(spec_from_json({"json_schema": schema | {"required": ["code"]}}), FEW_STATES)
    assert isinstance(compiled, PushdownText) and compiled.machine.states > FEW_STATES.dfa_states_max
    for value, valid in (({"code": listed[3], "n": 1, "x": [{}]}, True), ({"code": "a"}, False), ({"n": 1}, False)):
        assert check_text(compiled, json.dumps(value)).satisfied == valid


def test_a_list_is_the_minimal_automaton_of_its_texts() -> None:
    listed = [*strings(300), *map(str, range(40)), *range(40), None, True]
    made = schema_dfa({"enum": listed}, "compact", 1, embed, guard=ResourceGuard(PATIENT))
    expected = texts_dfa([json.dumps(value) for value in listed], ResourceGuard(PATIENT))
    assert made.dfa.states == expected.dfa.states and same(made, expected)
    assert np.array_equal(np.sort(np.flatnonzero(made.dfa.accepting)), np.flatnonzero(expected.dfa.accepting))


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ({"type": "string"}, lambda value: isinstance(value, str)),
        ({"type": ["string", "null"], "pattern": "^[ab]"}, lambda value: value in ("a", "ab", "b0", None)),
        ({"maxLength": 1, "minimum": 1}, lambda value: value not in ("ab", 'q"\\\n', "é€\U0001f600", "b0", 0, -3)),
        ({"not": {"enum": ["a", 1, None, [1, "a"]]}}, lambda value: value not in ("a", 1, None, [1, "a"])),
        ({"oneOf": [{"enum": ["a", "b0"]}, {"enum": ["ab", "a", 2.5]}]}, lambda value: value in ("b0", "ab", 2.5)),
        ({"type": "integer", "multipleOf": 3}, lambda value: value in (0, -3) and value is not False),
    ],
    ids=range(6),
)
def test_other_keywords_choose_among_listed_values(schema: dict[str, Any], kept: Any) -> None:
    listed = [value for value in VALUES if not (value is True and "not" in schema)]
    made = schema_dfa({"enum": listed, **schema}, "compact", 3, embed, guard=ResourceGuard(PATIENT))
    texts = [json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in listed if kept(value)]
    assert same(made, texts_dfa(texts, ResourceGuard(PATIENT)))


def test_half_of_a_surrogate_pair_is_refused_in_lists() -> None:
    with pytest.raises(SpecSyntaxError, match="surrogate"):
        schema_dfa({"enum": ["\ud800", 1], "type": "integer"}, "compact", 1, embed, guard=ResourceGuard(PATIENT))


def test_listed_values_count_as_choices() -> None:
    limits = Limits(schema_chars_max=100, choice_chars_max=60)
    cases = [(["ab"] * 30, ""), (["ab"] * 31, "choice_chars_max"), ([{"a": "b"}] * 12, "schema_chars_max")]
    for listed, limit in cases:
        spec = spec_from_json({"json_schema": {"properties": {"a": {"enum": listed}}}})
        if limit:
            with pytest.raises(LimitExceeded) as refusal:
                check_input_size(spec, limits)
            assert refusal.value.limit == limit
        else:
            check_input_size(spec, limits)
    with pytest.raises(LimitExceeded, match="schema_chars_max"):
        check_input_size(JsonSchemaSpec("[" * 101), limits)


@pytest.mark.parametrize(
    ("listed", "text", "valid"),
    [([1], "1.0", True), ([1], "true", False), ([True], "1", False), ([None], "null", True), (["1"], "1", False),
     ([1.5], "15e-1", True), ([0, "a"], '"a"', True), ([1], "[1]", False), ([1], '{"a": 1}', False)],
)
def test_checks_find_listed_values(listed: list[Any], text: str, valid: bool) -> None:
    assert (schema_violation({"enum": listed}, text, embed, ResourceGuard(PATIENT)) is None) == valid
