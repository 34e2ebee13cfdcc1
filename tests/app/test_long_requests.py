"""Requests of many tokens, in their full length of thousands. The model has a longer context."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.models import open_model_files
from tests.app.conftest import service_client
from tests.servers.cluster import FULL
from tests.servers.processes import until
from tests.servers.small_model import small_model

CONTEXT = 8_192
MEMORY_BYTES = 2**28
WORDS = 1_500 if FULL else 400
LONG: dict[str, Any] = {
    "prompt": "sentence:", "constraint": {"regex": f"([a-z]+ ){{{WORDS},}}[a-z]+"}, "algorithm": "sample", "seed": 1,
    "max_tokens": 3 * WORDS, "timeout_s": 300,
}  # fmt: skip
SHORT = {"prompt": "sentence:", "constraint": {"keywords": ["dog"]}, "beams": 4, "max_tokens": 12}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("long") / "captions"
    shutil.copytree(small_model(), folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}), encoding="utf-8")
    open_model_files.cache_clear()
    with service_client(model=str(folder), generation_memory_bytes=MEMORY_BYTES) as client:
        yield client


def test_many_tokens_are_answered_beside_short_requests(client: TestClient) -> None:
    for constraint in (LONG["constraint"], SHORT["constraint"]):
        client.post("/compile", json={"constraint": constraint})
    job = "/jobs/" + client.post("/generate", json=LONG, headers={"prefer": "respond-async"}).json()["id"]
    until(lambda: client.get(job).json()["state"] == "running", "the long request runs")
    short_answers = [client.post("/generate", json=SHORT) for _ in range(3)]
    assert client.get(job).json()["state"] == "running"  # the short ones did not wait for it
    assert all("dog" in answer.json()["choices"][0]["text"].lower() for answer in short_answers)
    assert "event: done" in client.get(f"{job}/events").text
    body = client.get(job).json()["result"]
    (choice,) = body["choices"]
    assert choice["satisfied"] and len(choice["text"].split()) > WORDS
    assert WORDS < body["usage"]["completion_tokens"] <= LONG["max_tokens"]


def test_memory_alone_bounds_the_beams(client: TestClient) -> None:
    body = client.post("/generate", json={**SHORT, "beams": 160}).json()
    assert "dog" in body["choices"][0]["text"].lower() and body["usage"]["sequences"] >= 160


def test_a_request_over_the_memory_is_refused_with_its_estimate(client: TestClient) -> None:
    refused = client.post("/generate", json={**SHORT, "beams": 128, "max_tokens": 8_000})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "request_too_large")
    assert problem["needed_bytes"] > problem["memory_bytes"] == MEMORY_BYTES * 7 // 8
    assert "ABS_GENERATION_MEMORY_BYTES" in problem["detail"] and "max_tokens" in problem["detail"]
    wide = client.post("/generate", json={**SHORT, "beams": 4_000}).json()
    assert wide["code"] == "request_too_large" and wide["needed_bytes"] > wide["memory_bytes"]
    over = client.post("/generate", json={**SHORT, "max_tokens": CONTEXT + 1}).json()
    assert (over["limit"], over["cap"]) == ("context_tokens", CONTEXT)
