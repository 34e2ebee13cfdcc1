"""Memory that runs out beside the engine: while a constraint's tables are made, or an answer is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from app.handlers.generate import Generator
from app.settings import Settings
from decoding.engine import Engine
from decoding.errors import MemoryTaken, OutOfMemory
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
