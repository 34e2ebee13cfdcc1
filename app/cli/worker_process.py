"""How a worker is run as a process of its own: what it needs, and what signals and exit statuses mean.

SIGTERM and SIGINT end it, with status 0: it takes no more jobs, those at hand have `shutdown_grace_s` seconds, and
what is not done by then is handed back. A second signal hands all back at once. A model that is still being loaded is
not waited for; a server that is away is.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal

from app.auth import metrics_guard
from app.cli.heap import share_one_heap
from app.errors import SettingsInvalid, StorageDown
from app.observability import logs, metrics, tracing
from app.settings import PREFIX, Settings
from app.wiring import check_storage, handler_opener, open_broker, open_store
from app.worker.handlers.base import Handler, OpenHandler
from app.worker.loop import serve
from app.worker.opening import end_without_openings

AGAIN_S = 1.0
log = logging.getLogger(__name__)


def run_worker(queue: str, settings: Settings) -> None:
    """Serve a queue until a signal. Raises SettingsInvalid where no other process could reach this one."""
    for name in ("broker", "store"):
        if getattr(settings, name).startswith("memory:"):
            raise SettingsInvalid(
                f"{PREFIX}{name.upper()} is memory://, which no two processes share: set {PREFIX}BROKER and "
                f"{PREFIX}STORE to the server that the API uses, as redis://host:6379/0 or unix:///path/to/socket"
            )
    share_one_heap()  # before there are threads, which keep the heap that they begin with
    logs.set_up(settings)
    os.nice(settings.nice)  # before there are threads, each of which has a priority of its own
    with tracing.exporting(settings), metrics.listening(settings, metrics_guard(settings)):
        asyncio.run(_work(queue, settings))
    end_without_openings(status=0)


async def _work(queue: str, settings: Settings) -> None:
    """The worker, and what signals do to it."""
    begun, stopping = asyncio.Event(), asyncio.Event()
    working = asyncio.create_task(_serve(queue, settings, begun, stopping))

    def on_signal(number: int) -> None:
        log.info("the %s worker stops (%s)", queue, signal.Signals(number).name)
        if stopping.is_set() or not begun.is_set():
            working.cancel()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    try:
        await working
    except asyncio.CancelledError:
        if not stopping.is_set():
            raise


def _settled(opener: OpenHandler) -> OpenHandler:
    """Opens a handler, then leaves what is there out of all collections of garbage: it stays, and makes them long."""

    def open_handler(settings: Settings) -> Handler:
        handler = opener(settings)
        gc.collect()
        gc.freeze()
        return handler

    return open_handler


async def _serve(queue: str, settings: Settings, begun: asyncio.Event, stopping: asyncio.Event) -> None:
    """Wait for the server, look at it, then serve. Raises SettingsInvalid where it will not do."""
    while True:
        try:
            await check_storage(settings)
            break
        except StorageDown as down:
            log.warning("%s; trying again", down)
            await asyncio.sleep(AGAIN_S)
    broker, store = open_broker(settings), open_store(settings)
    begun.set()
    try:
        await serve(queue, _settled(handler_opener(queue)), broker, store, settings, stopping)
    finally:
        await broker.close()
        await store.close()
