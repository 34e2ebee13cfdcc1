"""GET /ready tells the truth: workers that hang for real, and the storage that is not there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.errors import StorageDown
from app.store.memory import MemoryStore
from compiler.limits import Limits
from decoding.engine import Engine
from decoding.generation import GenerationSize
from decoding.model import HuggingFaceModel
from tests.app.conftest import service_client, wait_for_compiler
from tests.app.observability.metric_samples import Samples, ask, scrape
from tests.servers.forkserver import Child, start_process
from tests.servers.processes import children, free_port, until
from tests.servers.redis_server import RedisServer, running_server

TURNS_S_MAX = 15.0
STUCK_S = 1.0
SECRET = "a secret of the tests"


def reasons(client: TestClient) -> list[str]:
    """Why the service is not ready, nothing where it is; it is alive all the while."""
    assert client.get("/health").status_code == 200
    answer = client.get("/ready")
    assert answer.status_code in (200, 503)
    return list(answer.json().get("reasons", []))


def turns(client: TestClient, *wanted: str) -> None:
    """Until each of these is a reason, or there are none, within the documented time."""

    def holds() -> bool:
        found = reasons(client)
        return all(any(word in reason for reason in found) for word in wanted) and bool(found) == bool(wanted)

    until(holds, f"the reasons are {wanted}", TURNS_S_MAX)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """What the model's every step waits for; open at first."""
    gate, step = threading.Event(), HuggingFaceModel.step
    gate.set()

    def held(model: HuggingFaceModel, feeds: Sequence[Any]) -> Any:
        assert gate.wait(120)
        return step(model, feeds)

    monkeypatch.setattr(HuggingFaceModel, "step", held)
    yield gate
    gate.set()


def test_readiness_reports_a_stalled_model_and_its_recovery(
    threads: ThreadPoolExecutor, gate: threading.Event
) -> None:
    body = {"prompt": "a dog", "constraint": {"regex": "[a-z ]+dog"}, "max_tokens": 20, "beams": 2}
    with service_client(stall_timeout_s=STUCK_S) as client:
        assert client.post("/generate", json=body).status_code == 200
        time.sleep(1.5 * STUCK_S)
        assert not reasons(client)  # an engine without work is not stuck, however long it rests
        gate.clear()
        waiting = threads.submit(client.post, "/generate", json=body)
        turns(client, "generate worker: stuck: the model takes no step for")
        refused = client.post("/generate", json=body)
        assert (refused.status_code, refused.json()["code"]) == (503, "not_ready")
        assert refused.headers["retry-after"]
        gate.set()
        assert waiting.result(30).status_code == 200
        turns(client)
        assert client.post("/generate", json=body).status_code == 200


def test_readiness_reports_a_stuck_compilation_and_its_end(threads: ThreadPoolExecutor) -> None:
    before = set(children(os.getpid()))
    settings = {"embedded_workers": ("compile",), "stall_timeout_s": 0.2, "limits": Limits(compile_s_max=0.5)}
    with service_client(wait_for_compiler, **settings) as client:
        (server,) = [pid for pid in set(children(os.getpid())) - before if _compiles(pid)]
        os.kill(server, signal.SIGSTOP)  # it takes no job, says nothing, and does not end
        try:
            body = {"constraint": {"regex": "a+b"}, "explain": False}
            waiting = threads.submit(client.post, "/compile", json=body)
            turns(client, "compile worker: stuck: a compilation is past all its limits", "no generate worker")
        finally:
            with contextlib.suppress(ProcessLookupError):  # it may have been replaced by now
                os.kill(server, signal.SIGCONT)
        assert waiting.result(60).status_code == 200
        wait_for_compiler(client)


def _compiles(pid: int) -> bool:
    return b"app.worker.sandbox.server" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_readiness_reports_missing_weights(tmp_path: Path, captions_dir: Path) -> None:
    for file in captions_dir.iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with service_client(None, model=str(tmp_path), embedded_workers=("generate",)) as client:
        turns(client, "generate worker: the model cannot be loaded; see the log", "no compile worker is alive")


