"""Each metric changes with the event that it counts."""

from __future__ import annotations

import socket
import sys
import time
import urllib.error
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from starlette.testclient import TestClient

from app.auth import metrics_guard
from app.broker import Delivery
from app.errors import DeadlineExceeded, SettingsInvalid
from app.messages import CompileJob, Failure, failure_of
from app.observability import metrics
from app.settings import Settings
from app.worker import job_run
from app.worker.handlers.generate import EngineWatch, Generator
from compiler.errors import CompileCancelled, LimitExceeded, SpecUnspellable
from decoding.engine import gpu_bytes
from decoding.errors import ReplayRejected
from decoding.options import SearchOptions
from decoding.search import rows_of
from tests.app import fake_handlers
from tests.app.conftest import service_client
from tests.app.observability.metric_samples import Samples, ask, increase, scrape
from tests.app.real_server import listening, post
from tests.servers.processes import free_port, until

S_MAX = 90.0
_counter = iter(range(10**6))


def constraint() -> dict[str, object]:
    """A new constraint, compiled by no other test."""
    return {"regex": f"[a-z ]*metric{'x' * (next(_counter) + 3)}"}


def generate(client: TestClient, status: int = 200, **fields: object) -> dict[str, object]:
    answer = client.post("/generate", json={"prompt": "a dog", "max_tokens": 60, "beams": 2, **fields})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def test_a_generation_moves_the_metrics_of_every_stage(client: TestClient) -> None:
    before, start_time = scrape(client), time.time()
    answer = generate(client, constraint=constraint())
    after = scrape(client)
    usage = answer["usage"]
    assert isinstance(usage, dict)
    labels_of_name = {
        "abs_http_requests_total": {"route": "/generate", "method": "POST", "code": "200"},
        "abs_http_request_duration_seconds_count": {"route": "/generate"},
        "abs_queue_wait_seconds_count": {"queue": "generate"},
        "abs_time_to_first_step_seconds_count": {},
        "abs_e2e_seconds_count": {"outcome": "ok"},
        "abs_generate_total": {"outcome": "ok"},
        "abs_compile_total": {"form": "regex", "outcome": "ok"},
        "abs_compile_seconds_count": {"form": "regex"},
        "abs_automaton_states_count": {},
        "abs_cache_requests_total": {"result": "miss"},
    }
    assert {name: increase(before, after, name, **labels) for name, labels in labels_of_name.items()} == dict.fromkeys(
        labels_of_name, 1.0
    )
    assert increase(before, after, "abs_job_attempts_total", job_kind="generate") == 1
    assert increase(before, after, "abs_job_attempts_total", job_kind="compile") == 1
    assert increase(before, after, "abs_prompt_tokens_total") == usage["prompt_tokens"]
    assert increase(before, after, "abs_generated_tokens_total") == usage["completion_tokens"]
    steps = increase(before, after, "abs_step_duration_seconds_count")
    assert 0 < steps < 60
    assert increase(before, after, "abs_batch_size_count") == steps
    assert steps <= increase(before, after, "abs_batch_size_sum") <= rows_of(SearchOptions(60, beams=2)) * steps
    assert after("abs_last_step_timestamp_seconds") >= start_time
    assert increase(before, after, "abs_cache_bytes") > 0
    assert increase(before, after, "abs_constraint_violations_total") == 0
    assert increase(before, after, "abs_job_redelivered_total") == 0


def test_a_stored_constraint_counts_as_a_cache_hit(client: TestClient) -> None:
    body = {"constraint": constraint()}
    assert client.post("/compile", json=body).status_code == 200
    before = scrape(client)
    assert client.post("/compile", json=body).json()["cached"]
    after = scrape(client)
    assert increase(before, after, "abs_cache_requests_total", result="hit") == 1
    assert increase(before, after, "abs_compile_total") == 0
    assert increase(before, after, "abs_cache_requests_total", result="miss") == 0


def test_a_cached_failure_counts_as_a_negative_hit(client: TestClient) -> None:
    body = {"constraint": {"all": [constraint(), {"regex": "b+"}]}}
    before = scrape(client)
    for _ in range(2):
        assert client.post("/compile", json=body).json()["code"] == "constraint_unsatisfiable"
    after = scrape(client)
    assert increase(before, after, "abs_compile_total", form="all", outcome="unsat") == 1
    assert increase(before, after, "abs_cache_requests_total", result="negative") == 1


def test_requests_are_counted_by_route_template(client: TestClient) -> None:
    before = scrape(client)
    for path in ("/automata/" + "0" * 64, "/automata/" + "1" * 64 + ".dot", "/nothing/here", "/nothing/there"):
        assert client.get(path).status_code == 404
    assert client.get("/generate").status_code == 405
    assert client.request("MARKER", "/generate").status_code == 405
    after = scrape(client)
    assert increase(before, after, "abs_http_requests_total", route="/automata/{automaton}", code="404") == 1
    assert increase(before, after, "abs_http_requests_total", route="/automata/{automaton}.dot", code="404") == 1
    assert increase(before, after, "abs_http_requests_total", route="other", code="404") == 2
    assert increase(before, after, "abs_http_requests_total", route="/generate", method="GET", code="405") == 1
    assert increase(before, after, "abs_http_requests_total", route="/generate", method="other", code="405") == 1


