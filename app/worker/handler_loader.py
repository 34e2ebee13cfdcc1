"""Opens a worker's handler in a thread.

The thread is abandoned if the worker stops meanwhile. A large model takes minutes to load, and the loading cannot be
interrupted.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from concurrent.futures import Future
from typing import Any

from app.settings import Settings
from app.worker.handlers.base import Handler, OpenHandler


async def load_handler(
    queue: str, open_handler: OpenHandler, settings: Settings, stop: asyncio.Event
) -> Handler | None:
    """Open a handler; None if `stop` is set first. Raises the error of opening it.

    A handler that is opened after that, or after a cancellation, is closed again.
    """
    opened: Future[Handler] = Future()
    # A daemon, because the interpreter waits for other threads when it exits.
    _LoaderThread(target=_open, args=(opened, open_handler, settings), name=f"open-{queue}", daemon=True).start()
    loaded, stopped = asyncio.wrap_future(opened), asyncio.create_task(stop.wait())
    waiting: set[asyncio.Future[Any]] = {loaded, stopped}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return None if opened.cancel() else await loaded
    except asyncio.CancelledError:
        if not opened.cancel() and opened.exception() is None:
            await asyncio.to_thread(opened.result().close)
        raise
    finally:
        stopped.cancel()


def _open(opened: Future[Handler], open_handler: OpenHandler, settings: Settings) -> None:
    try:
        handler = open_handler(settings)
    except BaseException as error:
        if opened.set_running_or_notify_cancel():
            opened.set_exception(error)
        return
    if opened.set_running_or_notify_cancel():
        opened.set_result(handler)
    else:  # the worker no longer waits
        handler.close()


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
