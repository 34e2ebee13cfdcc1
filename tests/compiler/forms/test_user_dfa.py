"""User automata: their JSON, their faults and their language.

The language is compared with plain loops over the transitions.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.automata import ANYTHING, is_empty, minimize, single
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.forms.user_dfa import user_char_dfa, user_letter_dfa
from compiler.limits import Limits, ResourceGuard
from compiler.regex import pattern_dfa
from compiler.spec import UserDfa, UserTransition, guard_propositions
from compiler.spec.parse import user_dfa_from_json
from compiler.spec.user_dfa import user_dfa_to_json
from tests.references.dfa import byte_dfa, equivalent
from tests.references.random_formulas import traces
from tests.tables import rows, table

LETTERS = (
    frozenset({"dog"}),
    frozenset({"cat"}),
    frozenset({"dog", "cat"}),
    frozenset({"nomatch"}),
    frozenset({"eos"}),
)

FETCH, WORD = table("user_dfa")["fetch"], table("user_dfa")["word"]


def guard(**caps: int) -> ResourceGuard:
    return ResourceGuard(Limits(**caps))


def with_transition(source: dict[str, Any], number: int, **fields: object) -> dict[str, Any]:
    """The automaton with fields of one transition replaced."""
    copy: dict[str, Any] = json.loads(json.dumps(source))
    copy["transitions"][number] |= fields
    return copy


# --- JSON -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [FETCH, WORD, {"start": "x", "accepting": ["x"], "transitions": []}])
def test_the_json_of_an_automaton_survives_a_round_trip(source: dict[str, Any]) -> None:
    automaton = user_dfa_from_json(source, "dfa")
    document = user_dfa_to_json(automaton)
    assert user_dfa_from_json(json.loads(json.dumps(document)), "dfa") == automaton
    assert user_dfa_to_json(user_dfa_from_json(document, "dfa")) == document


def test_bytes_and_characters_are_written_in_one_order() -> None:
    left = with_transition(with_transition(WORD, 0, bytes=[122, [97, 97], [98, 99], 97]), 1, text="😀éyxx")
    assert user_dfa_from_json(left, "dfa") == user_dfa_from_json(WORD, "dfa")


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ([], "dfa"),
        ({"accepting": [], "transitions": []}, "dfa"),
        ({"start": "a", "transitions": []}, "dfa"),
        ({"start": "a", "accepting": []}, "dfa"),
        ({"start": "a", "accepting": [], "transitions": [], "final": []}, "dfa"),
        ({"start": 1, "accepting": [], "transitions": []}, "dfa.start"),
        ({"start": "", "accepting": [], "transitions": []}, "dfa.start"),
        ({"start": "a" * 65, "accepting": [], "transitions": []}, "dfa.start"),
        ({"start": "a", "accepting": ["a", "b"], "transitions": []}, "dfa.accepting.1"),
        ({"start": "a", "accepting": [None], "transitions": []}, "dfa.accepting.0"),
        ({"start": "a", "accepting": "a", "transitions": []}, "dfa.accepting"),
        ({"start": "a", "accepting": [], "transitions": {}}, "dfa.transitions"),
        ({"start": "a", "accepting": [], "transitions": ["b"]}, "dfa.transitions.0"),
        ({"start": "a", "accepting": [], "transitions": [{"from": "a"}]}, "dfa.transitions.0"),
        ({"start": "\ud800", "accepting": [], "transitions": []}, "dfa.start"),
        (with_transition(FETCH, 1, to=7), "dfa.transitions.1.to"),
        (with_transition(FETCH, 1, to=""), "dfa.transitions.1.to"),
        (with_transition(FETCH, 1, label="x"), "dfa.transitions.1"),
        (with_transition(FETCH, 1, when=True), "dfa.transitions.1.when"),
        (with_transition(FETCH, 1, bytes=[1]), "dfa.transitions.1"),
        (with_transition(WORD, 0, bytes=[97, 256]), "dfa.transitions.0.bytes.1"),
        (with_transition(WORD, 0, bytes=[[99, 97]]), "dfa.transitions.0.bytes.0"),
        (with_transition(WORD, 0, bytes=[[97]]), "dfa.transitions.0.bytes.0"),
        (with_transition(WORD, 0, bytes=[True]), "dfa.transitions.0.bytes.0"),
        (with_transition(WORD, 0, bytes="az"), "dfa.transitions.0.bytes"),
        (with_transition(WORD, 1, text=["x"]), "dfa.transitions.1.text"),
        (with_transition(WORD, 1, text="x\udc00"), "dfa.transitions.1.text"),
    ],
)
def test_an_error_names_its_field(source: object, field: str) -> None:
    with pytest.raises(SpecSyntaxError, check=lambda error: error.field == field):
        user_dfa_from_json(source, "dfa")


def test_bytes_and_propositions_do_not_mix() -> None:
    source = {**FETCH, "transitions": [*FETCH["transitions"], {"from": "s2", "to": "s0", "text": "x"}]}
    with pytest.raises(SpecSyntaxError, match="not both", check=lambda error: error.field == "dfa.transitions.4"):
        user_dfa_from_json(source, "dfa")


def test_an_automaton_lists_its_states_and_its_alphabet() -> None:
    fetch, word = user_dfa_from_json(FETCH, "dfa"), user_dfa_from_json(WORD, "dfa")
    assert fetch.states == ("s0", "s1", "s2") and not fetch.over_bytes
    assert word.states == ("a", "b", "c") and word.over_bytes
    assert guard_propositions(fetch, guard()) == ("dog", "cat", "eos") and guard_propositions(word, guard()) == ()


# --- over propositions ----------------------------------------------------------------------------------------------


def test_an_automaton_over_propositions_follows_its_guards() -> None:
    dfa = user_letter_dfa(user_dfa_from_json(FETCH, "dfa"), LETTERS, guard())
    dog, cat, both, nomatch, eos = range(5)
    for word in ([dog, cat], [nomatch, dog, both, dog], [nomatch, nomatch, dog, eos]):
        assert dfa.accepts(word), word
    for word in ([], [dog], [cat], [both, cat], [dog, nomatch, cat], [eos, cat]):
        assert not dfa.accepts(word), word


OPERATORS = ("dog", "cat", "eos", "nomatch", "bird", "true", "false", "!", "&", "|", "->", "<->")


def random_guard(rng: random.Random, depth: int) -> tuple[str, Any]:
    """A guard, and the same as a function of a letter."""
    kind = rng.choice(OPERATORS if depth else OPERATORS[:7])
    if kind in ("true", "false"):
        return kind, lambda letter: kind == "true"
    if kind.isalpha():
        return kind, lambda letter: kind in letter
    left, holds_left = random_guard(rng, depth - 1)
    if kind == "!":
        return f"!({left})", lambda letter: not holds_left(letter)
    right, holds_right = random_guard(rng, depth - 1)
    text = {
        "&": lambda letter: holds_left(letter) and holds_right(letter),
        "|": lambda letter: holds_left(letter) or holds_right(letter),
        "->": lambda letter: not holds_left(letter) or holds_right(letter),
        "<->": lambda letter: holds_left(letter) == holds_right(letter),
    }
    return f"({left}) {kind} ({right})", text[kind]


def reference_accepts(automaton: UserDfa, holds: Sequence[Any], word: Sequence[frozenset[str]]) -> bool:
    state = automaton.start
    for letter in word:
        ways = [
            transition.target
            for transition, applies in zip(automaton.transitions, holds, strict=True)
            if transition.source == state and applies(letter)
        ]
        if not ways:
            return False
        (state,) = ways
    return state in automaton.accepting


@pytest.mark.parametrize("seed", range(5))
def test_random_automata_over_propositions_are_read_as_written_or_refused(seed: int) -> None:
    rng, comparisons, refused = random.Random(seed), 0, 0
    while comparisons < 30:
        guards = [random_guard(rng, 2) for _ in range(5)]
        ends = [(rng.choice("pqr"), rng.choice("pqr")) for _ in guards]
        transitions = tuple(UserTransition(*end, when=text) for end, (text, _) in zip(ends, guards, strict=True))
        states = {"p", *itertools.chain(*ends)}
        automaton = UserDfa("p", tuple(rng.sample(sorted(states), 1)), transitions)
        holds = [function for _, function in guards]
        clash = any(
            sum(end[0] == state and applies(letter) for end, applies in zip(ends, holds, strict=True)) > 1
            for state in states
            for letter in LETTERS
        )
        if clash:
            refused += 1
            with pytest.raises(SpecSyntaxError, match="not deterministic"):
                user_letter_dfa(automaton, LETTERS, guard())
            continue
        comparisons += 1
        dfa = user_letter_dfa(automaton, LETTERS, guard())
        assert dfa.states == minimize(dfa).states
        for word in traces(len(LETTERS), 3):
            expected = reference_accepts(automaton, holds, [LETTERS[symbol] for symbol in word])
            assert dfa.accepts(word) == expected, (automaton, word)
    assert refused > 5


def test_two_transitions_that_apply_are_both_named_with_a_step() -> None:
    with pytest.raises(SpecSyntaxError) as excinfo:
        user_letter_dfa(user_dfa_from_json(with_transition(FETCH, 1, when="!cat | dog"), "dfa"), LETTERS, guard())
    assert excinfo.value.field == "dfa.transitions.1"
    assert "dfa.transitions.0" in str(excinfo.value) and "at a step of dog," in str(excinfo.value)


def test_transitions_that_no_real_letter_tells_apart_are_deterministic() -> None:
    source = with_transition(FETCH, 0, when="dog")
    source["transitions"][1]["when"] = "cat"
    user_letter_dfa(user_dfa_from_json(source, "dfa"), LETTERS[:2], guard())
    with pytest.raises(SpecSyntaxError):
        user_letter_dfa(user_dfa_from_json(source, "dfa"), LETTERS, guard())


@pytest.mark.parametrize(
    ("condition", "construct"),
    [("F dog", "F in a guard"), ("dog U cat", "U in a guard"), ("last", "last in a guard"), ("N dog", "N")],
)
def test_temporal_guards_are_refused_by_name(condition: str, construct: str) -> None:
    with pytest.raises(SpecUnsupported) as excinfo:
        user_letter_dfa(user_dfa_from_json(with_transition(FETCH, 2, when=condition), "dfa"), LETTERS, guard())
    assert (excinfo.value.construct, excinfo.value.field) == (construct, "dfa.transitions.2.when")


def test_a_malformed_guard_is_refused_with_field_and_offset() -> None:
    with pytest.raises(SpecSyntaxError) as excinfo:
        guard_propositions(user_dfa_from_json(with_transition(FETCH, 2, when="dog & "), "dfa"), guard())
    assert (excinfo.value.field, excinfo.value.position) == ("dfa.transitions.2.when", 6)


def test_automata_over_propositions_meet_the_limits() -> None:
    fetch = user_dfa_from_json(FETCH, "dfa")
    for limit, cap in (("formula_chars_max", 30), ("dfa_states_max", 3), ("table_bytes_max", 100)):
        with pytest.raises(LimitExceeded) as excinfo:
            user_letter_dfa(fetch, LETTERS, guard(**{limit: cap}))
        assert excinfo.value.limit == limit


def test_a_compile_over_the_wrong_alphabet_is_refused() -> None:
    with pytest.raises(ValueError):
        user_letter_dfa(user_dfa_from_json(WORD, "dfa"), LETTERS, guard())
    with pytest.raises(ValueError):
        user_char_dfa(user_dfa_from_json(FETCH, "dfa"), guard())


# --- over bytes -----------------------------------------------------------------------------------------------------


def test_a_byte_automaton_equals_the_equivalent_pattern() -> None:
    result = user_char_dfa(user_dfa_from_json(WORD, "dfa"), guard())
    dfa, parts = pattern_dfa(r"[a-cz](?:[xyé😀]|[0-9]-)*", guard())
    assert equivalent(byte_dfa(result.dfa, result.minterms)[0], byte_dfa(dfa, parts)[0])


@pytest.mark.parametrize(
    ("transitions", "first", "second"), rows("forms", "two_transitions_that_read_one_byte_are_both_named")
)
def test_two_transitions_that_read_one_byte_are_both_named(
    transitions: list[list[Any]], first: int, second: int
) -> None:
    source = {
        "start": "a",
        "accepting": ["b"],
        "transitions": [{"from": "a", "to": "b", kind: label} for kind, label in transitions],
    }
    with pytest.raises(SpecSyntaxError, match="not deterministic") as excinfo:
        user_char_dfa(user_dfa_from_json(source, "dfa"), guard())
    assert f"dfa.transitions.{first} " in str(excinfo.value) and excinfo.value.field == f"dfa.transitions.{second}"


def test_characters_with_a_shared_first_byte_may_differ() -> None:
    ways = (UserTransition("a", "b", text="é😀"), UserTransition("a", "c", text="è😁"))
    result = user_char_dfa(UserDfa("a", ("b",), ways), guard())
    assert result.accepts("é") and result.accepts("😀") and not result.accepts("è") and not result.accepts("😁")


def test_incomplete_utf8_characters_are_not_accepted() -> None:
    transitions = (UserTransition("a", "a", byte_ranges=((0, 255),)),)
    result = user_char_dfa(UserDfa("a", ("a",), transitions), guard())
    assert result.dfa.states == 1 and result.minterms.count == 1 and result.minterms.charset([0]) == ANYTHING
    halves = (
        UserTransition("a", "b", byte_ranges=((0xC3, 0xC3),)),
        UserTransition("b", "c", byte_ranges=((0xA9, 0xA9),)),
    )
    assert is_empty(user_char_dfa(UserDfa("a", ("b",), halves), guard()).dfa)
    complete_dfa = user_char_dfa(UserDfa("a", ("c",), halves), guard())
    assert complete_dfa.accepts("é") and complete_dfa.minterms.charset(complete_dfa.minterms.word("é")) == single(
        ord("é")
    )


def test_an_automaton_without_transitions_accepts_no_symbol() -> None:
    result = user_char_dfa(UserDfa("a", ("a",), ()), guard())
    assert result.accepts("") and not result.accepts("a") and not result.accepts("\U0010ffff")


@pytest.mark.parametrize(
    "path", [b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc1\x81", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf"]
)
def test_bytes_outside_utf8_do_not_split_classes(path: bytes) -> None:
    ends = [f"s{number}" for number in range(len(path) + 1)]
    ways = [
        UserTransition(source, target, byte_ranges=((byte, byte),))
        for source, target, byte in zip(ends, ends[1:], path, strict=False)
    ]
    result = user_char_dfa(UserDfa("go", (ends[-1],), (UserTransition("go", "s0", text="a"), *ways)), guard())
    assert is_empty(result.dfa) and result.dfa.states == 1 and result.minterms.count == 1


@settings(max_examples=8, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=4), max_size=4), st.text(max_size=4))
def test_a_tree_of_characters_is_the_set_of_its_texts(texts: list[str], other: str) -> None:
    ways = {(text[:size], text[size]) for text in texts for size in range(len(text))}
    transitions = tuple(
        UserTransition("-" + state.encode().hex(), "-" + (state + char).encode().hex(), text=char)
        for state, char in sorted(ways)
    )
    automaton = UserDfa("-", tuple("-" + text.encode().hex() for text in texts), transitions)
    result = user_char_dfa(automaton, guard())
    assert all(result.accepts(text) for text in texts)
    assert result.accepts(other) == (other in texts)


def test_automata_over_bytes_meet_the_limits() -> None:
    chain = tuple(UserTransition(f"s{number}", f"s{number + 1}", text="😀") for number in range(100))
    automaton = UserDfa("s0", ("s100",), chain)
    for limit, cap in (("dfa_states_max", 200), ("table_bytes_max", 10_000)):
        with pytest.raises(LimitExceeded) as excinfo:
            user_char_dfa(automaton, guard(**{limit: cap}))
        assert excinfo.value.limit == limit
    assert user_char_dfa(automaton, guard()).accepts("😀" * 100)
