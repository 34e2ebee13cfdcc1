"""How many rows a search keeps, and that what it feeds stays within what models reckon with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from decoding.constraint import Constraint
from decoding.estimate import Prior
from decoding.language_model import Feed, Scores
from decoding.options import SearchOptions
from decoding.search import BeamSearch, drive
from decoding.widths import nodes_at_most, rows_after, rows_at_most, tightness
from tests.decoding.random_automata import random_factored
from tests.fakes import HashModel, PrefixSession
from tests.reference import rows_kept


@pytest.mark.parametrize("beams", [1, 2, 3, 4, 7, 16, 64, 1000])
@pytest.mark.parametrize("max_tokens", [1, 2, 4, 5, 6, 12, 31, 32, 33, 256])
@pytest.mark.parametrize("tight", [0, 1, 2])
def test_rows_fall_from_many_times_k_to_k(beams: int, max_tokens: int, tight: int) -> None:
    rows = [rows_after(step, beams, max_tokens, tight) for step in range(1, max_tokens + 1)]
    assert all(later <= row for row, later in itertools.pairwise(rows))
    many = 1024 if tight == 2 else 0
    most = max(8 * beams, many) if beams >= 64 else (3 if not tight else 5 if beams >= 16 else 4) * beams
    assert rows[0] == most if max_tokens >= 8 else beams <= rows[0] <= most
    assert set(rows[61 if tight else 30 :]) <= {beams}
    assert rows[-1] == beams or (tight and max_tokens < 62)
    assert rows_at_most(beams, max_tokens, tight) == max([beams, *rows[:-1]])
    assert nodes_at_most(beams, max_tokens, tight) == max(step * row for step, row in enumerate(rows, start=1))


@pytest.mark.parametrize("beams", [1, 16, 64, 128])
@pytest.mark.parametrize("max_tokens", [4, 8, 16, 32, 64, 256])
def test_where_the_budget_is_tight_there_are_more_rows_at_every_step(beams: int, max_tokens: int) -> None:
    for step in range(1, max_tokens + 1):
        loose, tight, tighter = (rows_after(step, beams, max_tokens, tight) for tight in range(3))
        assert loose <= tight <= tighter


def test_a_budget_is_tight_where_a_fifth_or_a_fourth_of_it_is_not_enough() -> None:
    assert [tightness(least, 32) for least in (1, 6, 7, 8, 9, 32)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("beams", [1, 5, 15, 16, 63, 64, 100, 128, 400, 1024])
@pytest.mark.parametrize("max_tokens", [1, 2, 5, 8, 19, 32, 61, 62, 63, 200])
def test_rows_are_those_of_the_reference(beams: int, max_tokens: int) -> None:
    for least in range(1, max_tokens + 1):
        tight = tightness(least, max_tokens)
        for step in range(1, max_tokens + 1):
            assert rows_after(step, beams, max_tokens, tight) == rows_kept(step, least, beams, max_tokens)


@pytest.mark.parametrize("max_tokens", [8, 32, 256])
@pytest.mark.parametrize("tight", [0, 1, 2])
def test_from_64_beams_on_more_beams_keep_no_fewer_rows(max_tokens: int, tight: int) -> None:
    for step in range(1, max_tokens + 1):
        rows = [rows_after(step, beams, max_tokens, tight) for beams in (64, 65, 90, 127, 128, 200, 256, 300, 512, 700)]
        assert rows == sorted(rows)


@pytest.mark.parametrize(("beams", "times"), [(4, 2.8), (16, 2.8), (64, 3.1)])
@pytest.mark.parametrize("max_tokens", [8, 16, 32, 64, 256])
def test_a_search_reads_few_times_the_rows_of_one_that_keeps_k(beams: int, times: float, max_tokens: int) -> None:
    read = [rows_after(step, beams, max_tokens) for step in range(1, max_tokens)]
    assert sum(read) <= times * beams * (max_tokens - 1)


class Measuring(HashModel):
    """Notes of each feed how many rows it has, and how many tokens they have written together."""

    def __init__(self, vocab_size: int, eos_ids: tuple[int, ...], seed: int) -> None:
        super().__init__(vocab_size, eos_ids, seed=seed)
        self.rows: list[int] = []
        self.nodes: list[int] = []

    def step(self, feeds: Sequence[Feed[PrefixSession]]) -> list[Scores]:
        scores = super().step(feeds)
        for feed in feeds:
            self.rows.append(len(feed.tokens))
            self.nodes.append(sum(len(row) - len(feed.session.prompt) for row in feed.session.rows))
        return scores


@pytest.mark.parametrize("beams", [5, 64])
@pytest.mark.parametrize("tight", [None, 0, 1, 2])
def test_a_search_feeds_many_rows_at_first_and_never_more_than_announced(beams: int, tight: int | None) -> None:
    most = 0
    for seed in range(20 if beams < 64 else 8):
        automaton = random_factored(np.random.default_rng(seed))
        prior = Prior.of_tokens(torch.full((automaton.vocabulary_size,), -2.0, dtype=torch.float64))
        options = SearchOptions(automaton.min_tokens + 6, beams)
        model = Measuring(automaton.vocabulary_size, automaton.eos_ids, seed)
        constraint = Constraint.prepare(automaton, model.device, prior=prior)
        drive(model, (1,), BeamSearch(constraint, options, tight=tight))
        taken = tightness(automaton.min_tokens, options.max_tokens) if tight is None else tight
        kept = [rows_after(step, beams, options.max_tokens, taken) for step in range(1, options.max_tokens + 1)]
        assert all(rows <= keep for rows, keep in zip(model.rows, kept, strict=False))
        assert max(model.nodes, default=0) <= nodes_at_most(beams, options.max_tokens, taken)
        most = max(most, *(rows for rows, keep in zip(model.rows, kept, strict=False) if rows == keep), 0)
    assert most > 2 * beams
