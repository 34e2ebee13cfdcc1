"""How a model's texts end: what is found of it, and what a search makes of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from compiler.token_automaton import TokenAutomaton, from_table
from decoding.arrays import Array, like
from decoding.beams import DEAD_SCORE, Beams
from decoding.constraint import Constraint
from decoding.endings import LONGEST, Endings
from decoding.endings_found import endings_found
from decoding.estimate import Prior, token_prior
from decoding.options import SearchOptions
from decoding.plan import Plan
from decoding.search import generate
from decoding.step import step
from decoding.tables import Tables
from tests.decoding.random_automata import random_factored, random_table
from tests.decoding.twins import CPU
from tests.fakes import PrefixModel, PrefixSession

SIZE, WORD, STOP, MARK, EOS = 12, 3, 8, 9, 11
FAR = 7
LIBRARIES = ("numpy", "torch")


class Marked(PrefixModel):
    """Goes on for ever, but for a stop, which it seldom writes; after that it always writes a mark, and then ends."""

    def __init__(self, context_length: int | None = None) -> None:
        super().__init__(SIZE, (EOS,), context_length)

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        logits = torch.zeros(SIZE)
        logits[EOS], logits[STOP], logits[MARK] = -14.0, -5.0, -9.0
        if prefix[-1:] == (STOP,):
            logits[MARK] = 12.0
        if prefix[-2:] == (STOP, MARK):
            logits[EOS] = 12.0
        return logits.log_softmax(dim=0)


def found_of(model: PrefixModel) -> Endings:
    endings = token_prior(model).endings
    assert endings is not None
    return endings


def any_text(with_id: int, *, stop_ends: bool = False) -> TokenAutomaton:
    """Whatever holds the id, and a stop after it, if `stop_ends`, after which nothing but EOS may come."""
    token_class = np.zeros(SIZE, dtype=np.int64)
    token_class[with_id], token_class[STOP] = 1, 2
    if stop_ends:  # before, with the id, ended, dead
        table = np.array([[0, 1, 0], [1, 1, 2], [3, 3, 3], [3, 3, 3]])
        return from_table(token_class, table, np.array([False, False, True, False]), 0, (EOS,))
    return from_table(token_class, np.array([[0, 1, 0], [1, 1, 1]]), np.array([False, True]), 0, (EOS,))


def test_the_way_over_several_tokens_is_found_and_what_comes_next_on_it() -> None:
    endings = found_of(Marked())
    assert endings.cost.shape == endings.then.shape == (LONGEST + 1, SIZE)
    assert endings.cost[0, STOP] > 10.0 and endings.then[0, STOP] == -1
    assert endings.cost[1, STOP] < 0.1 and endings.then[1, STOP] == MARK
    pair = (endings.pair == STOP * SIZE + MARK).nonzero()[0, 0]
    assert endings.pair_cost[0, pair] < 0.1 and endings.pair_then[0, pair] == -1
    assert STOP in endings.first.tolist() and EOS not in endings.first.tolist()
    assert torch.isinf(endings.cost[:, EOS]).all()
    assert (endings.cost.diff(dim=0).nan_to_num(0.0) <= 0.0).all()  # more tokens never make it dearer


def test_it_is_the_same_each_time_and_for_models_that_read_one_after_another() -> None:
    one, other, apart = Marked(), Marked(), Marked()
    apart.reads_together = False
    first, *others = (found_of(model) for model in (one, other, apart))
    for found in others:
        assert all(torch.equal(getattr(first, name), getattr(found, name)) for name in Endings.__slots__)


class Begun(Marked):
    """The same where a text begins with id 0, which is put before its own; else a stop is like any other id."""

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[PrefixSession, Tensor]:
        return super().prefill(prompt_ids or (0,))

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        found = super().log_probs(prefix if prefix[0] == 0 else ())
        found[0] = -30.0
        return found


def test_it_is_asked_after_texts_that_begin_as_the_models_own() -> None:
    endings = found_of(Begun())
    assert endings.cost[1, STOP] < 0.1 and endings.then[1, STOP] == MARK


class Ending(Marked):
    """The same, and as likely to end its texts as to go on with any one id."""

    def log_probs(self, prefix: tuple[int, ...]) -> Tensor:
        logits = super().log_probs(prefix)
        logits[EOS] = logits[0]
        return logits.log_softmax(dim=0)


def test_a_model_that_ends_its_texts_by_itself_is_not_asked() -> None:
    assert token_prior(Ending()).endings is None


def test_a_model_that_cannot_read_so_far_is_not_asked() -> None:
    assert endings_found(Marked(context_length=19), (0,), [[0] * 20], torch.zeros(SIZE)) is None
    assert endings_found(Marked(context_length=20), (0,), [[0] * 20], torch.zeros(SIZE)) is not None


@pytest.mark.parametrize("beams", [1, 2, 8])
def test_a_search_that_knows_them_ends_its_text_by_the_way_that_is_cheap(beams: int) -> None:
    model = Marked()
    prior, automaton = token_prior(model), any_text(WORD)
    options = SearchOptions(12, beams, length_penalty=0.0)
    known = generate(model, (0,), Constraint.prepare(automaton, CPU, prior=prior), options)[0]
    unknown = Constraint.prepare(automaton, CPU, prior=Prior(prior.log_prob, prior.end_cost))
    assert known.tokens == (WORD, STOP, MARK, EOS)
    assert generate(model, (0,), unknown, options)[0].log_prob < known.log_prob - 5.0


def after_one_step(library: str, logit: float, then: int, first: list[int]) -> Beams:
    """One row whose last token is WORD; of its 400 next ones FAR has this logit, and owes 40 nats, the others 12.

    then, first  what WORD's way goes on with, and what is looked for after every row
    """
    size, last = 400, 399
    token_class = np.zeros(size, dtype=np.int64)
    token_class[FAR] = 1
    automaton = from_table(token_class, np.array([[0, 1], [0, 1]]), np.array([True, True]), 0, (last,))
    tables = Tables.from_automaton(automaton, CPU)
    tables = tables if library == "torch" else tables.for_search()
    estimate = torch.zeros(automaton.states, dtype=torch.float64)
    estimate[automaton.start], estimate[automaton.advance(automaton.start, FAR)] = 12.0, 40.0
    cost = torch.full((LONGEST + 1, size), float("inf"), dtype=torch.float64)
    goes_on = torch.full(cost.shape, -1)
    cost[:, FAR], cost[:, WORD], goes_on[:, WORD] = 0.1, 0.2, then
    none = torch.zeros((LONGEST + 1, 0), dtype=torch.int64)
    ways = Endings(cost, goes_on, none[0], none.double(), none, torch.tensor(first, dtype=torch.int64))
    unknown = torch.full((size,), float("inf"), dtype=torch.float64)
    plan = Plan.prepare(tables, None, estimate, SearchOptions(12, 2), unknown, False, ways)
    scores = torch.randn(1, size, generator=torch.Generator().manual_seed(0))
    scores[0, FAR] = logit
    start = Beams.start(automaton.start, tables.distance)
    found = step(replace(start, token=start.token + WORD), scores.log_softmax(dim=1), tables, plan.keeping(6), 12)
    return found.select(like(found.score, np.flatnonzero(np.array(found.score.tolist()) > DEAD_SCORE)))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("then", "first"), [(-1, [FAR]), (FAR, []), (FAR, [FAR]), (FAR, [WORD])])
def test_what_leads_to_the_end_is_looked_for_far_behind_the_rest(library: str, then: int, first: list[int]) -> None:
    assert after_one_step(library, -4.0, then, first).token.tolist().count(FAR) == 1
    assert FAR not in after_one_step(library, -4.0, -1, [WORD]).token.tolist()


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_only_fills_a_place_does_not_stand_in_its_way(library: str) -> None:
    found = after_one_step(library, 6.0, -1, [FAR])  # the most probable, which fills up those that gain something
    assert found.token[0] == FAR and found.token.tolist().count(FAR) == 1


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_way_counts_only_where_its_next_token_keeps_the_text_acceptable_and_there_is_room(library: str) -> None:
    nats = {}
    for stop_ends in (False, True):
        automaton = any_text(WORD, stop_ends=stop_ends)
        tables = Tables.from_automaton(automaton, CPU)
        tables = tables if library == "torch" else tables.for_search()
        state = automaton.advance(automaton.advance(automaton.start, WORD), STOP)
        columns = [torch.tensor([one]) for one in (WORD, STOP, state)]
        before, token, states = (like(tables.distance, column) for column in columns)
        ways = found_of(Marked()).beside(tables.distance)
        for left in (1, 2, 8, 99):
            nats[stop_ends, left] = float(ways.nats(before, token, states, tables, left)[0])
    assert nats[False, 1] > 10.0 and nats[False, 2] < 0.1 and nats[False, 8] < 0.1 and nats[False, 99] < 0.1
    assert nats[True, 1] > 10.0 and nats[True, 2] == nats[True, 99] == float("inf")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("make", [random_table, random_factored])
def test_the_state_after_one_token_of_each_row_is_the_automatons(make: object, library: str) -> None:
    assert callable(make)
    for seed in range(20):
        random = np.random.default_rng(seed)
        automaton: TokenAutomaton = make(random)
        tables = Tables.from_automaton(automaton, CPU)
        tables = tables if library == "torch" else tables.for_search()
        states, tokens = (random.integers(0, end, 60) for end in (automaton.states, automaton.vocabulary_size))
        after: Array = tables.after(*(like(tables.distance, torch.from_numpy(part)) for part in (states, tokens)))
        pairs = zip(states.tolist(), tokens.tolist(), strict=True)
        assert after.tolist() == [automaton.advance(*pair) for pair in pairs]
