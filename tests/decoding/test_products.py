"""Searches, samplings and replays over products that are not multiplied out."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from app.models import ModelFiles
from compiler.artifact import CompiledConstraint
from compiler.errors import BudgetTooSmall, Undecided
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.products import UNKNOWN, LazyProduct, ProductStates
from compiler.products.space import ProductSpace
from compiler.spec import spec_from_json
from compiler.text import check_text
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint, StateLimits
from decoding.replay import replay
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of
from tests.decoding.differential import ALGORITHMS, CPU, random_endings
from tests.fake_models import HashModel

SEARCH_EXPANSIONS = 16  # of the last search, which may expand more than is left
WORDS = ["dog", "cat", "boat", "man", "tree", "red", "umbrella", "piano"]
LIMITS = Limits(dfa_states_max=150, budget_expansions_max=60, compile_s_max=100.0)


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
    for seed, extra in enumerate((0, 1, 6)):
        model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=seed)
        constraint = PreparedConstraint.prepare(tokens, CPU, limits=limits)
        budget = tokens.min_tokens + extra
        runs = [(options, search_of(constraint, options)) for options in (
            SearchOptions(budget, beams=3, algorithm=algorithm) for algorithm in ALGORITHMS
        )]  # fmt: skip
        sampling = SamplingOptions(budget, seed=seed, n=2)
        for options, run in (*runs, (sampling, Sampling(constraint, sampling))):
            for answer in drive(model, (1,), run):
                assert answer.proven_gap is None
                scores = model.score((1,), answer.tokens)
                replay(tokens, answer, scores, options, tolerance=model.tolerance, limits=limits)
                text = b"".join(files.vocabulary.tokens[token] or b"" for token in answer.tokens).decode()
                assert check_text(compiled.text, text).satisfied


def test_classes_of_endings_change_no_distance(compiled: CompiledConstraint, files: ModelFiles) -> None:
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=5)
    assert isinstance(compiled.tokens, LazyProduct)
    endings = random_endings(compiled.tokens, np.random.default_rng(3))
    constraint = PreparedConstraint.prepare(compiled.tokens, CPU, endings=endings)
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


def test_searches_expand_no_more_states_than_allowed(
    files: ModelFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    either = {"any": [{"keywords": WORDS[:5]}, {"keywords": WORDS[3:]}]}
    spec = spec_from_json({"all": [either, {"regex": "(?s)[A-Z].*\\."}]})
    tokens = compile_spec(spec, files.vocabulary, LIMITS).tokens
    assert isinstance(tokens, LazyProduct)
    expanded, original = [0], ProductSpace.class_bounds

    def counting(space: ProductSpace, state: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        expanded[0] += 1
        return original(space, state)

    monkeypatch.setattr(ProductSpace, "class_bounds", counting)
    for expansions in (1, 16, 64):
        states = ProductStates(tokens, expansions_max=expansions)
        state = states.start
        for step in range(12):
            expanded[0] = 0
            after = states.expand(state)[0][tokens.token_class]
            assert expanded[0] <= 1 + expansions + SEARCH_EXPANSIONS, (expansions, step)
            far = np.argsort(np.where(after < UNKNOWN, -after, 0), kind="stable")
            state = states.advance(state, int(far[step % 7]))


def test_states_take_no_more_memory_than_estimated(compiled: CompiledConstraint, files: ModelFiles) -> None:
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids)
    constraint = PreparedConstraint.prepare(compiled.tokens, CPU)
    options = SearchOptions(compiled.tokens.min_tokens + 3, beams=4)
    drive(model, (1,), search_of(constraint, options))  # what all generations share is made here
    search = search_of(constraint, options)
    tracemalloc.start()
    try:
        drive(model, (1,), search)
        traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/compiler/products/*")])
    finally:
        tracemalloc.stop()
    used = sum(trace.size for trace in traces.traces)
    assert 0 < used <= constraint.begin_states().bytes_max(search.size.rows * options.max_tokens)
