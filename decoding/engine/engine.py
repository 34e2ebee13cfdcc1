"""A continuous batch: generations share each forward pass, and join and leave between passes.

The engine owns the one thread that calls the model's prefill and step, and handles a device that runs out of memory.
`Generation` defines what happens between two passes, `Scheduler` decides which generations begin.

Where a pass runs out of memory, its generations are read in two halves, and so on. A generation that finds no memory by
itself goes back to the queue, and restarts from its prompt once more is free: the search takes the same steps again. It
fails with OutOfMemory only where it finds none while no other generation runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Any, Literal, Protocol

import torch

from decoding.engine.memory import ROWS_MAX, MemoryBudget, is_out_of_memory, release_memory
from decoding.engine.request import EngineOutcome, EngineRequest, outcome
from decoding.engine.scheduler import Scheduler
from decoding.errors import Cancelled, OutOfMemory, RequestTooLarge
from decoding.generation import Generation, Hypothesis, StepEvent
from decoding.model import LanguageModel, ScoredSequence

Shortage = Literal["batch_split", "restarted", "check_deferred", "rejected"]
"""How the engine handles a lack of memory.

batch_split     a forward pass is split in two halves
restarted       a generation goes back to the queue, since another or a check runs beside it
check_deferred  a check waits until a generation ends
rejected        a generation or check that ran alone fails with OutOfMemory
"""


class Watch(Protocol):
    """Receives the engine's progress, with times in s.

    The engine's thread makes most of the calls, so no method may block.
    """

    def began(self, seconds: float) -> None:
        """A generation's first step is done, `seconds` after its request was made."""

    def stepped(self, seconds: float, rows: int) -> None:
        """One step of all generations, over `rows` rows, took `seconds`."""

    def ran_out(self, then: Shortage) -> None:
        """The device's memory ran out."""


