"""A continuous batch: many generations share each forward pass, and join and leave between two of them.

Owns one thread, which alone asks the model; who is admitted, by the memory that each generation may come to need; and
the way back of beams and answers to the threads that wait. What a generation does between two passes is its `Run`'s.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from queue import SimpleQueue
from typing import Any, Protocol

import torch

from decoding.errors import Cancelled, RequestTooLarge
from decoding.language_model import Feed, LanguageModel, Scores
from decoding.runs import Hypothesis, Run, Snapshot, StepEvent
from decoding.search import first_scores

Outcome = tuple[Hypothesis, ...] | BaseException


class Watch(Protocol):
    """Is told by the engine's thread how it gets on, in s; so nothing here may wait."""

    def began(self, seconds: float) -> None:
        """A generation's first step is done, so long after it was asked for."""

    def stepped(self, seconds: float, rows: int) -> None:
        """One step of all generations, with so many rows in the forward pass, took so long."""


@dataclass(slots=True, eq=False)
class _Ticket:
    """A generation that is waiting or running. `session` is the model's, once the prompt has been read."""

    run: Run
    prompt_ids: Sequence[int]
    bytes_held: int
    cancelled: Callable[[], bool] | None
    listened_to: bool
    session: Any = None
    news: SimpleQueue[Snapshot | Outcome] = field(default_factory=SimpleQueue)
    abandoned: bool = False
    asked: float = field(default_factory=time.monotonic)

    def take(self, scores: Scores) -> None:
        snapshots = self.run.advance(scores)
        if self.listened_to:
            for snapshot in snapshots:
                self.news.put(snapshot)

    @property
    def called_off(self) -> bool:
        return self.abandoned or (self.cancelled is not None and self.cancelled())


