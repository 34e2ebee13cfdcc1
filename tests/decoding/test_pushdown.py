"""Searches, samplings and replays over pushdown automata.

A regular language must give what its explicit automaton gives. Texts of other grammars are checked by parsers that
share nothing with the automaton.
"""

from __future__ import annotations

import cProfile
import json
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from app.models import ModelFiles
from compiler.errors import BudgetTooSmall
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pushdown import MEMBERS_MAX, Configurations, Grammar, PushdownAutomaton, build_machine, lift_to_tokens
from compiler.vocab import Vocabulary
from decoding.engine import Engine
from decoding.errors import ReplayRejected
from decoding.forced_tokens import TokenBytes
from decoding.generation import BeamStep, Generation, Hypothesis
from decoding.heuristic import find_endings, unigram_prior
from decoding.model import HuggingFaceModel, Scores, StepInput
from decoding.options import DEFAULT, Algorithm, Heuristics, SearchOptions
from decoding.prepared_constraint import PreparedConstraint, StateLimits
from decoding.replay import replay
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, generate, search_of
from decoding.tensors import TokenTables
from tests.compiler.pushdown.grammars import GRAMMARS, WS
from tests.compiler.pushdown.test_tokens import explicit_automaton
from tests.decoding.differential import ALGORITHMS, CPU, random_endings
from tests.fake_models import HashModel
from tests.references.context_free import derives, grammar_of
from tests.references.random_constraints import real_vocabulary

REGULAR = {  # the grammar, whose rules stay calls, and its pattern
    "words": (grammar_of(s="<w>(?: <w>){1,3}", w="[a-z]+"), "[a-z]+(?: [a-z]+){1,3}"),
    "a template": (
        grammar_of(s=r'\{"name": <n>, "likes": <n>\}', n='"(?:Ann|Bob|tea in the afternoon)"'),
        r'\{"name": "(?:Ann|Bob|tea in the afternoon)", "likes": "(?:Ann|Bob|tea in the afternoon)"\}',
    ),
}  # fmt: skip
MORE_CALLS_MAX = 2  # of a step beside a hostile grammar, compared with a step beside a regular one
COSTS: dict[str, Heuristics] = {"unigram": DEFAULT, "distance": replace(DEFAULT, cost_to_go="distance")}


@pytest.fixture(scope="module")
def learnt(captions: HuggingFaceModel) -> dict[str, Any]:
    """What constraints take from the model."""
    prior = unigram_prior(captions)
    return {"prior": prior, "endings": find_endings(captions, prior)}


def lifted(grammar: Grammar, vocabulary: Vocabulary, inline: int = 2_000) -> PushdownAutomaton:
    guard = ResourceGuard(DEFAULT_LIMITS)
    return lift_to_tokens(build_machine(grammar, guard, inline_growth_max=inline), vocabulary, guard)


def same_but_for_states(events: list[BeamStep], others: list[BeamStep]) -> None:
    """Costs to go are added up in another order."""
    assert len(events) == len(others)
    for event, other in zip(events, others, strict=True):
        assert [replace(row, state=0, score=0.0) for row in event.rows] == [
            replace(row, state=0, score=0.0) for row in other.rows
        ]
        assert [row.score for row in event.rows] == pytest.approx([row.score for row in other.rows])


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", REGULAR)
@pytest.mark.sample(3)
def test_a_regular_language_gives_the_steps_of_its_explicit_automaton(
    name: str, algorithm: Algorithm, cost: str, files: ModelFiles, pieces: TokenBytes
) -> None:
    grammar, pattern = REGULAR[name]
    explicit, pushdown = explicit_automaton(pattern, files.vocabulary), lifted(grammar, files.vocabulary, inline=0)
    assert explicit.min_tokens == pushdown.min_tokens
    for seed in range(4):
        model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=seed)
        parts: dict[str, Any] = {"prior": model.prior, "pieces": pieces if seed % 2 else None}
        options = SearchOptions(explicit.min_tokens + 3 * seed, beams=1 + 2 * seed, n=1 + seed, algorithm=algorithm)
        runs = []
        for automaton in (explicit, pushdown):
            events: list[BeamStep] = []
            search = search_of(PreparedConstraint.prepare(automaton, CPU, **parts), options, heuristics=COSTS[cost])
            runs.append((drive(model, (1,), search, events.append), events))
        assert runs[0][0] == runs[1][0]
        same_but_for_states(runs[0][1], runs[1][1])
        for answer in runs[0][0]:
            scores = model.score((1,), answer.tokens)
            traces = (
                replay(automaton, answer, scores, options, tolerance=model.tolerance)
                for automaton in (explicit, pushdown)
            )
            assert len({tuple(replace(step, state=0) for step in trace) for trace in traces}) == 1


