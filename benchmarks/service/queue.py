"""The load that one server of the queue carries.

    python -m benchmarks.service.queue [--jobs 4000]

One API process and one worker process on this machine send jobs through a server without doing any work. Measured are
jobs and events in a second, calls of scripts, processor time of each process, and the memory for a finished job. Writes
results/queue.json and RESULTS.md.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from typing import Any

from redis.asyncio import Redis

from app.broker import SubmitOptions
from app.broker.redis.broker import RedisBroker
from app.settings import Settings
from benchmarks.report import write_run
from benchmarks.runs import parser_of
from tests.servers.abs_up import short_folder
from tests.servers.redis_server import RedisServer

SETTINGS = Settings.of(secret=b"the secret of this benchmark")
OPTIONS = SubmitOptions(kind="generate", weight=8, deadline_in_s=600.0)
QUEUE, SLOTS, CALLERS = "generate", 8, 32
EVENT, BODY = bytes(200), bytes(1000)  # as long as those of a short request


async def work(url: str, events: int) -> None:
    """Take jobs, publish their events and finish them. Writes this process's time for each line of the input."""
    broker = RedisBroker(url, SETTINGS)
    slots = asyncio.Semaphore(SLOTS)

    async def answer(job_id: str) -> None:
        watcher = asyncio.create_task(broker.cancelled(job_id))
        for _ in range(events):
            await broker.publish(job_id, EVENT, droppable=True)
        watcher.cancel()
        await broker.finish(job_id, BODY)
        slots.release()

    async def take_forever() -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                group.create_task(answer((await broker.take(QUEUE)).job_id))

    taking = asyncio.create_task(take_forever())
    while await asyncio.to_thread(sys.stdin.readline):
        print(time.process_time(), flush=True)
    taking.cancel()


async def send(broker: RedisBroker, jobs: int, events: int) -> None:
    """Submit jobs one after another, read their events and results."""
    for _ in range(jobs):
        job_id = await broker.submit(QUEUE, f"key {time.monotonic_ns()}", BODY, OPTIONS)
        if events:
            async for _ in broker.events(job_id):
                pass
        await broker.result(job_id)
        await broker.unsubscribe(job_id)


async def readings(url: str, worker: subprocess.Popen[str], jobs: int, events: int) -> list[Any]:
    """Times, memory and calls of scripts before and after the jobs."""
    stdin, stdout, broker = worker.stdin, worker.stdout, RedisBroker(url, SETTINGS)
    assert stdin is not None and stdout is not None

    async def read(client: Redis) -> list[float]:
        stdin.write("\n")
        stdin.flush()
        info, statistics = await client.info(), await client.info("commandstats")
        server_s = info["used_cpu_user"] + info["used_cpu_sys"]
        times = [time.perf_counter(), time.process_time(), float(stdout.readline()), server_s]
        return [*times, info["used_memory"], statistics["cmdstat_evalsha"]["calls"]]

    async with Redis.from_url(url) as client:
        await client.flushall()
        await send(broker, 50, events)  # loads scripts
        before = await read(client)
        await asyncio.gather(*(send(broker, jobs // CALLERS, events) for _ in range(CALLERS)))
        after = await read(client)
    await broker.close()
    return [before, after]


async def measure(url: str, jobs: int, events: int) -> dict[str, Any]:
    """The figures of jobs that have this number of events each."""
    command = [sys.executable, "-m", "benchmarks.service.queue", "--worker", url, "--events", str(events)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        try:
            before, after = await readings(url, worker, jobs, events)
        finally:
            worker.kill()
    sent = jobs // CALLERS * CALLERS
    seconds, *each = (end - start for start, end in zip(before, after, strict=True))
    api, work_s, server, memory, scripts = (value / sent for value in each)
    return {
        "events": events, "jobs": sent, "jobs_per_s": sent / seconds, "events_per_s": sent * events / seconds,
        "api_ms": 1000 * api, "worker_ms": 1000 * work_s, "server_ms": 1000 * server,
        "server_share": server * sent / seconds, "scripts": scripts, "memory_bytes": memory,
    }  # fmt: skip


def measure_all(jobs: int, events: int) -> list[dict[str, Any]]:
    """The figures of jobs without and with events, on a new server.

    jobs  without events; a fourth of them have events
    """
    with short_folder() as folder:
        server = RedisServer(folder)
        server.start()
        try:
            return [asyncio.run(measure(server.url, *each)) for each in ((jobs, 0), (jobs // 4, events))]
        finally:
            server.stop()


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__, shared=False)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--events", type=int, default=20, help="of a job")
    parser.add_argument("--worker", help="be the worker at this URL")
    parser.add_argument("--keep", action="store_true", help="write no file")
    args = parser.parse_args()
    if args.worker:
        return asyncio.run(work(args.worker, args.events))
    load = os.getloadavg()[0]
    rows = measure_all(args.jobs, args.events)
    print(*rows, sep="\n")
    if not args.keep:
        write_run("queue", {"callers": CALLERS, "slots": SLOTS, "load": load, "rows": rows})


if __name__ == "__main__":
    main()
