"""Requests while workers are killed and the server dies: python -m tests.chaos [--requests 500] [--workers 2]

Runs `abs up` with the built-in model, and keeps some requests going at a time. All the while a worker, picked at random
of those that have done anything yet, is killed with -9 every second, in the middle of whatever else it does, and once,
half-way, the server. (One that is still loading is left alone: on a small machine none would ever get further.) Counts
what came of it: every request is answered once, and every answer satisfies its constraint by the definitions, checked
here without the service's code.

A job is given up after so many tries as `job_tries_max` says, since it may be what kills; here it never is, and the
limit is out of the way.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx2

from compiler.spec_json import spec_from_json
from tests.cluster import metric
from tests.containers import free_port
from tests.local import Up, short_folder, up
from tests.reference_text import satisfies

WORDS = ("dog", "cat", "ball", "park", "boy", "girl", "street", "water", "red", "white", "table", "tree")
LEASE_S = 5.0
REQUEST_S_MAX = 300.0
RETRY_S = 0.5
AT_ONCE = 6


@dataclass
class Story:
    """What happened."""

    answered: Counter[str] = field(default_factory=Counter)  # by Idempotency-Key
    jobs: dict[str, set[str]] = field(default_factory=dict)  # the ids of the jobs that answered, by key
    attempts: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    again: Counter[str] = field(default_factory=Counter)  # why requests were sent again
    killed: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0

    def report(self, requests: int) -> str:
        """What happened, for people."""
        twice = sum(count > 1 for count in self.answered.values())
        many = sum(len(jobs) > 1 for jobs in self.jobs.values())
        return "\n".join([
            f"{requests} requests in {self.took_s:.0f} s: {len(self.answered)} answered, "
            f"{requests - len(self.answered)} lost, {twice} answered twice, {many} done by more than one job, "
            f"{len(self.wrong)} that do not satisfy, {len(self.failed)} failed",
            f"killed: {dict(self.killed)}; jobs by tries: {dict(sorted(self.attempts.items()))}; "
            f"requests sent again: {dict(self.again)}",
            *self.wrong[:5], *self.failed[:5],
        ])

    def good(self, requests: int) -> bool:
        """Whether each request was answered once, by one job, and well."""
        once = all(count == 1 for count in self.answered.values())
        one_job = all(len(jobs) == 1 for jobs in self.jobs.values())
        return len(self.answered) == requests and once and one_job and not self.wrong and not self.failed


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

    def __init__(
        self, running: Up, ports: dict[str, int], requests: int, kills_max: int, server_too: bool, seed: int
    ) -> None:
        self._running, self._ports, self._requests = running, ports, requests
        self._kills_max, self._server_too = kills_max, server_too
        self._rng = random.Random(seed)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.story = Story()

    def run(self) -> Story:
        """All requests, from the first to the last answer."""
        bodies = [body_of(number, self._rng) for number in range(self._requests)]
        killer = threading.Thread(target=self._kill)
        began = time.monotonic()
        killer.start()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            try:
                list(pool.map(self._ask, range(self._requests), bodies))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._running.end()  # or what was begun would be waited for
                raise
            finally:
                self._over.set()
                killer.join()
        self.story.took_s = time.monotonic() - began
        return self.story

    def _kill(self) -> None:
        """A worker each second; the server once, when half of all is answered."""
        while not self._over.wait(1.0):
            story = self.story
            if self._server_too and len(story.answered) >= self._requests / 2 and not story.killed["server"]:
                self._running.kill("server")
                story.killed["server"] += 1
                continue
            workers = [name for name in self._ports if self._worked(name)]
            if workers and story.killed.total() < self._kills_max:
                name = self._rng.choice(workers)
                self._running.kill(name)
                story.killed[name] += 1

    def _worked(self, name: str) -> bool:
        """Whether a worker, as it now lives, has come to the end of any job."""
        done = "abs_compile_total" if name.startswith("compile") else "abs_generate_total"
        try:
            return metric(f"http://127.0.0.1:{self._ports[name]}", done) > 0
        except httpx2.TransportError:
            return False

    def _ask(self, number: int, body: dict[str, Any]) -> None:
        """One request, sent again under the same key for as long as the service asks for that."""
        key = f"chaos-{number}"
        ends = time.monotonic() + REQUEST_S_MAX
        with httpx2.Client(base_url=self._running.url, timeout=REQUEST_S_MAX, trust_env=False) as http:
            while time.monotonic() < ends and not self._over.is_set():
                try:
                    response = http.post("/generate", json=body | {"timeout_s": 250}, headers={"idempotency-key": key})
                except httpx2.TransportError as error:
                    self._note_again(type(error).__name__)
                    continue
                if response.status_code in (429, 503):
                    self._note_again(response.json()["code"])
                    continue
                return self._note(http, key, body, response)
        with self._lock:
            self.story.failed.append(f"{key}: no answer in {REQUEST_S_MAX:g} s")

    def _note_again(self, reason: str) -> None:
        with self._lock:
            self.story.again[reason] += 1
        time.sleep(RETRY_S)

    def _note(self, http: httpx2.Client, key: str, body: dict[str, Any], response: httpx2.Response) -> None:
        story = self.story
        if not response.is_success:
            with self._lock:
                story.failed.append(f"{key}: {response.status_code} {response.text[:300]}")
            return
        answer = response.json()
        again = http.get(f"/jobs/{answer['id']}")
        with self._lock:
            story.answered[key] += 1
            story.jobs.setdefault(key, set()).add(answer["id"])
            if again.is_success:
                story.attempts[again.json()["attempt"]] += 1
            for choice in answer["choices"]:
                if not choice["satisfied"] or not check(body, choice["text"]):
                    story.wrong.append(f"{key}: {json.dumps(body['constraint'])} {choice['text']!r}")


def chaos(requests: int, kills_max: int, workers: int, server_too: bool = True, seed: int = 1) -> Story:
    """The story of so many requests, with at most so many kills."""
    port = free_port()
    names = ["compile-1", *(f"generate-{number}" for number in range(1, workers + 1))]
    settings = {
        "ABS_JOB_LEASE_S": str(LEASE_S), "ABS_JOB_TRIES_MAX": "1000", "ABS_METRICS_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    with short_folder() as folder:  # noqa: SIM117
        with up(folder / "data", "--workers-generate", str(workers), environment=settings) as running:
            ports = {name: port + place for place, name in enumerate(names, 1)}
            return Chaos(running, ports, requests, kills_max, server_too, seed).run()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--kills", type=int, default=1_000_000, help="at most")
    parser.add_argument("--workers", type=int, default=2, help="inference workers")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    story = chaos(given.requests, given.kills, given.workers, seed=given.seed)
    print(story.report(given.requests))
    return 0 if story.good(given.requests) else 1


if __name__ == "__main__":
    sys.exit(main())
