"""A device that runs out of memory. Every request gets the answer that it gets alone, or an error."""

from __future__ import annotations

import dataclasses
import random
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from decoding.engine import Engine, is_out_of_memory
from decoding.engine.memory import OK_STEPS, MemoryBudget
from decoding.errors import Cancelled, OutOfMemory
from decoding.generation import BeamStep, Hypothesis
from decoding.model import ObserveScores, ScoredSequence, Scores, StepInput
from decoding.search import generate
from tests.decoding.engine.test_engine import (
    PLENTY,
    VOCABULARY,
    Order,
    _begin_together,
    _generate,
    _long,
    _order,
    _wait_for,
)
from tests.fake_models import HashModel, PrefixSession

S_MAX = 120.0


class ScarceModel(HashModel):
    """Limits the rows of a pass and the tokens of live sessions.

    A pass can be blocked. `sizes` are the rows of the attempted passes.
    """

    def __init__(self, rows: int = 10**9, tokens: int = 10**9) -> None:
        super().__init__(VOCABULARY, (VOCABULARY - 1,))
        self.rows, self.tokens = rows, tokens
        self.sizes: list[int] = []
        self.failures = 0
        self.checks_fail = 0
        self.prefills = 0
        self.may_step = threading.Event()
        self.may_step.set()
        self._alive: list[PrefixSession] = []

    def _require(self, holds: bool) -> None:
        if not holds:
            self.failures += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    def tokens_held(self) -> int:
        """Tokens of the rows of sessions with outside references.

        Three references are ours: the list, the loop and the call.
        """
        self._alive = [kept_session for kept_session in self._alive if sys.getrefcount(kept_session) > 3]
        return sum(len(row) for kept_session in self._alive for row in kept_session.rows)

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[PrefixSession, Tensor]:
        self.prefills += 1
        assert self.may_step.wait(S_MAX)
        self._require(self.tokens_held() + len(prompt_ids) <= self.tokens)
        session, first = super().prefill(prompt_ids)
        self._alive.append(session)
        return session, first

    def step(self, feeds: Sequence[StepInput[PrefixSession]]) -> list[Scores]:
        assert self.may_step.wait(S_MAX)
        rows = sum(len(feed.parents) for feed in feeds)
        self.sizes.append(rows)
        self._require(rows <= self.rows)
        grows = sum(feed.tokens.numel() + len(feed.parents) for feed in feeds)
        self._require(self.tokens_held() + grows <= self.tokens)
        return super().step(feeds)

    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        if self.checks_fail:
            self.checks_fail -= 1
            self._require(False)
        return super().score(prompt_ids, tokens, observe)


def _of(beams: int = 2, max_tokens: int = 12) -> Order:
    """An order that uses its whole budget with `beams` rows. This is the paper's algorithm."""
    order = _long(beams, max_tokens)
    return dataclasses.replace(order, options=dataclasses.replace(order.options, algorithm="abs"))


class Notes:
    """Obeys decoding.engine.engine.Watch; what became of those that ran out of memory."""

    def __init__(self) -> None:
        self.became: list[str] = []

    def began(self, seconds: float) -> None: ...

    def stepped(self, seconds: float, rows: int) -> None: ...

    def ran_out(self, action: str) -> None:
        self.became.append(action)


def generate_together(
    model: ScarceModel, orders: Sequence[Order], notes: Notes | None = None
) -> list[tuple[Hypothesis, ...]]:
    """The answers of all orders, sent at once."""
    with Engine(model, PLENTY, notes) as engine, ThreadPoolExecutor(len(orders)) as callers:
        answers = _begin_together(callers, engine, model.may_step, orders)
        return [answer.result(S_MAX) for answer in answers]


def test_an_oversized_pass_is_split_and_the_limit_is_remembered() -> None:
    orders = [_of(beams=1 + number % 4, max_tokens=24) for number in range(12)]
    model, notes = ScarceModel(rows=8), Notes()
    assert generate_together(model, orders, notes) == [order.alone() for order in orders]
    assert set(notes.became) == {"batch_split"} and len(notes.became) < 12  # of some 24 steps
    assert max(model.sizes[model.sizes.index(max(model.sizes)) + 20 :]) <= 8


def test_a_row_limit_does_not_change_any_answer() -> None:
    orders = [_order(seed) for seed in range(24)]
    row_maxima = []
    for order in orders:
        alone = ScarceModel()
        generate(alone, order.prompt, order.automaton, order.options)
        row_maxima += alone.sizes
    model = ScarceModel(rows=max(row_maxima))
    assert generate_together(model, orders) == [order.alone() for order in orders]
    assert model.failures


