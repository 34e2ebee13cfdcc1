"""The service under load: `abs up` with its real processes and server, and many clients on the same machine.

python -m benchmarks.load [--seconds 300] [--clients 200]

Five parts against one fresh `abs up` with the built-in model: what the queue adds to a request on a quiet service;
cached POST /compile at a fixed rate, timed from when each was due; many callers of one cold constraint, and how many
compilations they cost; all clients with one request each in the same instant; and clients that come one by one and then
ask without a pause for minutes, with the memory of every process. Every answer is judged by `re`. Writes
results/load.json.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import json
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from benchmarks.compile import machine
from benchmarks.load_client import Connection, Reply
from benchmarks.load_requests import LoadRequest, cold, common, keywords
from benchmarks.load_service import Service, running
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report

COMMON, COLD_SHARE = 40, 0.02  # requests that come again and again, and the share of those that do not
SETTLE_S = 0.2  # of the whole: until then memory may grow
SAMPLE_S = 5.0


def percentiles(values: list[float]) -> dict[str, float]:
    """Median and tails, in the unit of the values."""
    ranked = sorted(values)
    return {
        name: ranked[min(len(ranked) - 1, int(share * len(ranked)))]
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1.0))
    }


def overheads(reply: Reply) -> tuple[float, float, float]:
    """Milliseconds of a generation that are neither compile, queue nor decode, by the service's clock and by the
    client's; and what it waited in the queue."""
    timings = reply.json()["timings"]
    spent = sum(timings[name] for name in ("compile_ms", "queue_ms", "decode_ms"))
    return timings["total_ms"] - spent, reply.seconds * 1000 - spent, timings["queue_ms"]


@dataclass
class Tally:
    """What came of many requests."""

    statuses: Counter[int] = field(default_factory=Counter)
    service_ms: list[float] = field(default_factory=list)
    client_ms: list[float] = field(default_factory=list)
    queue_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    violations: int = 0
    cold: int = 0
    ids: set[str] = field(default_factory=set)

    def add(self, asked: LoadRequest, reply: Reply) -> None:
        self.statuses[reply.status] += 1
        if reply.status != 200:
            return
        answer = reply.json()
        self.ids.add(answer["id"])
        self.violations += not all(asked.holds(choice["text"]) for choice in answer["choices"])
        self.cold += not answer["timings"]["cached"]
        if not answer["timings"]["cached"]:
            return  # what it waited for other compilations is told by no clock
        service, client, queue = overheads(reply)
        self.service_ms.append(service)
        self.client_ms.append(client)
        self.queue_ms.append(queue)
        self.whole_ms.append(reply.seconds * 1000)

    def summary(self) -> dict[str, Any]:
        named = ("service_ms", "client_ms", "queue_ms", "whole_ms")
        return {name: percentiles(getattr(self, name)) for name in named} | {
            "statuses": dict(self.statuses), "violations": self.violations,
            "answers": self.statuses[200], "distinct": len(self.ids), "cold": self.cold,
        }  # fmt: skip


async def quiet(url: str, count: int, dice: random.Random) -> dict[str, Any]:
    """One client, one request after another: what a request costs beside its decoding, queue and all."""
    connection, tally = Connection(url), Tally()
    asked = common(1, dice)[0]
    await connection.post("/generate", asked.body)
    for _ in range(count):
        tally.add(asked, await connection.post("/generate", asked.body))
    connection.close()
    added = [service + queue for service, queue in zip(tally.service_ms, tally.queue_ms, strict=True)]
    return tally.summary() | {"added_ms": percentiles(added)}


async def cached(url: str, rate: float, seconds: float) -> dict[str, Any]:
    """POST /compile of a stored constraint, so many a second whatever comes back, each timed from when it was due."""
    body = json.dumps({"constraint": keywords(("dog", "ball"))[0], "explain": False}).encode()
    warming = Connection(url)
    await warming.post("/compile", body)
    warming.close()
    pool = [Connection(url) for _ in range(32)]
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for connection in pool:
        await connection.get("/health")
        free.put_nowait(connection)
    taken: list[float] = []
    statuses: Counter[int] = Counter()

    async def ask(due: float) -> None:
        connection = await free.get()
        reply = await connection.post("/compile", body)
        taken.append((time.perf_counter() - due) * 1000)
        statuses[reply.status] += 1
        free.put_nowait(connection)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(due - time.perf_counter())
            group.create_task(ask(due))
    for connection in pool:
        connection.close()
    return {"rate": rate, "statuses": dict(statuses), "ms": percentiles(taken)}


