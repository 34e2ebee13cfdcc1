"""How many rows a search reads."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from decoding.model import Scores, StepInput
from decoding.options import SearchOptions
from decoding.search import drive, rows_of, search_of
from tests.decoding.differential import ALGORITHMS, Case
from tests.fake_models import HashModel, PrefixSession


class CountingModel(HashModel):
    """Counts the rows of each feed."""

    def __init__(self, vocab_size: int, eos_ids: tuple[int, ...], seed: int) -> None:
        super().__init__(vocab_size, eos_ids, seed=seed)
        self.rows: list[int] = []

    def step(self, feeds: Sequence[StepInput[PrefixSession]]) -> list[Scores]:
        self.rows += [len(feed.tokens) for feed in feeds]
        return super().step(feeds)


@pytest.mark.parametrize("beams", [1, 5, 64])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_search_reads_at_most_its_declared_rows(algorithm: str, beams: int) -> None:
    row_maximum, limit = 0, 0
    for seed in range(21):
        case = Case("factored", "smooth", "abs" if algorithm == "abs" else "banked", seed)
        options = SearchOptions(case.automaton.min_tokens + 6, beams=beams, algorithm=case.options.algorithm)
        model = CountingModel(case.automaton.vocabulary_size, case.automaton.eos_ids, seed)
        drive(model, (1,), search_of(case.constraint, options))
        limit = rows_of(options)
        row_maximum = max(row_maximum, *model.rows, 0)
        assert all(rows <= limit for rows in model.rows)
    assert row_maximum > 0.8 * limit


def test_rows_grow_in_proportion_to_the_beams() -> None:
    rows = [rows_of(SearchOptions(9, beams=beams)) for beams in range(1, 129)]
    assert rows == [3 * beams for beams in range(1, 129)]
    assert rows[63] / rows[62] == 64 / 63
    assert [rows_of(SearchOptions(9, beams=beams, algorithm="abs")) for beams in (1, 64)] == [1, 64]
