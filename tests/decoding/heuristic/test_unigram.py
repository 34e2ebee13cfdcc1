"""The cost to go (shortest path in nats) and its unigram prior."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from compiler.lifting import UNREACHABLE, TokenAutomaton, from_table
from decoding.heuristic import cost_to_go, unigram_prior
from decoding.heuristic.unigram import PRIOR_FLOOR
from tests.decoding.random_automata import random_factored, random_table
from tests.fake_models import HashModel, ScriptedModel

RANDOM_AUTOMATA = 150
MODULE = sys.modules["decoding.heuristic.unigram"]


def cheapest(automaton: TokenAutomaton, prior: list[float]) -> list[float]:
    """Dijkstra from every state, token by token; infinite if acceptance is unreachable."""
    successors = [[automaton.advance(state, token) for token in range(len(prior))] for state in range(automaton.states)]
    costs = []
    for start in range(automaton.states):
        best, heap, answer = {start: 0.0}, [(0.0, start)], float("inf")
        while heap:
            cost, state = heapq.heappop(heap)
            if automaton.distance[state] == 0:
                answer = cost
                break
            if cost > best[state]:
                continue
            for token, to in enumerate(successors[state]):
                if cost - prior[token] < best.get(to, float("inf")):
                    best[to] = cost - prior[token]
                    heapq.heappush(heap, (best[to], to))
        costs.append(answer)
    return costs


@pytest.mark.parametrize("draw", [random_table, random_factored])
def test_the_cost_is_that_of_the_cheapest_path(draw: Callable[[np.random.Generator], TokenAutomaton]) -> None:
    random = np.random.default_rng(1)
    for _ in range(RANDOM_AUTOMATA):
        automaton = draw(random)
        prior = torch.from_numpy(random.normal(scale=3.0, size=automaton.vocabulary_size)).log_softmax(dim=0)
        result = cost_to_go(automaton, prior)
        assert result is not None
        expected = [cost if cost != float("inf") else 0.0 for cost in cheapest(automaton, prior.tolist())]
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-12)


def test_blocks_of_any_size_give_the_same_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(2)
    for _ in range(30):
        automaton = random_factored(random)
        prior = torch.from_numpy(random.normal(scale=3.0, size=automaton.vocabulary_size)).log_softmax(dim=0)
        expected = cost_to_go(automaton, prior)
        with monkeypatch.context() as patch:
            patch.setattr(MODULE, "_CELLS", 3)
            pieces = cost_to_go(automaton, prior)
        assert expected is not None and pieces is not None and torch.equal(expected, pieces)


def chain(length: int) -> TokenAutomaton:
    """Token 0 `length` times, then EOS, id 2; token 1 leads nowhere."""
    states = length + 2
    table = np.full((states, 2), states - 1)
    table[: length + 1, 0] = np.arange(1, length + 2)
    table[length, 0] = states - 1
    return from_table(np.array([0, 1, 0]), table, np.arange(states) == length, 0, eos_ids=(2,))


def test_states_beyond_the_bound_on_work_are_extrapolated(monkeypatch: pytest.MonkeyPatch) -> None:
    automaton, prior = chain(20), torch.tensor([-2.0, -1.0, -3.0], dtype=torch.float64)
    monkeypatch.setattr(MODULE, "_WORK_MAX", 90)
    result = cost_to_go(automaton, prior)
    assert result is not None
    live = automaton.distance != UNREACHABLE
    assert result[automaton.start] == 3.0 * automaton.min_tokens  # EOS alone costs the most: 3 nats for one token
    near = automaton.distance == 3
    assert result[torch.from_numpy(near)].tolist() == [7.0]  # two tokens and EOS, within the bound
    assert (result.numpy()[live & (automaton.distance > 0)] > 0).all()


def test_an_automaton_with_too_large_a_table_has_no_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_EDGE_CELLS_MAX", 10)
    assert cost_to_go(chain(20), torch.zeros(3, dtype=torch.float64)) is None


def test_the_prior_is_a_distribution_and_repeatable() -> None:
    model = HashModel(12, (3, 5), memory=2, zeros=0.3)
    prior = unigram_prior(model)
    assert prior.dtype == torch.float64 and prior.shape == (12,)
    assert float(prior.exp().sum()) == pytest.approx(1.0, abs=1e-6)
    assert torch.equal(prior, unigram_prior(HashModel(12, (3, 5), memory=2, zeros=0.3)))


def test_the_prior_of_a_model_without_memory_is_its_distribution() -> None:
    model = HashModel(9, (8,), memory=0)
    torch.testing.assert_close(unigram_prior(model), model.log_probs(()).double(), rtol=0.0, atol=1e-6)


def test_an_impossible_token_has_a_finite_cost() -> None:
    certain = ScriptedModel(4, (3,), {(): {1: 0.0, 0: -500.0, 2: -500.0, 3: -500.0}}, floor=-500.0)
    assert unigram_prior(certain).tolist()[0] >= PRIOR_FLOOR


def test_a_model_that_only_ends_texts_is_read_once() -> None:
    ending = ScriptedModel(6, (5,), {(): {5: 0.0}}, floor=-500.0)
    assert float(unigram_prior(ending)[5]) == pytest.approx(0.0, abs=1e-6)
    assert ending.passes == 0


def test_the_prior_keeps_within_the_models_context() -> None:
    lengths: list[int] = []

    class Short(HashModel):
        def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
            lengths.append(len(prefix))
            return super().log_probs(prefix)

    unigram_prior(Short(20, (19,), context_length=5))
    assert max(lengths) <= 5
