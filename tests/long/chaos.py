"""Requests during kills: python -m tests.long.chaos [--requests 500]

Runs the service with the built-in model under several requests at a time. Every second one worker, picked at random,
is killed with -9, even while it loads, and Redis each time that it has been up for 4 seconds. Then these are checked:

- every request has an answer, and every answer satisfies its constraint by tests/references/text.py;
- each request is repeated at the end under its key, and the same job answers with the same texts;
- Redis holds one finished generate job for each key and no other: nothing was done twice.

A job fails after `job_attempts_max` attempts, since it may be the cause of the kills. Here it never is, and a job may
meet more kills than the usual limit allows, so the limit is raised.

A process that dies is forked again from one that has loaded the model (tests/servers/forkserver.py); with
`--supervised`, `abs up` restarts it. There each worker imports PyTorch for six seconds of processor time: with one kill
a second, two cores would do nothing else, and 500 requests would take hours. So there a worker that has finished no job
yet is spared until another worker of its queue has.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from redis.asyncio import Redis

from app.settings import QUEUES
from benchmarks.report import write_run
from compiler.spec import spec_from_json
from tests.references.text import satisfies
from tests.servers.cluster import metric
from tests.servers.restarting_service import RestartingService, forked_service, queue_of, supervised_service

WORDS = ("dog", "cat", "ball", "park", "boy", "girl", "street", "water", "red", "white", "table", "tree")
REQUEST_S_MAX = 300.0
RETRY_S = 0.5
# Redis is up this long between two kills. For half a lease (2.5 s) after its return no worker takes over the jobs of
# others, so under more frequent kills the jobs of dead workers would wait for ever.
SERVER_UP_S = 4.0
AT_ONCE = 6

Note = Callable[[httpx2.Client, str, dict[str, Any], dict[str, Any]], None]
KINDS_AND_STATES = """
local jobs = {}
for index, packed in ipairs(redis.call('HVALS', KEYS[1])) do
  local job = cmsgpack.unpack(packed)
  jobs[index] = {job.kind, job.state}
end
return jobs
"""


@dataclass(frozen=True)
class StableAnswer:
    """The part of an answer that may not change."""

    job: str
    texts: tuple[str, ...]


@dataclass
class ChaosResult:
    """The outcome of a run."""

    requests: int
    answers: dict[str, StableAnswer] = field(default_factory=dict)  # by Idempotency-Key
    replayed: dict[str, StableAnswer] = field(default_factory=dict)  # the answers to the same requests at the end
    states: Counter[str] = field(default_factory=Counter)  # of the jobs of this run that generate
    attempts: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    again: Counter[str] = field(default_factory=Counter)  # why requests were sent again
    killed: Counter[str] = field(default_factory=Counter)  # with " (loading)" those that had done nothing yet
    took_s: float = 0.0
    logs: str = ""  # of what went wrong

    def changed(self) -> list[str]:
        """The keys whose second answer is not the first, or is none."""
        return [key for key, answer in self.answers.items() if self.replayed.get(key) != answer]

    def report(self) -> str:
        """The outcome as text."""
        return "\n".join([
            f"{self.requests} requests in {self.took_s:.0f} s: {len(self.answers)} answered, "
            f"{self.requests - len(self.answers)} lost, {len(self.changed())} answered otherwise when asked again, "
            f"{len(self.wrong)} that do not satisfy, {len(self.failed)} failed",
            f"jobs on the server that generate: {dict(self.states)}; by tries: {dict(sorted(self.attempts.items()))}",
            f"killed: {dict(self.killed)}; requests sent again: {dict(self.again)}",
            *self.wrong[:5], *self.failed[:5], *self.changed()[:5], self.logs,
        ])

    def figures(self) -> dict[str, Any]:
        """The same for benchmarks/results."""
        return {
            "requests": self.requests, "took_s": self.took_s, "answered": len(self.answers),
            "changed": len(self.changed()), "wrong": len(self.wrong), "failed": len(self.failed),
            "states": dict(self.states),
            "attempts": {str(tries): count for tries, count in sorted(self.attempts.items())},
            "killed": dict(sorted(self.killed.items())), "again": dict(self.again), "good": self.good(),
        }

    def good(self) -> bool:
        """Whether processes died, and each request was answered by one job."""
        killed = self.killed["server"] >= 1 and self.killed.total() > self.killed["server"]
        answered = len(self.answers) == self.requests and not self.wrong and not self.failed
        return killed and answered and not self.changed() and self.states == {"done": self.requests}


def body_of(number: int, rng: random.Random) -> dict[str, Any]:
    """A request of one of four kinds."""
    words = rng.sample(WORDS, 2)
    constraints: tuple[dict[str, Any], ...] = (
        {"keywords": words, "ordered": True},
        {"ltlf": f"F({words[0]} & X F({words[1]}))"},
        {"regex": rf"[A-Z][a-z]+( [a-z]+){{2,{3 + number % 5}}} {words[0]}\."},
        {"keywords": [words[0], words[1]], "ordered": False},
    )
    return {
        "prompt": "sentence:", "constraint": constraints[number % 4], "max_tokens": 24, "beams": rng.choice((4, 8, 16)),
    }


def check(body: dict[str, Any], text: str) -> bool:
    """Whether a text satisfies the request's constraint, by the definitions."""
    return satisfies(spec_from_json(body["constraint"]), text)


