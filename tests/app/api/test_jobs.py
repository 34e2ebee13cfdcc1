"""Jobs over HTTP, in one process with the built-in model."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from compiler.spec import Spec
from tests.servers.processes import until

GENERATE = {"prompt": "sentence:", "constraint": {"keywords": ["dog", "ball"]}, "max_tokens": 16, "beams": 4}
DECODE = {"log_probs": [[-0.1, -2.0], [-2.0, -0.1]], "labels": ["a", "b"], "constraint": {"regex": "(a|b) (a|b)"}}
COMPILE = {"constraint": {"ltlf": "F(beast)", "propositions": {"beast": ["wolf", "bear"]}}}
REQUESTS = {"/generate": GENERATE, "/decode": DECODE, "/compile": COMPILE}
TIMES = {"timings", "cached", "compile_ms", "id"}
ASYNC = {"prefer": "respond-async"}
S_MAX = 60.0


def ended_job(client: TestClient, job: str) -> dict[str, Any]:
    """Wait until the job has ended and return it."""
    until(lambda: client.get(f"/jobs/{job}").json()["state"] not in ("waiting", "running"))
    return dict(client.get(f"/jobs/{job}").json())


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    """The fields that do not depend on the time of the answer."""
    return {name: value for name, value in answer.items() if name not in TIMES}


def test_a_generation_can_be_read_again_as_a_job(client: TestClient) -> None:
    before = time.time()
    response = client.post("/generate", json=GENERATE)
    answer = response.json()
    job = client.get(f"/jobs/{answer['id']}")
    assert job.json()["result"] == answer
    assert (job.json()["state"], job.json()["kind"], job.json()["error"]) == ("done", "generate", None)
    assert (job.json()["attempt"], job.json()["ahead"]) == (1, 0)
    assert before - 0.001 <= job.json()["submitted"] <= time.time() + 0.001
    assert job.headers["cache-control"] == "no-store"
    assert response.headers["x-job-id"] == answer["id"]


@pytest.mark.parametrize("path", REQUESTS)
def test_respond_async_returns_a_job_with_the_same_answer(client: TestClient, path: str) -> None:
    response = client.post(path, json=REQUESTS[path], headers=ASYNC)
    assert response.status_code == 202
    job = response.json()["id"]
    assert (response.headers["location"], response.headers["preference-applied"]) == (f"/jobs/{job}", "respond-async")
    view = ended_job(client, job)
    assert (view["state"], view["kind"]) == ("done", path[1:])
    assert without_times(view["result"]) == without_times(client.post(path, json=REQUESTS[path]).json())


@pytest.mark.parametrize("path", REQUESTS)
def test_an_idempotency_key_repeats_one_request_only(client: TestClient, path: str) -> None:
    headers = {"idempotency-key": f"again-{path}"}
    first = client.post(path, json=REQUESTS[path], headers=headers)
    repeat = client.post(path, json=REQUESTS[path], headers=headers)
    assert (first.status_code, first.json()) == (200, repeat.json())
    assert first.headers["x-job-id"] == repeat.headers["x-job-id"]
    assert without_times(first.json()) == without_times(client.post(path, json=REQUESTS[path]).json())
    mismatch = client.post(path, json=REQUESTS[path] | {"constraint": {"regex": "(a|b) b"}}, headers=headers)
    assert (mismatch.status_code, mismatch.json()["code"]) == (422, "idempotency_mismatch")
    job = client.post(path, json=REQUESTS[path], headers=headers | ASYNC)
    assert (job.status_code, job.json()["state"], job.json()["result"]) == (202, "done", first.json())


def test_twenty_requests_at_once_with_one_key_are_one_job(client: TestClient, threads: ThreadPoolExecutor) -> None:
    headers = {"idempotency-key": "all-at-once"}
    calls = [threads.submit(client.post, "/generate", json=GENERATE, headers=headers) for _ in range(20)]
    answers = [call.result() for call in calls]
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1


def test_a_key_belongs_to_one_path(client: TestClient) -> None:
    headers = {"idempotency-key": "two-paths"}
    assert [client.post(path, json=body, headers=headers).status_code for path, body in REQUESTS.items()] == [200] * 3


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "\x7f", "é".encode("latin-1")], ids=repr)
def test_a_key_is_visible_ascii_of_bounded_length(client: TestClient, key: str | bytes) -> None:
    refusal = client.post("/compile", json=COMPILE, headers={b"idempotency-key": key})  # type: ignore[dict-item]
    assert (refusal.status_code, refusal.json()["code"]) == (422, "invalid_request")
    assert refusal.json()["errors"][0]["path"] == "Idempotency-Key"


def test_a_refusal_is_repeated_for_its_idempotency_key(client: TestClient) -> None:
    body = {"prompt": "a cat is", "constraint": {"not": {"keywords": ["cat"]}}, "scope": "full"}
    headers = {"idempotency-key": "refused"}
    first, repeat = (client.post("/generate", json=body, headers=headers) for _ in range(2))
    keyless = client.post("/generate", json=body).json()
    for refusal in (first, repeat):
        assert (refusal.status_code, refusal.json()["code"]) == (422, "prompt_violates")
        assert refusal.json() | {"request_id": ""} == keyless | {"request_id": ""}
    job = client.post("/generate", json=body, headers=headers | ASYNC).json()
    assert (job["state"], job["result"]) == ("failed", None)
    assert job["error"] | {"request_id": ""} == keyless | {"request_id": ""}


@pytest.mark.parametrize("path", REQUESTS)
def test_a_job_with_an_unsatisfiable_constraint_fails(client: TestClient, path: str) -> None:
    contradiction = {"all": [{"regex": "a"}, {"regex": f"b{path[1]}"}]}
    body = REQUESTS[path] | {"constraint": contradiction}
    response = client.post(path, json=body, headers=ASYNC)
    error = ended_job(client, response.json()["id"])["error"]
    refusal = client.post(path, json=body)
    assert refusal.status_code == 422
    assert error | {"request_id": ""} == refusal.json() | {"request_id": ""}
    assert error["code"] == "constraint_unsatisfiable"


def test_a_contradiction_beside_tools_names_no_part_of_the_format(client: TestClient) -> None:
    schema = {"type": "object", "properties": {"to": {"type": "boolean", "not": {}}}, "required": ["to"]}
    tool = {"type": "function", "function": {"name": "notify", "parameters": schema}}
    contradiction = {"all": [{"regex": "c"}, {"regex": "d"}]}
    body = {"messages": [{"role": "user", "content": "a"}], "tools": [tool], "constraint": contradiction}
    job = client.post("/generate", json=body, headers=ASYNC).json()
    error = ended_job(client, job["id"])["error"]
    assert error["detail"] == "no reply satisfies the constraint, and no call the schema of its tool"
    refusal = client.post("/generate", json=body).json()
    assert error | {"request_id": ""} == refusal | {"request_id": ""} and "conflict" not in refusal


def test_a_failed_compilation_is_cached(client: TestClient, compiles: list[Spec]) -> None:
    contradiction = {"constraint": {"all": [{"regex": "x"}, {"regex": "y"}]}}
    first = client.post("/compile", json=contradiction)
    repeat = client.post("/compile", json=contradiction)
    generation = client.post("/generate", json={"prompt": "a", **contradiction})
    for refusal in (first, repeat, generation):
        assert (refusal.status_code, refusal.json()["code"]) == (422, "constraint_unsatisfiable")
        assert refusal.json() | {"request_id": ""} == first.json() | {"request_id": ""}
    assert len(compiles) == 1


def test_a_nonexistent_job_is_unknown(client: TestClient) -> None:
    for job in ("0" * 32, "x", "0" * 31, "A" * 32, "%00", "0" * 5_000):
        for response in (client.get(f"/jobs/{job}"), client.delete(f"/jobs/{job}"), client.get(f"/jobs/{job}/events")):
            assert (response.status_code, response.json()["code"]) == (404, "unknown_job"), job


def test_an_ended_job_is_not_cancelled(client: TestClient) -> None:
    job = client.post("/generate", json=GENERATE).json()["id"]
    for _ in range(2):
        response = client.delete(f"/jobs/{job}")
        assert (response.status_code, response.json()["state"]) == (200, "done")


def test_a_job_answers_with_the_callers_proposition_names(client: TestClient) -> None:
    for name in ("beast", "animal"):
        constraint = {"ltlf": f"F({name})", "propositions": {name: ["wolf", "bear"]}}
        body = {"prompt": "a", "constraint": constraint, "max_tokens": 6, "trace": True}
        job = client.post("/generate", json=body, headers=ASYNC).json()["id"]
        choice = ended_job(client, job)["result"]["choices"][0]
        assert [name] in [word["propositions"] for word in choice["words"]]
        assert [name] in [letter for step in choice["trace"] for letter in step["propositions"]]
        job = client.post("/compile", json={"constraint": constraint}, headers=ASYNC).json()["id"]
        letters = [letter["name"] for letter in ended_job(client, job)["result"]["explanation"]["letters"]]
        assert letters == ["other", name]
