"""The proven gap of an answer is a true bound. All satisfying token sequences of small languages are enumerated."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial, reduce
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from compiler.lifting import UNREACHABLE, TokenAutomaton, from_table
from decoding.engine import Engine
from decoding.forced_tokens import TokenBytes
from decoding.generation import TextOf
from decoding.model import Scores, StepInput
from decoding.options import Heuristics, SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, generate, search_of
from tests.decoding.random_automata import random_factored, random_table
from tests.fake_models import HashModel, PrefixSession
from tests.servers.cluster import FULL

CPU, PROMPT, TOLERANCE = torch.device("cpu"), (1, 0), 1e-9
LOG_PROB_FLOOR, PREFIXES_MAX, SEEDS = -1e4, 600, range(20 if FULL else 10)  # languages of more prefixes are skipped
GRID = [(k, p, n) for k in (1, 2, 4, 8) for p in (0.0, 0.5, 1.0) for n in (1, 3) if n <= k]
MODELS: tuple[dict[str, Any], ...] = ({}, {"levels": 3}, {"zeros": 0.4}, {"spread": 8.0}, {"levels": 2, "memory": 1})
TOKENS = (b"a", b"b", b"c", b"ab", b"abc", b"bc", b"ca", b"cab", b"aa", None)  # None: an id without bytes
Texts = dict[tuple[int, ...], float]  # the log-prob of each satisfying token sequence within the budget


class Language(NamedTuple):
    """The inputs of a search except its options, and all its texts."""

    constraint: PreparedConstraint
    model: HashModel
    max_tokens: int
    texts: Texts
    text_of: TextOf | None = None


class Gaps(NamedTuple):
    """The values and gaps of a search's answers, and the optimum."""

    values: list[float]
    gaps: list[float]
    best: float


def enumerate_texts(
    automaton: TokenAutomaton, model: HashModel, max_tokens: int, forced: Callable[[int, int], int | None] | None = None
) -> Texts:
    """All texts of the language; None beyond PREFIXES_MAX prefixes.

    forced  the only allowed token by state and remaining budget, if there is one
    """
    texts, prefixes = Texts(), list[tuple[tuple[int, ...], int, float]]([((), automaton.start, 0.0)])
    for ids, state, log_prob in prefixes:  # grows on the way
        z = [max(logit, LOG_PROB_FLOOR) for logit in model.log_probs((*PROMPT, *ids)).tolist()]
        budget_after = max_tokens - len(ids) - 1
        best_eos = min(automaton.eos_ids, key=lambda eos: (-z[eos], eos))
        forced_id = forced(state, budget_after) if forced else None
        for token in range(len(z)) if forced_id is None else [forced_id]:
            target = automaton.advance(state, token)
            if automaton.distance[target] > budget_after or (token in automaton.eos_ids and token != best_eos):
                continue
            if automaton.distance[target] == 0:
                texts[(*ids, token)] = log_prob + z[token]
            elif len(prefixes) <= PREFIXES_MAX:
                prefixes.append(((*ids, token), target, log_prob + z[token]))
    return Texts() if len(prefixes) > PREFIXES_MAX else texts


