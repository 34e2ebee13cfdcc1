"""The service under load: `abs up` with its real processes and server, and many clients on the same machine.

    python -m benchmarks.service.load [--seconds 300] [--clients 200]

Five parts run against one `abs up` with the built-in model: the overhead of the queue for a single client; cached POST
/compile at a fixed rate, timed from when each request was due; many simultaneous callers of one cold constraint; all
clients with one request each in the same instant; and clients that send requests without a pause for minutes, with the
memory of every process. `re` checks every answer. Writes results/load.json and RESULTS.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import statistics
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.report import write_run
from benchmarks.runs import parser_of
from benchmarks.service.http_client import HttpConnection, HttpReply
from tests.servers.abs_up import short_folder, up
from tests.servers.processes import children, free_port, resident_bytes

COMMON, COLD_SHARE = 40, 0.02  # different requests that are repeated, and the share of requests with a new constraint
STREAM_SHARE = 0.1  # of the clients, which read streams
WARM_UP_SHARE = 0.2  # of the time, in which memory may grow
SAMPLE_S = 5.0
TIMES = ("service_ms", "client_ms", "queue_ms", "request_ms")
_COMPILATIONS = re.compile(rb"^abs_compile_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)
NOUNS = ("dog", "ball", "park", "man", "guitar", "girl", "snow", "hill", "beach", "horse", "street", "table")
VERBS = (("run", "runs", "running"), ("sit", "sits", "sitting"), ("play", "plays", "playing"))
PATTERNS = (
    r"[A-Z][a-z]+( [a-z]+){2,6}\.",
    r"(The|A) [a-z]+ (is|was) [a-z]+ing [a-z ]{3,20}\.",
    r"[a-z]+ at [1-9]:[0-5][0-9] [ap]m\.?",
)
PROMPTS = ("sentence:", "A photo of", "concepts: dog, ball\nsentence:")

ConstraintCheck = tuple[dict[str, Any], Callable[[str], bool]]  # a constraint, and whether a text satisfies it


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """The body of a request. `satisfies` says whether a text satisfies its constraint."""

    body: bytes
    satisfies: Callable[[str], bool]

    def streamed(self) -> LoadRequest:
        """The same, answered by a stream."""
        return LoadRequest(json.dumps(json.loads(self.body) | {"stream": True}).encode(), self.satisfies)


def keywords(words: tuple[str | tuple[str, ...], ...]) -> ConstraintCheck:
    """Ordered keywords. The check is weaker than the service's definition: they occur in this order somewhere."""
    forms = [(word,) if isinstance(word, str) else word for word in words]

    def satisfies(text: str) -> bool:
        units = iter(re.findall(r"\w+|[^\w\s]", text.lower()))
        return all(any(unit in form for unit in units) for form in forms)

    return {"keywords": [list(form) for form in forms], "ordered": True}, satisfies


def pattern(source: str) -> ConstraintCheck:
    """A regex."""
    return {"regex": source}, lambda text: re.fullmatch(source, text) is not None


