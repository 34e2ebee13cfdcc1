"""Started work is charged to its key as beams times tokens.

Refusals and repeated requests are free.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.auth import new_key
from app.errors import RateLimited, StorageDown
from app.service import Service, SubmittedJob
from app.settings import Settings
from app.wiring import open_limiter
from tests.app import fake_handlers
from tests.app.access_keys import bearer, stored_key
from tests.app.conftest import service_client
from tests.servers.redis_server import RedisServer

BODY = {"prompt": "a", "constraint": {"regex": "a{2,3}"}, "max_tokens": 8, "beams": 8}  # 64 of 100

Headers = dict[str, str]


@pytest.fixture(scope="module")
def charged_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, list[Headers]]]:
    """A service with fake generations, and the headers of two keys."""
    path, limits = tmp_path_factory.mktemp("keys") / "keys", {"requests_per_minute": 0, "beam_tokens_per_minute": 100}
    owners = [bearer(stored_key(path, name, "generate", **limits)) for name in ("anna", "ben")]
    with pytest.MonkeyPatch.context() as patch:
        fake_handlers.install(patch, compile="open_compiling", generate="open_quick")
        with service_client(keys_file=str(path), public_paths=("/ready",)) as client:
            yield client, owners


def require_charged_once(client: TestClient, owner: Headers) -> None:
    """Require that the budget suffices for exactly one more request."""
    assert client.post("/generate", json=BODY, headers=owner).status_code == 200
    refusal = client.post("/generate", json=BODY, headers=owner)
    assert (refusal.status_code, refusal.json()["code"]) == (429, "rate_limited")


def test_a_refused_request_is_not_charged(
    charged_service: tuple[TestClient, list[Headers]], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, (owner, _) = charged_service

    async def refuse(self: Service, *arguments: Any) -> SubmittedJob:
        raise StorageDown

    with monkeypatch.context() as patch:
        patch.setattr(Service, "begin", refuse)
        for _ in range(3):
            assert client.post("/generate", json=BODY, headers=owner).json()["code"] == "storage_down"
    require_charged_once(client, owner)


def test_a_repeated_answer_is_not_charged_twice(charged_service: tuple[TestClient, list[Headers]]) -> None:
    client, (_, owner) = charged_service
    body = {**BODY, "beams": 4}  # 32 of 100
    headers = {**owner, "idempotency-key": "one"}
    answers = [client.post("/generate", json=body, headers=headers) for _ in range(4)]
    assert {answer.status_code for answer in answers} == {200}, answers[-1].text
    ids = {answer.json()["id"] for answer in answers}
    assert len(ids) == 1
    require_charged_once(client, owner)


async def test_refunds_and_single_charges_hold_on_a_real_server(redis_server: RedisServer) -> None:
    settings = Settings.of(broker=redis_server.url, key_beam_tokens_per_minute=100)
    key = new_key("anna", ("generate",))[1]
    first_limiter, second_limiter = open_limiter(settings), open_limiter(settings)
    for _ in range(3):
        await first_limiter.charge(key, 64)
        await second_limiter.refund(key, 64)
    for limiter in (first_limiter, second_limiter, first_limiter):
        await limiter.charge(key, 32)
        await limiter.settle(key, 32, "job")
    await second_limiter.charge(key, 68)
    with pytest.raises(RateLimited):
        await first_limiter.charge(key, 1)
    await first_limiter.close()
    await second_limiter.close()
