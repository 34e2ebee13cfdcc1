"""Altered, oversized and slowly loading models in processes of the service."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.models import digest_of, digests_of
from app.settings import BUILT_IN_MODEL
from tests.servers.cluster import API, COMPILE, Cluster, cluster
from tests.servers.processes import until

ROWS = 20  # that the worker has memory for in one pass
FAKE = ("-m", "tests.servers.fake_worker")
LEAVES_S_MAX = 120.0  # to end, on a busy machine; the model would take ten minutes
BODY: dict[str, Any] = {"prompt": "sentence:", "constraint": {"keywords": ["dog"]}, "algorithm": "abs", "trace": True}


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """A server, an API and a compile worker, without generate workers.

    They serve the whole built-in model, because `scarce` fails between its layers.
    """
    with cluster() as running:
        running.add("api", API, ABS_MODEL=BUILT_IN_MODEL)
        running.add("compile", COMPILE, ABS_MODEL=BUILT_IN_MODEL)
        running.parts["api"].wait_until()
        running.parts["compile"].wait_until("/ready")
        yield running


def why_not_ready(url: str) -> list[str]:
    answer = httpx2.get(f"{url}/ready", timeout=30, trust_env=False, verify=False)
    return list(answer.json().get("reasons", []))


def test_an_oversized_batch_is_split_and_the_worker_survives(running: Cluster) -> None:
    worker = running.add("short", (*FAKE, "scarce", str(ROWS)), ABS_MODEL=BUILT_IN_MODEL)
    try:
        worker.wait_until("/ready")
        bodies = [BODY | {"beams": 3 + number % 4, "max_tokens": 12 + number % 5} for number in range(12)]
        with running.client() as http, ThreadPoolExecutor(len(bodies)) as callers:
            single_choices = [http.post("/generate", json=body).json()["choices"] for body in bodies]
            assert not worker.metric("abs_out_of_memory_total")
            together = list(callers.map(lambda body: http.post("/generate", json=body), bodies))
            assert [answer.status_code for answer in together] == [200] * len(bodies), [one.text for one in together]
            assert [answer.json()["choices"] for answer in together] == single_choices
            assert worker.metric("abs_out_of_memory_total", action="batch_split") > 0
            refusal = http.post("/generate", json=BODY | {"beams": ROWS + 4, "max_tokens": 12})
            assert (refusal.status_code, refusal.json()["code"]) == (507, "out_of_memory"), refusal.text
            assert "fewer beams" in refusal.json()["detail"] and refusal.json()["needed_bytes"] > 0
            assert http.post("/generate", json=bodies[0]).json()["choices"] == single_choices[0]
        assert worker.alive and worker.metric("abs_out_of_memory_total", action="rejected") == 1
        assert "ran out: batch split" in worker.log()
    finally:
        worker.end()


def test_a_stalled_or_failing_model_is_reported_until_it_recovers(running: Cluster, tmp_path: Path) -> None:
    hold, fail = tmp_path / "hold", tmp_path / "fail"
    body = BODY | {"beams": 3, "max_tokens": 12}
    command = (*FAKE, "controlled", str(tmp_path))
    worker = running.add("faulty", command, ABS_MODEL=BUILT_IN_MODEL, ABS_STALL_TIMEOUT_S="1")
    api = running.parts["api"].url
    try:
        worker.wait_until("/ready")
        with running.client() as http, ThreadPoolExecutor(3) as callers:
            until(lambda: not why_not_ready(api), "the API is ready")
            full_choices = http.post("/generate", json=body).json()["choices"]
            hold.touch()
            waiting_answer = callers.submit(http.post, "/generate", json=body)
            stuck = "generate worker: stuck: the model takes no step"
            until(lambda: any(stuck in one for one in why_not_ready(api)), f"{why_not_ready(api)} says {stuck}")
            refusal = http.post("/generate", json=body)
            assert (refusal.status_code, refusal.json()["code"]) == (503, "not_ready"), refusal.text
            hold.unlink()
            assert waiting_answer.result().json()["choices"] == full_choices
            until(lambda: not why_not_ready(api), "the API is ready again")
            fail.touch()
            failures = list(callers.map(lambda _: http.post("/generate", json=body), range(3)))
            assert {(one.status_code, one.json()["code"]) for one in failures} == {(500, "internal")}, failures[0].text
            assert not any("made to fail" in one.text for one in failures)
            fail.unlink()
            assert http.post("/generate", json=body).json()["choices"] == full_choices
        assert worker.alive and "RuntimeError" in worker.log()
    finally:
        worker.end()


def test_a_worker_with_altered_weights_refuses_to_serve(running: Cluster, tmp_path: Path, captions_dir: Path) -> None:
    model = tmp_path / "captions"
    shutil.copytree(captions_dir, model)
    meant = digest_of(digests_of(model))
    (model / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in digests_of(model).items()))
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-4_321] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    worker = running.add(
        "changed", ("-m", "app.main", "worker", "generate"), ABS_MODEL=str(model), ABS_MODEL_SHA256=meant
    )
    try:
        worker.wait_until("/health")
        until(lambda: any("model changed" in one for one in why_not_ready(worker.url)), "the worker says so", 120)
        (reason,) = why_not_ready(worker.url)
        assert reason.endswith("model.safetensors differs") and str(tmp_path) not in reason
        reason_text = f"generate worker: {reason.partition(': ')[2]}"
        api = running.parts["api"].url
        until(lambda: reason_text in why_not_ready(api), f"the API says {reason_text}, not {why_not_ready(api)}")
        with running.client() as http:
            assert http.get("/health").status_code == 200
            refusal = http.post("/generate", json=BODY)
            assert (refusal.status_code, refusal.json()["code"]) == (503, "not_ready")
        assert worker.alive and httpx2.get(f"{worker.url}/health", timeout=30, trust_env=False).status_code == 200
        assert worker.stop() == 0
    finally:
        worker.end()


def test_a_loading_worker_stops_at_once_on_a_signal(running: Cluster) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        worker = running.add(f"slow-{number.name}", (*FAKE, "loading"))
        try:
            worker.wait_until("/health")
            until(lambda: any("loading" in one for one in why_not_ready(worker.url)), "it loads")  # noqa: B023
            worker.signal(number)
            assert worker.process is not None and worker.process.wait(LEAVES_S_MAX) == 0, worker.log()
            assert "Traceback" not in worker.log() and "Fatal" not in worker.log()
        finally:
            worker.end()


def test_a_loading_service_stops_at_once_on_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, *FAKE, "loading", "serve", "--port", "0"]
    log = tmp_path / "log"
    with log.open("wb") as words:
        process = subprocess.Popen(command, env=os.environ, stdout=subprocess.PIPE, stderr=words)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().rpartition(" ")[2].strip()
        until(lambda: any("generate worker: loading" in one for one in why_not_ready(url)), "it loads", 120)
        process.terminate()
        assert process.wait(LEAVES_S_MAX) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
