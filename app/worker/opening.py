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
    """One handler that is being opened. Made, and asked, in an event loop."""

    def __init__(self, queue: str, open_handler: OpenHandler, settings: Settings) -> None:
        self._open_handler, self._settings = open_handler, settings
        self._loop, self._ready = asyncio.get_running_loop(), asyncio.Event()
        self._lock = threading.Lock()
        self._came: Handler | BaseException | None = None
        self._settled = False  # true once `handler` no longer waits
        _Thread(target=self._open, name=f"open-{queue}", daemon=True).start()

    async def handler(self, stop: asyncio.Event) -> Handler | None:
        """The handler; None where `stop` is set before there is one. Raises what opening it raises. To be asked once.

        One that comes too late is closed again.
        """
        waiting = {asyncio.create_task(event.wait()) for event in (stop, self._ready)}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            came = self._settle()
            if isinstance(came, Handler):
                await asyncio.to_thread(came.close)
            raise
        finally:
            for task in waiting:
                task.cancel()
        came = self._settle()
        if isinstance(came, BaseException):
            raise came
        return came

    def _settle(self) -> Handler | BaseException | None:
        with self._lock:
            self._settled = True
            return self._came

    def _open(self) -> None:
        came: Handler | BaseException
        try:
            came = self._open_handler(self._settings)
        except BaseException as error:
            came = error
        with self._lock:
            late = self._settled
            self._came = None if late else came
        if late:
            if isinstance(came, Handler):
                came.close()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._ready.set)


class _Thread(threading.Thread):
    """To be known among all threads."""


def end_without_openings(status: int) -> None:
    """End the process at once if a handler is still being opened.

    Everything else must be closed by then. A normal exit would tear the interpreter down under the loading thread.
    """
    if any(isinstance(thread, _Thread) for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)
