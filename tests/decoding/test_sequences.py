"""Answers to sequences within budgets, and alternatives to an answer's tokens."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from compiler.errors import BudgetTooSmall, SpecUnsatisfiable, SpecUnspellable
from compiler.pipeline import compile_spec
from compiler.products import LazyProduct
from decoding.alternatives import AlternativesRecorder
from decoding.options import SearchOptions
from decoding.search import generate
from tests.compiler.forms.test_sequences import EOS, VOCABULARY, is_text, random_sequence
from tests.decoding.random_automata import random_factored, random_table
from tests.fake_models import HashModel
from tests.long.fuzz_paths import PATHS, Case


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(8)
def test_answers_are_texts_of_the_sequence(seed: int) -> None:
    draw = random.Random(1_000 + seed)
    spec = random_sequence(draw)
    try:
        tokens = compile_spec(spec, VOCABULARY).tokens
    except (SpecUnsatisfiable, SpecUnspellable):
        return
    assert not isinstance(tokens, LazyProduct)
    least = tokens.min_tokens
    for budget in range(max(1, least - 1), least + 4):
        case = Case(VOCABULARY, tokens, HashModel(VOCABULARY.size, (EOS,), seed=seed), (EOS,), budget, None)
        path, _ = PATHS[draw.choice(list(PATHS))]
        if budget < least:
            with pytest.raises(BudgetTooSmall):
                path(case, draw)
            continue
        answers = path(case, draw)
        assert answers
        for answer in answers:
            assert len(answer) <= budget and answer[-1] == EOS and is_text(spec, answer[:-1])


@pytest.mark.parametrize("seed", range(30))
def test_alternatives_are_those_of_the_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    automaton = random_factored(random) if seed % 2 else random_table(random)
    model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed, zeros=0.3 if seed % 3 else 0.0, levels=4)
    budget = automaton.min_tokens + seed % 3
    (answer,) = generate(model, [0], automaton, SearchOptions(budget, beams=4))
    recorder = AlternativesRecorder(automaton, answer.tokens, budget, 3)
    assert model.score([0], answer.tokens, recorder) == model.score([0], answer.tokens)
    state = automaton.start
    for position, (token, place) in enumerate(zip(answer.tokens, recorder.places, strict=True)):
        row = [max(value, -1e4) for value in model.log_probs((0, *answer.tokens[:position])).tolist()]
        targets = [automaton.advance(state, each) for each in range(automaton.vocabulary_size)]
        allowed = [each for each, to in enumerate(targets) if automaton.distance[to] <= budget - position - 1]
        total = math.log(sum(math.exp(row[each] - max(row)) for each in allowed) or 1e-300) + max(row)
        best = sorted(range(len(row)), key=lambda each: (-row[each], each))[:3]
        assert [other.token for other in place.top] == best and place.written.token == token
        for other in (place.written, *place.top):
            assert other.log_prob == pytest.approx(row[other.token])
            if other.token in allowed:
                assert other.constrained_log_prob is not None and other.log_prob <= other.constrained_log_prob + 1e-6
                if total > -500:
                    assert other.constrained_log_prob == pytest.approx(row[other.token] - total, abs=1e-6)
            else:
                assert other.constrained_log_prob is None
        state = targets[token]