def common_requests(count: int, rng: random.Random) -> list[LoadRequest]:
    """Small requests that many callers repeat, half of them with keywords."""
    requests = []
    for number in range(count):
        if number % 2:
            constraint = keywords((*rng.sample(NOUNS, 2), rng.choice(VERBS)))
        else:
            constraint = pattern(PATTERNS[number // 2 % len(PATTERNS)])
        requests.append(_load_request(constraint, rng))
    return requests


def cold_request(rng: random.Random) -> LoadRequest:
    """A request whose constraint is almost certainly new to the service."""
    return _load_request(pattern(rf"[A-Z][a-z]+( [a-z]+){{2,5}}, number {rng.randrange(10**6)}\."), rng)


def _load_request(constraint: ConstraintCheck, rng: random.Random) -> LoadRequest:
    body = {
        "prompt": rng.choice(PROMPTS), "constraint": constraint[0], "max_tokens": rng.choice((24, 28, 32)),
        "beams": rng.choice((2, 4, 8)),
    }  # fmt: skip
    return LoadRequest(json.dumps(body).encode(), constraint[1])


@dataclass(frozen=True, slots=True)
class RunningService:
    """A running service.

    processes     the process id by name
    metrics_port  one less than the first worker's port for metrics
    """

    url: str
    processes: dict[str, int]
    metrics_port: int

    def memory_mib(self) -> dict[str, float]:
        """The resident set of each process and its descendants.

        Descendants include the sandboxes of the compile workers.
        """
        sizes = {}
        for name, pid in self.processes.items():
            with contextlib.suppress(OSError):  # the process was restarted
                sizes[name] = sum(map(resident_bytes, (pid, *_descendants(pid)))) / 2**20
        return sizes

    async def compilations(self) -> float:
        """The number of compilations of the compile worker since its start."""
        connection = HttpConnection(f"http://127.0.0.1:{self.metrics_port + 1}")
        metrics = await connection.get("/metrics")
        connection.close()
        return sum(float(number) for number in _COMPILATIONS.findall(metrics.body))


@contextlib.contextmanager
def run_service(
    variables: Mapping[str, str] = types.MappingProxyType({}), workers: int = 1
) -> Iterator[RunningService]:
    """`abs up` with the built-in model, ready in the statement.

    variables  of its environment, beside the defaults
    workers    inference workers
    """
    port = free_port()  # the two after it are most likely free as well
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ABS_")}
    with (
        short_folder() as folder,
        up(
            folder, "--workers-generate", str(workers),
            environment=environment | {"ABS_METRICS_PORT": str(port), **variables},
        ) as running,
    ):
        try:
            yield RunningService(running.url, running.pids, port)
        finally:
            running.stop()
            if "Traceback" in (logs := running.logs()):
                print("a process logged an error:\n", logs, file=sys.stderr)


def _descendants(pid: int) -> list[int]:
    direct = children(pid)
    return [*direct, *(inner for child in direct for inner in _descendants(child))]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Median and tails, in the unit of the values."""
    ranked = sorted(values)
    return {
        name: ranked[min(len(ranked) - 1, int(share * len(ranked)))]
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1.0))
    }


def times_ms(reply: HttpReply) -> tuple[float, float, float, float]:
    """The TIMES of a generation.

    The first two are its overhead, by the service's clock and by the client's: the time that is neither compiling,
    queueing nor decoding.
    """
    timings, total_ms = reply.json()["timings"], reply.seconds * 1000
    work_ms = sum(timings[name] for name in ("compile_ms", "queue_ms", "decode_ms"))
    return timings["total_ms"] - work_ms, total_ms - work_ms, timings["queue_ms"], total_ms


@dataclass
class LoadTally:
    """The outcomes of many requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    times: list[tuple[float, float, float, float]] = field(default_factory=list)  # of each request, as `times_ms`
    violations: int = 0
    cold: int = 0
    ids: set[str] = field(default_factory=set)
    first_step_ms: list[float] = field(default_factory=list)  # of streams

    def add(self, request: LoadRequest, reply: HttpReply) -> None:
        answer = reply.json() if reply.status == 200 else {}
        status = answer.get("status", reply.status)  # a stream may end in an error
        self.statuses[status] += 1
        if status != 200:
            return
        self.ids.add(answer["id"])
        if reply.first_step_s is not None:
            self.first_step_ms.append(reply.first_step_s * 1000)
        self.violations += not all(request.satisfies(choice["text"]) for choice in answer["choices"])
        if not answer["timings"]["cached"]:
            self.cold += 1
            return  # no clock shows how long it waited for other compilations
        self.times.append(times_ms(reply))

    def summary(self) -> dict[str, Any]:
        columns = zip(TIMES, zip(*self.times, strict=True), strict=True)
        return {name: percentiles(values) for name, values in columns} | {
            "statuses": dict(self.statuses), "violations": self.violations,
            "answers": self.statuses[200], "distinct": len(self.ids), "cold": self.cold,
            "first_step_ms": percentiles(self.first_step_ms) if self.first_step_ms else None,
        }  # fmt: skip


async def single_client(url: str, count: int, rng: random.Random) -> dict[str, Any]:
    """One client that sends one request after another."""
    connection, tally = HttpConnection(url), LoadTally()
    request = common_requests(1, rng)[0]
    await connection.post("/generate", request.body)
    for _ in range(count):
        tally.add(request, await connection.post("/generate", request.body))
    connection.close()
    added = [service + queue for service, _, queue, _ in tally.times]
    return tally.summary() | {"added_ms": percentiles(added)}


async def cached_compiles(url: str, rate: float, seconds: float) -> dict[str, Any]:
    """POST /compile of a stored constraint at a fixed rate. Each request is timed from its due time."""
    body = json.dumps({"constraint": keywords(("dog", "ball"))[0], "explain": False}).encode()
    pool = [HttpConnection(url) for _ in range(32)]
    await pool[0].post("/compile", body)
    idle_connections: asyncio.Queue[HttpConnection] = asyncio.Queue()
    for connection in pool:
        await connection.get("/health")
        idle_connections.put_nowait(connection)
    times_ms: list[float] = []
    statuses: Counter[int] = Counter()

    async def send(due: float) -> None:
        connection = await idle_connections.get()
        reply = await connection.post("/compile", body)
        times_ms.append((time.perf_counter() - due) * 1000)
        statuses[reply.status] += 1
        idle_connections.put_nowait(connection)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = start + number / rate
            await asyncio.sleep(due - time.perf_counter())
            group.create_task(send(due))
    for connection in pool:
        connection.close()
    return {"rate": rate, "statuses": dict(statuses), "ms": percentiles(times_ms)}


async def same_constraint(service: RunningService, callers: int, rng: random.Random) -> dict[str, Any]:
    """Simultaneous callers of one new constraint, and its number of compilations."""
    words = tuple(rng.sample([f"word{number}" for number in range(1000)], 4))
    body = json.dumps({"constraint": keywords(words)[0], "explain": False}).encode()
    count_before = await service.compilations()
    connections = [HttpConnection(service.url) for _ in range(callers)]
    replies = await asyncio.gather(*(connection.post("/compile", body) for connection in connections))
    for connection in connections:
        connection.close()
    statuses = Counter(reply.status for reply in replies)
    slowest = max(reply.seconds for reply in replies)
    compilations = await service.compilations() - count_before
    return {"callers": callers, "statuses": dict(statuses), "compilations": compilations, "slowest_s": slowest}


async def burst(url: str, clients: int) -> dict[str, Any]:
    """All clients at once, with one request each of a stored constraint."""
    requests, tally = common_requests(COMMON, random.Random(COMMON)), LoadTally()
    connection = HttpConnection(url)
    for request in requests:
        await connection.post("/generate", request.body)
    connection.close()

    async def client(number: int) -> None:
        connection, request = HttpConnection(url), requests[number % len(requests)]
        tally.add(request, await connection.post("/generate", request.body))
        connection.close()

    await asyncio.gather(*map(client, range(clients)))
    return tally.summary()


async def sustained(service: RunningService, clients: int, seconds: float, ramp_s: float) -> dict[str, Any]:
    """Clients that repeat requests at once and respect each 429's delay.

    It follows `burst`, which has stored the common constraints.

    ramp_s  the clients start one by one within this time
    """
    requests = common_requests(COMMON, random.Random(COMMON))
    tally, start = LoadTally(), time.perf_counter()
    end = start + seconds
    memory: list[tuple[float, dict[str, float]]] = []

    async def client(number: int) -> None:
        rng, connection = random.Random(number), HttpConnection(service.url)
        streams = number < STREAM_SHARE * clients
        await asyncio.sleep(ramp_s * number / clients)
        while time.perf_counter() < end:
            request = cold_request(rng) if rng.random() < COLD_SHARE else rng.choice(requests)
            if streams:
                request = request.streamed()
            reply = await connection.post("/generate", request.body)
            tally.add(request, reply)
            if reply.status == 429:
                connection.close()  # the server might close an idle connection just when it is used again
                await asyncio.sleep(float(reply.headers["retry-after"]))
        connection.close()

    async def watch_memory() -> None:
        while time.perf_counter() < end:
            memory.append((time.perf_counter() + seconds - end, service.memory_mib()))
            left = end - time.perf_counter()
            print(f"\r{left:5.0f} s left, {tally.statuses.total():,} answered", end="", flush=True)
            await asyncio.sleep(min(SAMPLE_S, max(0.01, left)))
        print()

    await asyncio.gather(watch_memory(), *(client(number) for number in range(clients)))
    took_s = time.perf_counter() - start  # to the last answer
    about = {"clients": clients, "seconds": seconds, "ramp_s": ramp_s, "took_s": took_s}
    return tally.summary() | about | {"memory": growth(memory, seconds)}


def growth(samples: list[tuple[float, dict[str, float]]], seconds: float) -> dict[str, dict[str, float]]:
    """For each process: MiB after the warm-up and at the end (medians of a fifth of the time each), and their ratio."""
    warm_up = WARM_UP_SHARE * seconds
    begin_phase = [sizes for at, sizes in samples if warm_up <= at < 2 * warm_up] or [samples[0][1]]
    end_phase = [sizes for at, sizes in samples if at >= seconds - warm_up] or [samples[-1][1]]
    by_process = {}
    for name in end_phase[-1]:
        first, last = (statistics.median(sizes.get(name, 0.0) for sizes in phase) for phase in (begin_phase, end_phase))
        by_process[name] = {"warm_mib": first, "end_mib": last, "ratio": last / first if first else 1.0}
    return by_process


async def measure(service: RunningService, args: argparse.Namespace) -> dict[str, Any]:
    """All five parts."""
    rng = random.Random(7)
    parts: dict[str, Any] = {"single_client": await single_client(service.url, args.requests, rng)}
    print("single client: added, ms", parts["single_client"]["added_ms"], flush=True)
    parts["cached"] = await cached_compiles(service.url, args.rate, args.cached_seconds)
    print("cached /compile, ms", parts["cached"]["ms"], parts["cached"]["statuses"], flush=True)
    parts["same_constraint"] = await same_constraint(service, args.callers, rng)
    print("same constraint:", parts["same_constraint"], flush=True)
    parts["burst"] = outcome = await burst(service.url, args.clients)
    print("burst: overhead by the service's clock, ms", outcome["service_ms"], outcome["statuses"], flush=True)
    parts["sustained"] = await sustained(service, args.clients, args.seconds, args.ramp)
    print("sustained:", json.dumps(parts["sustained"], indent=1), flush=True)
    return parts


def main() -> None:
    parser = parser_of(__doc__, shared=False)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--ramp", type=float, default=10.0)
    parser.add_argument("--callers", type=int, default=500)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--cached-seconds", type=float, default=30.0)
    parser.add_argument("--requests", type=int, default=100, help="of the single client")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="inference workers")
    parser.add_argument("--keep", action="store_true", help="write no file")
    args = parser.parse_args()
    with run_service(workers=args.workers) as service:
        parts = asyncio.run(measure(service, args)) | {"workers": args.workers}
    if not args.keep:
        write_run("load", parts)


if __name__ == "__main__":
    main()
