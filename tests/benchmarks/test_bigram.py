"""Compares the exact optimum under a bigram model with full enumeration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmarks.quality.bigram import BigramModel, most_probable
from compiler.lifting import TokenAutomaton
from decoding.model import StepInput
from tests.decoding.random_automata import random_factored, random_table


def random_model(random: np.random.Generator, size: int, eos_ids: tuple[int, ...]) -> BigramModel:
    logits = torch.from_numpy(random.normal(scale=2.0, size=(size, size))).float()
    return BigramModel(logits.log_softmax(dim=1), eos_ids)


def best_of_all(model: BigramModel, first: int, automaton: TokenAutomaton, budget: int) -> float | None:
    """The largest log-prob of sequences of at most `budget` ids, by enumeration."""
    table = model.log_probs.tolist()
    successors = [[automaton.advance(state, token) for token in range(len(table))] for state in range(automaton.states)]
    log_probs = []

    def extend(state: int, previous: int, log_prob: float, tokens_left: int) -> None:
        for token in range(len(table)):
            state_after, sum_after = successors[state][token], log_prob + table[previous][token]
            if token not in model.eos_ids:
                if tokens_left > 1:
                    extend(state_after, token, sum_after, tokens_left - 1)
            elif automaton.distance[state_after] == 0:
                log_probs.append(sum_after)

    extend(automaton.start, first, 0.0, budget)
    return max(log_probs, default=None)


@pytest.mark.parametrize(("draw", "budget"), [(lambda random: random_table(random, ids=6), 5), (random_factored, 3)])
def test_no_satisfying_text_is_more_probable(
    draw: Callable[[np.random.Generator], TokenAutomaton], budget: int
) -> None:
    random = np.random.default_rng(3)
    for _ in range(30):
        automaton = draw(random)
        model = random_model(random, automaton.vocabulary_size, automaton.eos_ids)
        expected = best_of_all(model, 0, automaton, budget)
        if expected is None:
            with pytest.raises(ValueError, match="satisfies"):
                most_probable(model, (0,), automaton, budget)
            continue
        tokens, log_prob = most_probable(model, (0,), automaton, budget)
        assert log_prob == pytest.approx(expected, abs=1e-5)
        assert sum(model.score((0,), tokens).log_probs) == pytest.approx(expected, abs=1e-5)
        assert len(tokens) <= budget and tokens[-1] in automaton.eos_ids
        assert most_probable(model, (0,), automaton, budget, lower_bound=log_prob) == (tokens, log_prob)


def test_counts_become_probabilities_that_sum_to_one() -> None:
    model = BigramModel.estimated([[0, 1, 2, 0], [0, 1, 1, 0]], 4, (0,))
    torch.testing.assert_close(model.log_probs.exp().sum(dim=1), torch.ones(4), rtol=0.0, atol=1e-5)
    assert model.log_probs[0].argmax() == 1
    assert model.log_probs[2].argmax() == 0
    assert (model.log_probs[3].exp() > 0).all()  # never seen: the unigrams


def test_a_chunk_scores_like_its_single_tokens() -> None:
    random = np.random.default_rng(4)
    model = random_model(random, 9, (8,))
    session, first = model.prefill((3, 5))
    assert torch.equal(first, model.log_probs[5])
    (scores,) = model.step([StepInput(session, torch.tensor([0, 0]), torch.tensor([[1, 2, 3], [4, 4, 4]]))])
    assert torch.equal(scores.log_probs, model.log_probs[torch.tensor([3, 4])])
    assert scores.token_log_probs.tolist() == [
        [float(model.log_probs[1, 2]), float(model.log_probs[2, 3])], [float(model.log_probs[4, 4])] * 2
    ]  # fmt: skip
    assert torch.equal(scores.max_log_probs[0], model.log_probs[torch.tensor([1, 2])].amax(dim=1))
