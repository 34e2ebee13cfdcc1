"""Requests of thousands of tokens. The built-in model gets a longer context."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from app.models import open_model_files
from app.settings import BUILT_IN_MODEL
from tests.app.conftest import service_client

CONTEXT = 8_192
LONG = {"prompt": "sentence:", "constraint": {"regex": "([a-z]+ ){1500,}[a-z]+"}, "algorithm": "sample", "seed": 1}
SHORT = {"prompt": "sentence:", "constraint": {"keywords": ["dog"]}, "beams": 4, "max_tokens": 12}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("long") / "captions"
    shutil.copytree(BUILT_IN_MODEL, folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}), encoding="utf-8")
    open_model_files.cache_clear()
    with service_client(model=str(folder), generation_memory_bytes=2**29) as client:
        yield client


def test_thousands_of_tokens_are_answered_beside_short_requests(client: TestClient) -> None:
    client.post("/compile", json={"constraint": LONG["constraint"]})
    with ThreadPoolExecutor(1) as threads:
        long_answer = threads.submit(client.post, "/generate", json={**LONG, "max_tokens": 4_000, "timeout_s": 300})
        time.sleep(1)
        short_answers = [client.post("/generate", json=SHORT) for _ in range(3)]
        assert not long_answer.done()  # the short ones did not wait for it
        assert all("dog" in answer.json()["choices"][0]["text"].lower() for answer in short_answers)
        body = long_answer.result().json()
    (choice,) = body["choices"]
    assert choice["satisfied"] and len(choice["text"].split()) > 1500
    assert 1_500 < body["usage"]["completion_tokens"] <= 4_000


def test_memory_alone_bounds_the_beams(client: TestClient) -> None:
    body = client.post("/generate", json={**SHORT, "beams": 160}).json()
    assert "dog" in body["choices"][0]["text"].lower() and body["usage"]["sequences"] >= 160


def test_a_request_over_the_memory_is_refused_with_its_estimate(client: TestClient) -> None:
    refused = client.post("/generate", json={**SHORT, "beams": 128, "max_tokens": 8_000})
    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "request_too_large")
    assert problem["needed_bytes"] > problem["memory_bytes"] == 2**29 - 2**26
    assert "ABS_GENERATION_MEMORY_BYTES" in problem["detail"] and "max_tokens" in problem["detail"]
    wide = client.post("/generate", json={**SHORT, "beams": 4_000}).json()
    assert wide["code"] == "request_too_large" and wide["needed_bytes"] > wide["memory_bytes"]
    over = client.post("/generate", json={**SHORT, "max_tokens": CONTEXT + 1}).json()
    assert (over["limit"], over["cap"]) == ("context_tokens", CONTEXT)
