"""Opens a worker's handler in a thread.

The thread is abandoned if the worker stops meanwhile. A large model takes minutes to load, and the loading cannot be
interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading

from app.settings import Settings
from app.worker.handlers.base import Handler, OpenHandler


class HandlerLoader:
    """Opens one handler. It is created and used in an event loop."""

    def __init__(self, queue: str, open_handler: OpenHandler, settings: Settings) -> None:
        self._open_handler, self._settings = open_handler, settings
        self._loop, self._ready = asyncio.get_running_loop(), asyncio.Event()
        self._lock = threading.Lock()  # guards the two below: either `handler` or the thread closes a late handler
        self._outcome: Handler | BaseException | None = None
        self._abandoned = False  # true once `handler` no longer waits
        # A daemon, because the interpreter waits for other threads when it exits.
        _LoaderThread(target=self._open, name=f"open-{queue}", daemon=True).start()

    async def handler(self, stop: asyncio.Event) -> Handler | None:
        """Wait for the handler; None if `stop` is set first. Raises the error of opening it. It is called once.

        A handler that is opened after that is closed again.
        """
        waiting = {asyncio.create_task(event.wait()) for event in (stop, self._ready)}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            outcome = self._stop_waiting()
            if isinstance(outcome, Handler):
                await asyncio.to_thread(outcome.close)
            raise
        finally:
            for task in waiting:
                task.cancel()
        outcome = self._stop_waiting()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _stop_waiting(self) -> Handler | BaseException | None:
        with self._lock:
            self._abandoned = True
            return self._outcome

    def _open(self) -> None:
        outcome: Handler | BaseException
        try:
            outcome = self._open_handler(self._settings)
        except BaseException as error:
            outcome = error
        with self._lock:
            abandoned = self._abandoned
            self._outcome = None if abandoned else outcome
        if abandoned:
            if isinstance(outcome, Handler):
                outcome.close()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ready.set)


class _LoaderThread(threading.Thread):
    """Marks the threads that open handlers."""


def exit_if_still_loading(status: int) -> None:
    """End the process at once if a handler is still being opened.

    Everything else must be closed by then. A normal exit would tear the interpreter down under the loading thread.
    """
    if any(isinstance(thread, _LoaderThread) for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)