def random_language(seed: int) -> Language:
    random = np.random.default_rng(seed)
    while True:
        automaton = random_factored(random) if seed % 4 == 3 else random_table(random, 7, 3)
        size, eos_ids = automaton.vocabulary_size, automaton.eos_ids
        model = HashModel(size, eos_ids, seed=seed, **MODELS[seed % len(MODELS)])
        max_tokens = automaton.min_tokens + int(random.integers(1, 4))
        texts = enumerate_texts(automaton, model, max_tokens)
        if len(texts) > 20:
            prior = torch.from_numpy(random.normal(-4.0, 4.0, size)).clamp(max=0.0) if seed % 3 else None
            text_of = (lambda ids: bytes(id // 2 for id in ids)) if seed % 7 == 0 else None
            return Language(PreparedConstraint.prepare(automaton, CPU, prior=prior), model, max_tokens, texts, text_of)


def over_bytes(step: NDArray[np.int64], accepting: NDArray[np.bool_], eos_count: int = 1) -> TokenAutomaton:
    """An automaton over TOKENS, followed by EOS ids.

    step  [S, 3]  the states after a, b and c; the last state is dead
    """

    def next_state(state: int, token: bytes | None) -> int:
        return reduce(lambda at, byte: int(step[at, byte - ord("a")]), token, state) if token else len(step) - 1

    table = np.array([[next_state(state, token) for token in TOKENS] for state in range(len(step))])
    classes = np.arange(len(TOKENS) + eos_count) % len(TOKENS)
    return from_table(classes, table, accepting, 0, eos_ids=tuple(range(len(TOKENS), len(classes))))


def spell(text: bytes, closed: bool) -> list[int]:
    """Greedy by tokens of two bytes, then one. The last byte of a text that may go on (not closed) is left out."""
    ids = list[int]()
    while text and (closed or len(text) > 1):
        token = text[:2] if text[:2] in TOKENS else text[:1]
        ids.append(TOKENS.index(token))
        text = text[len(token) :]
    return ids


def stretch(automaton: TokenAutomaton, state: int) -> tuple[bytes, bool]:
    """The common prefix of all texts from a state. The flag says whether all of them end after it."""
    ids, advance = (0, 1, 2, automaton.eos_ids[0]), partial(automaton.advance, state)
    live = [id for id in ids if automaton.distance[advance(id)] != UNREACHABLE]
    if len(live) > 1 or live[0] in automaton.eos_ids:
        return b"", len(live) == 1
    suffix, closed = stretch(automaton, advance(live[0]))
    return bytes([ord("a") + live[0]]) + suffix, closed


def forced_token(automaton: TokenAutomaton, state: int, budget_after: int) -> int | None:
    """The first token of the stretch's spelling, unless that exceeds the budget."""
    ids = spell(*stretch(automaton, state))
    return ids[0] if ids and automaton.distance[automaton.advance(state, ids[0])] <= budget_after else None


def random_stretches(seed: int) -> Language:
    """Over bytes; most states have one next byte."""
    random = np.random.default_rng([seed, 1])
    while True:
        states = int(random.integers(5, 12))
        step = random.integers(0, states, (states, 3))
        step[(np.arange(3) != random.integers(0, 3, (states, 1))) & (random.random(step.shape) < 0.85)] = states - 1
        step[-1] = states - 1
        accepting = (random.random(states) < 0.2) & (np.arange(states) < states - 1)
        automaton = over_bytes(step, accepting, eos_count=1 + seed % 2)
        if not 4 <= automaton.min_tokens < 10:
            continue
        max_tokens = automaton.min_tokens + int(random.integers(1, 5))
        model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, spread=2.0 + 4.0 * (seed % 3))
        texts = enumerate_texts(automaton, model, max_tokens, partial(forced_token, automaton))
        pieces = TokenBytes([*TOKENS, None, None][: automaton.vocabulary_size], automaton.eos_ids, spell)
        if len(texts) > 4:
            return Language(PreparedConstraint.prepare(automaton, CPU, pieces=pieces), model, max_tokens, texts)


@cache
def searches(make: Callable[[int], Language]) -> list[Gaps]:
    """All options of GRID on the languages of all seeds. In a pool of 1 all losers are outside the pool."""
    results = []
    for language, pool in zip(map(make, SEEDS), cycle((Heuristics(pool=1), Heuristics()))):
        for k, p, n in GRID:
            options = SearchOptions(language.max_tokens, beams=k, n=n, length_penalty=p)
            run = search_of(language.constraint, options, text_of=language.text_of, heuristics=pool)
            answers = drive(language.model, PROMPT, run)
            assert all(abs(language.texts[answer.tokens] - answer.log_prob) <= TOLERANCE for answer in answers)
            values = [answer.log_prob / len(answer.tokens) ** p for answer in answers]
            best = max(log_prob / len(ids) ** p for ids, log_prob in language.texts.items())
            gaps = [gap for answer in answers if (gap := answer.proven_gap) is not None]
            results.append(Gaps(values, gaps, best))
            assert len(gaps) == len(answers) > 0
    return results


MAKERS = pytest.mark.parametrize("make", [random_language, random_stretches])


@MAKERS
def test_no_text_is_better_by_more_than_the_gap(make: Callable[[int], Language]) -> None:
    for result in searches(make):
        assert all(np.add(result.values, result.gaps) >= result.best - TOLERANCE)


@MAKERS
def test_a_first_answer_with_gap_zero_is_the_best(make: Callable[[int], Language]) -> None:
    for result in searches(make):
        assert result.gaps[0] > 0.0 or abs(result.values[0] - result.best) <= TOLERANCE


@MAKERS
def test_gaps_are_not_negative_and_rise(make: Callable[[int], Language]) -> None:
    assert all(result.gaps == sorted(result.gaps) and result.gaps[0] >= 0.0 for result in searches(make))
    assert any(result.gaps[-1] > result.gaps[0] for result in searches(make))


@MAKERS
def test_some_gaps_are_zero_and_some_answers_suboptimal(make: Callable[[int], Language]) -> None:
    several, few = (40, 10) if FULL else (20, 3)
    assert several < sum(result.gaps[0] > 0.0 for result in searches(make)) < len(searches(make)) - several
    assert sum(result.values[0] < result.best - TOLERANCE for result in searches(make)) > few


def test_forced_spelling_excludes_some_better_sequences() -> None:
    better_count = 0
    for language in map(random_stretches, SEEDS):
        texts = enumerate_texts(language.constraint.automaton, language.model, language.max_tokens)
        better_count += max(texts.values(), default=-np.inf) > max(language.texts.values()) + TOLERANCE
    assert better_count > 1


@pytest.mark.parametrize("seed", range(8))
def test_a_choice_of_five_strings_has_gap_zero(seed: int) -> None:
    step = np.full((10, 3), 9)  # a trie of abc, aab, cab, cc and b; state 9 is dead
    step[[0, 0, 0, 1, 1, 3, 3, 4, 5, 6], [0, 1, 2, 0, 1, 0, 2, 1, 2, 1]] = 1, 2, 3, 4, 5, 6, 2, 7, 7, 8
    automaton = over_bytes(step, np.isin(np.arange(10), (2, 7, 8)))
    model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed)
    texts = enumerate_texts(automaton, model, 4)
    assert len({b"".join(TOKENS[id] or b"" for id in ids[:-1]) for ids in texts}) == 5
    (answer,) = generate(model, PROMPT, automaton, SearchOptions(4, beams=16, length_penalty=0.0))
    assert answer.proven_gap == 0.0 and abs(answer.log_prob - max(texts.values())) <= TOLERANCE


