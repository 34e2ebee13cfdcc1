"""Searches, samplings and replays over products that are not multiplied out."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache, reduce
from math import inf
from operator import add
from typing import Any, cast

import numpy as np
import pytest
import torch

from app.models import ModelFiles
from compiler.artifact import CompiledConstraint
from compiler.errors import BudgetTooSmall, LimitExceeded, SpecUnsatisfiable, Undecided
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.products import UNKNOWN, LazyProduct, ProductCosts, ProductStates, fold
from compiler.pushdown import Configurations, ExitCosts, PushdownAutomaton
from compiler.spec import spec_from_json
from compiler.text import answer_text, check_text
from compiler.vocab import Vocabulary
from decoding.heuristic import cost_to_go, exit_costs
from decoding.options import DEFAULT, SearchOptions
from decoding.prepared_constraint import Automaton, PreparedConstraint, StateLimits
from decoding.replay import replay
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of
from tests.compiler.products.test_products import Pair, compiled_pair, count_expansions, random_pair
from tests.decoding.differential import ALGORITHMS, CPU, random_endings
from tests.decoding.search.test_proven_gap import PROMPT, enumerate_texts
from tests.decoding.test_pushdown import check_memory_of_states
from tests.fake_models import HashModel
from tests.references.random_constraints import few_pieces, random_stacked_spec, real_vocabulary
from tests.references.text import satisfies
from tests.servers.cluster import FULL
from tests.tables import table

WORDS = ["dog", "cat", "boat", "man", "tree", "red"]
EXPANSIONS = (2, 128)
LIMITS = Limits(dfa_states_max=40, budget_expansions_max=60, compile_s_max=100.0)


@pytest.fixture(scope="module")
def compiled(files: ModelFiles) -> CompiledConstraint:
    constraint = compile_spec(spec_from_json({"keywords": WORDS}), files.vocabulary, LIMITS)
    assert isinstance(constraint.tokens, LazyProduct)
    return constraint


@pytest.mark.parametrize("expansions", [1, 64])
def test_answers_within_every_budget_can_be_replayed(
    expansions: int, compiled: CompiledConstraint, files: ModelFiles
) -> None:
    tokens, limits = compiled.tokens, StateLimits(expansions=expansions)
    for seed, extra in enumerate((0, 1, 6) if FULL else (0, 6)):
        model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=seed)
        prior = model.prior if seed else None
        constraint = PreparedConstraint.prepare(tokens, CPU, prior=prior, limits=limits)
        budget = tokens.min_tokens + extra
        runs = [(options, search_of(constraint, options)) for options in (
            SearchOptions(budget, beams=3, algorithm=algorithm) for algorithm in ALGORITHMS
        )]  # fmt: skip
        sampling = SamplingOptions(budget, seed=seed, n=2)
        for options, run in (*runs, (sampling, Sampling(constraint, sampling))):
            for answer in drive(model, (1,), run):
                assert (answer.proven_gap is None) is (getattr(options, "algorithm", "sample") != "banked")
                scores = model.score((1,), answer.tokens)
                replay(tokens, answer, scores, options, tolerance=model.tolerance, limits=limits)
                text = b"".join(files.vocabulary.tokens[token] or b"" for token in answer.tokens).decode()
                assert check_text(compiled.text, text).satisfied


def test_no_text_is_better_by_more_than_the_gap() -> None:
    found = Counter[tuple[str, int]]()
    for seed in range(30 if FULL else 10):
        (pair, vocabulary), draw = random_pair(70_000 + seed), random.Random(seed)
        if pair.tokens.start.witness is None:
            continue
        assert isinstance(pair.whole.tokens, TokenAutomaton)
        budget = pair.tokens.min_tokens + draw.choice((0, 0, 1, 2))
        model = HashModel(vocabulary.size, vocabulary.eos_ids, seed=seed, spread=draw.choice((1.0, 4.0)))
        texts = enumerate_texts(pair.whole.tokens, model, budget)
        for expansions, beams in itertools.product(EXPANSIONS, (1, 2, 8)) if texts else ():
            constraint = PreparedConstraint.prepare(pair.tokens, CPU, limits=StateLimits(expansions=expansions))
            options = SearchOptions(budget, beams=beams, length_penalty=draw.choice((0.0, 0.5)))
            (answer,) = drive(model, PROMPT, search_of(constraint, options))
            power = options.length_power
            best = max(log_prob / len(ids) ** power for ids, log_prob in texts.items())
            value = answer.log_prob / len(answer.tokens) ** power
            assert answer.proven_gap is not None and value + answer.proven_gap >= best - 1e-9, (seed, pair.spec)
            found["bounded", expansions] += 1
            found["optimal", expansions] += answer.proven_gap == 0.0
            found["better", expansions] += best > value + 1e-9
    for expansions in EXPANSIONS:
        assert found["bounded", expansions] > (30 if FULL else 10), found
        assert found["optimal", expansions] and found["better", expansions], found


LARGE = table("large_combinations")["cases"]


@pytest.mark.parametrize("case", LARGE if FULL else LARGE[:1], ids=lambda case: case["name"])
def test_large_combinations_are_met_over_a_large_vocabulary(case: dict[str, Any]) -> None:
    name, size, eos = ("o200k_base", 200_019, 199_999) if FULL else ("gpt2", 50_257, 50_256)
    vocabulary = real_vocabulary(name, size, eos)
    if vocabulary is None:
        pytest.skip(f"needs the tokenizer {name} of the shared data")
    spec = spec_from_json(json.loads(case["constraint"]))
    large = compile_spec(spec, vocabulary, Limits(compile_s_max=100.0))
    tokens = large.tokens
    assert isinstance(tokens, LazyProduct) and 4 < tokens.min_tokens_at_least < tokens.min_tokens < 30
    constraint = PreparedConstraint.prepare(tokens, CPU)
    model = HashModel(vocabulary.size, vocabulary.eos_ids)
    for extra in (0, 5) if FULL else (0,):
        options = SearchOptions(tokens.min_tokens + extra, beams=2)
        for answer in drive(model, (1,), search_of(constraint, options)):
            assert len(answer.tokens) <= options.max_tokens
            raw = b"".join(vocabulary.tokens[token] or b"" for token in answer.tokens).decode()
            assert satisfies(spec, answer_text(large.text, raw)), raw
    for budget, refusal in ((tokens.min_tokens_at_least - 1, BudgetTooSmall), (tokens.min_tokens - 1, Undecided)):
        with pytest.raises(refusal):
            constraint.refuse_early(model, 1, budget)


@cache
def random_stacked_pair(seed: int) -> tuple[Pair, Vocabulary]:
    """A combination with a grammar that some text satisfies."""
    draw = random.Random(seed)
    while True:
        vocabulary = few_pieces(draw)
        try:
            pair = compiled_pair(random_stacked_spec(draw), vocabulary, draw)
        except (SpecUnsatisfiable, LimitExceeded):
            continue
        if pair is not None and pair.tokens.start.witness is not None:
            return pair, vocabulary


@lru_cache(maxsize=32)
def costs_of(part: Automaton, prior: torch.Tensor) -> torch.Tensor | ExitCosts | None:
    if isinstance(part, PushdownAutomaton):
        return exit_costs(part, prior)
    assert isinstance(part, TokenAutomaton)
    return cost_to_go(part, prior)


def cost_after(part: Automaton, start: object, prior: torch.Tensor, written: list[int]) -> float:
    """The least cost of an automaton after some ids. It is infinite where it is dead."""
    costs = costs_of(part, prior)
    if isinstance(part, PushdownAutomaton):
        states = Configurations(part, costs=cast(ExitCosts, costs), start=cast(Any, start))
        state = states.run(written)
        return float(states.costs(np.array([state]))[0]) if state else inf
    assert isinstance(part, TokenAutomaton)
    nats, state = cast(torch.Tensor, costs), reduce(part.advance, written, cast(int, start))
    return inf if part.distance[state] == UNREACHABLE else float(nats[state])


@pytest.mark.parametrize("draw_pair", [random_pair, random_stacked_pair])
def test_costs_are_those_of_witnesses_or_parts(draw_pair: Callable[[int], tuple[Pair, Vocabulary]]) -> None:
    kinds = set[bool]()
    for seed in range(8 if FULL else 2):
        (pair, vocabulary), draw = draw_pair(62_000 + seed), random.Random(seed)
        product = pair.tokens
        logits = torch.from_numpy(np.random.default_rng(seed).normal(scale=3.0, size=vocabulary.size))
        prior = logits.log_softmax(dim=0)
        eos = -float(prior[list(product.eos_ids)].max())
        states = PreparedConstraint.prepare(product, CPU, prior=prior).begin_states(
            heuristics=replace(DEFAULT, cost_weight=0.5)
        )
        state, written = np.array([states.start]), list[int]()
        while distance := int(states.distances(state)[0]):
            successors = states.successors(state)
            costs, distances = (each[0, product.token_class] for each in (successors.costs(), successors.distance))
            alive = np.flatnonzero((distances != UNREACHABLE) & (distances > 0)).tolist()
            for token in draw.sample(alive, min(3, len(alive))):
                after = states.after(state, np.array([token]))
                if product.has_alternatives:
                    of_parts = zip(product.parts, product.start.parts, strict=True)
                    parts = [cost_after(*part, prior, [*written, token]) - eos for part in of_parts]
                    expected = 0.5 * (eos + fold(product.formula, parts.__getitem__, add, min))
                    assert costs[token] == pytest.approx(expected), (seed, pair.spec)
                    assert states.costs(after)[0] == pytest.approx(expected)
                elif distances[token] != UNKNOWN:  # those of some text
                    whole = pair.whole.tokens
                    assert not isinstance(whole, LazyProduct)
                    start = None if isinstance(whole, PushdownAutomaton) else whole.start
                    least = 0.5 * cost_after(whole, start, prior, [*written, token])
                    assert costs[token] >= least - 1e-9, (seed, pair.spec)
                    assert distances[token] > 1 or costs[token] == pytest.approx(0.5 * eos)
                kinds.add(product.has_alternatives)
            assert (costs[list(product.eos_ids)] == 0.0).all() and states.costs(np.array([0, 1])).tolist() == [0.0, 0.0]
            written.append(draw.choice(np.flatnonzero(distances < distance).tolist()))
            state = states.after(state, np.array(written[-1:]))
    assert False in kinds


def test_the_bytes_of_costs_are_those_of_all_parts() -> None:
    kinds, seeds = set[object](), iter(range(62_000, 62_100))
    while not kinds >= {False, True, ExitCosts}:
        pair, vocabulary = random_stacked_pair(next(seeds))
        prior = torch.full((vocabulary.size,), -1.0, dtype=torch.float64)
        costs = PreparedConstraint.prepare(pair.tokens, CPU, prior=prior).cost_to_go
        assert isinstance(costs, ProductCosts)
        assert costs.nbytes == costs.classes.nbytes + sum(part.nbytes for part in costs.parts)
        assert all(part.nbytes for part in costs.parts) and bool(costs.parts) is pair.tokens.has_alternatives
        kinds |= {pair.tokens.has_alternatives, *map(type, costs.parts)}


def test_classes_of_endings_change_no_distance(compiled: CompiledConstraint, files: ModelFiles) -> None:
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=5)
    assert isinstance(compiled.tokens, LazyProduct)
    endings = random_endings(compiled.tokens, np.random.default_rng(3))
    constraint = PreparedConstraint.prepare(compiled.tokens, CPU, prior=model.prior, endings=endings)
    options = SearchOptions(compiled.tokens.min_tokens + 2, beams=3, n=3)
    for answer in drive(model, (1,), search_of(constraint, options)):
        replay(compiled.tokens, answer, model.score((1,), answer.tokens), options, tolerance=model.tolerance)


def test_budgets_are_refused_or_undecided(compiled: CompiledConstraint, files: ModelFiles) -> None:
    tokens = compiled.tokens
    assert isinstance(tokens, LazyProduct) and tokens.min_tokens_at_least < tokens.min_tokens
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids)
    constraint = PreparedConstraint.prepare(tokens, CPU)
    with pytest.raises(BudgetTooSmall) as refused:
        constraint.refuse_early(model, 1, tokens.min_tokens_at_least - 1)
    assert (refused.value.min_tokens, refused.value.min_tokens_at_least) == (
        tokens.min_tokens, tokens.min_tokens_at_least
    )  # fmt: skip
    with pytest.raises(Undecided):
        constraint.refuse_early(model, 1, tokens.min_tokens - 1)
    constraint.refuse_early(model, 1, tokens.min_tokens)


def test_searches_expand_no_more_states_than_allowed(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    either = {"any": [{"keywords": WORDS[:5]}, {"keywords": WORDS[3:]}]}
    spec = spec_from_json({"all": [either, {"regex": "(?s)[A-Z].*\\."}]})
    tokens = compile_spec(spec, files.vocabulary, LIMITS).tokens
    assert isinstance(tokens, LazyProduct)
    expanded = count_expansions(monkeypatch)
    for expansions in (1, 7, 32, 128):
        expanded[0] = 0
        states = ProductStates(tokens, expansions_max=expansions)
        state = states.start
        for step in range(12):
            after = states.expand(state)[0][tokens.token_class]
            assert expanded[0] <= 1 + expansions, (expansions, step)  # the state itself, too
            expanded[0] = 0
            far = np.argsort(np.where(after < UNKNOWN, -after, 0), kind="stable")
            state = states.advance(state, int(far[step % 7]))


def test_states_take_no_more_memory_than_estimated(compiled: CompiledConstraint, files: ModelFiles) -> None:
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids)
    constraint = PreparedConstraint.prepare(compiled.tokens, CPU, prior=model.prior)
    options = SearchOptions(compiled.tokens.min_tokens + 1, beams=1)
    check_memory_of_states(model, constraint, options, "*/compiler/products/*")
