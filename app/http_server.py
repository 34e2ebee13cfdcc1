"""Serves the API on a socket, with a graceful shutdown.

A proxy in front keeps the limits that uvicorn lacks: docs/operations.md lists them.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import socket
from typing import Any

import uvicorn

from app.api.middleware.security import is_loopback
from app.errors import SettingsInvalid
from app.settings import Settings

FILES_MAX = 4_096  # open files, most of them connections
NEVER_S = 10**9  # some 30 years. It must be less than the time since 1970, after which uvicorn notifies first.
log = logging.getLogger(__name__)


def require_guarded(settings: Settings) -> None:
    """Raise SettingsInvalid if the service would listen on a network without keys.

    ABS_ALLOW_UNAUTHENTICATED permits it.
    """
    if settings.auth.keys_file or settings.auth.allow_unauthenticated or is_loopback(settings.server.host):
        return
    raise SettingsInvalid(
        f"ABS_HOST={settings.server.host} accepts requests from the network without a key. Set ABS_KEYS_FILE to a file "
        "and make a key (abs keys new NAME --scope generate --scope compile), or set ABS_HOST=127.0.0.1, or, on a "
        "trusted network, set ABS_ALLOW_UNAUTHENTICATED=yes"
    )


def exposure_warning(settings: Settings) -> str:
    """The warning for a network without a proxy; otherwise an empty text.

    The service cannot see a proxy, so ABS_BEHIND_PROXY says that there is one.
    """
    if settings.server.behind_proxy or is_loopback(settings.server.host):
        return ""
    return (
        f"ABS_HOST={settings.server.host} accepts connections from the network, and slow clients can take all of them. "
        "Put a proxy in front (deploy/nginx), then set ABS_BEHIND_PROXY=yes"
    )


def serve(app: Any, listener: socket.socket, settings: Settings) -> bool:
    """Serve an application until SIGINT or SIGTERM.

    Returns False if the server could not start. After the signal the application's service, if it has one, drains.
    Open requests have `shutdown_grace_s`; then they are cancelled. A second SIGINT does not wait.
    """
    if warning := exposure_warning(settings):
        log.warning("%s", warning)
    _raise_file_limit()
    config = uvicorn.Config(
        app, http="h11", ws="none", lifespan="on", log_config=None, log_level=settings.telemetry.log_level,
        access_log=False, server_header=False, proxy_headers=False,
        h11_max_incomplete_event_size=settings.server.header_bytes_max,
        timeout_keep_alive=settings.server.keep_alive_s,  # type: ignore[arg-type]  # a float serves as well
        timeout_graceful_shutdown=settings.process.shutdown_grace_s,  # type: ignore[arg-type]
        callback_notify=_freeze, timeout_notify=NEVER_S,
    )
    server = uvicorn.Server(config)
    with contextlib.suppress(SystemExit):  # uvicorn exits with a status of its own if the application does not start
        asyncio.run(_run(server, listener, app))
    return server.started


async def _run(server: uvicorn.Server, listener: socket.socket, app: Any) -> None:
    """Run the server. A signal also drains the service.

    The event loop's signal handlers run beside uvicorn's, which stop the server. At its end uvicorn restores them and
    raises the signals again; they keep the exit status.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _drain, app)
    await server.serve(sockets=[listener])


def _drain(app: Any) -> None:
    components = getattr(getattr(app, "state", None), "components", None)  # of another app: none
    if components is not None and components.models is not None:
        components.models.jobs.drain()


async def _freeze() -> None:
    """Exclude all present objects from garbage collection, which shortens its pauses.

    uvicorn calls this once it has started, and then every `timeout_notify` seconds.
    """
    gc.collect()
    gc.freeze()


def _raise_file_limit() -> None:
    """Raises the limit of open files towards `FILES_MAX`. The system may permit fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES_MAX if hard == resource.RLIM_INFINITY else min(FILES_MAX, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
