"""GET /ready reports hanging workers and missing storage."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
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
from decoding.engine import Engine
from decoding.generation import GenerationSize
from decoding.model import HuggingFaceModel
from tests.app.conftest import service_client, wait_for_compiler
from tests.app.observability.metric_samples import Samples, ask, scrape
from tests.servers.forkserver import PREFORKED, Child, start_process
from tests.servers.processes import children, free_port, until
from tests.servers.redis_server import RedisServer, running_server
from tests.servers.small_model import small_model

REPORT_S_MAX = 15.0
STUCK_S = 1.0
SECRET = "a secret of the tests"


def reasons(client: TestClient) -> list[str]:
    """The reasons for not being ready; the service is alive."""
    assert client.get("/health").status_code == 200
    answer = client.get("/ready")
    assert answer.status_code in (200, 503)
    return list(answer.json().get("reasons", []))


def await_reasons(client: TestClient, *expected: str) -> None:
    """Wait until each text is in a reason; without texts, until ready.

    The wait is bounded by the documented time.
    """

    def matches() -> bool:
        answers = reasons(client)
        return all(any(word in reason for reason in answers) for word in expected) and bool(answers) == bool(expected)

    until(matches, f"the reasons are {expected}", REPORT_S_MAX)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """An event that every model step waits for; set at first."""
    gate, step = threading.Event(), HuggingFaceModel.step
    gate.set()

    def blocking_step(model: HuggingFaceModel, feeds: Sequence[Any]) -> Any:
        assert gate.wait(120)
        return step(model, feeds)

    monkeypatch.setattr(HuggingFaceModel, "step", blocking_step)
    yield gate
    gate.set()


def test_readiness_reports_a_stalled_model_and_its_recovery(threads: ThreadPoolExecutor, gate: threading.Event) -> None:
    body = {"prompt": "a dog", "constraint": {"regex": "[a-z ]+dog"}, "max_tokens": 20, "beams": 2}
    with service_client(stall_timeout_s=STUCK_S) as client:
        assert client.post("/generate", json=body).status_code == 200
        time.sleep(1.5 * STUCK_S)
        assert not reasons(client)  # an idle engine is never stuck
        gate.clear()
        future = threads.submit(client.post, "/generate", json=body)
        await_reasons(client, "generate worker: stuck: the model takes no step for")
        refusal = client.post("/generate", json=body)
        assert (refusal.status_code, refusal.json()["code"]) == (503, "not_ready")
        assert refusal.headers["retry-after"]
        gate.set()
        assert future.result(30).status_code == 200
        await_reasons(client)
        assert client.post("/generate", json=body).status_code == 200


def test_readiness_reports_a_stuck_compilation_and_its_end(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(PREFORKED, raising=False)  # so that the sandbox's server is our child
    children_before = set(children(os.getpid()))
    settings = {"embedded_workers": ("compile",), "stall_timeout_s": 0.2, "compile_s_max": 0.5}
    with service_client(wait_for_compiler, **settings) as client:
        (server,) = [pid for pid in set(children(os.getpid())) - children_before if _is_sandbox_server(pid)]
        os.kill(server, signal.SIGSTOP)  # it neither answers nor ends
        try:
            body = {"constraint": {"regex": "a+b"}, "explain": False}
            assert client.post("/compile", json=body).status_code == 200  # in the process that it forked before
            body = {"constraint": {"regex": "a+c"}, "explain": False}
            future = threads.submit(client.post, "/compile", json=body)
            await_reasons(client, "compile worker: stuck: a compilation is past all its limits", "no generate worker")
        finally:
            with contextlib.suppress(ProcessLookupError):  # it may have been replaced by now
                os.kill(server, signal.SIGCONT)
        assert future.result(60).status_code == 200
        wait_for_compiler(client)


def _is_sandbox_server(pid: int) -> bool:
    return b"app.worker.sandbox.server" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_readiness_reports_missing_weights(tmp_path: Path, captions_dir: Path) -> None:
    for file in captions_dir.iterdir():
        if file.suffix == ".json":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with service_client(None, model=str(tmp_path), embedded_workers=("generate",)) as client:
        await_reasons(client, "generate worker: the model cannot be loaded; see the log", "no compile worker is alive")


def test_readiness_reports_a_loading_worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(small_model(), tmp_path / "captions")  # which no service has loaded before
    gate, load = threading.Event(), HuggingFaceModel.load

    def blocking_load(*args: Any, **settings: Any) -> Any:
        assert gate.wait(120)
        return load(*args, **settings)

    monkeypatch.setattr(HuggingFaceModel, "load", blocking_load)
    try:
        with service_client(None, model=str(tmp_path / "captions")) as client:
            await_reasons(client, "generate worker: loading")
            gate.set()
            await_reasons(client)
    finally:
        gate.set()


def test_readiness_reports_a_broken_store(short_sighted_client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def forget(*_: object) -> None:
        pass

    async def fail(*_: object) -> None:
        raise StorageDown

    async def hang(*_: object) -> None:
        await asyncio.sleep(60)

    for put, reason in (
        (forget, "the storage does not keep what is written"),
        (fail, "the storage of jobs and automata cannot be reached"),
        (hang, "the storage does not answer within 2 s"),
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

    engine, run = Engine(Model(), 2**20), SimpleNamespace(size=GenerationSize(1, 1, 0))  # type: ignore[arg-type]
    assert engine.stalled_s == 0.0
    monkeypatch.setattr(engine._scheduler, "admit", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.generate(lambda: run, [1])  # type: ignore[arg-type, return-value]
    engine.close()
    assert engine.stalled_s == float("inf")


@contextlib.contextmanager
def worker_process(server: RedisServer, port: int, log: Path) -> Iterator[subprocess.Popen[bytes] | Child]:
    """A compile worker process with a probe port and a log file."""
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
            await_reasons(client, "no compile worker is alive", "no generate worker is alive")
            worker.send_signal(signal.SIGCONT)
            wait_for_compiler(client)
            server.pause()
            await_reasons(client, "the storage does not answer within")
            server.resume()
            wait_for_compiler(client)
            samples_before = scrape(client)
            server.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            server.ask("CONFIG", "SET", "maxmemory", "1")
            await_reasons(client, "the storage of jobs and automata is full")
            assert scrape(client)("abs_redis_errors_total") > samples_before("abs_redis_errors_total")
            server.ask("CONFIG", "SET", "maxmemory", "0")
            wait_for_compiler(client)
            body, headers = {"constraint": {"regex": "a+"}, "explain": False}, {"x-request-id": "r-42"}
            assert client.post("/compile", json=body, headers=headers).status_code == 200
        log_lines = [json.loads(line) for line in log.read_text().splitlines()]
        (record,) = [line for line in log_lines if line.get("message") == "job_done"]
        assert (record["kind"], record["outcome"], record["request_id"]) == ("compile", "ok", "r-42")
        assert Samples(ask(port, "/metrics")[1])("abs_compile_total", form="regex", outcome="ok") == 1