class Engine:
    """One model and the generations that share it. Use as a context manager, or `close` it.

    model         obeys LanguageModel; only this engine's thread calls its prefill and step
    memory_bytes  what all generations together may hold: keys and values, and the log-probs of their rows. A generation
                  waits until what it may come to need at most is free, so none runs out of memory half-way.
    watch         is told of every step
    """

    def __init__(self, model: LanguageModel[Any], memory_bytes: int, watch: Watch | None = None) -> None:
        self._model = model
        self._memory_bytes = memory_bytes
        self._watch = watch
        self._moved = time.monotonic()  # when it last did something, or was given something to do
        self._changed = threading.Condition()
        self._waiting: deque[_Ticket] = deque()
        self._active: list[_Ticket] = []
        self._open, self._died = True, False
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def generations(self) -> int:
        """How many are running or waiting."""
        with self._changed:
            return len(self._active) + len(self._waiting)

    @property
    def stalled_s(self) -> float:
        """For how many s it has had work and got nowhere; infinite once its thread has died."""
        with self._changed:
            if self._died:
                return inf
            return time.monotonic() - self._moved if self._active or self._waiting else 0.0

    def close(self) -> None:
        """Stop after the current step; what is not finished fails with Cancelled."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
        self._thread.join()

    def generate(
        self, run: Run, prompt_ids: Sequence[int], rows: int, max_tokens: int, *,
        on_step: Callable[[StepEvent], None] | None = None, cancelled: Callable[[], bool] | None = None,
    ) -> tuple[Hypothesis, ...]:
        """Drive a run to its answers among all others; blocks. Any number of threads may call at once.

        rows, max_tokens  the most rows the run ever feeds at once, and the most tokens of each
        on_step           is told of every beam, in the caller's thread; a slow one delays nobody else
        cancelled         is asked before every step, in the engine's thread; True frees the run's memory at once
        Raises RequestTooLarge where the run could never be admitted, Cancelled, and what the run raises.
        """
        held = self._model.bytes_for(max(1, len(prompt_ids)), rows, max_tokens)
        if held > self._memory_bytes:
            raise RequestTooLarge(held, self._memory_bytes)
        ticket = _Ticket(run, prompt_ids, held, cancelled, on_step is not None)
        with self._changed:
            if not self._open:
                raise Cancelled("the engine is closed")
            if not (self._active or self._waiting):
                self._moved = time.monotonic()
            self._waiting.append(ticket)
            self._changed.notify_all()
        try:
            return _outcome(ticket, on_step)
        finally:
            ticket.abandoned = True  # where the listener failed, nobody waits any more

    def _serve(self) -> None:
        reason: BaseException = Cancelled("the engine was closed")
        try:
            with torch.inference_mode():
                while self._wait_for_work():
                    self._drop_called_off()
                    for ticket in self._admitted():
                        self._begin(ticket)
                        self._moved = time.monotonic()
                    self._step()
                    self._moved = time.monotonic()
        except BaseException as error:  # a fault of ours: nobody may wait for a thread that is gone
            reason, self._died = error, True
            raise
        finally:
            with self._changed:
                self._open = False
                left = [*self._active, *self._waiting]
            for ticket in left:
                ticket.news.put(reason)

    def _wait_for_work(self) -> bool:
        with self._changed:
            while self._open and not (self._active or self._waiting):
                self._changed.wait()
            return self._open

    def _drop_called_off(self) -> None:
        with self._changed:
            tickets = [*self._active, *self._waiting]
        for ticket in tickets:
            try:
                if not ticket.called_off:
                    continue
                reason: BaseException = Cancelled("the generation was cancelled")
            except Exception as error:  # the caller's own function failed: his generation alone ends
                reason = error
            self._leave(ticket, reason)

    def _admitted(self) -> list[_Ticket]:
        """Those who may begin now, in the order in which they came: nobody is overtaken, so nobody waits for ever."""
        admitted = []
        with self._changed:
            free = self._memory_bytes - sum(ticket.bytes_held for ticket in self._active)
            while self._waiting and self._waiting[0].bytes_held <= free:
                ticket = self._waiting.popleft()
                free -= ticket.bytes_held
                self._active.append(ticket)
                admitted.append(ticket)
        return admitted

    def _begin(self, ticket: _Ticket) -> None:
        try:
            ticket.session, first = self._model.prefill(ticket.prompt_ids)
            ticket.take(first_scores(first))
        except Exception as error:
            self._leave(ticket, error)
        else:
            if self._watch:
                self._watch.began(time.monotonic() - ticket.asked)
            self._leave_if_done(ticket)

    def _step(self) -> None:
        """One forward pass for all, and each run's step with its own scores."""
        started, feeds = time.monotonic(), []
        for ticket in list(self._active):
            try:
                feeds.append(Feed(ticket.session, *ticket.run.feed()))
            except Exception as error:
                self._leave(ticket, error)
        running = list(self._active)
        if not running:
            return
        try:
            scores = self._model.step(feeds)
        except Exception as error:  # the pass was everybody's
            for ticket in running:
                self._leave(ticket, error)
            return
        for ticket, own in zip(running, scores, strict=True):
            try:
                ticket.take(own)
            except Exception as error:
                self._leave(ticket, error)
            else:
                self._leave_if_done(ticket)
        if self._watch:
            self._watch.stepped(time.monotonic() - started, sum(len(feed.parents) for feed in feeds))

    def _leave_if_done(self, ticket: _Ticket) -> None:
        if not ticket.run.done:
            return
        try:
            self._leave(ticket, ticket.run.answers())
        except Exception as error:
            self._leave(ticket, error)

    def _leave(self, ticket: _Ticket, outcome: Outcome) -> None:
        """Frees the ticket's memory, which is its session's, before its caller hears of it."""
        ticket.session = None
        with self._changed:
            if ticket in self._active:
                self._active.remove(ticket)
            else:
                self._waiting.remove(ticket)
        ticket.news.put(outcome)


def _outcome(ticket: _Ticket, on_step: Callable[[StepEvent], None] | None) -> tuple[Hypothesis, ...]:
    """What the engine's thread sends until the end, told to the listener as it comes."""
    while True:
        news = ticket.news.get()
        if isinstance(news, tuple):
            return news
        if isinstance(news, BaseException):
            try:
                raise news
            finally:
                del news  # it would hold this frame, and the frame it, and both the run
        if on_step is not None:
            on_step(news())