def test_a_preempted_generation_restarts_when_memory_is_free() -> None:
    orders = [_of(beams=3, max_tokens=14 + number % 3) for number in range(9)]
    model, notes = ScarceModel(tokens=200), Notes()  # for some three of them at the end, for all at the beginning
    assert generate_together(model, orders, notes) == [order.alone() for order in orders]
    assert "restarted" in notes.became and "rejected" not in notes.became


def test_a_listener_receives_each_step_once_across_a_restart() -> None:
    order = _of(beams=3, max_tokens=16)
    model, notes = ScarceModel(tokens=150), Notes()
    heard: list[list[BeamStep]] = [[] for _ in range(5)]
    model.may_step.clear()
    with Engine(model, PLENTY, notes) as engine, ThreadPoolExecutor(5) as callers:
        answers = [callers.submit(_generate, engine, order, on_step=events.append) for events in heard]
        _wait_for(lambda: engine.generations == 5)
        model.may_step.set()
        assert all(answer.result(S_MAX) == order.alone() for answer in answers)
    alone: list[BeamStep] = []
    generate(ScarceModel(), order.prompt, order.automaton, order.options, on_step=alone.append)
    assert all(events == alone for events in heard)
    assert "restarted" in notes.became


@pytest.mark.parametrize("limits", [{"rows": 4}, {"tokens": 40}])
def test_a_request_too_large_alone_fails_and_the_others_finish(limits: dict[str, int]) -> None:
    small_run, large_run = _of(beams=2, max_tokens=6), _of(beams=5, max_tokens=20)
    model, notes = ScarceModel(**limits), Notes()
    with Engine(model, PLENTY, notes) as engine, ThreadPoolExecutor(4) as callers:
        answers = [callers.submit(_generate, engine, order) for order in (small_run, large_run, small_run, small_run)]
        with pytest.raises(OutOfMemory, match="fewer beams") as refusal:
            answers.pop(1).result(S_MAX)
        assert refusal.value.needed_bytes == large_run.bytes_held()
        assert refusal.value.__context__ is None  # it would hold what the pass had made
        assert all(answer.result(S_MAX) == small_run.alone() for answer in answers)
        assert _generate(engine, small_run) == small_run.alone()
    assert notes.became.count("rejected") == 1


def test_a_prefill_out_of_memory_is_retried_later() -> None:
    order = _of(beams=1, max_tokens=8)
    first = Order((0,) * 90, order.automaton, order.options)
    model, notes = ScarceModel(tokens=110), Notes()
    assert generate_together(model, [first, first, order], notes) == [first.alone(), first.alone(), order.alone()]
    assert "restarted" in notes.became and "rejected" not in notes.became


def test_memory_may_run_out_at_any_time() -> None:
    orders = [_order(seed) for seed in range(30)]
    alone = [order.alone() for order in orders]
    for seed in range(5):
        draw = random.Random(seed)

        class Unlucky(ScarceModel):
            def _require(self, holds: bool) -> None:
                super()._require(draw.random() < 0.97)  # noqa: B023

        model, notes = Unlucky(), Notes()
        answers = []
        with Engine(model, PLENTY, notes) as engine, ThreadPoolExecutor(len(orders)) as callers:
            for answer in [callers.submit(_generate, engine, order) for order in orders]:
                error = answer.exception(S_MAX)
                assert error is None or isinstance(error, OutOfMemory)
                answers.append(None if error else answer.result())
        assert all(result in (None, known) for result, known in zip(answers, alone, strict=True))
        assert notes.became.count("rejected") == answers.count(None) < len(orders) / 2


def test_lowered_memory_limits_rise_again() -> None:
    budget = MemoryBudget(1000, 64)
    budget.on_request_oom(100)
    budget.on_request_oom(400)
    budget.on_pass_oom(8)
    assert (budget.memory_bytes, budget.rows) == (100, 8)
    for _ in range(OK_STEPS):
        budget.on_step_ok()
    assert (budget.memory_bytes, budget.rows) == (150, 12)
    for _ in range(20 * OK_STEPS):
        budget.on_step_ok()
    assert (budget.memory_bytes, budget.rows) == (1000, 64)
    budget.on_pass_oom(0)
    assert list(budget.passes([5, 0, 7], lambda size: size)) == [[5], [0], [7]]


