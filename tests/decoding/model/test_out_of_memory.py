"""Real models whose device runs out of memory in a pass. The fault may occur at any operation and must lose nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from compiler.lifting import from_table
from decoding.engine import Engine
from decoding.errors import OutOfMemory
from decoding.generation import Generation, Hypothesis
from decoding.model import HuggingFaceModel, Scores, StepInput
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import drive, search_of
from tests.decoding.engine.test_engine import PLENTY, _wait_for
from tests.decoding.engine.test_out_of_memory import S_MAX, Notes
from tests.decoding.random_models import V, llama_of, stablelm_of


class _FailAt(TorchFunctionMode):
    """Counts calls of PyTorch's functions; the call with a given number fails."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self._remaining = at
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.__name__ != "__get__"  # reads of attributes allocate nothing
        if func.__name__ != "__get__" and self.count == self._remaining:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return func(*args, **(kwargs or {}))


def llama() -> PreTrainedModel:
    return llama_of(max_position_embeddings=200)


def _feed(session: Any, parents: list[int], tokens: list[list[int]]) -> StepInput[Any]:
    return StepInput(session, torch.tensor(parents), torch.tensor(tokens))


STORY: list[tuple[list[int], list[list[int]]]] = [  # grows, drops rows, takes slots again
    ([0] * 6, [[row + 1] for row in range(6)]), ([0, 2, 2, 5], [[7], [8], [9], [10]]),
    ([3, 0, 1], [[1] * 50, [2] * 50, [3] * 50]), ([1, 1], [[4], [5]]),
    ([0] * 5, [[row + 20] for row in range(5)]), ([4, 0], [[1, 2], [3, 4]]),
]


def _are_equal(result: Sequence[Scores], expected: Sequence[Scores]) -> bool:
    columns = ("log_probs", "token_log_probs", "max_log_probs")
    return all(
        torch.equal(getattr(value, name), getattr(expected_value, name))
        for value, expected_value in zip(result, expected, strict=True) for name in columns
    )


def test_a_step_can_be_repeated_after_running_out_of_memory() -> None:
    model = HuggingFaceModel(llama())
    assert model.supports_batching, model.prefix_sharing_disabled_reason
    draw = random.Random(7)
    prompts = ([1, 2, 3], [5])

    def begin() -> list[Any]:
        return [model.prefill(prompt)[0] for prompt in prompts]

    sessions, expected, lengths = begin(), [], []
    for parents, tokens in STORY:
        with _FailAt(-1) as counted:
            expected.append(model.step([_feed(session, parents, tokens) for session in sessions]))
        lengths.append(counted.count)
    failures = 0
    for _ in range(12):
        sessions = begin()
        for number, (parents, tokens) in enumerate(STORY):
            feeds = [_feed(session, parents, tokens) for session in sessions]
            result: list[Scores] = []
            for group in ([feeds], [feeds[:1], feeds[1:]])[draw.randrange(2)]:
                for at in (draw.randint(1, lengths[number]), draw.randint(1, lengths[number]), -1):
                    try:
                        with _FailAt(at):
                            result += model.step(group)
                        break
                    except torch.OutOfMemoryError:
                        failures += 1
            assert _are_equal(result, expected[number]), number
    assert failures > 50


FAILURES_MAX = 12


class FailingSteps:
    """A model whose steps and prompts randomly run out of memory.

    The failing operation is random, and retries succeed in the end.
    """

    def __init__(self, model: HuggingFaceModel) -> None:
        self._model, self._draw = model, random.Random(3)
        self.failures = 0
        self.may_begin = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def _maybe_fail(self, share: float, work: Callable[[], Any]) -> Any:
        if self._draw.random() >= share or self.failures == FAILURES_MAX:
            return work()
        try:
            with _FailAt(self._draw.randint(1, 60)):
                return work()
        except torch.OutOfMemoryError:
            self.failures += 1
            raise

    def prefill_chunks(self, prompt_ids: Sequence[int]) -> Any:
        assert self.may_begin.wait(S_MAX)
        yield self._maybe_fail(0.1, lambda: self._model.prefill(prompt_ids))

    def step(self, feeds: Sequence[StepInput[Any]]) -> Any:
        return self._maybe_fail(0.6 if len(feeds) > 1 else 0.2, lambda: self._model.step(feeds))


@pytest.mark.parametrize(("make", "together"), [(llama, True), (stablelm_of, False)], ids=["shared", "plain"])
def test_real_models_answer_all_when_memory_runs_out(make: Callable[[], PreTrainedModel], together: bool) -> None:
    model = HuggingFaceModel(make())
    assert model.supports_batching == together
    automaton = from_table(
        torch.arange(V).remainder(3).numpy(), torch.tensor([[1, 0, 2], [2, 1, 0], [2, 2, 1]]).numpy(),
        torch.tensor([False, False, True]).numpy(), 0, eos_ids=(60,),
    )
    constraint = PreparedConstraint.prepare(automaton, torch.device("cpu"))
    searches = [SearchOptions(max_tokens=8 + number % 7, beams=2 + number % 5) for number in range(10)]
    alone = [drive(model, [number + 1], search_of(constraint, options)) for number, options in enumerate(searches)]
    failing, notes = FailingSteps(model), Notes()
    with Engine(failing, PLENTY, notes) as engine, ThreadPoolExecutor(len(searches)) as callers:  # type: ignore[arg-type]

        def ask(number: int) -> tuple[Hypothesis, ...]:
            options = searches[number]

            def begin() -> Generation:
                return search_of(constraint, options)

            for _ in range(FAILURES_MAX + 1):  # by chance one may run out while it has the model to itself
                try:
                    return engine.generate(begin, [number + 1])
                except OutOfMemory:
                    continue
            raise AssertionError("out of memory more often than memory ran out")

        answers = callers.map(ask, range(len(searches)))
        _wait_for(lambda: engine.generations == len(searches))
        failing.may_begin.set()
        assert list(answers) == alone
    assert failing.failures and "restarted" in notes.became and ("batch_split" in notes.became) == together
