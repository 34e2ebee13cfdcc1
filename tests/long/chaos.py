"""Requests while workers are killed and the server dies: python -m tests.long.chaos [--requests 500]

Runs the service with the built-in model, and keeps some requests going at a time. All the while a worker, picked at
random, is killed with -9 every second, in the middle of whatever it does, be it loading; and once, half-way, the
server. Then it looks at what came of it:

- every request is answered, and every answer satisfies its constraint by the definitions, checked here without the
  service's code;
- each is sent once more at the end, under its key, and answered by the same job with the same texts;
- the server holds one finished job for each key, and no other that generates: nothing was done twice.

A job fails after `job_attempts_max` attempts, since it may be what kills. Here it never is, a job may
well be in the hands of more workers that die than the usual limit allows, and the limit is out of the way.

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
from coredis import Redis

from app.settings import QUEUES
from benchmarks.compile import about
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from compiler.spec import spec_from_json
from tests.references.text import satisfies
from tests.servers.cluster import metric
from tests.servers.restarting_service import Running, forked, queue_of, supervised

WORDS = ("dog", "cat", "ball", "park", "boy", "girl", "street", "water", "red", "white", "table", "tree")
REQUEST_S_MAX = 300.0
RETRY_S = 0.5
AT_ONCE = 6

Note = Callable[[httpx2.Client, str, dict[str, Any], dict[str, Any]], None]


@dataclass(frozen=True)
class Answered:
    """What a request was answered with."""

    job: str
    texts: tuple[str, ...]


@dataclass
class Story:
    """What happened to so many requests. `server_too`: whether the server was to be killed as well."""

    requests: int
    server_too: bool
    answers: dict[str, Answered] = field(default_factory=dict)  # by Idempotency-Key
    replayed: dict[str, Answered] = field(default_factory=dict)  # what the same request was answered with at the end
    states: Counter[str] = field(default_factory=Counter)  # of all jobs on the server that generate
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
        """What happened, for people."""
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
        attempts = {str(tries): self.attempts[tries] for tries in sorted(self.attempts)}
        return {
            "requests": self.requests, "took_s": self.took_s, "answered": len(self.answers),
            "changed": len(self.changed()), "wrong": len(self.wrong), "failed": len(self.failed),
            "states": dict(self.states), "attempts": attempts,
            "killed": dict(sorted(self.killed.items())), "again": dict(self.again), "good": self.good(),
        }

    def good(self) -> bool:
        """Whether there were kills, and each request was answered well, by one job, done once and the only one."""
        killed = self.killed["server"] == int(self.server_too) and self.killed.total() > self.killed["server"]
        answered = len(self.answers) == self.requests and not self.wrong and not self.failed
        return killed and answered and not self.changed() and self.states == {"done": self.requests}


def body_of(number: int, rng: random.Random) -> dict[str, Any]:
    """A request; of four kinds, most constraints new, some asked for again."""
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
    """Requests, and what is done to the service meanwhile."""

    def __init__(self, running: Running, requests: int, kills_max: int, server_too: bool, seed: int) -> None:
        self._running, self._kills_max = running, kills_max
        self._rng = random.Random(seed)
        self._over, self._server_killed = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self.story = Story(requests, server_too)

    def run(self) -> Story:
        """All requests, from the first to the last answer; then all of them once more, and a look at the server."""
        requests = {f"chaos-{number}": body_of(number, self._rng) for number in range(self.story.requests)}
        killer = threading.Thread(target=self._kill)
        began = time.monotonic()
        killer.start()
        try:
            self._ask_all(requests, self._note, last=f"chaos-{self.story.requests - 1}")
        finally:
            self._over.set()
            killer.join()
        self.story.took_s = time.monotonic() - began
        self._ask_all({key: requests[key] for key in self.story.answers}, self._note_replay)
        self.story.states = asyncio.run(states_of_generations(self._running.server))
        self.story.logs = "" if self.story.good() else self._running.logs()
        return self.story

    def _ask_all(self, requests: dict[str, dict[str, Any]], note: Note, last: str = "") -> None:
        """All of them; the one named `last` not before the server was killed, if it is to be: few are soon answered."""

        def ask(key: str) -> None:
            if key == last and self.story.server_too:
                self._server_killed.wait(REQUEST_S_MAX)
            self._ask(key, requests[key], note)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                list(pool.map(ask, requests))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._server_killed.set()
                self._running.end()  # or what was begun would be waited for
                raise

    def _kill(self) -> None:
        """A worker each second; the server once, when half of all is answered."""
        second = time.monotonic()
        while not self._over.wait(max(0.0, (second := second + 1.0) - time.monotonic())):
            story = self.story
            if story.server_too and len(story.answers) >= story.requests / 2 and not story.killed["server"]:
                self._running.kill("server")
                story.killed["server"] += 1
                self._server_killed.set()
                continue
            names = self._running.metrics
            worked = {name for name in names if self._worked(name)}
            workers = [name for name in names if self._running.alive(name)]
            if self._running.spares:
                queues = {queue_of(name) for name in worked}
                workers = [name for name in workers if queue_of(name) in queues]
            if workers and story.killed.total() < self._kills_max:
                name = self._rng.choice(workers)
                self._running.kill(name)
                story.killed[name if name in worked else f"{name} (loading)"] += 1

    def _worked(self, name: str) -> bool:
        """Whether a worker, as it now lives, has come to the end of any job."""
        try:
            return metric(self._running.metrics[name], f"abs_{queue_of(name)}_total") > 0
        except OSError:
            return False

    def _ask(self, key: str, body: dict[str, Any], note: Note) -> None:
        """One request, sent again under the same key for as long as the service asks for that."""
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
                return self._fail(f"{key}: {response.status_code} {response.text[:300]}")
        self._fail(f"{key}: no answer in {REQUEST_S_MAX:g} s")

    def _note_again(self, reason: str) -> None:
        with self._lock:
            self.story.again[reason] += 1
        time.sleep(RETRY_S)

    def _fail(self, words: str) -> None:
        with self._lock:
            self.story.failed.append(words)

    def _note(self, http: httpx2.Client, key: str, body: dict[str, Any], answer: dict[str, Any]) -> None:
        story = self.story
        shown = http.get(f"/jobs/{answer['id']}")
        with self._lock:
            story.answers[key] = answered(answer)
            if shown.is_success:
                story.attempts[shown.json()["attempt"]] += 1
            for choice in answer["choices"]:
                if not choice["satisfied"] or not check(body, choice["text"]):
                    story.wrong.append(f"{key}: {json.dumps(body['constraint'])} {choice['text']!r}")

    def _note_replay(self, http: httpx2.Client, key: str, body: dict[str, Any], answer: dict[str, Any]) -> None:
        with self._lock:
            self.story.replayed[key] = answered(answer)


def answered(answer: dict[str, Any]) -> Answered:
    """What of an answer may not change."""
    return Answered(answer["id"], tuple(choice["text"] for choice in answer["choices"]))


async def states_of_generations(server: Path) -> Counter[str]:
    """How many jobs that generate a server holds, by their states."""
    states: Counter[str] = Counter()
    async with Redis.from_url(f"unix://{server}", decode_responses=True) as client:
        async for key in client.scan_iter(match="abs:job:*", count=1_000):
            if str(key).count(":") == 2:  # others hold what belongs to a job
                kind, state = await client.hmget(key, ["kind", "state"])
                states[str(state)] += kind == "generate"
    return +states


def chaos(running: Running, requests: int, kills_max: int, server_too: bool = True, seed: int = 1) -> Story:
    """The story of so many requests, with at most so many kills."""
    return Chaos(running, requests, kills_max, server_too, seed).run()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--kills", type=int, default=1_000_000, help="at most")
    for queue, number in (("compile", 2), ("generate", 6)):
        parser.add_argument(f"--{queue}", type=int, default=number, help="so many workers of this queue")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--supervised", action="store_true", help="by `abs up`, whose workers start slowly")
    parser.add_argument("--record", action="store_true", help="keep the figures in benchmarks/results")
    given = parser.parse_args()
    opened = supervised if given.supervised else forked
    with opened({queue: getattr(given, queue) for queue in QUEUES}) as running:
        story = chaos(running, given.requests, given.kills, seed=given.seed)
    print(story.report())
    if given.record:
        run = about("tests.long.chaos") | story.figures()
        (RESULTS_DIRECTORY / "chaos.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
        write_report()
    return 0 if story.good() else 1


if __name__ == "__main__":
    sys.exit(main())
