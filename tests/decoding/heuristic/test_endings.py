"""The endings of a model's texts, and the search with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from compiler.lifting import TokenAutomaton, from_table
from decoding.heuristic import Endings, find_endings, unigram_prior
from decoding.options import DEFAULT, SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import generate
from decoding.search.banked_search import Ranking
from decoding.search.beams import Beams
from tests.decoding.differential import CPU
from tests.decoding.random_automata import random_factored, random_table
from tests.fake_models import PrefixModel

SIZE, WORD, STOP, MARK, EOS = 12, 3, 8, 9, 11


class MarkModel(PrefixModel):
    """Seldom writes a stop; afterwards writes a mark, then EOS.

    eos  logit of EOS elsewhere; the other tokens have 0
    """

    def __init__(self, context_length: int | None = None, eos: float = -14.0) -> None:
        super().__init__(SIZE, (EOS,), context_length)
        self._eos = eos

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        logits = torch.zeros(SIZE)
        logits[EOS], logits[STOP], logits[MARK] = self._eos, -5.0, -9.0
        if prefix[-1:] == (STOP,):
            logits[MARK] = 12.0
        if prefix[-2:] == (STOP, MARK):
            logits[EOS] = 12.0
        return logits.log_softmax(dim=0)


def found_endings(model: PrefixModel) -> Endings:
    endings = find_endings(model, unigram_prior(model))
    assert endings is not None
    return endings


def with_word() -> TokenAutomaton:
    """All texts that hold WORD."""
    token_class = np.zeros(SIZE, dtype=np.int64)
    token_class[WORD] = 1
    return from_table(token_class, np.array([[0, 1], [1, 1]]), np.array([False, True]), 0, eos_ids=(EOS,))


def test_the_ending_over_several_tokens_is_found() -> None:
    endings = found_endings(MarkModel())
    assert {STOP, MARK} <= set(endings.ids.tolist())
    assert EOS not in endings.ids.tolist()
    stop, mark = endings.index[[STOP, MARK]] - 1
    assert endings.ids[[stop, mark]].tolist() == [STOP, MARK]
    assert endings.cost[0, stop] < 0.1
    assert endings.cost[stop + 1, mark] < 0.1


def test_nats_after_the_last_token_are_those_of_eos() -> None:
    model = MarkModel()
    endings = found_endings(model)
    stop, mark = endings.index[[STOP, MARK]]
    expected = -float(model.log_probs((WORD, STOP, MARK))[EOS])
    assert endings.cost[stop, mark - 1] == pytest.approx(expected, abs=1e-5)


def test_an_ending_may_begin_after_any_token() -> None:
    """A token of one ending may stand before another ending."""
    endings = found_endings(MarkModel())
    stop = endings.index[STOP] - 1
    assert len(endings.ids) > 2
    assert (endings.cost[:, stop] < 0.1).all()


def test_the_index_names_the_row_of_each_token() -> None:
    endings = found_endings(MarkModel())
    assert endings.ids.tolist() == sorted(set(endings.ids.tolist()))
    assert endings.cost.shape == (len(endings.ids) + 1, len(endings.ids))
    assert endings.index.shape == (SIZE,)
    assert endings.index[endings.ids].tolist() == list(range(1, len(endings.ids) + 1))
    assert np.count_nonzero(endings.index) == len(endings.ids)


def test_endings_are_the_same_each_time() -> None:
    first, second = found_endings(MarkModel()), found_endings(MarkModel())
    assert all(np.array_equal(getattr(first, name), getattr(second, name)) for name in Endings.__slots__)


def test_a_model_that_ends_by_eos_has_no_endings() -> None:
    model = MarkModel(eos=0.0)
    assert find_endings(model, unigram_prior(model)) is None


def test_a_short_context_gives_no_endings() -> None:
    prior = unigram_prior(MarkModel())
    assert find_endings(MarkModel(context_length=19), prior) is None
    assert find_endings(MarkModel(context_length=20), prior) is not None


@pytest.mark.parametrize("beams", [1, 2, 8])
def test_a_search_with_endings_finds_the_cheap_ending(beams: int) -> None:
    model, automaton = MarkModel(), with_word()
    prior, options = unigram_prior(model), SearchOptions(12, beams=beams, length_penalty=0.0)
    endings = find_endings(model, prior)
    result = [
        generate(model, (0,), PreparedConstraint.prepare(automaton, CPU, prior=prior, endings=given_endings), options)[
            0
        ]
        for given_endings in (endings, None)
    ]
    assert result[0].tokens == (WORD, STOP, MARK, EOS)
    assert result[0].log_prob >= result[1].log_prob


def push(budget: int, library: str, last_token: int | None = None) -> list[float]:
    """The values of `Ranking.push` for each token after a row with WORD. `last_token` is the last token of the row."""
    model, automaton = MarkModel(), with_word()
    endings = found_endings(model)
    constraint = PreparedConstraint.prepare(automaton, CPU, endings=endings)
    constraint = replace(constraint, cost_to_go=torch.full((automaton.states,), 50.0, dtype=torch.float64))
    state = automaton.advance(automaton.start, WORD)
    states = constraint.begin_states(state, heuristics=DEFAULT, tensors=library == "torch")
    ranking = Ranking.of(states.tokens, 4, DEFAULT, endings=endings)
    row = Beams.start(state, states.tokens.token_class)
    row = row if last_token is None else replace(row, token=row.parent + last_token)
    result = ranking.score_bonus(row, states.successors(row.state), budget)
    return [float(result[0, column]) for column in states.tokens.token_class.tolist()]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_an_ending_lowers_the_cost_where_only_eos_is_missing(library: str) -> None:
    bonus = push(9, library)
    assert bonus[STOP] > -0.1
    assert bonus[MARK] < -1.0
    after_stop = push(9, library, STOP)
    assert after_stop[MARK] > -0.1


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_an_ending_does_not_count_without_budget(library: str) -> None:
    assert push(1, library) == [-float("inf")] * SIZE


@pytest.mark.parametrize("draw", [random_table, random_factored])
def test_separate_token_classes_keep_the_language(draw: Callable[[np.random.Generator], TokenAutomaton]) -> None:
    for seed in range(40):
        random = np.random.default_rng(seed)
        automaton = draw(random)
        size, outer = automaton.vocabulary_size, automaton.edge_boundary.shape[1]
        ids = np.sort(random.choice(size, int(random.integers(0, size)), replace=False))
        ids = np.setdiff1d(ids, automaton.eos_ids)
        split = automaton.with_own_classes(ids)
        assert np.array_equal(split.distance, automaton.distance)
        for state in range(automaton.states):
            successors, split_successors = (
                token_automaton.successors(state)[token_automaton.token_class] for token_automaton in (automaton, split)
            )
            assert np.array_equal(successors, split_successors)
        for token in ids.tolist():
            alone = np.count_nonzero(split.token_class == split.token_class[token]) == 1
            assert alone or automaton.token_class[token] >= outer
