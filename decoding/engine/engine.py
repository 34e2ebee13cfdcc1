"""Continuous batching of generations that share each forward pass. Generations join and leave between passes.

The engine owns the one thread that calls the model's prefill and step, and handles a device that runs out of memory.
Between two steps it reads prompts in turns, in all no more tokens than one chunk (chunked prefill). A generation with
more rows than that saves them up over several steps while narrower ones run (deficit round robin, Shreedhar and
Varghese 1995).
`Generation` defines what happens between two passes, `Scheduler` decides which generations begin.

Where a pass runs out of memory, its generations are read in two halves, and so on. A generation that finds no memory by
itself is preempted, and restarts from its prompt once more is free: the search takes the same steps again. It fails
with OutOfMemory only where it finds none while no other generation runs.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from operator import attrgetter
from typing import Any, Literal, Protocol

import torch

from decoding.engine.memory import ROWS_MAX, MemoryBudget, is_out_of_memory, release_memory, request_bytes_max
from decoding.engine.request import EngineOutcome, EngineRequest
from decoding.engine.scheduler import Scheduler
from decoding.errors import Cancelled, OutOfMemory, RequestTooLarge
from decoding.generation import BeamStep, Generation, Hypothesis
from decoding.model import LanguageModel, ObserveScores, ScoredSequence

OutOfMemoryAction = Literal["batch_split", "restarted", "check_deferred", "rejected"]
"""How the engine handles a lack of memory.

batch_split     a pass is read in two halves
restarted       a generation is preempted, since another or a check runs beside it
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

    def ran_out(self, action: OutOfMemoryAction) -> None:
        """The device's memory ran out."""


