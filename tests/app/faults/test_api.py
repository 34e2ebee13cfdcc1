"""APIs that die, and callers who leave, repeat or flood.

Generations are scripted (tests/servers/fake_worker.py). The table of all faults is test_table.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.app.faults.test_workers import BODY, SLOTS, WORKERS, begin, final_status, read_on, steps
from tests.servers.cluster import API, ASK_S_MAX, FULL, Cluster, Event, Part, events
from tests.servers.processes import until

CALLERS = 500 if FULL else 150
SLOW_S_MAX = 5.0  # of the API that is impatient
UNSATISFIABLE = {"ltlf": "F(a) & G(!a)"}


@pytest.fixture
def services(scripted: Cluster) -> Iterator[Cluster]:
    scripted.restore()
    yield scripted
    until(lambda: running(scripted) == 0, "nothing runs any more", 90)  # or it would stand in the next one's way


def running(cluster: Cluster) -> float:
    return sum(cluster.parts[name].metric("abs_running_requests", queue="generate") for name in WORKERS)


def test_a_stream_resumes_at_another_api_after_a_kill(services: Cluster) -> None:
    stream_events: list[Event] = []
    job = ""
    with services.client("api") as http, pytest.raises(httpx2.TransportError):  # noqa: SIM117
        with http.stream("POST", "/generate", json=BODY | {"prompt": "steps 40 0.1", "stream": True}) as response:
            job = response.headers["x-job-id"]
            for event in events(response):
                stream_events.append(event)
                if len(stream_events) == 5:
                    services.parts["api"].kill()
    with services.client("other") as http:
        stream_events += read_on(http, job, stream_events[-1].id)
        job_status = http.get(f"/jobs/{job}").json()
    assert job_status["attempt"] == 1 and job_status["result"] == stream_events[-1].data
    assert steps(stream_events) == list(range(1, 41)) and [event.name for event in stream_events].count("done") == 1
    assert len({event.id for event in stream_events}) == len(stream_events)


def test_a_stopping_api_finishes_requests_and_hands_over_streams(services: Cluster) -> None:
    part = services.parts["api"]
    answers: list[httpx2.Response] = []
    streams: list[tuple[str, list[Event]]] = []

    def send_plain() -> None:
        with services.client() as http:
            answers.append(http.post("/generate", json=BODY | {"prompt": "steps 10 0.1"}))

    def stream() -> None:
        with services.client() as http:
            with http.stream("POST", "/generate", json=BODY | {"prompt": "steps 60 0.1", "stream": True}) as response:
                stream_events = list(events(response))
            streams.append((response.headers["x-job-id"], stream_events))

    readers = [threading.Thread(target=stream) for _ in range(4)]
    threads = [*readers, *(threading.Thread(target=send_plain) for _ in range(46))]
    for thread in readers:
        thread.start()
    until(lambda: part.metric("abs_http_in_flight") >= 5, "the readers, and who asks, are being served")
    for thread in threads[len(readers) :]:
        thread.start()

    def sent_jobs() -> float:
        return len(answers) + part.metric("abs_queue_requests", queue="generate") + running(services)

    until(lambda: sent_jobs() >= 45, "nearly all requests are admitted")
    assert part.stop() == 0, part.log()
    for thread in threads:
        thread.join(ASK_S_MAX)
    late_codes = [answer.json()["code"] for answer in answers if answer.status_code == 503]
    assert sum(answer.status_code == 200 for answer in answers) == 46 - len(late_codes)
    assert len(late_codes) <= 11 and set(late_codes) <= {"draining"}  # requests after the signal were refused
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{part.url}/health", trust_env=False, verify=False)
    with services.client("other") as http:
        for job, stream_events in streams:
            assert (stream_events[-1].name, stream_events[-1].id) == ("reconnect", ""), stream_events[-1]
            whole_story = [event for event in stream_events if event.name != "reconnect"]
            whole_story += read_on(http, job, whole_story[-1].id if whole_story else "")
            assert steps(whole_story) == list(range(1, 61)) and whole_story[-1].name == "done"


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_cancels_the_callers_job(services: Cluster, stream: bool) -> None:
    cancel_counts = [services.parts[name].metric("abs_generate_total", outcome="cancelled") for name in WORKERS]
    with services.client() as http:
        request = http.build_request("POST", "/generate", json=BODY | {"prompt": "steps 250 0.2", "stream": stream})
        if stream:
            response = http.send(request, stream=True)
            services.busy(*WORKERS)
            response.close()
        else:
            with pytest.raises(httpx2.TimeoutException):
                http.post("/generate", json=BODY | {"prompt": "steps 250 0.2"}, timeout=2.0)
    until(lambda: running(services) == 0, "the slot is free", 30)
    now = [services.parts[name].metric("abs_generate_total", outcome="cancelled") for name in WORKERS]
    assert sum(now) == sum(cancel_counts) + 1


def test_waiting_running_and_ended_jobs_can_be_cancelled(services: Cluster) -> None:
    with services.client() as http:
        long_jobs = [begin(http, "steps 300 0.2") for _ in range(SLOTS)]
        until(lambda: running(services) == SLOTS, "all slots are taken")
        waiting_job, over = begin(http, "steps 1 0"), begin(http, "steps 1 0")
        assert http.get(f"/jobs/{waiting_job}").json()["state"] == "waiting"
        assert [http.delete(f"/jobs/{waiting_job}").status_code for _ in range(2)] == [202, 200]
        deletions = [http.delete(f"/jobs/{job}") for job in long_jobs]
        assert [deletion.status_code for deletion in deletions] == [202] * SLOTS
        assert {deletion.json()["state"] for deletion in deletions} == {"cancelled"}
        assert final_status(http, over)["state"] == "done"
        assert http.delete(f"/jobs/{over}").status_code == 200
        assert {final_status(http, job)["state"] for job in (*long_jobs, waiting_job)} == {"cancelled"}


def test_many_callers_of_one_cold_constraint_compile_it_once(services: Cluster) -> None:
    def compile_count() -> float:
        return services.parts["compile"].metric("abs_compile_total", outcome="ok")

    async def ask(http: httpx2.AsyncClient) -> str:
        while True:
            response = await http.post("/compile", json={"constraint": {"regex": "also (a|b)*a(a|b){9}"}})
            if response.status_code not in (429, 503):  # this many at once may overload a busy machine
                assert response.status_code == 200, response.text
                return str(response.json()["automaton"])
            await asyncio.sleep(float(response.headers["retry-after"]))

    async def all_at_once() -> set[str]:
        limits = httpx2.Limits(max_connections=CALLERS)
        urls = [services.parts[name].url for name in ("api", "other")]
        clients = [httpx2.AsyncClient(base_url=url, timeout=ASK_S_MAX, limits=limits, trust_env=False) for url in urls]
        try:
            return set(await asyncio.gather(*(ask(clients[number % 2]) for number in range(CALLERS))))
        finally:
            for http in clients:
                await http.aclose()

    count_before = compile_count()
    assert len(asyncio.run(all_at_once())) == 1
    assert compile_count() == count_before + 1


def test_an_unsatisfiable_constraint_is_cached(services: Cluster) -> None:
    def taken_count() -> float:
        return services.parts["compile"].metric("abs_job_attempts_total", job_kind="compile")

    with services.client() as http:
        first_answer = http.post("/compile", json={"constraint": UNSATISFIABLE})
        assert (first_answer.status_code, first_answer.json()["code"]) == (422, "constraint_unsatisfiable")
        count_before = taken_count()
        for _ in range(20):
            repetition = http.post("/compile", json={"constraint": UNSATISFIABLE})
            assert {**repetition.json(), "request_id": ""} == {**first_answer.json(), "request_id": ""}
        assert taken_count() == count_before


def test_a_too_small_budget_is_refused_with_min_tokens(services: Cluster) -> None:
    with services.client() as http:
        body = {"prompt": "x", "constraint": {"regex": "[a-z]{40}"}, "max_tokens": 2}
        refusal = http.post("/generate", json=body)
        assert (refusal.status_code, refusal.json()["code"]) == (422, "budget_too_small")
        least = refusal.json()["min_tokens"]
        assert least > 2 and http.post("/generate", json=body | {"max_tokens": least}).status_code == 200


def test_concurrent_requests_with_one_key_share_one_job(services: Cluster) -> None:
    def taken_count() -> float:
        return sum(services.parts[name].metric("abs_job_attempts_total", job_kind="generate") for name in WORKERS)

    key = {"idempotency-key": f"faults-{time.monotonic_ns()}"}
    count_before = taken_count()
    body = BODY | {"prompt": "steps 10 0.1"}

    def ask(number: int) -> httpx2.Response:
        with services.client("api" if number % 2 else "other") as http:
            return http.post("/generate", json=body, headers=key)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(ask, range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert taken_count() == count_before + 1
    with services.client("other") as http:
        other = http.post("/generate", json=body | {"max_tokens": 9}, headers=key)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


@pytest.fixture
def small_api(services: Cluster) -> Part:
    """Another API, with a short queue and short time limits."""
    limits = dict.fromkeys(("ABS_BODY_TIMEOUT_S", "ABS_WRITE_TIMEOUT_S"), str(SLOW_S_MAX))
    part = services.parts.get("small") or services.add("small", API, ABS_QUEUE_JOBS_MAX="1", **limits)
    part.wait_until("/ready")
    return part


def sent_slowly(part: Part, head: bytes, trickle: bytes) -> tuple[bytes, float]:
    """The answer to a request sent byte by byte, and its time."""
    with socket.create_connection(("127.0.0.1", part.port), timeout=60) as connection:
        began = time.monotonic()
        connection.sendall(head)
        with contextlib.suppress(ConnectionError):
            while not select.select([connection], [], [], 0.2)[0]:
                connection.sendall(trickle)
        reply = b""
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(65_536):
                reply += more
        return reply, time.monotonic() - began


def read_nothing(part: Part) -> None:
    """Request much and read nothing until the service disconnects."""
    request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100  # more than lines hold
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", part.port))
        connection.sendall(request)
        until(lambda: "did not read its response" in part.log(), "who reads nothing is let go")


def test_slow_clients_are_cut_off_without_delaying_others(services: Cluster, small_api: Part) -> None:
    head = b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
    with ThreadPoolExecutor(2) as pool, services.client("small") as http:
        body = pool.submit(sent_slowly, small_api, head + b"\r\n{", b" ")
        reader = pool.submit(read_nothing, small_api)
        served_count = 0  # before a slow client is cut off
        while not (body.done() and reader.done()):
            assert http.post("/generate", json=BODY | {"prompt": "x"}).status_code == 200
            served_count += not (body.done() or reader.done())
            time.sleep(0.1)
        reply, took_s = body.result()
        reader.result()
        assert reply.startswith(b"HTTP/1.1 408 ") and b'"request_timeout"' in reply, reply[:300]
        assert took_s > SLOW_S_MAX - 0.1 and served_count > 0


def test_a_full_queue_returns_429_with_retry_after(services: Cluster, small_api: Part) -> None:
    with services.client("small") as http:
        long_jobs = [begin(http, "steps 300 0.2")]
        for number in range(2, SLOTS + 1):  # one at a time, for the queue holds no more
            until(lambda number=number: running(services) == number - 1, "the last one runs")
            long_jobs.append(begin(http, "steps 300 0.2"))
        until(lambda: running(services) == SLOTS, "all slots are taken")
        long_jobs.append(begin(http, "steps 300 0.2"))
        for stream in (False, True):
            refusal = http.post("/generate", json=BODY | {"prompt": "x", "stream": stream})
            assert (refusal.status_code, refusal.json()["code"]) == (429, "queue_full")
            assert refusal.headers["content-type"] == "application/problem+json"
            assert int(refusal.headers["retry-after"]) > 0
            assert (refusal.json()["limit"], refusal.json()["cap"]) == ("queue_jobs_max", 1)
        for job in long_jobs:
            http.delete(f"/jobs/{job}")
        until(lambda: running(services) == 0, "nothing runs any more")
        assert http.post("/generate", json=BODY | {"prompt": "x"}).status_code == 200