class Chaos:
    """Sends requests and kills processes meanwhile.

    kills_max  of workers and the server together
    """

    def __init__(self, running: RestartingService, requests: int, kills_max: int, seed: int = 1) -> None:
        self._running, self._kills_max = running, kills_max
        self._rng = random.Random(seed)
        self._over, self._server_killed = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self.result = ChaosResult(requests)

    def run(self) -> ChaosResult:
        """Sends and repeats all requests, and counts the server's jobs."""
        requests = {f"chaos-{number}": body_of(number, self._rng) for number in range(self.result.requests)}
        killer = threading.Thread(target=self._kill)
        states_before = asyncio.run(states_of_generations(self._running.server))
        began = time.monotonic()
        killer.start()
        try:
            self._ask_all(requests, self._note, last=f"chaos-{self.result.requests - 1}")
        finally:
            self._over.set()
            killer.join()
        self.result.took_s = time.monotonic() - began
        self._ask_all({key: requests[key] for key in self.result.answers}, self._note_replay)
        self.result.states = asyncio.run(states_of_generations(self._running.server)) - states_before
        self.result.logs = "" if self.result.good() else self._running.logs()
        return self.result

    def _ask_all(self, requests: dict[str, dict[str, Any]], note: Note, last: str = "") -> None:
        """Sends requests, the one named `last` after a kill of the server."""

        def ask(key: str) -> None:
            if key == last:
                self._server_killed.wait(REQUEST_S_MAX)
            self._ask(key, requests[key], note)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                list(pool.map(ask, requests))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._server_killed.set()
                self._running.end()  # else the pool would wait for running requests
                raise

    def _kill(self) -> None:
        """Kills a worker each second, and the server every few seconds."""
        second = server_up = time.monotonic()
        while not self._over.wait(max(0.0, (second := second + 1.0) - time.monotonic())):
            result = self.result
            if not self._running.alive("server"):
                server_up = time.monotonic()
            elif self._server_is_due(time.monotonic() - server_up):
                self._running.kill("server")
                result.killed["server"] += 1
                self._server_killed.set()
                server_up = time.monotonic()
                continue
            names = self._running.metrics
            worked = {name for name in names if self._worked(name)}
            workers = [name for name in names if self._running.alive(name)]
            if self._running.spares_new_workers:
                queues = {queue_of(name) for name in worked}
                workers = [name for name in workers if queue_of(name) in queues]
            if workers and result.killed.total() < self._kills_max:
                name = self._rng.choice(workers)
                self._running.kill(name)
                result.killed[name if name in worked else f"{name} (loading)"] += 1

    def _server_is_due(self, up_s: float) -> bool:
        """Whether to kill the server. The first kill is half-way at the latest, so that short runs have one."""
        if not self.result.killed["server"]:
            return up_s >= SERVER_UP_S or len(self.result.answers) >= self.result.requests / 2
        return up_s >= SERVER_UP_S and self.result.killed.total() < self._kills_max

    def _worked(self, name: str) -> bool:
        """Whether a worker has finished a job since its last start."""
        try:
            return metric(self._running.metrics[name], f"abs_{queue_of(name)}_total") > 0
        except OSError:
            return False

    def _ask(self, key: str, body: dict[str, Any], note: Note) -> None:
        """Sends one request until the service asks for no retry."""
        ends = time.monotonic() + REQUEST_S_MAX
        with httpx2.Client(
            base_url=self._running.url, timeout=REQUEST_S_MAX, trust_env=False, verify=False
        ) as http:
            while time.monotonic() < ends:
                try:
                    response = http.post("/generate", json=body | {"timeout_s": 250}, headers={"idempotency-key": key})
                except httpx2.TransportError as error:
                    self._note_again(type(error).__name__)
                    continue
                if response.status_code in (429, 503):
                    self._note_again(response.json()["code"])
                    continue
                if response.is_success:
                    return note(http, key, body, response.json())
                return self.result.failed.append(f"{key}: {response.status_code} {response.text[:300]}")
        self.result.failed.append(f"{key}: no answer in {REQUEST_S_MAX:g} s")

    def _note_again(self, reason: str) -> None:
        with self._lock:
            self.result.again[reason] += 1
        time.sleep(RETRY_S)

    def _note(self, http: httpx2.Client, key: str, body: dict[str, Any], answer: dict[str, Any]) -> None:
        result = self.result
        shown = http.get(f"/jobs/{answer['id']}")
        with self._lock:
            result.answers[key] = stable_answer(answer)
            if shown.is_success:
                result.attempts[shown.json()["attempt"]] += 1
            for choice in answer["choices"]:
                if not choice["satisfied"] or not check(body, choice["text"]):
                    result.wrong.append(f"{key}: {json.dumps(body['constraint'])} {choice['text']!r}")

    def _note_replay(self, http: httpx2.Client, key: str, body: dict[str, Any], answer: dict[str, Any]) -> None:
        self.result.replayed[key] = stable_answer(answer)


