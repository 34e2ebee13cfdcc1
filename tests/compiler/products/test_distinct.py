"""Distinct items beside an automaton, compared with all texts in all spellings."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator
from functools import cache
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pytest

from compiler.artifact import CompiledConstraint
from compiler.codec import decode, encode
from compiler.errors import SpecUnspellable
from compiler.json_schema import arrays
from compiler.lifting import UNREACHABLE
from compiler.pipeline import compile_spec
from compiler.products import UNKNOWN, DistinctAutomaton, LazyProduct, ProductStates
from compiler.spec import spec_from_json
from compiler.text import answer_text, check_text, read_prefix, replay
from compiler.vocab import Vocabulary
from tests.references.json_validator import is_valid
from tests.servers.cluster import FULL

VALUES = ("a", "ab", "b", "ba", "é", "日", 1, 12, 2, None, [1], [1, 2])
SEEDS = range(100 if FULL else 20)
SHAPES = ("array", "property", "two properties", "array of arrays")


class Ranking(NamedTuple):
    """A constraint with distinct items, and all that it allows.

    texts   all that are valid
    others  texts with a repeated item, a missing one or one too many
    """

    compiled: CompiledConstraint
    vocabulary: Vocabulary
    texts: frozenset[str]
    others: frozenset[str]

    @property
    def tokens(self) -> LazyProduct:
        assert isinstance(self.compiled.tokens, LazyProduct)
        return self.compiled.tokens

    def of(self, ids: list[int]) -> bytes:
        return b"".join(self.vocabulary.tokens[token] or b"" for token in ids)


def within(shape: str, array: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A schema that holds arrays of distinct items."""
    match shape:
        case "array":
            return array
        case "array of arrays":
            return {"type": "array", "items": array, "minItems": 1, "maxItems": 2}
        case _:
            properties = {"r": array, "s": other if shape == "two properties" else {"enum": [0, "a"]}}
            return {"type": "object", "properties": properties, "required": ["r", "s"], "additionalProperties": False}


def instances(shape: str, lists: list[Any], others: list[Any]) -> Iterator[Any]:
    """The values of the schema's form, of these arrays."""
    match shape:
        case "array":
            yield from lists
        case "array of arrays":
            yield from ([one] for one in lists)
            yield from map(list, itertools.product(lists, repeat=2))
        case _:
            for one in lists:
                yield from ({"r": one, "s": value} for value in (others if shape == "two properties" else [0, "a"]))


