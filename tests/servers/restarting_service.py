"""The service for the chaos tests: processes that are restarted when they die, by `abs up` or by forking."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import psutil

from app.settings import QUEUES
from tests.servers.abs_up import Up, short_folder, up
from tests.servers.cluster import API, Cluster, cluster
from tests.servers.forkserver import WITH_MODEL
from tests.servers.processes import free_port

LEASE_S = 5.0
SETTINGS = {"ABS_JOB_LEASE_S": str(LEASE_S), "ABS_JOB_ATTEMPTS_MAX": "1000", "OMP_NUM_THREADS": "1"}


class RestartingService(Protocol):
    """A service whose processes are restarted when they die."""

    @property
    def url(self) -> str: ...

    @property
    def server(self) -> Path:
        """The server's socket."""

    @property
    def metrics(self) -> Mapping[str, str]:
        """The URL of the metrics of each worker, by name."""

    @property
    def spares_new_workers(self) -> bool:
        """Whether workers are spared until one of their queue has finished a job."""

    def alive(self, worker: str) -> bool: ...

    def kill(self, name: str) -> None: ...

    def logs(self) -> str:
        """The ends of the logs of all processes."""

    def end(self) -> None: ...


class SupervisedService:
    """`abs up`."""

    spares_new_workers = True

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


class ForkedService:
    """The same processes, forked."""

    spares_new_workers = False

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
def supervised_service(workers: Mapping[str, int]) -> Iterator[RestartingService]:
    """`abs up` with these numbers of workers."""
    port = free_port()
    ports = {name: port + place for place, name in enumerate(names_of(workers), 1)}
    options = [word for queue in QUEUES for word in (f"--workers-{queue}", str(workers[queue]))]
    with (
        short_folder() as folder,
        up(folder / "data", *options, environment=SETTINGS | {"ABS_METRICS_PORT": str(port)}) as running,
    ):
        yield SupervisedService(running, ports)


@contextlib.contextmanager
def forked_service(workers: Mapping[str, int]) -> Iterator[RestartingService]:
    """A forked API and these numbers of forked workers."""
    with cluster(forked=True, imported=WITH_MODEL) as running:
        running.add("api", API, **SETTINGS)
        names = names_of(workers)
        for name in names:
            running.add(name, ("-m", "app.main", "worker", queue_of(name)), **SETTINGS)
        running.restore()
        for part in running.parts.values():
            part.keep_alive = True
        yield ForkedService(running, names)


def names_of(workers: Mapping[str, int]) -> tuple[str, ...]:
    """The workers' names in `abs up`."""
    return tuple(f"{queue}-{number}" for queue in QUEUES for number in range(1, workers[queue] + 1))


def queue_of(worker: str) -> str:
    """The queue that a worker serves, by its name: generate-2."""
    return worker.partition("-")[0]