def test_a_regular_language_gives_the_samples_of_its_explicit_automaton(files: ModelFiles) -> None:
    for grammar, pattern in REGULAR.values():
        model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=3)
        automata = explicit_automaton(pattern, files.vocabulary), lifted(grammar, files.vocabulary, inline=0)
        options = SamplingOptions(automata[0].min_tokens + 6, seed=11, n=4, top_p=0.9)
        constraints = [PreparedConstraint.prepare(automaton, CPU) for automaton in automata]
        first, second = (drive(model, (1,), Sampling(constraint, options)) for constraint in constraints)
        assert first == second


def test_endings_have_the_effect_that_they_have_on_explicit_automata(files: ModelFiles) -> None:
    grammar, pattern = REGULAR["words"]
    explicit, pushdown = explicit_automaton(pattern, files.vocabulary), lifted(grammar, files.vocabulary, inline=0)
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=8)
    prior = model.prior
    for seed in range(3):
        endings = random_endings(explicit, np.random.default_rng(seed))
        results = [
            generate(
                model, (1,), PreparedConstraint.prepare(automaton, CPU, prior=prior, endings=endings),
                SearchOptions(explicit.min_tokens + 4, beams=4),
            )
            for automaton in (explicit, pushdown)
        ]
        assert results[0] == results[1]


def checked(name: str, tokens: tuple[int, ...], vocabulary: Vocabulary, budget: int) -> None:
    """The answer fits the budget, and another parser accepts it."""
    assert len(tokens) <= budget and tokens[-1] in vocabulary.eos_ids
    text = b"".join(vocabulary.tokens[token] or b"" for token in tokens[:-1]).decode()
    if name == "json":
        json.loads(text)
    else:
        assert derives(GRAMMARS[name].grammar, text), text


def generations(constraint: PreparedConstraint, budget: int, seed: int) -> list[tuple[Generation, Any]]:
    """One generation of each kind, with its options."""
    options: list[Any] = [
        SearchOptions(budget, beams=1 + 3 * seed, n=1 + seed), SearchOptions(budget, beams=3, algorithm="abs"),
        SamplingOptions(budget, seed=seed, n=3),
    ]  # fmt: skip
    return [
        (Sampling(constraint, each) if isinstance(each, SamplingOptions) else search_of(constraint, each), each)
        for each in options
    ]


