"""A worker process for tests of faults. A job's body says what it does.

    answer TEXT    finishes with TEXT
    hold TEXT      its first attempt runs until it is cancelled; a later one finishes with TEXT
    die            ends the process
    die once TEXT  its first attempt ends the process; a later one finishes with TEXT
    tell N PAUSE   publishes N events, one each PAUSE seconds, then finishes
    lie PAUSE      its first attempt publishes and finishes with "first" after PAUSE seconds; a later one with "second"

`python -m tests.servers.redis_worker URL LEASE_S VERSION` takes jobs of the queue "q", two at once, until it is
killed. It writes "took ID ATTEMPT" for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.broker import Broker, Delivery
from app.broker.redis.broker import RedisBroker
from app.messages import VERSION
from app.settings import Settings
from tests.servers.forkserver import start_process

SECRET = b"the secret of these tests"
SLOTS = 2


def settings(lease_s: float, wait_s: float = 20.0) -> Settings:
    """What the processes and the tests have in common."""
    return Settings.of(secret=SECRET, job_lease_s=lease_s, redis_wait_s=wait_s)


async def run(broker: Broker, delivery: Delivery) -> None:
    """Do what a job's body says."""
    word, _, arguments = delivery.body.decode().partition(" ")
    job_id = delivery.job_id
    if word == "die":
        once, _, text = arguments.partition(" ")
        if not once or delivery.attempt == 1:
            os._exit(1)
        arguments = text
    if word == "hold" and delivery.attempt == 1:
        await broker.cancelled(job_id)
    if word == "tell":
        count, pause = arguments.split()
        for number in range(int(count)):
            await broker.publish(job_id, b"%d" % number)
            await asyncio.sleep(float(pause))
    if word == "lie":
        await asyncio.sleep(float(arguments) if delivery.attempt == 1 else 0)
        arguments = "first" if delivery.attempt == 1 else "second"
        await broker.publish(job_id, arguments.encode())
    await broker.finish(job_id, arguments.encode())


async def work(url: str, lease_s: float, version: int) -> None:
    """Take jobs of a format version for ever."""
    broker = RedisBroker(url, settings(lease_s), version=version)
    slots = asyncio.Semaphore(SLOTS)
    async with asyncio.TaskGroup() as group:
        while True:
            await slots.acquire()
            delivery = await broker.take("q")
            sys.stdout.write(f"took {delivery.job_id} {delivery.attempt}\n")  # at once: it may be killed at any time
            sys.stdout.flush()
            group.create_task(run(broker, delivery)).add_done_callback(lambda _: slots.release())


class WorkerProcess:
    """Such a process, as a test sees it."""

    def __init__(self, url: str, lease_s: float, version: int = VERSION) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="abs-worker-")  # removed by `end`
        self._out = Path(self._folder.name) / "out"
        arguments = ["tests.servers.redis_worker", url, str(lease_s), str(version)]
        self._process = start_process(arguments, os.environ, self._out.with_name("log"), self._out)

    @property
    def took(self) -> list[tuple[str, int]]:
        """The jobs that it has taken, with their attempts."""
        *lines, _ = self._out.read_text().split("\n") if self._out.exists() else [""]  # the last one is unfinished
        return [(job_id, int(attempt)) for _, job_id, attempt in map(str.split, lines)]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        """Kill -9, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()


@contextlib.contextmanager
def workers(url: str, count: int, lease_s: float) -> Iterator[list[WorkerProcess]]:
    """Starts `count` processes and ends them after the body. Processes that a test adds to the list are ended too."""
    processes = [WorkerProcess(url, lease_s) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.end()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
