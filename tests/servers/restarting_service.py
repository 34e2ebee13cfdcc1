"""The service for the chaos tests. `abs up` or a fork server restarts its processes when they die."""

from __future__ import annotations

import contextlib
import functools
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from app.settings import QUEUES
from tests.servers.abs_up import Up, short_folder, up
from tests.servers.cluster import API, Cluster, cluster
from tests.servers.forkserver import WITH_MODEL
from tests.servers.processes import free_port
from tests.servers.small_model import small_model

LEASE_S = 5.0
SETTINGS = {"ABS_JOB_LEASE_S": str(LEASE_S), "ABS_JOB_ATTEMPTS_MAX": "1000", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class RestartingService:
    """A service whose processes are restarted when they die.

    server              the server's socket
    metrics             the URL of the metrics of each worker, by name
    spares_new_workers  whether workers are spared until one of their queue has finished a job
    alive, kill         take a name: of a worker or "server"
    logs                the ends of the logs of all processes
    """

    url: str
    server: Path
    metrics: Mapping[str, str]
    spares_new_workers: bool
    alive: Callable[[str], bool]
    kill: Callable[[str], object]
    logs: Callable[[], str]
    end: Callable[[], None]


@contextlib.contextmanager
def supervised_service(workers: Mapping[str, int], tensor_parallel: int = 1) -> Iterator[RestartingService]:
    """`abs up` with these numbers of workers. A kill hits any process of those that share a worker's model."""
    with short_folder() as folder, supervised_up(folder / "data", workers, tensor_parallel) as (_, service):
        yield service


@contextlib.contextmanager
def supervised_up(
    data: Path, workers: Mapping[str, int], tensor_parallel: int = 1, environment: Mapping[str, str] = os.environ
) -> Iterator[tuple[Up, RestartingService]]:
    """Such a service in a folder, with its `abs up`."""
    port = free_port()
    variables = {"ABS_METRICS_PORT": str(port), "ABS_MODEL": small_model()}
    variables |= {"ABS_NICE": "1"}  # else they starve beside other tests
    variables |= {"ABS_TENSOR_PARALLEL": str(tensor_parallel)} if tensor_parallel > 1 else {}
    metrics = {name: f"http://127.0.0.1:{port + index}" for index, name in enumerate(names_of(workers), 1)}
    options = [word for queue in QUEUES for word in (f"--workers-{queue}", str(workers[queue]))]
    with up(data, *options, environment={**environment, **SETTINGS, **variables}) as running:
        yield running, RestartingService(
            running.url,
            running.data / "server.sock",
            metrics,
            spares_new_workers=True,
            alive=lambda name: psutil.pid_exists(running.pids[name]),
            kill=lambda name: kill_member(running, name),
            logs=running.logs,
            end=running.end,
        )


@contextlib.contextmanager
def forked_service(workers: Mapping[str, int]) -> Iterator[RestartingService]:
    """A forked API and these numbers of forked workers."""
    with cluster(use_fork=True, imported=WITH_MODEL) as running:
        running.add("api", API, **SETTINGS)
        names = names_of(workers)
        for name in names:
            running.add(name, ("-m", "app.main", "worker", queue_of(name)), **SETTINGS)
        running.restore()
        for part in running.parts.values():
            part.keep_alive = True
        yield RestartingService(
            running.parts["api"].url,
            running.server.socket,
            {name: running.parts[name].url for name in names},
            spares_new_workers=False,
            alive=lambda name: name == "server" or running.parts[name].alive,  # `kill_part` waits for the server
            kill=functools.partial(kill_part, running),
            logs=lambda: "\n".join(part.log() for part in running.parts.values()),
            end=running.end,
        )


def kill_member(running: Up, name: str) -> None:
    """Kills a process of a group, each as often as the others. Without a group it is the part itself."""
    followers = followers_of(running.pids[name])
    follower = random.choice([None, *followers])
    if follower is None:
        running.kill(name)
    else:
        with contextlib.suppress(psutil.NoSuchProcess):
            follower.kill()


def followers_of(pid: int) -> list[psutil.Process]:
    """The other processes of the group whose first one has this number."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [each for each in psutil.Process(pid).children() if "decoding.model.follower" in each.cmdline()]
    return []


def kill_part(running: Cluster, name: str) -> None:
    """Kills a part; the server, which nothing else restarts, is started again."""
    if name == "server":
        running.server.kill()
        running.server.start()
    else:
        running.parts[name].kill()


def names_of(workers: Mapping[str, int]) -> tuple[str, ...]:
    """The workers' names in `abs up`."""
    return tuple(f"{queue}-{number}" for queue in QUEUES for number in range(1, workers[queue] + 1))


def queue_of(worker: str) -> str:
    """The queue that a worker serves, by its name: generate-2."""
    return worker.partition("-")[0]
