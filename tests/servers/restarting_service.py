"""The service as the chaos kills it: processes that are brought back when they die, by `abs up` or by forking."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import psutil

from app.settings import QUEUES
from tests.deploy.containers import free_port
from tests.servers.abs_up import Up, short_folder, up
from tests.servers.cluster import API, Cluster, cluster
from tests.servers.forkserver import WITH_MODEL

LEASE_S = 5.0
SETTINGS = {"ABS_JOB_LEASE_S": str(LEASE_S), "ABS_JOB_ATTEMPTS_MAX": "1000", "OMP_NUM_THREADS": "1"}


class Running(Protocol):
    """The service, whose processes are brought back when they die."""

    @property
    def url(self) -> str: ...

    @property
    def server(self) -> Path:
        """The server's socket."""

    @property
    def metrics(self) -> Mapping[str, str]:
        """Where each worker, by its name, tells its metrics."""

    @property
    def spares(self) -> bool:
        """Whether a worker is left alone while none of its queue has come to the end of a job."""

    def alive(self, worker: str) -> bool: ...

    def kill(self, name: str) -> None: ...

    def logs(self) -> str:
        """The ends of what the processes have logged."""

    def end(self) -> None: ...


class Supervised:
    """`abs up`."""

    spares = True

    def __init__(self, running: Up, ports: Mapping[str, int]) -> None:
        self._running = running
        self.url, self.server = running.url, running.data / "server.sock"
        self.metrics = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}

    def alive(self, worker: str) -> bool:
        return psutil.pid_exists(self._running.pids[worker])

    def kill(self, name: str) -> None:
        self._running.kill(name)

    def logs(self) -> str:
        return self._running.logs()

    def end(self) -> None:
        self._running.end()


class Forked:
    """The same processes, forked."""

    spares = False

    def __init__(self, running: Cluster, workers: tuple[str, ...]) -> None:
        self._running = running
        self.url, self.server = running.parts["api"].url, running.server.socket
        self.metrics = {name: running.parts[name].url for name in workers}

    def alive(self, worker: str) -> bool:
        return self._running.parts[worker].alive

    def kill(self, name: str) -> None:
        if name == "server":
            self._running.server.kill()
            self._running.server.start()
        else:
            self._running.parts[name].kill()

    def logs(self) -> str:
        return "\n".join(f"== {name}\n{part.log()[-1_500:]}" for name, part in self._running.parts.items())

    def end(self) -> None:
        self._running.end()


@contextlib.contextmanager
def supervised(workers: Mapping[str, int]) -> Iterator[Running]:
    """`abs up` with so many workers of each queue."""
    port = free_port()
    ports = {name: port + place for place, name in enumerate(names_of(workers), 1)}
    options = [word for queue in QUEUES for word in (f"--workers-{queue}", str(workers[queue]))]
    with (
        short_folder() as folder,
        up(folder / "data", *options, environment=SETTINGS | {"ABS_METRICS_PORT": str(port)}) as running,
    ):
        yield Supervised(running, ports)


@contextlib.contextmanager
def forked(workers: Mapping[str, int]) -> Iterator[Running]:
    """An API and so many workers of each queue, all of them forked."""
    with cluster(forked=True, imported=WITH_MODEL) as running:
        running.add("api", API, **SETTINGS)
        names = names_of(workers)
        for name in names:
            running.add(name, ("-m", "app.main", "worker", queue_of(name)), **SETTINGS)
        running.whole()
        for part in running.parts.values():
            part.kept = True
        yield Forked(running, names)


def names_of(workers: Mapping[str, int]) -> tuple[str, ...]:
    """The workers' names, as `abs up` calls them."""
    return tuple(f"{queue}-{number}" for queue in QUEUES for number in range(1, workers[queue] + 1))


def queue_of(worker: str) -> str:
    """The queue that a worker serves, by its name: generate-2."""
    return worker.partition("-")[0]