def stable_answer(answer: dict[str, Any]) -> StableAnswer:
    """The part of an answer that may not change."""
    return StableAnswer(answer["id"], tuple(choice["text"] for choice in answer["choices"]))


async def states_of_generations(server: Path) -> Counter[str]:
    """The number of generate jobs on a server by state."""
    async with Redis.from_url(f"unix://{server}", decode_responses=True) as client:
        jobs = await client.eval(KINDS_AND_STATES, 1, "{abs}:jobs")
    return Counter(state for kind, state in jobs if kind == "generate")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--kills", type=int, default=1_000_000, help="at most")
    for queue, number in (("compile", 2), ("generate", 6)):
        parser.add_argument(f"--{queue}", type=int, default=number, help="workers of this queue")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--supervised", action="store_true", help="by `abs up`, whose workers start slowly")
    parser.add_argument("--tensor-parallel", type=int, default=1, help="processes of a worker, with --supervised")
    parser.add_argument("--record", action="store_true", help="keep the figures in benchmarks/results")
    arguments = parser.parse_args()
    workers = {queue: getattr(arguments, queue) for queue in QUEUES}
    supervised = arguments.supervised
    with supervised_service(workers, arguments.tensor_parallel) if supervised else forked_service(workers) as running:
        result = Chaos(running, arguments.requests, arguments.kills, arguments.seed).run()
    print(result.report())
    if arguments.record:
        write_run("chaos", result.figures())
    return 0 if result.good() else 1


if __name__ == "__main__":
    sys.exit(main())