class Engine:
    """One model and the generations that share it. Use as a context manager, or `close` it.

    model         obeys LanguageModel; only this engine's thread calls its prefill and step
    memory_bytes  of all generations together: keys and values, the log-probs of their rows, and what they keep on
                  the host. A generation waits until the most that it may come to hold is free, so that none runs out
                  of memory half-way.
    watch         receives every step and every lack of memory

    >>> with Engine(model, memory_bytes=2**20) as engine:
    ...     (answer,) = engine.generate(new_search, [0])
    >>> answer.tokens
    (1, 0, 2)
    """

    def __init__(self, model: LanguageModel[Any], memory_bytes: int, watch: Watch | None = None) -> None:
        self._model = model
        self._memory_bytes = memory_bytes
        # A model that reads its feeds one by one gains nothing by a batch, and could not take a failed pass again.
        self._budget = MemoryBudget(memory_bytes, ROWS_MAX if model.supports_batching else 1)
        self._scheduler = Scheduler(self._budget)
        self._check_lock = threading.Lock()
        # A thread of its own for all checks: every thread that multiplies matrices keeps scratch memory for itself.
        self._checker = ThreadPoolExecutor(1, "check")
        self._watch = watch
        self._progress_s = time.monotonic()  # when it last did something, or was given something to do
        self._died = False
        self._prefilling: deque[EngineRequest] = deque()  # running requests whose prompts are not read to the end
        # Of the present step: whether a pass was split, and the rows of the largest pass that found memory.
        self._split, self._rows_ok = False, 0
        # A daemon, so that a process can end although a pass never returns.
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def generations(self) -> int:
        """How many are running or waiting."""
        return len(self._scheduler)

    @property
    def stalled_s(self) -> float:
        """The time in s since the last progress. It is 0 without work, and infinite once the engine's thread has died.
        """
        if self._died:
            return inf
        return time.monotonic() - self._progress_s if len(self._scheduler) else 0.0

    def close(self) -> None:
        """Stops after the current step; unfinished generations fail with Cancelled."""
        self._scheduler.close()
        self._thread.join()
        self._checker.shutdown()

    def generate(
        self, begin: Callable[[], Generation], prompt_ids: Sequence[int], *, extra_bytes: int = 0,
        on_step: Callable[[BeamStep], None] | None = None,
        cancelled: Callable[[], bool] | None = None, model: LanguageModel[Any] | None = None,
    ) -> tuple[Hypothesis, ...]:
        """Drives a generation to its answers beside all others; blocks. Any number of threads may call at once.

        begin        makes the generation; called again where it restarts for lack of memory
        extra_bytes  that the caller keeps beside the generation
        on_step      receives every beam, in the caller's thread; a slow one delays no other caller
        cancelled    is called before every step, in the engine's thread; True frees the generation's memory at once
        model        reads the prompt: the engine's model, or that model with an adapter

        Raises RequestTooLarge where the generation could never be admitted, OutOfMemory where the device has too little
        for it alone, Cancelled, and the errors of the generation.
        """
        request = EngineRequest(
            begin=begin, prompt_ids=prompt_ids, cancelled=cancelled, has_listener=on_step is not None,
            model=model or self._model,
        )
        size = request.generation.size
        read = self._model.bytes_for(max(1, len(prompt_ids)), size.rows, size.max_tokens, size.scratch_bytes)
        request.bytes_max = read + size.kept_bytes + extra_bytes
        self._require_memory(request.bytes_max)
        # Without this an engine that was idle for an hour would seem stalled from its first request on.
        if not len(self._scheduler):
            self._progress_s = time.monotonic()
        self._scheduler.add(request)
        try:
            return request.wait(on_step)
        finally:
            request.abandoned = True  # where `on_step` failed, the engine must end the generation

    def require_memory(self, prompt_tokens: int, rows: int, max_tokens: int) -> None:
        """Raise RequestTooLarge where no such generation could be admitted."""
        self._require_memory(self._model.bytes_for(max(1, prompt_tokens), rows, max_tokens))

    def _require_memory(self, needed_bytes: int) -> None:
        if needed_bytes > (most := request_bytes_max(self._memory_bytes)):
            raise RequestTooLarge(needed_bytes, most)

    def check(
        self, prompt_ids: Sequence[int], tokens: Sequence[int], cancelled: Callable[[], bool] | None = None,
        observe: ObserveScores | None = None, *, model: LanguageModel[Any] | None = None,
    ) -> ScoredSequence:
        """Score a finished answer by a separate pass of the model. The call blocks.

        observe    receives the log-probs in the place of each token, some of them again where memory ran out
        cancelled  is called before the check waits for its turn, when the turn comes, and while it waits for memory: a
                   check whose caller has gone would only delay the checks behind it
        model      scores: the engine's model, or that model with an adapter

        Raises OutOfMemory where it finds none while no generation runs, and Cancelled.
        """
        _raise_if_cancelled(cancelled)
        # One check at a time: the memory of such a pass is part of no generation's. Where none is left for it, no
        # generation begins until enough running ones have ended.
        with self._check_lock:
            _raise_if_cancelled(cancelled)
            try:
                while True:
                    runs_alone = self._scheduler.begin_check()
                    # The retry is outside the clause, whose error still refers to the memory of the failed pass.
                    try:
                        return self._submit_check(model or self._model, prompt_ids, tokens, observe).result()
                    except Exception as error:
                        if not is_out_of_memory(error):
                            raise
                    release_memory(self._model.device)
                    self._report("rejected" if runs_alone else "check_deferred")
                    # Alone it had all the memory there is, so waiting for a generation to end cannot help.
                    if runs_alone:
                        raise OutOfMemory(self._model.bytes_for(len(prompt_ids) + len(tokens), 1, 1))
                    self._scheduler.defer_check(cancelled)
            finally:
                self._scheduler.end_check()

    def _submit_check(
        self, model: LanguageModel[Any], prompt_ids: Sequence[int], tokens: Sequence[int],
        observe: ObserveScores | None,
    ) -> Future[ScoredSequence]:
        try:
            return self._checker.submit(model.score, prompt_ids, tokens, observe)
        except RuntimeError:  # the executor is shut down
            raise Cancelled("the engine is closed") from None

    def _serve(self) -> None:
        """Run the engine's thread. It drops cancelled requests, admits, prefills and decodes one step, repeatedly."""
        reason: BaseException = Cancelled("the engine was closed")
        try:
            with torch.inference_mode():
                # Cancelled requests leave first, so that their memory can admit others in the same turn.
                while self._scheduler.wait_for_work():
                    self._drop_cancelled()
                    self._prefilling.extend(self._scheduler.admit())
                    self._prefill()
                    self._step()
        except BaseException as error:  # a bug: no caller may wait for a dead thread
            reason, self._died = error, True
            raise
        finally:
            # First close, so that no request can be added after the outcomes are sent.
            self._scheduler.close()
            for request in self._scheduler.requests:
                request.messages.put(reason)

    def _drop_cancelled(self) -> None:
        for request in self._scheduler.requests:
            try:
                if not request.is_cancelled:
                    continue
                reason: BaseException = Cancelled("the generation was cancelled")
            except Exception as error:  # the caller's own function failed: only that caller's generation ends
                reason = error
            self._finish(request, reason)

    def _prefill(self) -> None:
        """Read as many tokens of prompts as one chunk has. A long prompt delays the others' steps by no more."""
        remaining = self._model.chunk_tokens
        while self._prefilling and remaining > 0:
            # In turns, so that neither a long prompt nor many short ones keep another waiting.
            request = self._prefilling.popleft()
            remaining -= max(1, min(len(request.prompt_ids), self._model.chunk_tokens))
            try:
                request.prefill()
            except Exception as error:
                self._fail(request, error)
            else:
                self._continue(request)
            self._progress_s = time.monotonic()

    def _continue(self, request: EngineRequest) -> None:
        if not request.is_prefilled:
            self._prefilling.append(request)
            return
        # The first step needs only the prompt's scores, so the time to it is the time to the first token.
        if self._watch:
            self._watch.began(time.monotonic() - request.created_s)
        self._finish_if_done(request)

    def _step(self) -> None:
        """Decode one step of each generation that is due. Memory decides the number of passes: nearly always one."""
        started, requests = time.monotonic(), list[EngineRequest]()
        for request in self._scheduler.running:
            if not request.is_prefilled:
                continue
            try:
                request.prepare()
                requests.append(request)
            except Exception as error:
                self._fail(request, error)
        if not requests:
            return
        # A wide generation delays the others as a long prompt does: by no more rows of a pass than one chunk has.
        share = max(self._model.chunk_tokens, min(request.rows for request in requests))
        requests = [request for request in requests if request.is_due(share)]
        # Rows of the model's batch, before chunks: a forced stretch counts once for each row.
        rows = sum(len(request.feed.parents) for request in requests if request.feed)
        self._split, self._rows_ok = False, 0
        # A limit lowered by an earlier failure may split the step from the start.
        for group in self._budget.passes(requests, attrgetter("rows")):
            self._forward(group)
        if self._split:
            self._budget.on_pass_oom(self._rows_ok)
        else:
            self._budget.on_step_ok()
        self._progress_s = time.monotonic()
        if self._watch:
            self._watch.stepped(self._progress_s - started, rows)

    def _forward(self, requests: list[EngineRequest]) -> None:
        """One pass for all requests, then a step of each. Where memory runs out, the pass is repeated in two halves."""
        try:
            scores = self._model.step([request.feed for request in requests if request.feed])
        except Exception as error:  # the whole pass failed, for all its generations
            if len(requests) == 1 or not is_out_of_memory(error):
                for request in requests:
                    self._fail(request, error)
                return
            scores = None  # not in this clause: its error still holds all arrays of the failed pass
        # Halves of halves end with single generations, which are preempted where they find no memory either.
        if scores is None:
            self._split = True
            self._report("batch_split")
            release_memory(self._model.device)
            middle = len(requests) // 2
            self._forward(requests[:middle])
            self._forward(requests[middle:])
            return
        # Each request ends or fails by itself: an error in one generation leaves the others of the pass alone.
        self._rows_ok = max(self._rows_ok, sum(request.rows for request in requests))
        for request, request_scores in zip(requests, scores, strict=True):
            try:
                request.take(request_scores)
            except Exception as error:
                self._fail(request, error)
            else:
                self._finish_if_done(request)

    def _finish_if_done(self, request: EngineRequest) -> None:
        if not request.generation.done:
            return
        try:
            answers = request.generation.answers()
        except Exception as error:
            self._fail(request, error)
        else:
            self._finish(request, answers)

    def _fail(self, request: EngineRequest, error: Exception) -> None:
        """End a request with its error. A request that ran out of memory while others run is preempted instead."""
        if not is_out_of_memory(error):
            self._finish(request, error)
            return
        request.drop()  # first: another request may be admitted as soon as this one has left
        preempted = self._scheduler.preempt(request)
        self._report("restarted" if preempted else "rejected")
        if not preempted:
            self._finish(request, OutOfMemory(request.bytes_max))

    def _finish(self, request: EngineRequest, outcome: EngineOutcome) -> None:
        """Free a request's memory, then send the outcome to its caller."""
        request.drop()
        if request in self._prefilling:
            self._prefilling.remove(request)
        self._scheduler.remove(request)
        request.messages.put(outcome)

    def _report(self, action: OutOfMemoryAction) -> None:
        if self._watch:
            self._watch.ran_out(action)


def _raise_if_cancelled(cancelled: Callable[[], bool] | None) -> None:
    if cancelled is not None and cancelled():
        raise Cancelled("the generation was cancelled")
