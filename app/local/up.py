"""The story of `abs up`: lock the folder, start the server, then API and workers, tell when all are ready, watch."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2

from app.broker import Broker
from app.errors import SettingsInvalid
from app.local.folder import Folder, open_folder
from app.local.server import answers, find_server, server_conf
from app.local.supervisor import LocalFailed, Program, Supervisor
from app.messages import NotReadyCode
from app.models import open_model_files
from app.settings import PREFIX, Settings, environment_with, is_set
from app.wiring import open_broker

API, SERVER = "api", "server"
POLL_S = 0.2
NICE = 10  # of the workers, unless it is set: they compute all the time, API and server only for moments
STOP_S = 20.0  # what a process has to end beside its drain
RUNNING = ("STARTING", "RUNNING")
Tell = Callable[[Mapping[str, object]], None]


def run_up(settings: Settings, workers: Mapping[str, int], tell: Tell) -> None:
    """Run until SIGINT or SIGTERM, then stop everything in order; a second signal kills what is left.

    workers  how many processes serve each queue
    tell     is given an object for each thing that happens, each with an `event`: ready, ended, started, stopping

    Raises SettingsInvalid where the settings, the folder or the machine do not allow it, LocalFailed where a process
    does not start.
    """
    for name in ("broker", "store"):
        if getattr(settings, name) != getattr(Settings(), name):
            raise SettingsInvalid(f"`abs up` brings its own server: take {PREFIX}{name.upper()} away")
    open_model_files(settings.model)
    settings = dataclasses.replace(settings, port=_free_port(settings.host, settings.port))
    server = find_server()
    folder = open_folder(Path(settings.data_dir))
    try:
        folder.write(folder.server_conf, server_conf(folder))
        settings = _told_where(settings, folder)
        programs = _programs(settings, folder, server.path, workers)
        supervisor = Supervisor(folder, programs, _environment(settings, folder))
        names = tuple(program.name for program in programs)
        asyncio.run(_run(_Local(settings, folder, names, workers, supervisor, tell)))
    finally:
        os.close(folder.lock)


def _free_port(host: str, port: int) -> int:
    """The port, or a free one for 0. Raises SettingsInvalid where it is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family) as listener:
            return int(listener.getsockname()[1])
    except OSError as error:
        raise SettingsInvalid(f"cannot listen on {host} port {port}: {error.strerror}") from error


def _told_where(settings: Settings, folder: Folder) -> Settings:
    """The settings as every process of the folder shares them."""
    url = f"unix://{folder.server_socket}"
    secret = folder.secret.read_bytes().strip()
    return dataclasses.replace(settings, broker=url, store=url, embedded_workers=(), secret=secret)


def _programs(settings: Settings, folder: Folder, server: str, workers: Mapping[str, int]) -> tuple[Program, ...]:
    """What runs: the server is stopped last, and the API, whose requests need all others, first."""
    grace_s = settings.shutdown_grace_s + STOP_S
    abs_ = (sys.executable, "-m", "app.main")
    programs = [Program(SERVER, (server, str(folder.server_conf)), 10, STOP_S)]
    names = [(f"{queue}-{number}", queue) for queue, count in workers.items() for number in range(1, count + 1)]
    for place, (name, queue) in enumerate(names, 1):
        own = {} if is_set("nice") else {"NICE": NICE}
        if settings.metrics_port:
            own["METRICS_PORT"] = settings.metrics_port + place
        programs.append(Program(name, (*_with(own), *abs_, "worker", queue), 20, grace_s))
    programs.append(Program(API, (*abs_, "serve"), 30, grace_s))
    return tuple(programs)


def _with(own: Mapping[str, int]) -> tuple[str, ...]:
    return ("env", *(f"{PREFIX}{name}={value}" for name, value in own.items())) if own else ()