def test_a_body_refused_by_middleware_keeps_its_route(client: TestClient) -> None:
    before = scrape(client)
    headers = {"content-type": "application/json"}
    assert client.post("/generate", content=b'{"prompt": NaN}', headers=headers).status_code == 400
    assert increase(before, scrape(client), "abs_http_requests_total", route="/generate", code="400") == 1


def test_an_impossible_generation_is_counted_as_infeasible(client: TestClient) -> None:
    before = scrape(client)
    generate(client, 422, constraint=constraint(), prompt="MARKER", scope="full")
    assert increase(before, scrape(client), "abs_generate_total", outcome="infeasible") == 1


def test_an_answer_that_fails_its_check_is_counted_and_withheld(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*_: object) -> None:
        raise ReplayRejected("MARKER")

    monkeypatch.setattr(Generator, "_replay", reject)
    before = scrape(client)
    assert generate(client, 500, constraint=constraint())["code"] == "replay_rejected"
    after = scrape(client)
    assert increase(before, after, "abs_constraint_violations_total") == 1
    assert increase(before, after, "abs_generate_total", outcome="error") == 1


@pytest.fixture
def blocking_client(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A service whose generations run until they are cancelled.

    Its queue has room for one job.
    """
    fake_handlers.install(monkeypatch, generate="open_blocking")
    with service_client(queue_jobs_max=1) as client:
        yield client


def test_waiting_running_and_refused_requests_are_measured(
    blocking_client: TestClient, threads: ThreadPoolExecutor
) -> None:
    body = {"prompt": "a", "constraint": constraint(), "max_tokens": 50, "beams": 4}
    assert blocking_client.post("/compile", json={"constraint": body["constraint"]}).status_code == 200
    before = scrape(blocking_client)
    answers = []
    for number in range(fake_handlers.SLOTS + 1):
        answers.append(threads.submit(blocking_client.post, "/generate", json=body | {"timeout_s": 4.0}))
        if number < fake_handlers.SLOTS:
            until(lambda: len(fake_handlers.running_jobs) > number)  # noqa: B023
    until(lambda: scrape(blocking_client)("abs_queue_requests", queue="generate", priority="interactive") == 1)
    during = scrape(blocking_client)
    assert during("abs_queue_tokens", queue="generate") == 200
    assert increase(before, during, "abs_running_requests", queue="generate") == fake_handlers.SLOTS
    assert increase(before, during, "abs_http_in_flight") == fake_handlers.SLOTS + 1
    assert blocking_client.post("/generate", json=body | {"prompt": "b"}).status_code == 429
    assert [answer.result(S_MAX).status_code for answer in answers] == [504] * len(answers)
    after = scrape(blocking_client)
    assert increase(before, after, "abs_admission_rejected_total", reason="queue_full") == 1
    until(lambda: increase(before, scrape(blocking_client), "abs_running_requests", queue="generate") == 0)
    assert increase(before, scrape(blocking_client), "abs_generate_total") >= fake_handlers.SLOTS


def test_a_disconnected_client_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test needs a real socket, since only that shows a disconnect."""
    fake_handlers.install(monkeypatch, generate="open_blocking")

    def scrape_port(port: int) -> Samples:
        return Samples(ask(port, "/metrics")[1])

    with listening(Settings()) as port:
        before = scrape_port(port)
        with socket.create_connection(("127.0.0.1", port), timeout=S_MAX) as connection:
            connection.sendall(post("/generate", {"prompt": "a", "constraint": {"regex": "a+"}}))
            assert fake_handlers.start_event.wait(S_MAX)
        until(lambda: increase(before, scrape_port(port), "abs_generate_total", outcome="cancelled") == 1)
        until(
            lambda: increase(before, scrape_port(port), "abs_http_requests_total", route="/generate", code="499") == 1
        )


def test_names_and_labels_are_sound(client: TestClient) -> None:
    generate(client, constraint={"keywords": ["MARKER"]}, max_tokens=40)
    text = client.get("/metrics").text
    assert "MARKER" not in text
    samples = Samples(text)
    service_families = [family for family in samples.families if family.name.startswith("abs_")]
    assert all(family.documentation for family in service_families)
    assert not [family.name for family in service_families if family.name.endswith(("_ms", "_milliseconds"))]
    assert samples("abs_model_info", model="captions", revision="local") == 1
    assert samples("abs_build_info") == 1
    assert all(set(labels) == {"model", "revision", "tokenizer"} for labels in samples.labels("abs_model_info"))
    assert samples("process_resident_memory_bytes") > 0


def test_every_live_worker_has_a_heartbeat_metric(blocking_client: TestClient) -> None:
    def live_workers() -> set[str]:
        return {labels["worker"] for labels in scrape(blocking_client).labels("abs_worker_heartbeat_timestamp_seconds")}

    assert {worker.rpartition("-")[0] for worker in live_workers()} == {"compile", "generate"}
    metrics.BEATS.record_heartbeat("gone-1", "")
    assert "gone-1" in live_workers()
    metrics.BEATS.drop("gone-1")
    assert "gone-1" not in live_workers()


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (failure_of(LimitExceeded("compile_s_max", 1, 2)), "timeout"),
        (failure_of(LimitExceeded("dfa_states_max", 1, 2)), "limit"),
        (failure_of(SpecUnspellable("")), "unsat"),
        (failure_of(DeadlineExceeded()), "timeout"),
        (failure_of(CompileCancelled("")), "cancelled"),
        (failure_of(ZeroDivisionError("")), "error"),
    ],
)
def test_an_outcome_is_one_of_a_few_words(failure: Failure, outcome: str) -> None:
    assert job_run.outcome_of(failure) == outcome


