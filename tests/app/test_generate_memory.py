"""Memory that is too little for a request or its rows, or runs out beside the engine: over tables, over a check."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from app.handlers.generate import Generator
from app.settings import Settings
from decoding.engine import Engine
from decoding.errors import MemoryTaken, OutOfMemory, RequestTooLarge
from decoding.widths import rows_at_most
from tests.app.test_generate import a_job, open_generator
from tests.app.test_handlers import Context


@pytest.mark.parametrize(("beside", "expected"), [(1, MemoryTaken), (0, OutOfMemory)])
def test_whoever_finds_no_memory_before_he_begins_is_told_who_has_it(
    monkeypatch: pytest.MonkeyPatch, captions_dir: Path, beside: int, expected: type[Exception]
) -> None:
    settings, context = Settings(model=str(captions_dir)), Context()

    def none_left(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with open_generator(settings) as generator:
        job = a_job(settings, context, max_tokens=6, beams=2)
        monkeypatch.setattr(Generator, "_constraint", none_left)
        monkeypatch.setattr(Engine, "generations", property(lambda _: beside))
        with pytest.raises(expected) as refusal:
            generator.run(job, context)
        assert refusal.value.__context__ is None  # it would hold what the failed try had made
        monkeypatch.undo()
        assert generator.run(job, context).choices


def test_an_answer_whose_check_finds_no_memory_at_first_is_checked_in_the_end(
    monkeypatch: pytest.MonkeyPatch, captions_dir: Path
) -> None:
    settings, context = Settings(model=str(captions_dir)), Context()
    with open_generator(settings) as generator:
        score, tries = generator._model.score, []

        def scarce(*arguments: Any) -> Any:
            tries.append(arguments)
            if len(tries) == 1:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return score(*arguments)

        monkeypatch.setattr(generator._model, "score", scarce)
        assert generator.run(a_job(settings, context, max_tokens=6, beams=2), context).choices[0].satisfied
        assert len(tries) == 2


def test_what_could_never_fit_in_memory_is_refused_and_all_else_waits_for_room(captions_dir: Path) -> None:
    settings, context = Settings(model=str(captions_dir)), Context()
    needs = 8 * (2 + 2 * 6)  # HashModel.bytes_for
    narrow = dataclasses.replace(settings, decode_memory_bytes=needs + needs // 2)
    with open_generator(narrow) as generator, ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda job: generator.run(job, context), [a_job(narrow, context)] * 4))
        assert len({result.choices for result in results}) == 1
        with pytest.raises(RequestTooLarge) as refusal:
            generator.run(a_job(narrow, context, beams=8), context)
    assert refusal.value.memory_bytes == narrow.decode_memory_bytes


def test_where_memory_lacks_for_as_many_rows_as_a_tight_budget_calls_for_there_are_fewer(
    captions_dir: Path,
) -> None:
    settings, context = Settings(model=str(captions_dir)), Context()
    job = dataclasses.replace(a_job(settings, context, max_tokens=8, beams=2), tell="steps")
    needs = 8 * (2 + 2 * 8)  # HashModel.bytes_for: as much again for each degree of tightness
    widest = []
    announced: list[int] = []
    for memory_bytes in (6 * needs, needs):
        context.told.clear()
        with open_generator(dataclasses.replace(settings, decode_memory_bytes=memory_bytes)) as generator:
            with mock.patch.object(generator._engine, "generate", wraps=generator._engine.generate) as asked:
                assert generator.run(job, context).choices
            announced.append(asked.call_args.kwargs["tight"])
        widest.append(max(sum(not row.finished for row in step.rows) for step in context.told))
    assert widest == [rows_at_most(2, 8, 1), rows_at_most(2, 8)]
    assert announced == [1, 0]  # what memory is kept free for