@pytest.mark.parametrize("seed", range(4))
def test_abs_and_sampling_prove_no_gap(seed: int) -> None:
    language = random_language(seed)
    options = SearchOptions(language.max_tokens, beams=8, algorithm="abs", n=3)
    sampling = Sampling(language.constraint, SamplingOptions(language.max_tokens, seed=1, n=3))
    for run in (search_of(language.constraint, options), sampling):
        assert {answer.proven_gap for answer in drive(language.model, PROMPT, run)} == {None}


class Gated(HashModel):
    """Delays prompts until its gate opens, and records the largest pass."""

    gate, pass_size_max = threading.Event(), 0

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[PrefixSession, torch.Tensor]:
        assert self.gate.wait(60.0)
        return super().prefill(prompt_ids)

    def step(self, feeds: Sequence[StepInput[PrefixSession]]) -> list[Scores]:
        self.pass_size_max = max(self.pass_size_max, len(feeds))
        return super().step(feeds)


def test_requests_in_an_engine_have_their_own_gaps() -> None:
    language = random_stretches(10)
    model, new_search = (
        Gated(language.model.vocab_size, language.model.eos_ids),
        partial(search_of, language.constraint),
    )
    options = [SearchOptions(language.max_tokens, beams=k, n=2) for k in (2, 3, 4)]
    model.gate.set()
    alone = [drive(model, PROMPT, new_search(search_options)) for search_options in options]
    assert model.pass_size_max == 1 and len({answers[0].proven_gap for answers in alone}) == 3
    model.gate.clear()
    with Engine(model, 2**30) as engine, ThreadPoolExecutor(3) as callers:
        jobs = [partial(engine.generate, partial(new_search, search_options), PROMPT) for search_options in options]
        futures = [callers.submit(job) for job in jobs]
        while engine.generations < 3:  # the second and the third begin together, behind the first
            model.gate.wait(0.001)
        model.gate.set()
        assert [future.result() for future in futures] == alone
    assert model.pass_size_max >= 2