def spelled(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def some_vocabulary(draw: random.Random, texts: list[str]) -> Vocabulary:
    """Tokens that span items and cut characters."""
    data = [text.encode() for text in texts]
    tokens: list[bytes | None] = [None, *(bytes([byte]) for byte in sorted(set(b"".join(data))))]
    for _ in range(draw.choice((0, 5, 40))):
        text = draw.choice(data)
        begin = draw.randrange(len(text))
        tokens.append(text[begin : begin + draw.choice((2, 2, 3, 4, 6, 9))])
    if draw.random() < 0.3:
        tokens.append(b" ")
    return Vocabulary(tuple(tokens), (0,))


@cache
def random_ranking(seed: int) -> Ranking:
    draw = random.Random(seed)
    shape, values = SHAPES[seed % len(SHAPES)], draw.sample(VALUES, draw.choice((2, 3, 3, 4)))
    least = draw.randint(0, len(values))
    bounds = {"minItems": least, **draw.choice(({}, {"maxItems": max(2, draw.randint(least, len(values)))}))}
    array = {"type": "array", "items": {"enum": values}, "uniqueItems": True, **bounds}
    other = draw.choice((array, {**array, "items": {"enum": values[::-1]}, "minItems": 0}))
    schema = within(shape, array, other)
    lists = [list(each) for size in range(len(values) + 2) for each in itertools.product(values, repeat=size)]
    # By one's own count: the validator takes too long for all.
    valid, others = ([each for each in lists if _fits(each, facts)] for facts in (array, other))
    texts = [spelled(each) for each in instances(shape, valid, others)]
    wrong = [spelled(each) for each in instances(shape, draw.sample(lists, min(12, len(lists))), others[:3])]
    for text in draw.sample(texts, min(5, len(texts))) + wrong[:5]:
        assert is_valid(schema, text) == (text in texts), (schema, text)
    vocabulary = some_vocabulary(draw, [*draw.sample(texts, min(40, len(texts))), spelled(values)])
    spec: dict[str, Any] = {"json_schema": schema, "whitespace": "compact"}
    if seed % 3 == 2:
        value = re.escape(spelled(draw.choice(values)))
        pattern = draw.choice((f".*{value}.*", rf"[^\]]*{value}\].*", f"((?!{value}).)*", f".{{0,{len(texts[-1])}}}"))
        kept = [text for text in texts if re.fullmatch(pattern, text)]
        if kept:
            spec, texts, wrong = {"all": [spec, {"regex": pattern}]}, kept, [*wrong, *texts[:40]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "UNIQUE_STATES_MAX", 0)
        compiled = compile_spec(spec_from_json(spec), vocabulary)
    return Ranking(compiled, vocabulary, frozenset(texts), frozenset(wrong) - frozenset(texts))


def _fits(items: list[Any], facts: dict[str, Any]) -> bool:
    counted = facts["minItems"] <= len(items) <= facts.get("maxItems", len(items))
    return counted and len(set(map(spelled, items))) == len(items)


def test_the_texts_are_those_of_a_validator() -> None:
    for seed in SEEDS:
        ranking = random_ranking(seed)
        assert any(isinstance(part, DistinctAutomaton) for part in ranking.tokens.parts), seed
        assert ranking.texts and ranking.compiled.approximate == ()
        for text in ranking.texts:
            assert check_text(ranking.compiled.text, text).satisfied, (seed, text)
        for text in ranking.others:
            check = check_text(ranking.compiled.text, text)
            assert not check.satisfied, (seed, text)
            # After that many characters no text goes on, and before it one may.
            assert check.violated_at is not None
            continued = [each for each in ranking.texts if each.startswith(text[: check.violated_at])]
            assert continued, (seed, text, check)


class Spelling:
    """The fewest tokens of texts, by trying all."""

    def __init__(self, ranking: Ranking) -> None:
        spaces = ("", " ") if ranking.compiled.text.strips_space else ("",)
        self._texts = [(space + text).encode() for text in ranking.texts for space in spaces]
        self._tokens = {token for token in ranking.vocabulary.tokens if token}
        self._fewest: dict[bytes, float] = {b"": 1}

    def _of(self, text: bytes) -> float:
        if text not in self._fewest:
            parts = (self._of(text[len(token) :]) for token in self._tokens if text.startswith(token))
            self._fewest[text] = 1 + min(parts, default=inf)
        return self._fewest[text]

    def after(self, beginning: bytes) -> float:
        """The fewest tokens that complete a beginning, EOS included."""
        ends = (self._of(text[len(beginning) :]) for text in self._texts if text.startswith(beginning))
        return min(ends, default=inf)


def test_distances_are_never_too_short_and_mostly_exact() -> None:
    exact = inexact = closed = 0
    for seed in SEEDS:
        ranking, draw = random_ranking(seed), random.Random(seed)
        tokens, spelling = ranking.tokens, Spelling(ranking)
        least = spelling.after(b"")
        assert tokens.min_tokens_at_least <= least <= tokens.min_tokens, seed
        closed += tokens.min_tokens_at_least == tokens.min_tokens
        for _ in range(3):
            states, written = ProductStates(tokens), list[int]()
            state = states.start
            while states.distance_of(state):
                found = states.expand(state)[0][tokens.token_class]
                bounds = states.class_bounds(np.array([state]))[0][tokens.token_class]
                truth = [spelling.after(ranking.of([*written, token])) for token in range(len(found))]
                truth[0] = 0 if spelling.after(ranking.of(written)) == 1 else inf
                for token, distance in enumerate(truth):
                    place = (seed, ranking.of(written), ranking.vocabulary.tokens[token])
                    assert distance == inf or bounds[token] <= distance, place
                    assert distance <= (inf if found[token] >= UNKNOWN else found[token]), place
                    assert distance == inf or found[token] != UNREACHABLE, place
                    exact += distance < inf and found[token] == distance
                    inexact += distance < inf and found[token] != distance
                own = states.distance_of(state)
                assert own == UNKNOWN or found.min() <= own - 1, seed
                written.append(draw.choice([token for token, distance in enumerate(truth) if distance < inf]))
                state = states.advance(state, written[-1])
            text = answer_text(ranking.compiled.text, ranking.of(written[:-1]).decode())
            assert text in ranking.texts, (seed, text)
    assert inexact * 40 < exact, (inexact, exact)
    assert closed * 10 > len(SEEDS) * 9, closed


def test_texts_within_the_least_budget_are_written() -> None:
    for seed in SEEDS:
        ranking, draw = random_ranking(seed), random.Random(seed)
        for extra in (0, 2):
            states, written, left = ProductStates(ranking.tokens), list[int](), ranking.tokens.min_tokens + extra
            state = states.start
            while states.distance_of(state):
                left -= 1
                found = states.expand(state)[0][ranking.tokens.token_class]
                written.append(draw.choice(np.flatnonzero(found <= left).tolist()))
                state = states.advance(state, written[-1])
            assert answer_text(ranking.compiled.text, ranking.of(written[:-1]).decode()) in ranking.texts, seed


def test_stored_constraints_continue_prompts_alike() -> None:
    secret = b"0123456789abcdef0123456789abcdef"
    for seed in SEEDS:
        ranking, draw = random_ranking(seed), random.Random(seed)
        stored = decode(encode(ranking.compiled, secret), secret, ranking.vocabulary.fingerprint)
        text = draw.choice(sorted(ranking.texts))
        before = text[: draw.randrange(len(text))]
        spelling = Spelling(ranking)
        for constraint in (ranking.compiled, stored):
            assert isinstance(constraint.tokens, LazyProduct)
            prefix = read_prefix(constraint.text, constraint.tokens, before)
            assert prefix.chars == len(before), (seed, before)
            start = constraint.tokens.started_at(prefix.start.parts, 100, lambda: None)  # type: ignore[union-attr]
            assert start.at_least <= spelling.after(before.encode())
            assert len(replay(constraint.text, [text.encode()])) == 2
            assert constraint.tokens.min_tokens == ranking.tokens.min_tokens


def test_items_that_no_token_spells_are_never_needed() -> None:
    tokens = (None, b"[", b"]", b",", b"1", b"2", b"1,2")
    array = {"type": "array", "items": {"enum": [1, 2, 3]}, "uniqueItems": True, "minItems": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "UNIQUE_STATES_MAX", 0)
        compiled = compile_spec(
            spec_from_json({"json_schema": array, "whitespace": "compact"}), Vocabulary(tokens, (0,))
        )
        assert compiled.tokens.min_tokens == 4  # [ and 1,2 and ] and the end
        with pytest.raises(SpecUnspellable):
            all_items = {"json_schema": {**array, "minItems": 3}, "whitespace": "compact"}
            compile_spec(spec_from_json(all_items), Vocabulary(tokens, (0,)))
