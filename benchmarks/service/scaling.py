"""Answers per second of 1 to 8 inference workers behind one queue.

    python -m benchmarks.service.scaling [--workers 1 2 4 8] [--seconds 20]

One API process, one server and the workers run on this machine. A worker's generation only waits, as for a device of
its own, since models would share the machine's cores: what is lost against one worker times their number is the
service's. Writes results/scaling.json and RESULTS.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any

from benchmarks.report import write_run
from benchmarks.runs import parser_of
from benchmarks.service.http_client import HttpConnection
from benchmarks.service.load import percentiles
from tests.servers.cluster import API, COMPILE, SCRIPTED, Cluster, cluster
from tests.servers.fake_worker import SLOTS

STEPS = (6, 7, 8, 9, 10)  # of the generations; of one length, all would end at once
STEP_S = 0.25
CALLERS = 2 * SLOTS  # for each worker: half of them wait in the queue
SETTINGS = {"ABS_JOB_LEASE_S": "30"}
BODIES = [
    json.dumps({
        "prompt": f"steps {steps} {STEP_S}", "constraint": {"keywords": ["dog"]}, "max_tokens": 8,
    }).encode() for steps in STEPS
]  # fmt: skip


async def answered(url: str, callers: int, seconds: float) -> tuple[list[float], int]:
    """The seconds of each answered request, and the number of other replies."""
    times: list[float] = []
    failed, ends = 0, time.perf_counter() + seconds

    async def call(body: bytes) -> None:
        nonlocal failed
        connection = HttpConnection(url)
        while time.perf_counter() < ends:
            reply = await connection.post("/generate", body)
            if reply.status != 200:
                failed += 1
            elif time.perf_counter() < ends:
                times.append(reply.seconds)
        connection.close()

    await asyncio.gather(*(call(BODIES[number % len(BODIES)]) for number in range(callers)))
    return times, failed


def measure(running: Cluster, count: int, seconds: float) -> dict[str, Any]:
    """The figures of this number of workers. Those of a smaller number are there already."""
    names = [f"generate-{number}" for number in range(1, count + 1)]
    for name in names:
        if name not in running.parts:
            running.add(name, SCRIPTED, **SETTINGS)
    workers = [running.parts[name] for name in names]
    for worker in workers:
        worker.wait_until("/ready")
    url = running.parts["api"].url
    asyncio.run(answered(url, CALLERS * count, seconds / 4))  # fills every slot and the queue
    before = [worker.metric("abs_job_attempts_total") for worker in workers]
    times, failed = asyncio.run(answered(url, CALLERS * count, seconds))
    after = [worker.metric("abs_job_attempts_total") for worker in workers]
    jobs = [end - begin for begin, end in zip(before, after, strict=True)]
    return {
        "workers": count, "callers": CALLERS * count, "answers_per_s": len(times) / seconds,
        "request_s": percentiles(times), "failed": failed, "least_jobs": min(jobs), "most_jobs": max(jobs),
    }  # fmt: skip


def measure_all(counts: list[int], seconds: float) -> list[dict[str, Any]]:
    """A row for each number of workers, on one server."""
    rows = []
    with cluster(use_fork=True) as running:
        running.add("api", API, **SETTINGS).wait_until()
        running.add("compile", COMPILE, **SETTINGS).wait_until("/ready")
        for count in sorted(counts):
            rows.append(measure(running, count, seconds))
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    """The command line."""
    parser = parser_of(__doc__, shared=False)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each row")
    parser.add_argument("--keep", action="store_true", help="write no file")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    rows = measure_all(args.workers, args.seconds)
    if not args.keep:
        write_run("scaling", {"seconds": args.seconds, "load": load, "rows": rows})


if __name__ == "__main__":
    main()
