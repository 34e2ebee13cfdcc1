"""APIs that die and stop, and callers who go away, come twice, come at once or come too many: over a real server.

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

from tests.app.faults.test_workers import BODY, SLOTS, WORKERS, begin, ended, read_on, steps
from tests.servers.cluster import API, ASK_S_MAX, FULL, SLACK_S, Cluster, Event, Part, events
from tests.servers.processes import until

CALLERS = 500 if FULL else 150
NEGATIVE_S_MAX = 0.020
SLOW_S_MAX = 2.0  # of the API that is impatient
UNSATISFIABLE = {"ltlf": "F(a) & G(!a)"}


@pytest.fixture
def whole(scripted: Cluster) -> Iterator[Cluster]:
    scripted.restore()
    yield scripted
    until(lambda: running(scripted) == 0, "nothing runs any more", 90)  # or it would stand in the next one's way


def running(cluster: Cluster) -> float:
    return sum(cluster.parts[name].metric("abs_running_requests", queue="generate") for name in WORKERS)


def test_a_stream_resumes_at_another_api_after_a_kill(whole: Cluster) -> None:
    stream_events: list[Event] = []
    job = ""
    with whole.client("api") as http, pytest.raises(httpx2.TransportError):  # noqa: SIM117
        with http.stream("POST", "/generate", json=BODY | {"prompt": "steps 40 0.1", "stream": True}) as response:
            job = response.headers["x-job-id"]
            for event in events(response):
                stream_events.append(event)
                if len(stream_events) == 5:
                    whole.parts["api"].kill()
    with whole.client("other") as http:
        stream_events += read_on(http, job, stream_events[-1].id)
        assert http.get(f"/jobs/{job}").json()["attempt"] == 1
    assert steps(stream_events) == list(range(1, 41)) and [event.name for event in stream_events].count("done") == 1
    assert len({event.id for event in stream_events}) == len(stream_events)


def test_a_stopping_api_finishes_requests_and_hands_over_streams(whole: Cluster) -> None:
    part = whole.parts["api"]
    answers: list[httpx2.Response] = []
    streams: list[tuple[str, list[Event]]] = []

    def plain() -> None:
        with whole.client() as http:
            answers.append(http.post("/generate", json=BODY | {"prompt": "steps 10 0.1"}))

    def stream() -> None:
        with whole.client() as http:
            with http.stream("POST", "/generate", json=BODY | {"prompt": "steps 60 0.1", "stream": True}) as response:
                stream_events = list(events(response))
            streams.append((response.headers["x-job-id"], stream_events))

    readers = [threading.Thread(target=stream) for _ in range(4)]
    threads = [*readers, *(threading.Thread(target=plain) for _ in range(46))]
    for thread in readers:
        thread.start()
    until(lambda: part.metric("abs_http_in_flight") >= 5, "the readers, and who asks, are being served")
    for thread in threads[len(readers) :]:
        thread.start()
    until(lambda: part.metric("abs_http_in_flight") >= 40, "nearly all clients are being served")
    began = time.monotonic()
    assert part.stop() == 0, part.log()
    assert time.monotonic() - began < 30
    for thread in threads:
        thread.join(ASK_S_MAX)
    late = [answer.json()["code"] for answer in answers if answer.status_code == 503]
    assert sum(answer.status_code == 200 for answer in answers) == 46 - len(late)
    assert len(late) <= 11 and set(late) <= {"draining"}  # requests after the signal were refused
    with pytest.raises(httpx2.TransportError):
        httpx2.get(f"{part.url}/health", trust_env=False)
    with whole.client("other") as http:
        for job, stream_events in streams:
            assert stream_events[-1].name == "reconnect", stream_events[-1]
            whole_story = [event for event in stream_events if event.name != "reconnect"]
            whole_story += read_on(http, job, whole_story[-1].id if whole_story else "")
            assert steps(whole_story) == list(range(1, 61)) and whole_story[-1].name == "done"


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_cancels_the_callers_job(whole: Cluster, stream: bool) -> None:
    cancelled = [whole.parts[name].metric("abs_generate_total", outcome="cancelled") for name in WORKERS]
    with whole.client() as http:
        asking = http.build_request("POST", "/generate", json=BODY | {"prompt": "steps 500 0.1", "stream": stream})
        if stream:
            response = http.send(asking, stream=True)
            whole.busy(*WORKERS)
            response.close()
        else:
            with pytest.raises(httpx2.TimeoutException):
                http.post("/generate", json=BODY | {"prompt": "steps 500 0.1"}, timeout=2.0)
    until(lambda: running(whole) == 0, "the slot is free", 30)
    now = [whole.parts[name].metric("abs_generate_total", outcome="cancelled") for name in WORKERS]
    assert sum(now) == sum(cancelled) + 1


def test_waiting_running_and_ended_jobs_can_be_cancelled(whole: Cluster) -> None:
    with whole.client() as http:
        long = [begin(http, "steps 600 0.1") for _ in range(SLOTS)]
        until(lambda: running(whole) == SLOTS, "all slots are taken")
        waiting, over = begin(http, "steps 1 0"), begin(http, "steps 1 0")
        assert http.get(f"/jobs/{waiting}").json()["state"] == "waiting"
        assert [http.delete(f"/jobs/{waiting}").status_code for _ in range(2)] == [202, 200]
        assert [http.delete(f"/jobs/{job}").status_code for job in long] == [202] * SLOTS
        assert ended(http, over)["state"] == "done"
        assert http.delete(f"/jobs/{over}").status_code == 200
        assert {ended(http, job)["state"] for job in (*long, waiting)} == {"cancelled"}


def test_many_callers_of_one_cold_constraint_compile_it_once(whole: Cluster) -> None:
    def compiled() -> float:
        return whole.parts["compile"].metric("abs_compile_total", outcome="ok")

    async def ask(http: httpx2.AsyncClient) -> str:
        while True:
            response = await http.post("/compile", json={"constraint": {"regex": "also (a|b)*a(a|b){9}"}})
            if response.status_code not in (429, 503):  # this many at once may overload a busy machine
                assert response.status_code == 200, response.text
                return str(response.json()["automaton"])
            await asyncio.sleep(float(response.headers["retry-after"]))

    async def all_at_once() -> set[str]:
        limits = httpx2.Limits(max_connections=CALLERS)
        urls = [whole.parts[name].url for name in ("api", "other")]
        clients = [httpx2.AsyncClient(base_url=url, timeout=ASK_S_MAX, limits=limits, trust_env=False) for url in urls]
        try:
            return set(await asyncio.gather(*(ask(clients[number % 2]) for number in range(CALLERS))))
        finally:
            for http in clients:
                await http.aclose()

    before = compiled()
    assert len(asyncio.run(all_at_once())) == 1
    assert compiled() == before + 1


def test_an_unsatisfiable_constraint_is_cached(whole: Cluster) -> None:
    def taken() -> float:
        return whole.parts["compile"].metric("abs_job_attempts_total", job_kind="compile")

    with whole.client() as http:
        first = http.post("/compile", json={"constraint": UNSATISFIABLE})
        assert (first.status_code, first.json()["code"]) == (422, "constraint_unsatisfiable")
        before, took_s = taken(), []
        for _ in range(20):
            began = time.perf_counter()
            again = http.post("/compile", json={"constraint": UNSATISFIABLE})
            took_s.append(time.perf_counter() - began)
            assert {**again.json(), "request_id": ""} == {**first.json(), "request_id": ""}
        assert taken() == before
        assert min(took_s) < NEGATIVE_S_MAX, took_s


def test_a_too_small_budget_is_refused_with_min_tokens(whole: Cluster) -> None:
    with whole.client() as http:
        body = {"prompt": "x", "constraint": {"regex": "[a-z]{40}"}, "max_tokens": 2}
        refused = http.post("/generate", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "budget_too_small")
        least = refused.json()["min_tokens"]
        assert least > 2 and http.post("/generate", json=body | {"max_tokens": least}).status_code == 200


def test_concurrent_requests_with_one_key_share_one_job(whole: Cluster) -> None:
    def taken() -> float:
        return sum(whole.parts[name].metric("abs_job_attempts_total", job_kind="generate") for name in WORKERS)

    key = {"idempotency-key": f"faults-{time.monotonic_ns()}"}
    before = taken()
    body = BODY | {"prompt": "steps 10 0.1"}

    def ask(number: int) -> httpx2.Response:
        with whole.client("api" if number % 2 else "other") as http:
            return http.post("/generate", json=body, headers=key)

    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(ask, range(20)))
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert taken() == before + 1
    with whole.client("other") as http:
        other = http.post("/generate", json=body | {"max_tokens": 9}, headers=key)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_mismatch")


@pytest.fixture
def small(whole: Cluster) -> Part:
    """One more API, which lets little wait and is impatient with slow clients."""
    limits = dict.fromkeys(("ABS_HEADER_TIMEOUT_S", "ABS_BODY_TIMEOUT_S", "ABS_WRITE_TIMEOUT_S"), str(SLOW_S_MAX))
    part = whole.parts.get("small") or whole.add("small", API, ABS_QUEUE_JOBS_MAX="1", **limits)
    part.wait_until("/ready")
    return part


def sent_slowly(part: Part, head: bytes, trickle: bytes) -> tuple[bytes, float]:
    """What an API answers who sends something, and then a byte at a time, until it closes; and after how many s."""
    with socket.create_connection(("127.0.0.1", part.port), timeout=60) as connection:
        began = time.monotonic()
        connection.sendall(head)
        with contextlib.suppress(ConnectionError):
            while not select.select([connection], [], [], 0.2)[0]:
                connection.sendall(trickle)
        said = b""
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(65_536):
                said += more
        return said, time.monotonic() - began


def read_nothing(part: Part) -> float:
    """Ask for much and read nothing of it, until that is not stood any more. After how many s that was."""
    asking = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100  # more than lines hold
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(("127.0.0.1", part.port))
        began = time.monotonic()
        connection.sendall(asking)
        until(lambda: "did not read its response" in part.log(), "who reads nothing is let go")
        return time.monotonic() - began


def test_slow_clients_are_cut_off_without_delaying_others(whole: Cluster, small: Part) -> None:
    head = b"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
    with ThreadPoolExecutor(3) as pool, whole.client("small") as http:
        header = pool.submit(sent_slowly, small, head, b"x")
        body = pool.submit(sent_slowly, small, head + b"\r\n{", b" ")
        reader = pool.submit(read_nothing, small)
        served = 0
        while not (header.done() and body.done() and reader.done()):
            began = time.monotonic()
            assert http.post("/generate", json=BODY | {"prompt": "x"}).status_code == 200
            assert time.monotonic() - began < SLACK_S
            served += 1
            time.sleep(0.1)
        for said, took_s in (header.result(), body.result()):
            assert said.startswith(b"HTTP/1.1 408 ") and b'"request_timeout"' in said, said[:300]
            assert SLOW_S_MAX - 0.1 < took_s < SLOW_S_MAX + SLACK_S
        assert reader.result() < SLOW_S_MAX + SLACK_S and served > 3


def test_a_full_queue_returns_429_with_retry_after(whole: Cluster, small: Part) -> None:
    with whole.client("small") as http:
        long = [begin(http, "steps 600 0.1")]
        for number in range(2, SLOTS + 1):  # one at a time, for the queue holds no more
            until(lambda number=number: running(whole) == number - 1, "the last one runs")
            long.append(begin(http, "steps 600 0.1"))
        until(lambda: running(whole) == SLOTS, "all slots are taken")
        long.append(begin(http, "steps 600 0.1"))
        for stream in (False, True):
            refused = http.post("/generate", json=BODY | {"prompt": "x", "stream": stream})
            assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
            assert refused.headers["content-type"] == "application/problem+json"
            assert int(refused.headers["retry-after"]) > 0
            assert (refused.json()["limit"], refused.json()["cap"]) == ("queue_jobs_max", 1)
        for job in long:
            http.delete(f"/jobs/{job}")
        until(lambda: running(whole) == 0, "nothing runs any more")
        assert http.post("/generate", json=BODY | {"prompt": "x"}).status_code == 200