@pytest.mark.parametrize(
    ("error", "is_memory_error"),
    [
        (torch.OutOfMemoryError("x"), True), (MemoryError(), True), (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes"), True),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling"), True), (RuntimeError("shape"), False),
        (ValueError("out of memory"), False),
    ],
)  # fmt: skip
def test_out_of_memory_errors_are_distinguished_from_other_errors(error: Exception, is_memory_error: bool) -> None:
    assert is_out_of_memory(error) == is_memory_error


def test_a_real_allocation_failure_is_recognised() -> None:
    with pytest.raises(RuntimeError, check=lambda error: is_out_of_memory(error)):
        torch.empty(2**60, dtype=torch.uint8)


# checks of answers


def test_a_check_out_of_memory_waits_for_running_generations() -> None:
    model, notes, order = ScarceModel(), Notes(), _of(max_tokens=30)
    model.may_step.clear()
    with Engine(model, PLENTY, notes) as engine, ThreadPoolExecutor(3) as callers:
        running = callers.submit(_generate, engine, order)
        _wait_for(lambda: model.prefills == 1)
        model.checks_fail = 1
        checked = callers.submit(engine.check, (0,), (1, 2))
        _wait_for(lambda: "check_deferred" in notes.became)
        check = callers.submit(_generate, engine, order)
        _wait_for(lambda: engine.generations == 2)
        assert not checked.done()
        model.may_step.set()
        assert checked.result(S_MAX) == model.score((0,), (1, 2))
        assert running.result(S_MAX) == check.result(S_MAX) == order.alone()


def test_a_check_out_of_memory_on_an_idle_engine_fails() -> None:
    model, notes = ScarceModel(), Notes()
    model.checks_fail = 2
    with Engine(model, PLENTY, notes) as engine:
        with pytest.raises(OutOfMemory):
            engine.check((0,), (1, 2))
        assert notes.became == ["check_deferred", "rejected"]
        assert engine.check((0,), (1, 2)) == model.score((0,), (1, 2))
        assert _generate(engine, _of()) == _of().alone()


def test_a_cancelled_check_stops_waiting() -> None:
    model, notes, cancellation = ScarceModel(), Notes(), threading.Event()
    model.may_step.clear()
    with Engine(model, PLENTY, notes) as engine, ThreadPoolExecutor(2) as callers:
        running = callers.submit(_generate, engine, _of())
        _wait_for(lambda: model.prefills == 1)
        model.checks_fail = 1
        checked = callers.submit(engine.check, (0,), (1,), cancellation.is_set)
        _wait_for(lambda: "check_deferred" in notes.became)
        cancellation.set()
        with pytest.raises(Cancelled):
            checked.result(S_MAX)
        model.may_step.set()
        assert running.result(S_MAX) == _of().alone()


class HeldChecks(ScarceModel):
    """Its checks can be held. `checked` are the prompts of the started ones."""

    def __init__(self) -> None:
        super().__init__()
        self.checked: list[Sequence[int]] = []
        self.may_check = threading.Event()

    def score(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], observe: ObserveScores | None = None
    ) -> ScoredSequence:
        self.checked.append(prompt_ids)
        assert self.may_check.wait(S_MAX)
        return super().score(prompt_ids, tokens, observe)


def test_a_check_cancelled_in_the_queue_is_not_run() -> None:
    model, cancellation, polled = HeldChecks(), threading.Event(), threading.Event()

    def cancelled() -> bool:
        is_cancelled = cancellation.is_set()
        polled.set()
        return is_cancelled

    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(4) as callers:
        first = callers.submit(engine.check, (0,), (1,))
        _wait_for(lambda: model.checked == [(0,)])
        running_job = callers.submit(engine.check, (5,), (1,), cancelled)
        try:
            _wait_for(polled.is_set)
            cancellation.set()
            earlier_job = callers.submit(engine.check, (6,), (1,), cancellation.is_set)
            later_job = callers.submit(engine.check, (7,), (1,))
            _wait_for(earlier_job.done)  # while the first is at work
            assert not first.done()
        finally:
            model.may_check.set()
        for job in (running_job, earlier_job):
            with pytest.raises(Cancelled):
                job.result(S_MAX)
        assert first.result(S_MAX) == model.score((0,), (1,))
        assert later_job.result(S_MAX) == model.score((7,), (1,))
    assert (5,) not in model.checked and (6,) not in model.checked
