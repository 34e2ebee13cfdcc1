"""Many generations at once get the same answers in fewer passes. They stay within the memory estimate."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from compiler.lifting import TokenAutomaton
from decoding.engine import Engine
from decoding.engine.memory import request_bytes_max
from decoding.errors import Cancelled, ModelOutputInvalid, RequestTooLarge
from decoding.generation import BeamStep, Generation, Hypothesis
from decoding.model import Scores, StepInput
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import BankedSearch, generate, rows_of, search_of
from tests.decoding.random_automata import of_length, random_table
from tests.fake_models import HashModel, PrefixSession
from tests.servers.processes import until

PLENTY = 10**9
VOCABULARY = 12


class WatchedModel(HashModel):
    """Records the rows of each pass. A test can block a pass and make it fail."""

    def __init__(self, **settings: object) -> None:
        super().__init__(VOCABULARY, (VOCABULARY - 1,), **settings)
        self.batches: list[list[PrefixSession]] = []
        self.opened: list[PrefixSession] = []
        self.may_step = threading.Event()
        self.may_step.set()
        self.fails = False

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[PrefixSession, Tensor]:
        session, first = super().prefill(prompt_ids)
        self.opened.append(session)
        return session, first

    def step(self, feeds: Sequence[StepInput[PrefixSession]]) -> list[Scores]:
        assert self.may_step.wait(30.0)
        self.batches.append([feed.session for feed in feeds])
        if self.fails:
            raise ModelOutputInvalid("out of order")
        return super().step(feeds)


@dataclass(frozen=True)
class Order:
    prompt: tuple[int, ...]
    automaton: TokenAutomaton
    options: SearchOptions

    def alone(self) -> tuple[Hypothesis, ...]:
        return generate(WatchedModel(), self.prompt, self.automaton, self.options)

    def run(self) -> Generation:
        return search_of(PreparedConstraint.prepare(self.automaton, torch.device("cpu")), self.options)

    def bytes_held(self) -> int:
        """What an engine keeps free for it."""
        read = WatchedModel().bytes_for(len(self.prompt), rows_of(self.options), self.options.max_tokens)
        return read + self.run().size.kept_bytes

    def memory(self) -> int:
        """An engine's memory that just admits this request."""
        return -(-8 * self.bytes_held() // 7)


def _order(seed: int, *, slack: int = 6) -> Order:
    random = np.random.default_rng([3, seed])
    automaton = random_table(random, ids=VOCABULARY)
    beams = int(random.integers(1, 7))
    options = SearchOptions(
        max_tokens=automaton.min_tokens + int(random.integers(0, slack)), beams=beams,
        n=int(random.integers(1, beams + 1)), algorithm=str(random.choice(["abs", "banked"])),
    )
    return Order(tuple(random.integers(0, VOCABULARY, int(random.integers(1, 5))).tolist()), automaton, options)


def _long(beams: int = 2, max_tokens: int = 12) -> Order:
    """Runs to the end of its budget: EOS may only come last."""
    automaton = of_length(max_tokens - 1, VOCABULARY, VOCABULARY - 1)
    return Order((0,), automaton, SearchOptions(max_tokens=max_tokens, beams=beams))


def _generate(engine: Engine, order: Order, **more: object) -> tuple[Hypothesis, ...]:
    return engine.generate(order.run, order.prompt, **more)


def _wait_for(holds: Callable[[], bool]) -> None:
    until(holds, poll_s=0.001)


def _begin_together(
    callers: ThreadPoolExecutor, engine: Engine, may_step: threading.Event, orders: Sequence[Order]
) -> list[Future[tuple[Hypothesis, ...]]]:
    """Sends all orders before the first pass. may_step: the model's."""
    may_step.clear()
    answers = [callers.submit(_generate, engine, order) for order in orders]
    _wait_for(lambda: engine.generations + sum(answer.done() for answer in answers) == len(orders))
    may_step.set()
    return answers


def test_batched_generations_give_the_same_answers_in_fewer_passes() -> None:
    orders = [_order(seed) for seed in range(40)]
    model = WatchedModel()
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(len(orders)) as callers:
        answers = _begin_together(callers, engine, model.may_step, orders)
        assert [answer.result() for answer in answers] == [order.alone() for order in orders]
    longest = max(order.options.max_tokens for order in orders)
    assert max(map(len, model.batches)) > 10
    assert model.passes < 3 * longest


def test_generations_join_and_leave_between_two_passes() -> None:
    model = WatchedModel()
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(2) as callers:
        model.may_step.clear()
        first = callers.submit(_generate, engine, _long(max_tokens=20))
        _wait_for(lambda: len(model.opened) == 1)
        second = callers.submit(_generate, engine, _long(max_tokens=6))
        _wait_for(lambda: engine.generations == 2)
        model.may_step.set()
        assert first.result() == _long(max_tokens=20).alone()
        assert second.result() == _long(max_tokens=6).alone()
    sizes = [len(batch) for batch in model.batches]
    assert sizes[0] == 1 and sizes[-1] == 1 and 2 in sizes
    assert model.passes == 19  # as many as the longer one needs alone


def test_admission_is_bounded_by_memory_and_serves_every_request() -> None:
    order = _long(beams=3, max_tokens=8)
    model = WatchedModel()
    bytes_each = order.bytes_held()
    with Engine(model, 2 * bytes_each + bytes_each // 2) as engine, ThreadPoolExecutor(7) as callers:
        answers = _begin_together(callers, engine, model.may_step, [order] * 7)
        assert all(answer.result() == order.alone() for answer in answers)
    assert max(map(len, model.batches)) == 2


def test_a_request_over_the_memory_is_refused_with_both_sizes() -> None:
    model, order = WatchedModel(), _long(beams=10)
    memory_bytes = order.bytes_held()  # of which a request may take a part
    with Engine(model, memory_bytes) as engine, pytest.raises(RequestTooLarge, match="lower max_tokens") as refusal:
        _generate(engine, order)
    most = request_bytes_max(memory_bytes)
    assert (refusal.value.needed_bytes, refusal.value.memory_bytes) == (order.bytes_held(), most)
    assert not model.opened


def test_a_cancelled_generation_frees_its_memory_for_the_next() -> None:
    cancellation = threading.Event()
    model = WatchedModel()
    memory_bytes = _long(max_tokens=200).memory()
    steps: list[BeamStep] = []

    def watch(event: BeamStep) -> None:
        steps.append(event)
        if len(steps) == 3:
            cancellation.set()

    with Engine(model, memory_bytes) as engine, ThreadPoolExecutor(2) as callers:
        model.may_step.clear()
        first = callers.submit(_generate, engine, _long(max_tokens=200), on_step=watch, cancelled=cancellation.is_set)
        _wait_for(lambda: len(model.opened) == 1)
        second = callers.submit(_generate, engine, _long(max_tokens=60))
        model.may_step.set()
        with pytest.raises(Cancelled):
            first.result()
        assert second.result() == _long(max_tokens=60).alone()
    assert len(model.opened) == 2
    pass_numbers = [number for number, batch in enumerate(model.batches) if model.opened[0] in batch]
    assert pass_numbers == list(range(len(pass_numbers))) and len(pass_numbers) < 199
    assert all(batch == [model.opened[1]] for batch in model.batches[len(pass_numbers) :])


def test_a_generation_cancelled_while_waiting_never_starts() -> None:
    model = WatchedModel()
    with Engine(model, _long(max_tokens=30).memory()) as engine, ThreadPoolExecutor(2) as callers:
        model.may_step.clear()
        first = callers.submit(_generate, engine, _long(max_tokens=30))
        _wait_for(lambda: len(model.opened) == 1)
        second = callers.submit(_generate, engine, _long(), cancelled=lambda: True)
        model.may_step.set()
        with pytest.raises(Cancelled):
            second.result()
        assert first.result()
    assert len(model.opened) == 1


def test_a_slow_listener_gets_every_step_and_delays_no_generation() -> None:
    model = WatchedModel()
    may_go_on = threading.Event()
    heard: list[BeamStep] = []

    def slow(event: BeamStep) -> None:
        assert may_go_on.wait(30.0)
        heard.append(event)

    order = _long(max_tokens=15)
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(2) as callers:
        job = callers.submit(_generate, engine, order, on_step=slow)
        assert callers.submit(_generate, engine, order).result() == order.alone()
        _wait_for(lambda: model.passes >= 14)  # all steps with a listener are done, and no event has arrived
        assert not heard
        may_go_on.set()
        assert job.result() == order.alone()
    alone: list[BeamStep] = []
    generate(WatchedModel(), order.prompt, order.automaton, order.options, on_step=alone.append)
    assert heard == alone and len(alone) == 15


@pytest.mark.parametrize("callback", ["on_step", "cancelled"])
def test_a_failing_callback_ends_only_its_own_generation(callback: str) -> None:
    def broken(*_: BeamStep) -> bool:
        raise OSError("gone")

    order = _long(max_tokens=40)
    with Engine(WatchedModel(), PLENTY) as engine, ThreadPoolExecutor(2) as callers:
        bad = callers.submit(_generate, engine, order, **{callback: broken})
        job = callers.submit(_generate, engine, order)
        with pytest.raises(OSError, match="gone"):
            bad.result()
        assert job.result() == order.alone()


def test_a_generation_without_step_input_fails_alone() -> None:
    order = _long(max_tokens=40)

    class Broken(BankedSearch):
        def feed(self) -> tuple[Tensor, Tensor]:
            if len(self._host.token) and len(self._history) == 5:
                raise ValueError("no idea")
            return super().feed()

    model = WatchedModel()
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(2) as callers:
        model.may_step.clear()
        job = callers.submit(_generate, engine, order)
        _wait_for(lambda: len(model.opened) == 1)
        broken = Broken(PreparedConstraint.prepare(order.automaton, torch.device("cpu")), order.options)
        bad = callers.submit(engine.generate, lambda: broken, order.prompt)
        _wait_for(lambda: engine.generations == 2)
        model.may_step.set()
        with pytest.raises(ValueError, match="no idea"):
            bad.result()
        assert job.result() == order.alone()


def test_a_failed_pass_fails_its_requests_and_the_engine_continues() -> None:
    model = WatchedModel()
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(3) as callers:
        model.fails = True
        answers = _begin_together(callers, engine, model.may_step, [_long()] * 3)
        for answer in answers:
            with pytest.raises(ModelOutputInvalid):
                answer.result()
        model.fails = False
        assert _generate(engine, _long()) == _long().alone()


def test_close_cancels_all_requests_and_refuses_new_ones() -> None:
    model = WatchedModel()
    engine = Engine(model, _long(max_tokens=200).memory())
    with ThreadPoolExecutor(2) as callers:
        model.may_step.clear()
        answers = [callers.submit(_generate, engine, _long(max_tokens=200)) for _ in range(2)]
        _wait_for(lambda: len(model.opened) == 1)
        closer = threading.Thread(target=engine.close)
        closer.start()
        model.may_step.set()
        closer.join()
        for answer in answers:
            with pytest.raises(Cancelled):
                answer.result()
    with pytest.raises(Cancelled):
        _generate(engine, _long())
