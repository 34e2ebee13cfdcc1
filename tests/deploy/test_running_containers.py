"""docker-compose.yml in containers: answers, scaling, kills, restart, rotation of keys and secret.

The tests run in their order, on one deployment. tests/deploy/test_compose.py checks the same file without an engine.
"""

from __future__ import annotations

import contextlib
import secrets
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from abs_client import Client, Keywords, Regex, Retry
from abs_client.errors import AbsError
from app.auth import SCOPES, add_key, new_key, remove_key
from tests.deploy.containers import make_secrets
from tests.deploy.engine import Deployment, described, docker, require_engine
from tests.servers.demo_requests import REQUESTS
from tests.servers.processes import free_port, until

READY_S_MAX = 400.0
RESTART_S_MAX = 300.0  # the longest time that a request may have, which a restart takes on a busy machine
PATIENT = Retry(tries=200, total_s=600.0, backoff_s_max=2.0)
SENDERS = 3
WORKERS = 3


class Load:
    """Threads that send requests until they are stopped, and what they got."""

    def __init__(self, url: str, key: str) -> None:
        self.sent = 0
        self.answers: list[str] = []
        self.errors: list[AbsError] = []
        self._url, self._key = url, key
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,)) for number in range(SENDERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def wait_for_an_answer(self) -> None:
        answered = len(self.answers)
        until(lambda: len(self.answers) > answered, "an answer under load", READY_S_MAX)

    def _send(self, number: int) -> None:
        with Client(self._url, self._key, timeout_s=300.0, retry=PATIENT) as client:
            while not self._stopping.wait(2.0):
                self.sent += 1
                # Each constraint is new, so that compile workers have work, too.
                words = Keywords("dog") & Regex(rf"[A-Za-z ,']{{1,{60 + self.sent}}}[.!?{number}]")
                try:
                    answer = client.generate("sentence:", words, max_tokens=24, beams=4, timeout_s=RESTART_S_MAX)
                    self.answers.append(answer.text)
                except AbsError as error:
                    self.errors.append(error)


def kill(container: str) -> None:
    """Kills all processes of a container but its init."""
    with contextlib.suppress(subprocess.CalledProcessError):  # the command may end with the container
        docker("exec", container, "sh", "-c", "kill -9 -1")
    until(lambda: described(container)["RestartCount"] > 0, f"{container} restarted", 60.0)


class Stack:
    """The deployment with its address and the key of its API."""

    def __init__(self, folder: Path) -> None:
        self.secrets = folder / "secrets"
        self.key = make_secrets(self.secrets, check=True).stdout.strip()
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}"
        self.deployment = Deployment(f"abs{uuid.uuid4().hex[:8]}", self.secrets, address)

    def up(self, *options: str) -> None:
        """Start what is missing, and wait until every container is healthy."""
        self.deployment.compose("up", "--detach", "--no-build", *options)
        self.wait()

    def wait(self) -> None:
        try:
            until(lambda: not self.deployment.unhealthy(), "all containers healthy", READY_S_MAX, poll_s=1.0)
        except AssertionError as error:
            error.add_note(self.deployment.logs())
            raise

    def finished_job(self) -> tuple[str, dict[str, Any]]:
        """The id and the answer of a new job."""
        with self.http() as http, Client(self.url, self.key, retry=PATIENT) as client:
            job = client.submit("sentence:", Keywords("cat"), max_tokens=24).id
            until(lambda: http.get(f"/jobs/{job}").json()["state"] == "done", "the job is done", 120.0)
            return job, http.get(f"/jobs/{job}").json()

    def change_secret(self, value: str) -> None:
        """Give all processes another ABS_SECRET, which they read when they start."""
        (self.secrets / "signing").write_text(value + "\n", encoding="utf-8")  # in place, as a mount of a file needs
        for service in ("api", "compile-worker", "inference-worker"):
            self.deployment.compose("restart", service)
            self.wait()

    def http(self, key: str | None = None) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx2.Client(base_url=self.url, timeout=120, trust_env=False, headers=headers)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    require_engine()
    stack = Stack(tmp_path_factory.mktemp("stack"))
    try:
        stack.up()
        yield stack
    finally:
        stack.deployment.compose("down", "--volumes", "--remove-orphans")