def test_readiness_reports_a_loading_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, load = threading.Event(), HuggingFaceModel.load

    def late(*args: Any, **settings: Any) -> Any:
        assert gate.wait(120)
        return load(*args, **settings)

    monkeypatch.setattr(HuggingFaceModel, "load", late)
    try:
        with service_client(None) as client:
            turns(client, "generate worker: loading")
            gate.set()
            turns(client)
    finally:
        gate.set()


def test_readiness_reports_a_broken_store(
    short_sighted_client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forgets(*_: object) -> None:
        pass

    async def is_down(*_: object) -> None:
        raise StorageDown

    async def says_nothing(*_: object) -> None:
        await asyncio.sleep(60)

    for put, reason in (
        (forgets, "the storage does not keep what is written"),
        (is_down, "the storage of jobs and automata cannot be reached"),
        (says_nothing, "the storage does not answer within 2 s"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(MemoryStore, "put", put)
            assert reasons(short_sighted_client) == [reason]
        assert reasons(short_sighted_client) == ["no generate worker is alive"]


def test_an_engine_with_a_dead_thread_stays_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)

    class Model:
        supports_batching = True

        def bytes_for(self, *_: int) -> int:
            return 0

    engine, run = Engine(Model(), 1), SimpleNamespace(size=GenerationSize(1, 1, 0))  # type: ignore[arg-type]
    assert engine.stalled_s == 0.0
    monkeypatch.setattr(engine._scheduler, "admit", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.generate(lambda: run, [1])  # type: ignore[arg-type, return-value]
    engine.close()
    assert engine.stalled_s == float("inf")




@contextlib.contextmanager
def worker_process(server: RedisServer, port: int, log: Path) -> Iterator[subprocess.Popen[bytes] | Child]:
    """A compile worker of its own, which answers probes at a port and logs to a file."""
    settings = {
        "ABS_BROKER": server.url, "ABS_STORE": server.url, "ABS_SECRET": SECRET, "ABS_METRICS_PORT": str(port),
        "ABS_LOG_FORMAT": "json",
    }  # fmt: skip
    process = start_process(["app.main", "worker", "compile"], os.environ | settings, log, log.with_suffix(".out"))
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.wait()


def test_readiness_reports_stopped_processes_and_their_recovery(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    with running_server() as server, worker_process(server, port, log) as worker:
        settings = {"embedded_workers": (), "broker": server.url, "store": server.url, "secret": SECRET.encode()}
        with service_client(wait_for_compiler, **settings) as client:
            assert ask(port, "/ready") == (200, '{"status": "ready"}')
            assert ask(port, "/health")[0] == 200
            worker.send_signal(signal.SIGSTOP)
            turns(client, "no compile worker is alive", "no generate worker is alive")
            worker.send_signal(signal.SIGCONT)
            wait_for_compiler(client)
            server.pause()
            turns(client, "the storage does not answer within")
            server.resume()
            wait_for_compiler(client)
            before = scrape(client)
            server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            server.ask("CONFIG", "SET", "maxmemory", "1")
            turns(client, "the storage of jobs and automata is full")
            assert scrape(client)("abs_redis_errors_total") > before("abs_redis_errors_total")
            server.ask("CONFIG", "SET", "maxmemory", "0")
            wait_for_compiler(client)
            body, named = {"constraint": {"regex": "a+"}, "explain": False}, {"x-request-id": "r-42"}
            assert client.post("/compile", json=body, headers=named).status_code == 200
        log_lines = [json.loads(line) for line in log.read_text().splitlines()]
        (done,) = [line for line in log_lines if line.get("event") == "job_done"]
        assert (done["kind"], done["outcome"], done["request_id"]) == ("compile", "ok", "r-42")
        assert Samples(ask(port, "/metrics")[1])("abs_compile_total", form="regex", outcome="ok") == 1