def _environment(settings: Settings, folder: Folder) -> dict[str, str]:
    """The environment of every process: ours, and where the server and its secret are."""
    given = {
        "BROKER": settings.broker, "STORE": settings.store, "SECRET_FILE": str(folder.secret), "EMBEDDED_WORKERS": "",
        "HOST": settings.host, "PORT": str(settings.port), "MODEL": settings.model, "LOG_LEVEL": settings.log_level,
    }
    own = {PREFIX + name: text for name, text in given.items()}
    return environment_with(own, without=(f"{PREFIX}SECRET",))


@dataclass(frozen=True, slots=True)
class _Local:
    """What runs here, and how to ask and tell of it."""

    settings: Settings
    folder: Folder
    names: tuple[str, ...]  # of the processes, the server's first
    workers: Mapping[str, int]
    supervisor: Supervisor
    tell: Tell


async def _run(local: _Local) -> None:
    """Everything from the start to the end; supervisor is gone when this returns."""
    working = asyncio.create_task(_start_and_watch(local))
    signals: list[int] = []

    def on_signal(number: int) -> None:
        signals.append(number)
        if len(signals) == 1:
            working.cancel()
        else:
            local.supervisor.kill()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    try:
        await working
    except asyncio.CancelledError:
        local.tell({"event": "stopping"})
    finally:
        await asyncio.to_thread(local.supervisor.stop)


async def _start_and_watch(local: _Local) -> None:
    seen = await _start(local)
    data = str(local.folder.path)
    local.tell({"event": "ready", "url": url_of(local.settings), "data": data, "processes": dict(seen)})
    while True:
        await asyncio.sleep(POLL_S)
        for name, status in local.supervisor.statuses().items():
            if status.state == "FATAL":
                local.supervisor.start(name)
            pid = status.pid if status.state in RUNNING else 0
            if pid != seen[name]:
                local.tell({"event": "started" if pid else "ended", "process": name, "pid": pid or seen[name]})
                seen[name] = pid


async def _start(local: _Local) -> dict[str, int]:
    """Start all; the number of each process. Raises LocalFailed where one ends, or says that it cannot start."""
    seen: dict[str, int] = {}
    while not local.supervisor.statuses():
        await asyncio.sleep(POLL_S)
    local.supervisor.start(SERVER)
    while not answers(local.folder.server_socket):
        _require_running(local.supervisor, (SERVER,), seen)
        await asyncio.sleep(POLL_S)
    broker = open_broker(local.settings)
    try:
        gone = {presence.worker for queue in local.workers for presence in await broker.workers(queue)}
        for name in local.names:
            local.supervisor.start(name)
        while not await _ready(broker, local, gone):
            _require_running(local.supervisor, local.names, seen)
            await asyncio.sleep(POLL_S)
    finally:
        await broker.close()
    _require_running(local.supervisor, local.names, seen)
    return seen


def _require_running(supervisor: Supervisor, names: tuple[str, ...], seen: dict[str, int]) -> None:
    """Raise LocalFailed where one of the processes has ended since it was first seen."""
    statuses = supervisor.statuses()
    for name in names if statuses else ():
        status = statuses[name]
        if status.state not in RUNNING or seen.setdefault(name, status.pid) != status.pid:
            words = supervisor.last_words(name) or status.said
            raise LocalFailed(f"the process {name} does not start; its last words:\n{words}")


async def _ready(broker: Broker, local: _Local, gone: set[str]) -> bool:
    """Whether the API listens and every worker takes jobs. Raises LocalFailed for one that never will.

    gone  workers of an earlier run, whose words the server still holds
    """
    for queue, count in local.workers.items():
        presences = [presence for presence in await broker.workers(queue) if presence.worker not in gone]
        for presence in presences:
            if presence.reason not in ("", NotReadyCode.LOADING):
                raise LocalFailed(f"the {queue} worker cannot start: {presence.reason}")
        if sum(not presence.reason for presence in presences) < count:
            return False
    try:
        async with httpx2.AsyncClient(trust_env=False) as http:
            return (await http.get(f"{url_of(local.settings)}/health")).is_success
    except httpx2.TransportError:
        return False


def url_of(settings: Settings) -> str:
    """Where a client on this machine finds the API."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{settings.port}" if ":" in host else f"http://{host}:{settings.port}"