@pytest.mark.parametrize("name", GRAMMARS)
@pytest.mark.sample(2)
def test_answers_are_in_the_language_within_the_budget_and_replay(
    name: str, captions: HuggingFaceModel, learnt: dict[str, Any], files: ModelFiles, pieces: TokenBytes
) -> None:
    automaton = lifted(GRAMMARS[name].grammar, files.vocabulary)
    constraint = PreparedConstraint.prepare(automaton, CPU, pieces=pieces, **learnt)
    for seed, extra in enumerate((0, 14)):
        budget = automaton.min_tokens + extra
        for generation, options in generations(constraint, budget, seed):
            for answer in drive(captions, (1, 5), generation):
                checked(name, answer.tokens, files.vocabulary, budget)
                scores = captions.score((1, 5), answer.tokens)
                replay(automaton, answer, scores, options, tolerance=captions.tolerance)
    with pytest.raises(BudgetTooSmall):
        constraint.refuse_early(captions, 1, automaton.min_tokens - 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_json_of_any_depth_over_gpt2_ends_in_time(algorithm: Algorithm, shared: Path) -> None:
    vocabulary = real_vocabulary("gpt2", 50_257, 50_256)
    assert vocabulary is not None
    nested = grammar_of(s=rf"<v>{WS}", v=rf"\[{WS}<v>(?:,{WS}<v>)*\]|\[\]|<o>", o=r'\{"[a-z]+":<v>\}')
    for grammar in (GRAMMARS["json"].grammar, nested):
        automaton, model = lifted(grammar, vocabulary), HashModel(vocabulary.size, vocabulary.eos_ids, seed=4)
        constraint = PreparedConstraint.prepare(automaton, CPU)
        for extra in (0, 12):
            options = SearchOptions(automaton.min_tokens + extra, beams=2, algorithm=algorithm, length_penalty=2.0)
            (answer,) = drive(model, (1,), search_of(constraint, options))
            checked("json", answer.tokens, vocabulary, options.max_tokens)


def test_answers_are_those_of_torch_arrays(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=5)
    constraint = PreparedConstraint.prepare(lifted(GRAMMARS["json"].grammar, files.vocabulary), CPU, prior=model.prior)
    options = [SearchOptions(14, beams=4, n=3, algorithm=algorithm) for algorithm in ALGORITHMS]

    def answers() -> list[tuple[Hypothesis, ...]]:
        return [drive(model, (1,), search_of(constraint, each)) for each in options]

    by_numpy = answers()
    monkeypatch.setattr(TokenTables, "for_search", lambda tables: tables)
    assert answers() == by_numpy


def test_a_batch_changes_no_answer(captions: HuggingFaceModel, files: ModelFiles) -> None:
    names = ("json", "palindromes", "dangling else")
    constraints = [
        PreparedConstraint.prepare(lifted(GRAMMARS[name].grammar, files.vocabulary), CPU, limits=StateLimits(3))
        for name in names
    ]
    options = SearchOptions(20, beams=4, n=2)
    alone = [drive(captions, (1, 5), search_of(constraint, options)) for constraint in constraints]
    with Engine(captions, 10**9) as engine, ThreadPoolExecutor(6) as callers:
        both = list(
            callers.map(lambda each: engine.generate(lambda: search_of(each, options), (1, 5)), constraints * 2)
        )
    assert both == alone * 2


def test_states_do_not_depend_on_the_order_of_calls(files: ModelFiles) -> None:
    """The limit drops the same configurations, however stacks are numbered."""
    dropped = 0
    for name in ("palindromes", "dangling else", "counting"):
        automaton = lifted(GRAMMARS[name].grammar, files.vocabulary)
        for seed in range(4):
            draw = random.Random(f"{name} {seed}")
            paths = [walk(Configurations(automaton, members_max=4), draw) for _ in range(6)]
            forwards, backwards = (Configurations(automaton, members_max=4) for _ in range(2))
            stacks = [forwards.stacks_of(forwards.run(path)) for path in paths]
            assert [backwards.stacks_of(backwards.run(path)) for path in reversed(paths)][::-1] == stacks
            unlimited = Configurations(automaton, members_max=10**6)
            every = [unlimited.members(unlimited.run(path)) for path in paths]
            dropped += sum(len(members) > len(kept) for members, kept in zip(every, stacks, strict=True))
    assert dropped > 3


def walk(states: Configurations, draw: random.Random) -> list[int]:
    """Random tokens that can still be finished."""
    path, state = list[int](), states.start
    for _ in range(12):
        allowed = (states.distances_after(state)[states.token_class] < 2**20).nonzero()[0].tolist()
        token = draw.choice([token for token in allowed if token not in states.eos_ids] or allowed)
        state = states.advance(state, token)
        path.append(token)
    return path


def test_an_answer_goes_on_where_a_text_stopped(captions: HuggingFaceModel, files: ModelFiles) -> None:
    automaton = lifted(GRAMMARS["json"].grammar, files.vocabulary)
    ids = [files.vocabulary.tokens.index(token) for token in (b"[", b"{", b'"', b"a", b'"', b":", b"[", b"1")]
    states = Configurations(automaton)
    start = states.stacks_of(states.run(ids))
    least = states.distance_of(states.run(ids))
    constraint, options = PreparedConstraint.prepare(automaton, CPU), SearchOptions(least + 2, beams=3)
    constraint.refuse_early(captions, 1, least, start)
    with pytest.raises(BudgetTooSmall):
        constraint.refuse_early(captions, 1, least - 1, start)
    (answer,) = drive(captions, (5,), search_of(constraint, options, start=start))
    checked("json", (*ids, *answer.tokens), files.vocabulary, 100)
    scores = captions.score((5,), answer.tokens)
    replay(automaton, answer, scores, options, tolerance=captions.tolerance, start=start)
    with pytest.raises(ReplayRejected):
        replay(automaton, answer, scores, options, tolerance=captions.tolerance)


def check_memory_of_states(
    model: HashModel, constraint: PreparedConstraint, options: SearchOptions, files: str
) -> None:
    """Checks what files allocate in a search against the estimate."""
    drive(model, (1,), search_of(constraint, options))  # what all generations share is made here
    search = search_of(constraint, options)
    tracemalloc.start()
    try:
        drive(model, (1,), search)
        traces = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, files)])
    finally:
        tracemalloc.stop()
    used = sum(trace.size for trace in traces.traces)
    assert 0 < used <= constraint.begin_states().bytes_max(search.size.rows, options.max_tokens)


