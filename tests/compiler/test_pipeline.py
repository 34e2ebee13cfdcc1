"""The table of constraints through every layer, and the laws of distances."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.artifact import CompiledConstraint
from compiler.errors import (
    BudgetTooSmall,
    CompileCancelled,
    LimitExceeded,
    SpecSyntaxError,
    SpecUnsatisfiable,
    SpecUnspellable,
    SpecUnsupported,
)
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import Limits
from compiler.pipeline import compile_spec, compile_text
from compiler.pushdown import Configurations, PushdownAutomaton
from compiler.spec import AllSpec, KeywordsSpec, LtlfSpec, Proposition, RegexSpec, Spec, spec_from_json
from compiler.text import ProductText, TextAutomaton, answer_text, check_text
from compiler.vocab import Vocabulary, byte_vocabulary, vocabulary_from_tokenizer_json
from decoding.search import generate
from decoding.search.driver import SearchOptions
from tests.fake_models import HashModel
from tests.references.random_constraints import random_spec, unexplained
from tests.references.text import satisfies
from tests.servers.cluster import FULL
from tests.tables import rows, table

CASES: list[dict[str, Any]] = table("constraints")["case"]
FIGURE_1 = table("figure_1")
WORDS = Vocabulary((None, *b"The| coffee| spilled| on| the| cat|'s| toy| toys|dog| dog|.|a|ab| ab".split(b"|")), (0,))


def accepts(automaton: TokenAutomaton | PushdownAutomaton, tokens: list[int], eos: int) -> bool:
    if isinstance(automaton, PushdownAutomaton):
        states = Configurations(automaton)
        return states.is_accepting(states.run([*tokens, eos]))
    return bool(automaton.distance[reduce(automaton.advance, [*tokens, eos], automaton.start)] == 0)


@pytest.fixture(params=CASES, ids=[case["name"] for case in CASES])
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    result: dict[str, Any] = request.param
    return result


@pytest.fixture
def spec(case: dict[str, Any]) -> Spec:
    return spec_from_json(json.loads(case["constraint"]))


@pytest.mark.parametrize("verdict", ["accepts", "rejects"])
def test_every_layer_gives_the_verdict_of_the_table(case: dict[str, Any], spec: Spec, verdict: str) -> None:
    compiled = compile_spec(spec, byte_vocabulary())
    for text in case[verdict]:
        expected = verdict == "accepts"
        assert satisfies(spec, text) == expected, text
        check = check_text(compiled.text, text)
        assert check.satisfied == expected, text
        assert (check.violated_at is None) == expected
        verdict_on_bytes = accepts(compiled.tokens, list(text.encode()), 256)
        assert verdict_on_bytes == (expected or answer_text(compiled.text, text) != text), text


def test_distances_are_those_of_the_table(case: dict[str, Any], spec: Spec) -> None:
    assert compile_spec(spec, byte_vocabulary()).tokens.min_tokens == case["byte_distance"]
    if "word_distance" in case:
        assert compile_spec(spec, WORDS).tokens.min_tokens == case["word_distance"]


def test_figure_1_has_the_papers_distances_except_one_misprint() -> None:
    spec = spec_from_json(json.loads(CASES[0]["constraint"]))
    compiled = compile_spec(spec, WORDS)
    dfa, names = compiled.text.display_dfa, list(compiled.text.symbol_names)
    to = {state: {name: dfa.step(state, names.index(name)) for name in names} for state in range(dfa.states)}
    q0 = dfa.start
    q1, q2 = to[q0]["cat"], to[q0]["coffee"]
    q3 = to[q2]["cat"]
    q4 = to[q3]["toy"]
    q5 = to[q4]["eos"]
    states = dict(zip(FIGURE_1["states"], (q0, q1, q2, q3, q4, q5), strict=True))
    for state, row in FIGURE_1["states"].items():
        for name, target in zip(FIGURE_1["columns"], row, strict=True):
            assert to[states[state]][name] == states[target]
    assert dfa.states == 6
    assert dfa.accepting.nonzero()[0].tolist() == [q5]
    # The figure prints d(q4) = 2, but q4 goes to the accepting q5 by eos alone, and its d(q3) = 2 needs d(q4) = 1.
    assert [compiled.state_distances[state] for state in (q0, q1, q2, q3, q4, q5)] == [4, None, 3, 2, 1, 0]


def spellings(text: bytes, vocabulary: Vocabulary) -> list[list[int]]:
    """Every way to write `text` in tokens."""
    if not text:
        return [[]]
    return [
        [number, *suffix]
        for number, token in enumerate(vocabulary.tokens)
        if token and text.startswith(token)
        for suffix in spellings(text[len(token) :], vocabulary)
    ]


@pytest.mark.parametrize(
    ("constraint", "text", "expected"), rows("compiler", "every_tokenization_of_a_text_has_the_same_verdict")
)
def test_every_tokenization_of_a_text_has_the_same_verdict(
    constraint: dict[str, Any], text: str, expected: bool
) -> None:
    pieces = {text.encode()[i:j] for i, j in itertools.combinations(range(len(text.encode()) + 1), 2)}
    vocabulary = Vocabulary((None, *sorted(pieces)), (0,))
    automaton = compile_spec(spec_from_json(constraint), vocabulary).tokens
    result = spellings(text.encode(), vocabulary)
    assert len(result) >= 2 ** (len(text.encode()) - 1)
    assert {accepts(automaton, tokens, 0) for tokens in result} == {expected}


def brute_distances(automaton: TokenAutomaton) -> np.ndarray:
    """Distances in rounds of d = 1 + min over successors. They cover all states of the automaton."""
    distance = np.where(automaton.distance == 0, 0, UNREACHABLE).astype(np.int64)
    successors = np.stack([automaton.successors(state) for state in range(automaton.states)])
    while True:
        closer = np.minimum(distance, np.minimum(distance[successors].min(axis=1) + 1, UNREACHABLE))
        if np.array_equal(closer, distance):
            return distance
        distance = closer


def test_distances_are_exact_for_random_constraints() -> None:
    draw, checked = random.Random(7), 0
    pieces = ("a", "b", " ", "ab", " a", "b.", "é", "1", "-")
    vocabulary = Vocabulary((None, *(piece.encode() for piece in pieces), b"\xc3", b"\xa9"), (0,))
    while checked < (40 if FULL else 8):
        try:
            with unexplained():
                automaton = compile_spec(random_spec(draw), vocabulary).tokens
        except (SpecUnsatisfiable, SpecUnspellable, LimitExceeded):
            continue
        if automaton.states < 6_000:
            assert np.array_equal(brute_distances(automaton), automaton.distance)
            checked += 1


def test_min_tokens_suffice_and_a_smaller_budget_is_refused() -> None:
    draw, checked = random.Random(11), 0
    vocabularies = (byte_vocabulary(), WORDS)
    while checked < (150 if FULL else 20):
        vocabulary = draw.choice(vocabularies)
        spec = random_spec(draw)
        try:
            with unexplained():
                compiled = compile_spec(spec, vocabulary)
        except (SpecUnsatisfiable, SpecUnspellable, LimitExceeded):
            continue
        _check_least_budget(spec, compiled, vocabulary, draw.randrange(1_000))
        checked += 1


def _check_least_budget(spec: Spec, compiled: CompiledConstraint, vocabulary: Vocabulary, seed: int) -> None:
    least = compiled.tokens.min_tokens
    model = HashModel(vocabulary.size, vocabulary.eos_ids, seed=seed)
    if least > 1:
        with pytest.raises(BudgetTooSmall, check=lambda error: error.min_tokens == least):
            generate(model, [], compiled.tokens, SearchOptions(max_tokens=least - 1, beams=2))
    answer = generate(model, [], compiled.tokens, SearchOptions(max_tokens=least, beams=2))[0]
    assert len(answer.tokens) == least
    raw = b"".join(vocabulary.tokens[token] or b"" for token in answer.tokens).decode()
    assert satisfies(spec, answer_text(compiled.text, raw))


@pytest.mark.parametrize(
    "spec",
    [
        LtlfSpec("F dog & G !dog"),
        LtlfSpec("false"),
        LtlfSpec("dog & cat"),
        LtlfSpec("last & X true"),
        RegexSpec(r"[^\s\S]"),
        RegexSpec(r"x[^\s\S]y"),
        LtlfSpec("eos & F dog"),
        LtlfSpec("X X nomatch & WX last"),
    ],
)
def test_an_unsatisfiable_constraint_is_refused(spec: Spec) -> None:
    with pytest.raises(SpecUnsatisfiable):
        compile_text(spec)
    with pytest.raises(SpecUnsatisfiable):
        compile_spec(spec, WORDS)


@pytest.mark.parametrize(
    ("spec", "characters"),
    [
        (RegexSpec("naïve"), ("n", "v", "ï")),
        (RegexSpec("日本|本"), ("本",)),
        (KeywordsSpec((("zebra",),)), ("z", "b", "r")),
        (LtlfSpec('F "😀"'), ("😀",)),
    ],
)
def test_characters_that_no_token_spells_are_named(spec: Spec, characters: tuple[str, ...]) -> None:
    vocabulary = Vocabulary((None, b"a", b"e", b"i", b" ", b"\xe6", b"dog"), (0,))
    with pytest.raises(SpecUnspellable) as refusal:
        compile_spec(spec, vocabulary)
    assert set(refusal.value.characters) == set(characters)
    assert all(f"U+{ord(character):04X}" in str(refusal.value) for character in characters)


@pytest.mark.parametrize(
    ("tokens", "pattern", "characters"),
    [
        (("é".encode(), "\u00a8".encode(), b"a"), "è", ("è",)),  # both bytes occur, but never one after the other
        ((b"\xe6\x97", "日".encode()[2:], b"a"), "日", ()),
        ((b"\xe6", b"\x97\xa5", b"a"), "日b", ("b",)),
    ],
)
def test_a_character_is_unspellable_if_no_tokens_join_its_bytes(
    tokens: tuple[bytes, ...], pattern: str, characters: tuple[str, ...]
) -> None:
    vocabulary = Vocabulary((None, *tokens), (0,))
    if not characters:
        assert compile_spec(RegexSpec(pattern), vocabulary).tokens.min_tokens == 3
        return
    with pytest.raises(SpecUnspellable, check=lambda error: error.characters == characters):
        compile_spec(RegexSpec(pattern), vocabulary)


def test_tokens_that_cannot_combine_are_refused_without_a_character() -> None:
    with pytest.raises(SpecUnspellable, check=lambda error: error.characters == ()):
        compile_spec(RegexSpec("ab"), Vocabulary((None, b"ba"), (0,)))


@pytest.mark.parametrize("count", [50, pytest.param(200, marks=pytest.mark.long)])
def test_many_ordered_keywords_compile(captions_dir: Path, count: int) -> None:
    vocabulary = vocabulary_from_tokenizer_json((captions_dir / "tokenizer.json").read_text("utf-8"), None, (0,))
    words = [token[1:].decode() for token in vocabulary.tokens if token and re.fullmatch(b" [a-z]{3,}", token)][:count]
    patient = Limits(compile_s_max=300)  # the machine may be busy
    compiled = compile_spec(KeywordsSpec(tuple((word,) for word in words), ordered=True), vocabulary, patient)
    assert isinstance(compiled.text, TextAutomaton) and compiled.text.letters.states == count + 2  # one is dead
    assert compiled.tokens.min_tokens == count + 1  # a token for each word, and EOS
    assert check_text(compiled.text, " ".join(words)).satisfied
    assert not check_text(compiled.text, " ".join([*words[: count // 2], *words[count // 2 + 1 :]])).satisfied


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        (LtlfSpec("F " + " & F ".join(f"w{i}" for i in range(16))), Limits(dfa_states_max=20_000)),
        (LtlfSpec("F p & F q & F r"), Limits(letters_max=2)),
        (AllSpec(tuple(RegexSpec(f"(?:.*{word}){{3}}.*") for word in ("ab", "bc", "cd"))), Limits(dfa_states_max=50)),
    ],
)
def test_parts_within_the_limits_are_followed_side_by_side(spec: Spec, limits: Limits) -> None:
    text = compile_text(spec, replace(limits, compile_s_max=100.0))
    assert isinstance(text, ProductText)
    tokens = text.byte_automaton
    assert tokens.start.witness is not None
    assert tokens.min_tokens_at_least <= tokens.min_tokens < UNREACHABLE
    written = bytes(tokens.start.witness[:-1]).decode()
    assert check_text(text, written).satisfied and not check_text(text, written[:-1]).satisfied


@pytest.mark.parametrize(
    ("spec", "limits", "limit"),
    [
        (LtlfSpec("F a & F b"), Limits(formula_chars_max=5), "formula_chars_max"),
        (RegexSpec("a" * 6), Limits(pattern_chars_max=5), "pattern_chars_max"),
        (RegexSpec("(a|b)*a(a|b){24}"), Limits(), "dfa_states_max"),
        (LtlfSpec("F(a & " + "X(" * 24 + "b" + ")" * 25), Limits(dfa_states_max=50_000), "dfa_states_max"),
        (RegexSpec("(" * 100 + ")" * 100), Limits(), "nesting_depth_max"),
        (RegexSpec("(?:a{1000}){1000}"), Limits(), "dfa_states_max"),
        (RegexSpec("(?:a|aa){10000}"), Limits(), "nfa_positions_max"),
        (KeywordsSpec(tuple((f"word{i}",) for i in range(33))), Limits(), "propositions_max"),
        (KeywordsSpec((("a" * 20_000,),)), Limits(), "keyword_chars_max"),
        (RegexSpec(r"\w+(?: \w+){0,20}"), Limits(compile_s_max=0.0), "compile_s_max"),
        (
            LtlfSpec("F p", (("p", Proposition(tuple(map(chr, range(0x4E00, 0x9000))))),)),
            Limits(),
            "keyword_chars_max",
        ),
        (
            LtlfSpec("F p", tuple((f"p{i}", Proposition(regex="a" * 12_000)) for i in range(3))),
            Limits(),
            "pattern_chars_max",
        ),
        (LtlfSpec("F p", tuple((f"p{i}", Proposition(("a",))) for i in range(33))), Limits(), "propositions_max"),
        (LtlfSpec("F(p & F(q & F r))"), Limits(letters_max=2), "letters_max"),
    ],
)
def test_a_constraint_over_a_limit_is_refused_with_its_name(spec: Spec, limits: Limits, limit: str) -> None:
    with pytest.raises(LimitExceeded) as refusal:
        compile_spec(spec, byte_vocabulary(), limits)
    assert refusal.value.limit == limit
    assert limit in str(refusal.value)


@pytest.mark.parametrize(("constraint", "field"), rows("compiler", "a_syntax_error_names_the_field_without_quoting"))
def test_a_syntax_error_names_the_field_without_quoting(constraint: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecSyntaxError) as refusal:
        compile_text(spec_from_json(constraint))
    assert refusal.value.field == field
    assert "SECRET" not in str(refusal.value)


def test_a_refused_construct_names_the_field() -> None:
    with pytest.raises(SpecUnsupported) as refusal:
        compile_text(spec_from_json({"ltlf": "F p", "propositions": {"p": {"regex": r"(a)\1"}}}))
    assert (refusal.value.field, refusal.value.construct) == ("propositions.p.regex", "back-reference")


def test_a_cancelled_compilation_stops() -> None:
    checks = itertools.count()
    with pytest.raises(CompileCancelled):
        compile_spec(RegexSpec(".{5000}"), byte_vocabulary(), cancelled=lambda: next(checks) > 20)
    with pytest.raises(CompileCancelled):
        compile_text(LtlfSpec("F dog"), cancelled=lambda: True)


def test_lifting_over_bytes_observes_the_limits() -> None:
    with pytest.raises(LimitExceeded, match="table_bytes_max"):
        compile_text(LtlfSpec(" & ".join(f"F w{i}" for i in range(8))), Limits(table_bytes_max=100_000))


def test_distances_of_a_long_chain_observe_the_time_limit() -> None:
    assert compile_spec(RegexSpec(".{9000}"), byte_vocabulary()).tokens.min_tokens == 9_001
    with pytest.raises(LimitExceeded, match="compile_s_max"):
        compile_spec(RegexSpec(".{9000}"), byte_vocabulary(), Limits(compile_s_max=0.2))
