"""Products against the automaton of the same constraint, which knows all distances."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from compiler.artifact import CompiledConstraint
from compiler.codec import decode, encode
from compiler.errors import CompileError, LimitExceeded, SpecUnsatisfiable
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.products import UNKNOWN, LazyProduct, ProductStart, ProductStates
from compiler.products.space import ProductSpace
from compiler.pushdown import NOWHERE
from compiler.spec import Spec, leaves
from compiler.text import ProductText, TextAutomaton, answer_text, check_text, read_prefix, replay
from compiler.vocab import Vocabulary
from tests.references.apart import taken_apart
from tests.references.random_constraints import (
    ALPHABET,
    few_pieces,
    pieces,
    random_spec,
    random_stacked_spec,
    unexplained,
)
from tests.servers.cluster import FULL

LIMITS = Limits(compile_s_max=60.0, budget_expansions_max=60, dfa_states_max=5_000)
CASES, SEEDS = (15, 40) if FULL else (8, 8)


class Pair(NamedTuple):
    """A constraint as one automaton and as a product."""

    spec: Spec
    whole: CompiledConstraint
    product: CompiledConstraint

    @property
    def tokens(self) -> LazyProduct:
        assert isinstance(self.product.tokens, LazyProduct)
        return self.product.tokens


def compiled_pair(spec: Spec, vocabulary: Vocabulary, draw: random.Random) -> Pair | None:
    try:
        with unexplained():
            whole = compile_spec(spec, vocabulary, LIMITS)
    except CompileError:
        return None
    product = taken_apart(whole, vocabulary, draw, ResourceGuard(LIMITS))
    return None if product is None else Pair(spec, whole, product)


@cache
def random_pair(seed: int) -> tuple[Pair, Vocabulary]:
    """A combination of regular parts that some text satisfies."""
    draw = random.Random(seed)
    while True:
        vocabulary = draw.choice((pieces, few_pieces))(draw)
        pair = compiled_pair(random_spec(draw), vocabulary, draw)
        if pair is not None and isinstance(pair.whole.tokens, TokenAutomaton):
            return pair, vocabulary


@pytest.mark.parametrize("block", range(4 if FULL else 1))
def test_every_distance_is_an_upper_bound_of_the_exact_one(block: int) -> None:
    unknown = known = 0
    for seed in range(block * CASES, (block + 1) * CASES):
        (pair, _), draw = random_pair(seed), random.Random(seed)
        exact = pair.whole.tokens
        assert isinstance(exact, TokenAutomaton)
        tokens, states = pair.tokens, ProductStates(pair.tokens)
        assert tokens.min_tokens_at_least <= exact.min_tokens <= tokens.min_tokens, pair.spec
        state, truth = states.start, exact.start
        for _ in range(8):
            after, found = exact.distance[exact.successors(truth)], states.expand(state)[0]
            by_id = after[exact.token_class].astype(np.int64), found[tokens.token_class].astype(np.int64)
            has_witness = by_id[1] < UNKNOWN
            assert (by_id[0] <= by_id[1])[has_witness].all(), (seed, pair.spec)
            assert (by_id[0][by_id[1] == UNREACHABLE] == UNREACHABLE).all(), (seed, pair.spec)
            distance = states.distance_of(state)
            if distance != UNKNOWN:
                assert found.min() <= distance - 1, (seed, pair.spec)
            unknown, known = unknown + int((found == UNKNOWN).sum()), known + int((found < UNKNOWN).sum())
            token = draw.choice(np.flatnonzero(by_id[0] != UNREACHABLE).tolist())
            state, truth = states.advance(state, token), exact.advance(truth, token)
            if exact.distance[truth] == 0:
                assert states.distance_of(state) == 0
                break
    assert unknown < known / 10


def test_witnesses_lead_to_texts_that_all_parts_accept() -> None:
    for seed in range(SEEDS):
        (pair, vocabulary), draw = random_pair(seed), random.Random(10_000 + seed)
        states, written = ProductStates(pair.tokens), list[int]()
        left = pair.tokens.min_tokens + draw.choice((0, 1, 4))
        state = states.start
        while states.distance_of(state):
            found = states.expand(state)[0][pair.tokens.token_class]
            left -= 1
            written.append(draw.choice(np.flatnonzero(found <= left).tolist()))
            state = states.advance(state, written[-1])
        raw = b"".join(vocabulary.tokens[token] or b"" for token in written).decode()
        behind = pair.whole.text.strips_space and raw.startswith(" ") and check_text(pair.whole.text, raw[1:]).satisfied
        assert behind or check_text(pair.whole.text, raw).satisfied, (seed, pair.spec)


def test_texts_are_checked_as_by_one_automaton() -> None:
    for seed in range(SEEDS):
        (pair, _), draw = random_pair(seed), random.Random(20_000 + seed)
        for _ in range(10):
            text = "".join(draw.choice(ALPHABET) for _ in range(draw.randint(0, 8)))
            whole, product = check_text(pair.whole.text, text), check_text(pair.product.text, text)
            assert whole.satisfied == product.satisfied, (seed, text, pair.spec)
            # That parts contradict each other from some place on is not seen.
            if whole.violated_at is not None:
                assert product.violated_at is not None and product.violated_at >= whole.violated_at, (seed, text)


def test_a_replay_shows_each_unit_once() -> None:
    shown = 0
    for seed in range(SEEDS):
        pair, vocabulary = random_pair(seed)
        text, witness = pair.product.text, pair.tokens.start.witness
        assert isinstance(text, ProductText) and text.display_state_of(NOWHERE) is None
        if witness is None or not any(isinstance(part, TextAutomaton) and part.traced for part in text.parts):
            continue
        pieces = [vocabulary.tokens[token] or b"" for token in witness[:-1]]
        answer = answer_text(text, b"".join(pieces).decode())
        read = [letter for step in replay(text, pieces) for letter in step.letters]
        assert read == [word.letters for word in check_text(text, answer).words], (seed, pair.spec)
        shown += len(read)
    assert shown


def test_states_after_a_prompt_are_those_of_one_automaton() -> None:
    for seed in range(10):
        (pair, _), draw = random_pair(seed), random.Random(30_000 + seed)
        text = "".join(draw.choice(ALPHABET) for _ in range(draw.randint(0, 4)))
        assert isinstance(pair.whole.text, TextAutomaton)
        whole, product = (read_prefix(each.text, each.tokens, text) for each in (pair.whole, pair.product))
        assert whole.chars <= product.chars, (seed, text, pair.spec)
        if product.chars < len(text):
            continue
        least = pair.whole.tokens.distance[whole.start] if whole.chars == len(text) else UNREACHABLE  # type: ignore[union-attr, index]
        assert isinstance(product.start, ProductStart)
        start = pair.tokens.started_at(product.start.parts, 60, lambda: None)
        assert start.at_least <= least <= (start.min_tokens or UNREACHABLE), (seed, text, pair.spec)


def count_expansions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list whose only number counts the expanded states."""
    expanded, original = [0], ProductSpace.class_bounds

    def counting(space: ProductSpace, state: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        expanded[0] += 1
        return original(space, state)

    monkeypatch.setattr(ProductSpace, "class_bounds", counting)
    return expanded


def test_a_search_for_the_least_budget_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, _ = random_pair(70_000)
    tokens, expanded = pair.tokens, count_expansions(monkeypatch)
    prefix = read_prefix(pair.product.text, tokens, "")
    assert isinstance(prefix.start, ProductStart) and expanded[0] == 0

    class Stopped(Exception):
        pass

    def stop() -> None:
        raise Stopped

    with pytest.raises(Stopped):
        tokens.started_at(prefix.start.parts, 60, stop)
    assert expanded[0] == 0
    checks = list[int]()
    tokens.started_at(prefix.start.parts, 60, lambda: checks.append(expanded[0]))
    assert set(range(expanded[0])) <= set(checks) and expanded[0] > 1  # before each state


def test_bounds_with_stacks_enclose_the_least_budget() -> None:
    compared = 0
    for seed in range(SEEDS):
        draw = random.Random(40_000 + seed)
        vocabulary = draw.choice((pieces, few_pieces))(draw)
        spec = random_stacked_spec(draw)
        try:
            pair = compiled_pair(spec, vocabulary, draw)
        except (SpecUnsatisfiable, LimitExceeded):
            continue
        if pair is None:
            continue
        compared += 1
        assert pair.tokens.min_tokens_at_least <= pair.whole.tokens.min_tokens, (seed, spec)
        forbidden = all(getattr(leaf, "leading_space", "strip") == "forbid" for leaf in leaves(spec))
        if forbidden:  # one automaton reads no further space where texts begin with one
            assert pair.whole.tokens.min_tokens <= pair.tokens.min_tokens, (seed, spec)
    assert compared > SEEDS / 5


def test_a_stored_product_is_the_same_again() -> None:
    for seed in range(10):
        pair, vocabulary = random_pair(seed)
        product = CompiledConstraint(**{
            name: getattr(pair.product, name) for name in CompiledConstraint.__dataclass_fields__
        } | {"vocabulary": vocabulary.fingerprint})  # fmt: skip
        if pair.tokens.min_tokens == UNREACHABLE:
            continue
        again = decode(encode(product, b"secret"), b"secret", vocabulary.fingerprint)
        assert isinstance(again.tokens, LazyProduct)
        assert again.tokens.start == pair.tokens.start and again.tokens.formula == pair.tokens.formula
        assert isinstance(again.text, ProductText) and isinstance(pair.product.text, ProductText)
        strips = [[part.strips_space for part in text.parts] for text in (pair.product.text, again.text)]
        assert strips[0] == strips[1]
        first, second = (ProductStates(tokens).expand(2)[0] for tokens in (pair.tokens, again.tokens))
        assert np.array_equal(first, second)


def test_successors_that_were_evicted_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = random_pair(0)[0].tokens
    kept = ProductStates(tokens)
    monkeypatch.setattr("compiler.products.product_states._TABLES_BYTES_MAX", 1)
    evicting, first = ProductStates(tokens), kept.start
    second = kept.advance(first, int(np.flatnonzero(kept.expand(first)[0][tokens.token_class] < UNKNOWN)[0]))
    evicting.expand(first)
    for state in (second, first, second):
        assert np.array_equal(evicting.expand(state)[0], kept.expand(state)[0])


def test_a_witness_shorter_than_the_least_budget_is_refused() -> None:
    tokens = random_pair(50_001)[0].tokens
    witness = tokens.start.witness
    assert witness is not None
    with pytest.raises(ValueError, match="shorter"):
        replace(tokens, start=tokens.start._replace(at_least=len(witness) + 1))