def test_a_second_attempt_is_a_redelivery() -> None:
    before = Samples(metrics.exposition().decode())
    job = CompileJob("0" * 64, {"min_words": 1}, time.time() + 9)
    failure = failure_of(LimitExceeded("dfa_states_max", 1, 2))
    for attempt in (1, 2):
        delivery = Delivery("j", b"", waited_s=0.5, attempt=attempt)
        job_run.record_attempt(job, delivery, "compile", "w", lambda: failure)
    after = Samples(metrics.exposition().decode())
    assert increase(before, after, "abs_job_attempts_total", job_kind="compile") == 2
    assert increase(before, after, "abs_job_redelivered_total", job_kind="compile") == 1
    assert increase(before, after, "abs_compile_total", form="length", outcome="limit") == 2
    assert increase(before, after, "abs_queue_wait_seconds_sum", queue="compile") == pytest.approx(1.0)


def test_a_worker_process_answers_probes_on_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    beats = metrics.HeartbeatRegistry()  # separate, since workers of other tests in this process report, too
    monkeypatch.setattr(metrics, "BEATS", beats)
    settings, guard = Settings.of(metrics_port=port), metrics_guard(Settings())
    with metrics.listening(settings, guard):
        assert ask(port, "/ready") == (503, '{"status": "not_ready", "reasons": ["no worker runs yet"]}')
        beats.record_heartbeat("w-1", "loading")
        assert ask(port, "/ready") == (503, '{"status": "not_ready", "reasons": ["w-1: loading"]}')
        beats.record_heartbeat("w-1", "")
        assert ask(port, "/ready") == (200, '{"status": "ready"}')
        assert ask(port, "/live") == (200, '{"status": "live"}')
        beats.record_loop_alive("w-1", "stuck: no step")
        assert ask(port, "/live") == (503, '{"status": "hung", "reasons": ["w-1: stuck: no step"]}')
        beats.record_loop_alive("w-1", "")
        monkeypatch.setattr(metrics, "SILENT_S_MAX", 0.0)
        time.sleep(0.01)
        assert "no sign of life" in ask(port, "/ready")[1]
        assert ask(port, "/live")[0] == 200, "an unreported status is no reason to restart"
        assert ask(port, "/health")[0] == 200
        assert 'abs_worker_heartbeat_timestamp_seconds{worker="w-1"}' in ask(port, "/metrics")[1]
        assert ask(port, "/else")[0] == 404
        second_listener = metrics.listening(settings, guard)
        with pytest.raises(SettingsInvalid, match="ABS_METRICS_PORT"), second_listener:
            raise AssertionError
        beats.drop("w-1")
    with pytest.raises(urllib.error.URLError):
        ask(port, "/health")


def test_recording_a_step_metric_takes_few_calls() -> None:
    calls: list[str] = []
    sys.setprofile(lambda _, event, __: calls.append(event))
    EngineWatch().stepped(0.002, 64)
    sys.setprofile(None)
    assert len(calls) < 100, "23 calls, and their returns"


def test_gpu_memory_is_read_at_every_scrape() -> None:
    def read_samples() -> Samples:
        return Samples(metrics.exposition().decode())

    assert gpu_bytes(torch.device("cpu")) == {}
    try:
        memory = {"free": 7}
        metrics.gpu(tuple(memory), lambda: memory)
        assert read_samples()("abs_gpu_memory_bytes", kind="free") == 7
        memory["free"] = 5
        assert read_samples()("abs_gpu_memory_bytes", kind="free") == 5
    finally:
        metrics.GPU_BYTES.clear()
    assert not read_samples().labels("abs_gpu_memory_bytes")
