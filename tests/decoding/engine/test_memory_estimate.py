"""The estimate of memory beside its use, and the admission by it.

The estimate is an upper bound within a factor.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest
import torch

from decoding.engine import Engine
from decoding.engine.memory import MemoryBudget, request_bytes_max, small_bytes
from decoding.engine.request import EngineRequest
from decoding.engine.scheduler import Scheduler
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
from tests.fake_models import HashModel

LENGTH = 40  # tokens before EOS
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
    model = _model(num_key_value_heads=4, hidden_size=384)
    peak, announced = _peak_and_estimate(model, begin(_constraint(model), rows))
    assert peak <= announced < factor * peak


def test_a_layer_that_grows_is_estimated_twice() -> None:
    model = _model(num_hidden_layers=1, num_key_value_heads=4, head_dim=256)  # nearly all of its memory is that layer
    peak, announced = _peak_and_estimate(model, _sampling(_constraint(model), 48))
    assert announced / 2 < peak <= announced


def _peak_and_estimate(model: HuggingFaceModel, run: Generation) -> tuple[int, int]:
    """The most bytes of a generation, as measured and as announced."""
    announced = model.bytes_for(3, run.size.rows, run.size.max_tokens, run.size.scratch_bytes)
    model.prefill([1])  # what the library keeps for later
    with recorded_operators(memory=True) as recorded:
        drive(model, [1, 2, 3], run)
    return recorded.peak, announced


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


MEMORY = 800
SMALL, LARGE = small_bytes(MEMORY), request_bytes_max(MEMORY)


class _Nothing:
    """A generation that is never driven."""


def _request(bytes_max: int) -> EngineRequest:
    return EngineRequest(
        model=HashModel(2, (0,)), begin=_Nothing, prompt_ids=(0,), cancelled=None, has_listener=False,  # type: ignore[arg-type]
        bytes_max=bytes_max,
    )


def _scheduler(*sizes: int) -> tuple[Scheduler, list[EngineRequest]]:
    scheduler, requests = Scheduler(MemoryBudget(MEMORY)), [_request(size) for size in sizes]
    for request in requests:
        scheduler.add(request)
    return scheduler, requests


def test_a_small_request_overtakes_a_large_one_that_waits() -> None:
    scheduler, (first, second, small) = _scheduler(LARGE, LARGE, SMALL)
    assert scheduler.admit() == [first, small]
    scheduler.add(another := _request(1))
    assert scheduler.admit() == []  # the small requests' share is taken
    scheduler.remove(small)
    assert scheduler.admit() == [another]
    scheduler.remove(first)
    assert scheduler.admit() == [second]


def test_small_requests_keep_their_order() -> None:
    scheduler, requests = _scheduler(LARGE, LARGE, SMALL // 2, SMALL, SMALL // 2)
    assert scheduler.admit() == [requests[0], requests[2]]


def test_a_preempted_request_regains_its_place() -> None:
    scheduler, requests = _scheduler(SMALL, SMALL, LARGE)
    assert scheduler.admit() == requests[:2] and scheduler.preempt(requests[1])
    assert scheduler.requests == requests


def test_a_large_request_is_not_overtaken_for_its_memory() -> None:
    scheduler, requests = _scheduler(LARGE // 2, LARGE, *[SMALL] * 20)
    assert scheduler.admit() == [requests[0], requests[2]]
    scheduler.remove(requests[0])
    assert scheduler.admit() == [requests[1]]


def test_nothing_overtakes_an_exclusive_request() -> None:
    scheduler, (first, second, small) = _scheduler(LARGE, LARGE, SMALL)
    second.preemptions = 9
    assert scheduler.admit() == [first]
    scheduler.remove(first)
    assert scheduler.admit() == [second] and small in scheduler.requests


@pytest.mark.parametrize("seed", range(20))
def test_every_request_begins_whatever_arrives(seed: int) -> None:
    """The oldest one begins once those that ran before have ended."""
    draw = random.Random(seed)
    scheduler, _ = _scheduler()
    oldest, running_before = None, set[int]()
    for _ in range(2_000):
        if len(scheduler) < 30:
            scheduler.add(_request(draw.choice((1, SMALL, draw.randint(1, LARGE), LARGE))))
        scheduler.admit()
        running = scheduler.running
        assert sum(request.bytes_max for request in running) <= MEMORY
        waiting = scheduler.requests[len(running) :]
        if waiting and waiting[0] is not oldest:
            oldest, running_before = waiting[0], {id(request) for request in running if not request.overtook}
        left = running_before & {id(request) for request in running}
        assert left or not waiting
        if running:
            scheduler.remove(draw.choice(running))