def test_the_containers_answer_the_requests_of_the_readme(stack: Stack) -> None:
    with stack.http() as http:
        for body in REQUESTS:
            answer = http.post("/generate", json=body).json()
            assert answer["choices"][0]["satisfied"] and answer["model"] == "captions", answer
        compiled = http.post("/compile", json={"constraint": {"regex": "[A-Z][a-z]+ dogs?"}})
        assert compiled.status_code == 200, compiled.text


def test_the_proxy_alone_is_published(stack: Stack) -> None:
    published = {
        name: described(container)["NetworkSettings"]["Ports"]
        for name in ("proxy", "api", "redis")
        for container in stack.deployment.containers(name)
    }
    assert [name for name, ports in published.items() if any(ports.values())] == ["proxy"]
    with stack.http() as http:
        refusal = http.post("/generate", content=b" " * (2**21 + 1))
    assert (refusal.status_code, refusal.json()["title"]) == (413, "The body is too large")
    assert "Put a proxy in front" not in stack.deployment.logs()


def test_each_container_has_the_limits_of_the_file(stack: Stack) -> None:
    for container in stack.deployment.containers():
        config = described(container)
        assert config["HostConfig"]["ReadonlyRootfs"] and config["HostConfig"]["Memory"], config["Name"]
        assert config["Config"]["User"] not in ("", "0", "root"), config["Name"]
        with pytest.raises(subprocess.CalledProcessError):
            docker("exec", container, "touch", "/written")


def test_kills_of_every_container_lose_no_request(stack: Stack) -> None:
    stack.up("--scale", f"inference-worker={WORKERS}", "--no-recreate")
    assert len(stack.deployment.containers("inference-worker")) == WORKERS
    with Load(stack.url, stack.key) as load:
        for container in stack.deployment.containers():
            load.wait_for_an_answer()
            kill(container)
            stack.wait()
    assert not load.errors
    assert len(load.answers) == load.sent > len(stack.deployment.containers())
    assert all("dog" in answer for answer in load.answers)


def test_a_restart_keeps_jobs_and_automata(stack: Stack) -> None:
    job, before = stack.finished_job()
    with Client(stack.url, stack.key) as client:
        compiled = client.compile(Keywords("cat"))
    time.sleep(1.5)  # the server writes its log every second
    stack.deployment.compose("down")
    stack.up()
    with stack.http() as http:
        assert http.get(f"/jobs/{job}").json() == before
    with Client(stack.url, stack.key) as client:
        assert client.automaton(compiled).states


def test_keys_are_rotated_without_a_restart(stack: Stack) -> None:
    text, key = new_key("second", SCOPES)
    keys = stack.secrets / "keyring" / "keys"
    add_key(keys, key)
    with stack.http(text) as http:
        until(lambda: http.get("/v1/models").status_code == 200, "the new key is valid", 10.0)
    assert remove_key(keys, stack.key.split("_")[1])
    with stack.http() as http:
        until(lambda: http.get("/v1/models").status_code == 401, "the old key is revoked", 10.0)
    stack.key = text


def test_the_secret_is_rotated_under_load(stack: Stack) -> None:
    signing = stack.secrets / "signing"
    old, new = signing.read_text(encoding="utf-8").strip(), secrets.token_hex(32)
    job, answer = stack.finished_job()
    with Load(stack.url, stack.key) as load:
        for value in (f"{old},{new}", f"{new},{old}"):
            stack.change_secret(value)
            load.wait_for_an_answer()
    assert not load.errors and len(load.answers) == load.sent
    with stack.http() as http:
        assert http.get(f"/jobs/{job}").json() == answer
    kept_job, kept_answer = stack.finished_job()
    stack.change_secret(new)
    with stack.http() as http:
        assert http.get(f"/jobs/{kept_job}").json() == kept_answer
        assert http.get(f"/jobs/{job}").status_code == 503, "the old secret signed it"
    assert stack.finished_job()[1]["state"] == "done"


def test_down_leaves_nothing(stack: Stack) -> None:
    project = f"label=com.docker.compose.project={stack.deployment.project}"
    stack.deployment.compose("down", "--volumes")
    for kind in (("ps", "--all"), ("volume", "ls"), ("network", "ls")):
        assert docker(*kind, "--quiet", "--filter", project) == "", kind
