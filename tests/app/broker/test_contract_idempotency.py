"""What a repeated Idempotency-Key returns."""

from __future__ import annotations

import asyncio

import pytest
from starlette.testclient import TestClient

from app.broker import SubmitOptions
from app.broker.memory import MemoryBroker
from app.errors import DeadlineExceeded, JobUnknown, StorageDown
from app.messages import Job, Result, dump
from app.settings import Settings
from app.store.memory import MemoryStore
from app.worker.handlers.base import Context, Handler
from app.worker.loop import serve
from compiler.errors import BudgetTooSmall
from decoding.errors import Cancelled, ModelUnavailable
from tests.app.worker.test_loop import S_MAX, job

REMEMBERED = SubmitOptions(key_ttl_s=60)


@pytest.mark.parametrize(
    ("error", "remembered"),
    [
        (BudgetTooSmall(9, 8), True),
        (StorageDown(), False),
        (ModelUnavailable("no model"), False),
        (Cancelled("gone"), False),
        (DeadlineExceeded(1.0), False),
        (ZeroDivisionError(), False),
    ],
)
async def test_a_worker_marks_cacheable_failures(error: Exception, remembered: bool) -> None:
    def open_failing(settings: Settings) -> Handler:
        def handle(job: Job, context: Context) -> Result:
            raise error

        return Handler(handle)
    broker = MemoryBroker(16)
    serving = asyncio.create_task(serve("q", open_failing, broker, MemoryStore(1000), Settings()))
    async with asyncio.timeout(S_MAX):
        first = await broker.submit("q", "k", dump(job()), REMEMBERED)
        await broker.result(first)
        assert (await broker.submit("q", "k", dump(job()), REMEMBERED) == first) is remembered
        broken = await broker.submit("q", "broken", b"no message", REMEMBERED)
        await broker.result(broken)
        assert await broker.submit("q", "broken", b"no message", REMEMBERED) != broken
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_a_job_that_expires_during_its_lookup_is_unknown(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"prompt": "sentence:", "constraint": {"keywords": ["dog"]}, "max_tokens": 8, "beams": 2}
    shown = f"/jobs/{client.post('/generate', json=body).json()['id']}"
    assert client.get(shown).status_code == 200

    async def forgotten(self: MemoryBroker, job_id: str) -> bytes:
        raise JobUnknown("no such job, or its result is too old")

    monkeypatch.setattr(MemoryBroker, "result", forgotten)
    response = client.get(shown)
    assert (response.status_code, response.json()["code"]) == (404, "unknown_job")
