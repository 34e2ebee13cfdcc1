"""Runs a worker as a separate process.

SIGTERM and SIGINT end it with status 0: it takes no more jobs, running jobs have `shutdown_grace_s` seconds, and the
remaining ones are requeued. A second signal requeues all at once. The process waits for an unreachable server, but at
shutdown not for a model that is still loading.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal

import typer

from app.auth import metrics_guard
from app.errors import SettingsInvalid, StorageDown
from app.models import model_sources, queues_of
from app.observability import logs, metrics, tracing
from app.settings import PREFIX, QUEUES, Settings
from app.wiring import check_storage, handler_opener, open_broker, open_store, require_engines, require_single_model
from app.worker.handler_loader import exit_if_still_loading
from app.worker.handlers.base import Handler, OpenHandler
from app.worker.loop import serve

RETRY_S = 1.0
_M_ARENA_MAX = -8  # constant in glibc's malloc.h
log = logging.getLogger(__name__)


def run_worker(queue: str, settings: Settings) -> None:
    """Serves a queue until a signal. `generate` means the queues of all models.

    Raises SettingsInvalid for storage in memory or an absent engine, and BadParameter for an unknown queue.
    """
    queues = worker_queues(queue, settings)
    for name in ("broker", "store"):
        if getattr(settings.storage, name).startswith("memory:"):
            raise SettingsInvalid(
                f"{PREFIX}{name.upper()} is memory://, which processes cannot share: set {PREFIX}BROKER and "
                f"{PREFIX}STORE to the server that the API uses, as redis://host:6379/0 or unix:///path/to/socket"
            )
    require_engines(settings, (queue,))
    require_single_model(settings, queues)
    use_single_malloc_arena()  # before threads start, because they keep their arena
    os.nice(settings.process.nice)  # before threads start, because each has its own priority
    with (
        logs.writing(settings), tracing.exporting(settings), metrics.listening(settings, metrics_guard(settings))
    ):
        asyncio.run(_work(queue, queues, settings))
    exit_if_still_loading(status=0)


async def _work(queue: str, queues: tuple[str, ...], settings: Settings) -> None:
    """Runs the worker and handles signals."""
    # Until the server is checked there are no jobs to finish, so the first signal cancels at once.
    started, stopping = asyncio.Event(), asyncio.Event()
    worker = asyncio.create_task(_serve(queues, settings, started, stopping))

    def on_signal(number: int) -> None:
        log.info("the %s worker stops (%s)", queue, signal.Signals(number).name)
        if stopping.is_set() or not started.is_set():
            worker.cancel()
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    try:
        await worker
    except asyncio.CancelledError:
        if not stopping.is_set():  # not our own cancellation after a signal
            raise


def worker_queues(queue: str, settings: Settings) -> tuple[str, ...]:
    """The queues that a worker of `queue` serves. `generate/NAME` is one model's, the first one's, too."""
    by_model = {f"generate/{source.name}": (source.queue,) for source in model_sources(settings)}
    queues = by_model | {kind: queues_of(settings, (kind,)) for kind in QUEUES}
    if queue not in queues:
        raise typer.BadParameter(f"no queue {queue!r}: there are {', '.join(sorted(queues))}")
    return queues[queue]


def use_single_malloc_arena() -> None:
    """Makes threads that start later allocate from the main arena. Does nothing without glibc.

    With an arena per thread, memory freed by one thread is not reused by the others.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)


def _with_frozen_heap(opener: OpenHandler) -> OpenHandler:
    """Opens a handler, then freezes the heap.

    Garbage collection excludes all present objects, which shortens its pauses.
    """

    def open_handler(settings: Settings) -> Handler:
        handler = opener(settings)
        gc.collect()
        gc.freeze()
        return handler

    return open_handler


async def _serve(queues: tuple[str, ...], settings: Settings, started: asyncio.Event, stopping: asyncio.Event) -> None:
    """Waits for the server, checks it, then serves. Raises SettingsInvalid if the server is unsuitable."""
    while True:
        try:
            await check_storage(settings)
            break
        except StorageDown as down:
            log.warning("%s; retrying", down)
            await asyncio.sleep(RETRY_S)
    broker, store = open_broker(settings), open_store(settings)
    started.set()
    try:
        async with asyncio.TaskGroup() as group:
            for queue in queues:
                opener = _with_frozen_heap(handler_opener(queue))
                group.create_task(serve(queue, opener, broker, store, settings, stopping))
    finally:
        await broker.close()
        await store.close()