@pytest.mark.parametrize("members_max", [1, 8])
@pytest.mark.parametrize("name", ["json", "palindromes", "dangling else"])
@pytest.mark.sample(3)
def test_states_take_no_more_memory_than_estimated(name: str, members_max: int, files: ModelFiles) -> None:
    automaton = lifted(GRAMMARS[name].grammar, files.vocabulary)
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=members_max)
    constraint = PreparedConstraint.prepare(automaton, CPU, prior=model.prior, limits=StateLimits(members_max))
    check_memory_of_states(model, constraint, SearchOptions(24, beams=8, length_penalty=2.0), "*/compiler/pushdown/*")


def test_no_gap_is_proven_where_readings_are_dropped(files: ModelFiles) -> None:
    automaton = lifted(GRAMMARS["palindromes"].grammar, files.vocabulary)
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids)
    proven = []
    for readings in (1, 1_000):
        constraint = PreparedConstraint.prepare(automaton, CPU, limits=StateLimits(readings))
        (answer,) = drive(model, (1,), search_of(constraint, SearchOptions(8, beams=2)))
        proven.append(answer.proven_gap is not None)
    assert proven == [False, True]


def median_calls(model: HuggingFaceModel, constraints: tuple[PreparedConstraint, ...]) -> float:
    """The median of the calls in a step of two generations."""
    options, calls = SearchOptions(20, beams=16, length_penalty=2.0), list[int]()
    searches = [search_of(constraint, options) for constraint in constraints]
    sessions = []
    for search in searches:
        session, first = model.prefill((1, 5))
        search.advance(Scores.of_prompt(first.index_fill(0, torch.tensor(model.eos_ids), -30.0)))
        sessions.append(session)
    while not any(search.done for search in searches):
        profile = cProfile.Profile()
        profile.enable()
        feeds = [StepInput(session, *search.feed()) for session, search in zip(sessions, searches, strict=True)]
        for search, scores in zip(searches, model.step(feeds), strict=True):
            log_probs = scores.log_probs.index_fill(1, torch.tensor(model.eos_ids), -30.0)
            search.advance(replace(scores, log_probs=log_probs))
        profile.disable()
        calls.append(sum(entry.callcount for entry in profile.getstats()))
    return float(np.median(calls))


def test_a_hostile_grammar_slows_its_neighbours_little(captions: HuggingFaceModel, files: ModelFiles) -> None:
    """Each digit has two readings."""
    body = "[0-9]<t>[0-4]|[0-9]<u>[5-9]|[0-9]"
    grammars = grammar_of(s="[0-9]+"), grammar_of(t=body, u=body)
    regular, hostile = (lifted(grammar, files.vocabulary) for grammar in grammars)
    states = Configurations(hostile)
    digits = [files.vocabulary.tokens.index(digit) for digit in (b"7", b"3")] * 4
    assert len(states.members(states.run(digits))) == MEMBERS_MAX
    constraints = [PreparedConstraint.prepare(automaton, CPU) for automaton in (regular, hostile)]
    with torch.inference_mode():
        usual, beside_it = (median_calls(captions, (constraints[0], other)) for other in constraints)
    assert beside_it < MORE_CALLS_MAX * usual
