"""Requests over the memory limit, and failed allocations outside the engine."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import pytest
import torch

from app.settings import Settings
from app.worker.handlers.preparation import PreparedConstraints
from decoding.engine import Engine, request_bytes_max
from decoding.errors import MemoryTaken, OutOfMemory, RequestTooLarge
from decoding.generation import GenerationSize
from decoding.options import SearchOptions
from decoding.search import rows_of
from tests.app.worker.fake_context import FakeContext
from tests.app.worker.generators import a_job, open_generator


def _needed_bytes(rows: int) -> int:
    """The estimate for rows of 6 tokens behind 2 of the prompt."""
    return 8 * (2 + rows * 6) + GenerationSize(rows, 6, 0).kept_bytes  # HashModel.bytes_for, and the history


@pytest.mark.parametrize(("generations", "expected"), [(1, MemoryTaken), (0, OutOfMemory)])
def test_out_of_memory_at_preparation_depends_on_running_generations(
    settings: Settings, context: FakeContext, monkeypatch: pytest.MonkeyPatch, generations: int,
    expected: type[Exception],
) -> None:
    def fail_allocation(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with open_generator(settings) as generator:
        job = a_job(settings, context, max_tokens=6, beams=2)
        monkeypatch.setattr(PreparedConstraints, "open", fail_allocation)
        monkeypatch.setattr(Engine, "generations", property(lambda _: generations))
        with pytest.raises(expected) as refusal:
            generator.run(job, context)
        assert refusal.value.__context__ is None  # a context would keep the tensors of the failed attempt alive
        monkeypatch.undo()
        assert generator.run(job, context).choices


def test_a_check_that_runs_out_of_memory_is_retried(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, context: FakeContext
) -> None:
    with open_generator(settings) as generator:
        score, calls = generator._model.score, []

        def failing_score(*arguments: Any) -> Any:
            calls.append(arguments)
            if len(calls) == 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return score(*arguments)

        monkeypatch.setattr(generator._model, "score", failing_score)
        assert generator.run(a_job(settings, context, max_tokens=6, beams=2), context).choices[0].satisfied
        assert len(calls) == 2


def test_a_request_over_the_memory_is_refused(settings: Settings, context: FakeContext) -> None:
    needed_bytes = _needed_bytes(6)  # 2 beams keep 6 rows
    small_settings = settings.changed(generation_memory_bytes=needed_bytes + needed_bytes // 2)
    with open_generator(small_settings) as generator, ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda job: generator.run(job, context), [a_job(small_settings, context)] * 4))
        assert len({result.choices for result in results}) == 1
        with pytest.raises(RequestTooLarge) as refusal:
            generator.run(a_job(small_settings, context, beams=8), context)
    assert refusal.value.memory_bytes == request_bytes_max(small_settings.inference.generation_memory_bytes)


def test_admission_counts_the_trace(settings: Settings, context: FakeContext) -> None:
    small_settings = settings.changed(generation_memory_bytes=2 * _needed_bytes(6))
    with open_generator(small_settings) as generator:
        assert generator.run(a_job(small_settings, context), context).choices
        with pytest.raises(RequestTooLarge, match="lower max_tokens"):
            generator.run(a_job(small_settings, context, trace=True, top_log_probs=20), context)


@pytest.mark.parametrize(("options", "rows"), [
    ({"algorithm": "banked", "beams": 2}, rows_of(SearchOptions(6, beams=2))),
    ({"algorithm": "abs", "beams": 5}, 5),
    ({"algorithm": "sample", "n": 3, "seed": 7}, 3),
])  # fmt: skip
def test_admission_counts_all_rows_of_the_algorithm(
    settings: Settings, context: FakeContext, options: dict[str, Any], rows: int
) -> None:
    job = a_job(settings, context, max_tokens=6, **options)
    needed_bytes = _needed_bytes(rows)
    with open_generator(settings.changed(generation_memory_bytes=8 * needed_bytes // 7 + 1)) as generator:
        with mock.patch.object(generator._engine, "generate", wraps=generator._engine.generate) as generate:
            assert generator.run(job, context).choices
        size = generate.call_args.args[0]().size
        assert (size.rows, size.max_tokens) == (rows, 6)
    small_settings = settings.changed(generation_memory_bytes=8 * needed_bytes // 7 - 8)
    with open_generator(small_settings) as generator, pytest.raises(RequestTooLarge) as refusal:
        generator.run(job, context)
    assert refusal.value.needed_bytes == needed_bytes > refusal.value.memory_bytes


@pytest.mark.parametrize("beams", [1, 2, 5])
def test_a_search_never_keeps_more_rows_than_admission_counts(
    settings: Settings, context: FakeContext, beams: int
) -> None:
    job = dataclasses.replace(a_job(settings, context, max_tokens=8, beams=beams), progress="steps")
    with open_generator(settings) as generator:
        assert generator.run(job, context).choices
    live = [sum(not row.finished for row in step.rows) for step in context.published]
    assert max(live) == rows_of(SearchOptions(8, beams=beams))