async def crowd(service: Service, callers: int, dice: random.Random) -> dict[str, Any]:
    """So many callers of one constraint that nobody asked for before, at once; and how often it was compiled."""
    words = tuple(dice.sample([f"word{number}" for number in range(1000)], 4))
    body = json.dumps({"constraint": keywords(words)[0], "explain": False}).encode()
    before = await service.compilations()
    connections = [Connection(service.url) for _ in range(callers)]
    replies = await asyncio.gather(*(connection.post("/compile", body) for connection in connections))
    for connection in connections:
        connection.close()
    statuses = Counter(reply.status for reply in replies)
    slowest = max(reply.seconds for reply in replies)
    compiled = await service.compilations() - before
    return {"callers": callers, "statuses": dict(statuses), "compilations": compiled, "slowest_s": slowest}


async def burst(url: str, clients: int) -> dict[str, Any]:
    """All clients at once, with one request each, of constraints that are stored."""
    usual, tally = common(COMMON, random.Random(COMMON)), Tally()
    warming = Connection(url)
    for asked in usual:
        await warming.post("/generate", asked.body)
    warming.close()

    async def client(number: int) -> None:
        connection, asked = Connection(url), usual[number % len(usual)]
        tally.add(asked, await connection.post("/generate", asked.body))
        connection.close()

    await asyncio.gather(*map(client, range(clients)))
    return tally.summary()


async def siege(service: Service, clients: int, seconds: float, ramp_s: float) -> dict[str, Any]:
    """Clients that ask again as soon as they are answered, and wait as long as a 429 tells them to.

    ramp_s  within so many seconds they come, one by one; after `burst`, which has asked for all that is common
    """
    usual = common(COMMON, random.Random(COMMON))
    tally, ends = Tally(), time.perf_counter() + seconds
    memory: list[tuple[float, dict[str, float]]] = []

    async def client(number: int) -> None:
        dice, connection = random.Random(number), Connection(service.url)
        await asyncio.sleep(ramp_s * number / clients)
        while time.perf_counter() < ends:
            asked = cold(dice) if dice.random() < COLD_SHARE else dice.choice(usual)
            reply = await connection.post("/generate", asked.body)
            tally.add(asked, reply)
            if reply.status == 429:
                connection.close()  # idle for so long, the server might close it just when it is used again
                await asyncio.sleep(float(reply.headers["retry-after"]))
        connection.close()

    async def watch() -> None:
        while time.perf_counter() < ends:
            memory.append((time.perf_counter() + seconds - ends, service.memory_mib()))
            left = ends - time.perf_counter()
            print(f"\r{left:5.0f} s left, {tally.statuses.total():,} answered", end="", flush=True)
            await asyncio.sleep(min(SAMPLE_S, max(0.01, left)))
        print()

    await asyncio.gather(watch(), *(client(number) for number in range(clients)))
    about = {"clients": clients, "seconds": seconds, "ramp_s": ramp_s}
    return tally.summary() | about | {"memory": growth(memory, seconds)}


def growth(samples: list[tuple[float, dict[str, float]]], seconds: float) -> dict[str, dict[str, float]]:
    """For each process: MiB after warm-up, at the end (medians of a fifth of the time each), and their ratio."""
    early = [held for at, held in samples if SETTLE_S * seconds <= at < 2 * SETTLE_S * seconds] or [samples[0][1]]
    late = [held for at, held in samples if at >= (1 - SETTLE_S) * seconds] or [samples[-1][1]]
    found = {}
    for name in late[-1]:
        first, last = (statistics.median(held.get(name, 0.0) for held in part) for part in (early, late))
        found[name] = {"warm_mib": first, "end_mib": last, "ratio": last / first if first else 1.0}
    return found


async def measure(service: Service, args: argparse.Namespace) -> dict[str, Any]:
    dice = random.Random(7)
    parts: dict[str, Any] = {"quiet": await quiet(service.url, args.quiet, dice)}
    print("quiet: added, ms", parts["quiet"]["added_ms"], flush=True)
    parts["cached"] = await cached(service.url, args.rate, args.cached_seconds)
    print("cached /compile, ms", parts["cached"]["ms"], parts["cached"]["statuses"], flush=True)
    parts["crowd"] = await crowd(service, args.callers, dice)
    print("crowd:", parts["crowd"], flush=True)
    parts["burst"] = await burst(service.url, args.clients)
    print("burst: the service's own, ms", parts["burst"]["service_ms"], parts["burst"]["statuses"], flush=True)
    parts["siege"] = await siege(service, args.clients, args.seconds, args.ramp)
    print("siege:", json.dumps(parts["siege"], indent=1), flush=True)
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--ramp", type=float, default=10.0)
    parser.add_argument("--callers", type=int, default=500)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--cached-seconds", type=float, default=30.0)
    parser.add_argument("--quiet", type=int, default=100)
    parser.add_argument("--dry", action="store_true", help="write no file")
    args = parser.parse_args()
    with running() as service:
        parts = asyncio.run(measure(service, args))
    if args.dry:
        return
    run = {"date": datetime.date.today().isoformat(), "machine": machine(), "command": "python -m benchmarks.load"}
    (RESULTS_DIRECTORY / "load.json").write_text(json.dumps(run | parts, indent=1) + "\n", encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
