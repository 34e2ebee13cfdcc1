"""The estimate of long generations beside the memory that they use. It is an upper bound within a factor."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
import torch

from decoding.engine import Engine
from decoding.errors import OptionsInvalid, RequestTooLarge
from decoding.generation import Generation, Snapshot
from decoding.model import HuggingFaceModel, Scores, StepInput
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of
from tests.decoding.random_automata import of_length
from tests.decoding.random_models import V, llama_of
from tests.decoding.recorded_operators import recorded_operators

LENGTH = 60  # tokens before EOS
FACTOR_OF_SAMPLES, FACTOR_OF_SEARCHES = 4, 40  # rows of a search share most of what they read; the estimate ignores it


def _model(**changes: int) -> HuggingFaceModel:
    return HuggingFaceModel(llama_of(max_position_embeddings=128, **changes))


def _constraint(model: HuggingFaceModel, length: int = LENGTH) -> PreparedConstraint:
    return PreparedConstraint.prepare(of_length(length, V, *model.eos_ids), model.device)


def _sampling(constraint: PreparedConstraint, rows: int) -> Generation:
    return Sampling(constraint, SamplingOptions(LENGTH + 1, seed=1, n=rows))


def _search(constraint: PreparedConstraint, rows: int) -> Generation:
    return search_of(constraint, SearchOptions(LENGTH + 1, beams=rows))


@pytest.mark.parametrize(
    ("begin", "rows", "factor"),
    [(_sampling, 8, FACTOR_OF_SAMPLES), (_sampling, 1, FACTOR_OF_SAMPLES), (_search, 8, FACTOR_OF_SEARCHES),
     (_search, 1, FACTOR_OF_SEARCHES)],
)  # fmt: skip
@pytest.mark.sample(2)
def test_a_long_generation_uses_no_more_than_estimated(
    begin: Callable[[PreparedConstraint, int], Generation], rows: int, factor: int
) -> None:
    model = _model(num_key_value_heads=4, hidden_size=512)
    run = begin(_constraint(model), rows)
    announced = model.bytes_for(3, run.size.rows, run.size.max_tokens, run.size.scratch_bytes)
    model.prefill([1])  # what the library keeps for later
    with recorded_operators(memory=True) as recorded:
        drive(model, [1, 2, 3], run)
    assert recorded.peak <= announced < factor * recorded.peak


@pytest.mark.parametrize(("begin", "rows"), [(_sampling, 8), (_sampling, 1), (_search, 8), (_search, 1)])
@pytest.mark.sample(2)
def test_the_history_of_rows_is_no_larger_than_estimated(
    begin: Callable[[PreparedConstraint, int], Generation], rows: int
) -> None:
    """tracemalloc sees numpy's arrays and Python's objects, not tensors."""
    model = _model()
    run, snapshots = begin(_constraint(model), rows), list[Snapshot]()
    session, first = model.prefill([1, 2, 3])
    scores = Scores.of_prompt(first)
    tracemalloc.start()
    try:
        with torch.inference_mode():
            while True:
                snapshots += run.advance(scores)  # as if their reader took none of them
                if run.done:
                    break
                (scores,) = model.step([StepInput(session, *run.feed())])
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(snapshots) == LENGTH + 1 and kept <= run.size.kept_bytes


def test_a_budget_beyond_all_distances_is_refused() -> None:
    for options in (SearchOptions, lambda max_tokens: SamplingOptions(max_tokens, seed=1)):
        with pytest.raises(OptionsInvalid, match="max_tokens must be at most"):
            options(2**31)


def test_a_huge_budget_is_refused_before_it_takes_memory() -> None:
    model = HuggingFaceModel(llama_of())
    with Engine(model, 2**20) as engine, pytest.raises(RequestTooLarge) as refusal:
        engine.require_memory(3, 16, 2**30)
    assert refusal.value.needed_bytes > 2**34