class Engine:
    """One model and the generations that share it. Use as a context manager, or `close` it.

    model         obeys LanguageModel; only this engine's thread calls its prefill and step
    memory_bytes  what all generations together may hold: keys and values, and the log-probs of their rows. A generation
                  waits until what it may come to need at most is free, so that none runs out of memory half-way.
    watch         receives every step and every lack of memory
    """

    def __init__(self, model: LanguageModel[Any], memory_bytes: int, watch: Watch | None = None) -> None:
        self._model = model
        self._memory_bytes = memory_bytes
        self._room = MemoryBudget(memory_bytes, ROWS_MAX if model.reads_together else 1)
        self._crowd = Scheduler(self._room)
        self._checks = threading.Lock()
        self._checker = ThreadPoolExecutor(1, "check")  # every thread that multiplies matrices keeps memory for itself
        self._watch = watch
        self._moved = time.monotonic()  # when it last did something, or was given something to do
        self._died = False
        self._parted, self._rows_held = False, 0  # in the step at hand: was a pass parted, the largest that held
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def generations(self) -> int:
        """How many are running or waiting."""
        return len(self._crowd)

    @property
    def stalled_s(self) -> float:
        """For how many s it has had work and got nowhere; infinite once its thread has died."""
        if self._died:
            return inf
        return time.monotonic() - self._moved if len(self._crowd) else 0.0

    def close(self) -> None:
        """Stop after the current step; what is not finished fails with Cancelled."""
        self._crowd.close()
        self._thread.join()
        self._checker.shutdown()

    def generate(
        self, begin: Callable[[], Generation], prompt_ids: Sequence[int], *,
        on_step: Callable[[StepEvent], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> tuple[Hypothesis, ...]:
        """Drive a run to its answers beside all others; blocks. Any number of threads may call at once.

        begin      makes the run; called again where the run restarts for lack of memory
        on_step    receives every beam, in the caller's thread; a slow one delays no other caller
        cancelled  is called before every step, in the engine's thread; True frees the run's memory at once
        Raises RequestTooLarge where the run could never be admitted, OutOfMemory where the device has too little for it
        alone, Cancelled, and what the run raises.
        """
        ticket = EngineRequest(begin, prompt_ids, cancelled, on_step is not None)
        size = ticket.run.size
        held = self._model.bytes_for(max(1, len(prompt_ids)), size.rows, size.max_tokens, size.scratch_bytes)
        if held > self._memory_bytes:
            raise RequestTooLarge(held, self._memory_bytes)
        ticket.bytes_held = held
        if not len(self._crowd):
            self._moved = time.monotonic()
        self._crowd.join(ticket)
        try:
            return outcome(ticket, on_step)
        finally:
            ticket.abandoned = True  # where `on_step` failed, the caller no longer waits for the run

    def check(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], cancelled: Callable[[], bool] | None = None
    ) -> ScoredSequence:
        """The model's log-probs of a finished answer, found by a separate pass; blocks.

        Checks run one at a time, since the memory of such a pass is part of no generation's. Where none is left for a
        check, no generation begins until enough running ones have ended.
        cancelled  is called before the check waits for its turn, when the turn comes, and while it waits for memory: a
                   check whose caller has gone would only delay the checks behind it
        Raises OutOfMemory where it finds none while no generation runs, and Cancelled.
        """
        _raise_if_called_off(cancelled)
        with self._checks:
            _raise_if_called_off(cancelled)
            try:
                while True:
                    alone = self._crowd.begin_check()
                    try:
                        return self._ask_checker(prompt_ids, tokens).result()
                    except Exception as error:
                        if not is_out_of_memory(error):
                            raise
                    release_memory(self._model.device)
                    self._tell("rejected" if alone else "check_deferred")
                    if alone:
                        raise OutOfMemory(self._model.bytes_for(len(prompt_ids) + len(tokens), 1, 1))
                    self._crowd.wait_for_room(cancelled)
            finally:
                self._crowd.end_check()

    def _ask_checker(self, prompt_ids: Sequence[int], tokens: Sequence[int]) -> Future[ScoredSequence]:
        try:
            return self._checker.submit(self._model.score, prompt_ids, tokens)
        except RuntimeError:  # it takes no more
            raise Cancelled("the engine is closed") from None

    def _serve(self) -> None:
        reason: BaseException = Cancelled("the engine was closed")
        try:
            with torch.inference_mode():
                while self._crowd.wait_for_work():
                    self._drop_called_off()
                    for ticket in self._crowd.admit():
                        self._begin(ticket)
                        self._moved = time.monotonic()
                    self._step()
        except BaseException as error:  # a fault of ours: no caller may wait for a dead thread
            reason, self._died = error, True
            raise
        finally:
            self._crowd.close()
            for ticket in self._crowd.everybody:
                ticket.news.put(reason)

    def _drop_called_off(self) -> None:
        for ticket in self._crowd.everybody:
            try:
                if not ticket.called_off:
                    continue
                reason: BaseException = Cancelled("the generation was cancelled")
            except Exception as error:  # the caller's own function failed: only that caller's generation ends
                reason = error
            self._leave(ticket, reason)

    def _begin(self, ticket: EngineRequest) -> None:
        try:
            ticket.open(self._model)
        except Exception as error:
            self._fail(ticket, error)
        else:
            if self._watch:
                self._watch.began(time.monotonic() - ticket.asked)
            self._leave_if_done(ticket)

    def _step(self) -> None:
        """One step of each run, in as few passes as there is memory for: nearly always one for all."""
        started, tickets = time.monotonic(), list[EngineRequest]()
        for ticket in self._crowd.running:
            try:
                ticket.prepare()
                tickets.append(ticket)
            except Exception as error:
                self._fail(ticket, error)
        if not tickets:
            return
        rows = sum(len(ticket.feed.parents) for ticket in tickets if ticket.feed)
        self._parted, self._rows_held = False, 0
        for group in self._room.passes(tickets, lambda ticket: ticket.rows):
            self._read(group)
        if self._parted:
            self._room.pass_failed(self._rows_held)
        else:
            self._room.step_held()
        self._moved = time.monotonic()
        if self._watch:
            self._watch.stepped(self._moved - started, rows)

    def _read(self, tickets: list[EngineRequest]) -> None:
        """One pass for all of these, and each run's step with its own scores; where memory runs out, in two halves."""
        try:
            scores = self._model.step([ticket.feed for ticket in tickets if ticket.feed])
        except Exception as error:  # the whole pass failed, for all its generations
            if len(tickets) == 1 or not is_out_of_memory(error):
                for ticket in tickets:
                    self._fail(ticket, error)
                return
            scores = None  # the halves come after this clause: in it the error still holds all that the pass made
        if scores is None:
            self._parted = True
            self._tell("batch_split")
            release_memory(self._model.device)
            middle = len(tickets) // 2
            self._read(tickets[:middle])
            self._read(tickets[middle:])
            return
        self._rows_held = max(self._rows_held, sum(ticket.rows for ticket in tickets))
        for ticket, own in zip(tickets, scores, strict=True):
            try:
                ticket.take(own)
            except Exception as error:
                self._fail(ticket, error)
            else:
                self._leave_if_done(ticket)

    def _leave_if_done(self, ticket: EngineRequest) -> None:
        if not ticket.run.done:
            return
        try:
            answers = ticket.run.answers()
        except Exception as error:
            self._fail(ticket, error)
        else:
            self._leave(ticket, answers)

    def _fail(self, ticket: EngineRequest, error: Exception) -> None:
        """It leaves with its error; but where memory ran out and it is not alone, it goes back to those that wait."""
        if not is_out_of_memory(error):
            self._leave(ticket, error)
            return
        ticket.drop()
        waits = self._crowd.put_back(ticket)
        self._tell("restarted" if waits else "rejected")
        if not waits:
            self._leave(ticket, OutOfMemory(ticket.bytes_held))

    def _leave(self, ticket: EngineRequest, told: EngineOutcome) -> None:
        """Frees the ticket's memory, which is its session's, before its caller hears of it."""
        ticket.drop()
        self._crowd.leave(ticket)
        ticket.news.put(told)

    def _tell(self, then: Shortage) -> None:
        if self._watch:
            self._watch.ran_out(then)


def _raise_if_called_off(cancelled: Callable[[], bool] | None) -> None:
    if cancelled is not None and cancelled():
        raise Cancelled("the generation was cancelled")
