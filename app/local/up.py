"""Runs `abs up`. It locks the folder, starts the server, then API and workers, and watches them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2

from app.broker import Broker
from app.environment import environment_with
from app.errors import SettingsInvalid
from app.local.folder import Folder, open_folder
from app.local.server import answers, find_server, server_conf
from app.local.supervisor import EventSink, LocalFailed, Program, Supervisor
from app.messages import NotReadyCode
from app.models import open_model_files, queues_of, served_sources
from app.settings import PREFIX, Settings, is_set
from app.wiring import open_broker

API, SERVER = "api", "server"
POLL_S = 0.2
NICE = 10  # of the workers, unless set: they compute continuously, API and server only briefly
THREADS = "OMP_NUM_THREADS"  # of a worker's matrix products
STOP_S = 20.0  # time of a process to end, in addition to its shutdown grace


def run_up(settings: Settings, workers: Mapping[str, int], emit: EventSink) -> None:
    """Runs until SIGINT or SIGTERM, then stops all processes in order. A second signal kills the remaining ones.

    workers  number of processes for each queue
    emit     receives an object for each event, whose `event` is ready, ended, started or stopping

    Raises SettingsInvalid if the settings, the folder or the machine are unsuitable, LocalFailed if a process does not
    start, or later fails at each restart.
    """
    for name in ("broker", "store"):
        if getattr(settings.storage, name) != getattr(Settings().storage, name):
            raise SettingsInvalid(f"`abs up` starts its own server: unset {PREFIX}{name.upper()}")
    os.umask(0o077)  # logs and data are readable by their owner only
    for source in served_sources(settings):  # a wrong model is reported before any process starts
        open_model_files(source.location)
    settings = settings.changed(port=_free_port(settings.server.host, settings.server.port))
    server = find_server()
    folder = open_folder(Path(settings.process.data_dir))
    try:
        folder.write(folder.server_conf, server_conf(folder))
        url, secret = f"unix://{folder.server_socket}", folder.secret.read_bytes().strip()
        settings = settings.changed(broker=url, store=url, embedded_workers=(), secret=secret)
        asyncio.run(_run(_Local(settings, folder, workers, emit), server.path))
    finally:
        os.close(folder.lock)


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises SettingsInvalid if it is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        raise SettingsInvalid(f"cannot listen on {host} port {port}: {error.strerror}") from error


def _programs(settings: Settings, folder: Folder, server: str, workers: Mapping[str, int]) -> tuple[Program, ...]:
    """The programs. The API stops first, because its requests need the others, and the server last."""
    grace_s = settings.process.shutdown_grace_s + STOP_S
    abs_ = (sys.executable, "-m", "app.main")
    programs = [Program(SERVER, (server, str(folder.server_conf)), 10, STOP_S)]
    names = [(f"{queue}-{number}", queue) for queue, count in workers.items() for number in range(1, count + 1)]
    for number, (name, queue) in enumerate(names, 1):
        variables = {} if is_set("nice") else {f"{PREFIX}NICE": str(NICE)}
        if queue == "generate" and workers[queue] > 1 and not is_set(THREADS, prefix=""):
            # Each would start a thread for each core, and threads that wait for one another waste the cores.
            variables[THREADS] = str(max(1, _cores() // workers[queue]))
        if settings.telemetry.metrics_port:
            variables[f"{PREFIX}METRICS_PORT"] = str(settings.telemetry.metrics_port + number)
        programs.append(Program(name, (*abs_, "worker", queue), 20, grace_s, variables))
    programs.append(Program(API, (*abs_, "serve"), 30, grace_s))
    return tuple(programs)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _environment(settings: Settings, folder: Folder) -> dict[str, str]:
    """The environment of every process. It is ours, with the settings, the server's URL and its secret."""
    values = {
        "BROKER": settings.storage.broker, "STORE": settings.storage.store, "SECRET_FILE": str(folder.secret),
        "HOST": settings.server.host, "PORT": str(settings.server.port), "MODEL": ",".join(settings.inference.model),
        "LOG_LEVEL": settings.telemetry.log_level, "EMBEDDED_WORKERS": "",
    }
    variables = {PREFIX + name: text for name, text in values.items()}
    return environment_with(variables, without=(f"{PREFIX}SECRET",))


@dataclass(frozen=True, slots=True)
class _Local:
    """One run of `abs up`."""

    settings: Settings
    folder: Folder
    workers: Mapping[str, int]
    emit: EventSink


async def _run(local: _Local, server: str) -> None:
    """Starts, watches and stops all processes. They have ended when this returns."""
    programs = _programs(local.settings, local.folder, server, local.workers)
    supervisor = Supervisor(local.folder, programs, _environment(local.settings, local.folder), local.emit)
    working = asyncio.create_task(_start_and_watch(local, supervisor, tuple(program.name for program in programs)))
    signals: list[int] = []

    def on_signal(number: int) -> None:
        signals.append(number)
        if len(signals) == 1:
            working.cancel()
        else:
            supervisor.kill()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    try:
        await working
    except asyncio.CancelledError:
        local.emit({"event": "stopping"})
    finally:
        await supervisor.stop()


async def _start_and_watch(local: _Local, supervisor: Supervisor, names: tuple[str, ...]) -> None:
    """Starts all processes, the server before the others. Then waits for a failure."""
    supervisor.start(SERVER)
    while not answers(local.folder.server_socket):
        supervisor.require_success()
        await asyncio.sleep(POLL_S)
    broker = open_broker(local.settings)
    try:
        # Workers of an earlier run, whose status the server may still store.
        queues = queues_of(local.settings)
        earlier = {status.worker for queue in queues for status in await broker.workers(queue)}
        for name in names:
            if name != SERVER:
                supervisor.start(name)
        while not await _ready(broker, local, earlier):
            supervisor.require_success()
            await asyncio.sleep(POLL_S)
    finally:
        await broker.close()
    supervisor.require_success()
    supervisor.restarts = True
    data, url = str(local.folder.path), url_of(local.settings)
    local.emit({"event": "ready", "url": url, "data": data, "processes": supervisor.pids})
    await supervisor.failure


async def _ready(broker: Broker, local: _Local, earlier: set[str]) -> bool:
    """Whether the API listens and every worker takes jobs. Raises LocalFailed if a worker cannot start.

    earlier  workers of an earlier run, which are ignored
    """
    for queue in queues_of(local.settings):
        statuses = [status for status in await broker.workers(queue) if status.worker not in earlier]
        for status in statuses:
            if status.reason not in ("", NotReadyCode.LOADING):
                raise LocalFailed(f"the {queue} worker cannot start: {status.reason}")
        if sum(not status.reason for status in statuses) < local.workers[queue.partition("/")[0]]:
            return False
    try:
        async with httpx2.AsyncClient(trust_env=False) as http:
            return (await http.get(f"{url_of(local.settings)}/health")).is_success
    except httpx2.TransportError:
        return False


def url_of(settings: Settings) -> str:
    """The URL of the API for a client on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.server.host, settings.server.host)
    return f"http://[{host}]:{settings.server.port}" if ":" in host else f"http://{host}:{settings.server.port}"
