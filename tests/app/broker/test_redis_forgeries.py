"""Writes to the server without the secret.

They can withhold, lose or repeat jobs and answers, and fail jobs. They cannot have a worker run another body, or a
caller receive an answer that was not made for their request.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from app.broker import SubmitOptions
from app.broker.redis.broker import RedisBroker
from app.errors import MessageInvalid, UnknownJob
from app.messages import VERSION, Failure, Signatures, load
from app.messages.signing import CLOCKS_S_MAX
from app.service.job_client import JobClient
from tests.app.broker.brokers import LEASE_S, all_events, take
from tests.app.broker.test_redis_broker import answer_forever
from tests.servers.redis_worker import SECRET, settings

JOBS, BODIES, RESULTS, KEYS = "{abs}:jobs", "{abs}:bodies", "{abs}:results", "{abs}:keys"
WAITING = f"{{abs}}:queue:q:v{VERSION}:waiting"
ANNA = SubmitOptions(owner="anna", kind="generate", digest="a digest", key_ttl_s=60)
BOB = SubmitOptions(owner="bob", kind="generate", digest="a digest", key_ttl_s=60)
CHANGE = """
local job = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1]))
for name, value in pairs(cjson.decode(ARGV[2])) do job[name] = value end
redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(job))
"""
FORGERIES: dict[str, Callable[[bytes], bytes]] = {  # of bytes that were signed for another job
    "replayed": lambda signed: signed,
    "changed": lambda signed: signed[:-1] + bytes([signed[-1] ^ 1]),
    "truncated": lambda signed: signed[:20],
    "unsigned": lambda signed: b"not ours",
}


async def change(redis: Redis, job_id: str, terms: str) -> None:
    """Changes fields of a job's record. `terms` is JSON."""
    await redis.eval(CHANGE, 1, JOBS, job_id, terms)


def name_of(key: str) -> str:
    """The name of a job's key on the server."""
    return hashlib.sha256(f"{VERSION} {key}".encode()).hexdigest()


async def answered_job(api: RedisBroker, worker: RedisBroker, key: str, options: SubmitOptions) -> str:
    """The id of a job with an event and an answer."""
    job_id = await api.submit("q", key, b"body", options)
    assert (await take(worker))[0] == job_id
    await worker.publish(job_id, b"event of " + key.encode())
    await worker.finish(job_id, b"answer to " + key.encode())
    assert await api.result(job_id) == b"answer to " + key.encode()
    return job_id


async def test_a_job_with_an_invalid_signature_is_not_run(api: RedisBroker, worker: RedisBroker, redis: Redis) -> None:
    terms = SubmitOptions(key_ttl_s=60)
    jobs = [await api.submit("q", key, b"evil", terms) for key in FORGERIES]
    good = await api.submit("q", "good", b"good")
    stored = await redis.hget(BODIES, good)
    assert stored is not None
    for job_id, forge in zip(jobs, FORGERIES.values(), strict=True):
        await redis.hset(BODIES, job_id, forge(stored))
    answering = asyncio.create_task(answer_forever(worker))
    assert await api.result(good) == b"answer to good"
    for job_id in jobs:
        assert _error(await api.result(job_id)) == "MessageInvalid"
    assert await api.submit("q", next(iter(FORGERIES)), b"", terms) not in jobs  # the failure is not cached
    answering.cancel()


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES)
async def test_a_forged_result_or_event_reaches_no_caller(
    api: RedisBroker, worker: RedisBroker, redis: Redis, forge: Callable[[bytes], bytes]
) -> None:
    first, second = await api.submit("q", "a", b""), await api.submit("q", "b", b"")
    for job_id in (first, second):
        await take(worker)
        await worker.publish(job_id, b"event")
        await worker.finish(job_id, b"answer")
    assert await api.result(first) == b"answer"
    stored = await redis.hget(RESULTS, second)
    [(event_id, fields)] = await redis.xrange(f"{{abs}}:events:{second}")
    assert stored is not None
    await redis.hset(RESULTS, first, forge(stored))
    await redis.delete(f"{{abs}}:events:{first}")
    await redis.xadd(f"{{abs}}:events:{first}", {"data": forge(fields[b"data"])}, id=event_id)
    with pytest.raises(MessageInvalid) as caught:
        await api.result(first)
    assert caught.value.facts.code == "storage_down"
    with pytest.raises(MessageInvalid):
        await all_events(api, first)
    assert await api.result(second) == b"answer"
    third = await api.submit("q", "c", b"")
    for channel in await redis.pubsub_channels("{abs}:news:*"):
        await redis.publish(channel, f"{third} 1 ".encode() + forge(stored))
    with pytest.raises(MessageInvalid):
        await api.result(third)


@pytest.mark.parametrize("also", ("", ", \"key\": \"bob\'s\"", ', "digest": "", "kind": "decode"'))
async def test_a_changed_owner_gives_no_other_caller_the_answer(
    api: RedisBroker, worker: RedisBroker, redis: Redis, also: str
) -> None:
    job_id = await answered_job(api, worker, "anna's", ANNA)
    jobs = JobClient(settings(LEASE_S), api)
    assert (await jobs.state(job_id, "anna")).owner == "anna"
    with pytest.raises(UnknownJob):
        await jobs.state(job_id, "bob")
    await change(redis, job_id, f'{{"owner": "bob"{also}}}')
    for owner in ("anna", "bob"):
        with pytest.raises(MessageInvalid) as caught:
            await jobs.state(job_id, owner)
        assert caught.value.facts.code == "storage_down"


@pytest.mark.parametrize("state", ("done", "running", "waiting"))
@pytest.mark.parametrize(("key", "options"), (("bob's", BOB), ("anna's other", ANNA), ("compile:b", SubmitOptions())))
async def test_a_changed_key_leads_to_no_other_job(
    api: RedisBroker, worker: RedisBroker, redis: Redis, key: str, options: SubmitOptions, state: str
) -> None:
    job_id = await answered_job(api, worker, "anna's", ANNA)
    await redis.hset(KEYS, name_of(key), job_id)
    await change(redis, job_id, f'{{"state": "{state}", "digest": "{options.digest}", "key_ends": 9e15}}')
    with pytest.raises(MessageInvalid):
        await api.submit("q", key, b"body", options)


async def test_a_job_record_of_another_job_is_refused(api: RedisBroker, worker: RedisBroker, redis: Redis) -> None:
    annas, bobs = [await answered_job(api, worker, key, terms) for key, terms in (("a", ANNA), ("b", BOB))]
    for name in (JOBS, RESULTS):
        copied = await redis.hget(name, annas)
        assert copied is not None
        await redis.hset(name, bobs, copied)
    jobs = JobClient(settings(LEASE_S), api)
    for owner in ("anna", "bob"):
        with pytest.raises(MessageInvalid):
            await jobs.state(bobs, owner)
    with pytest.raises(MessageInvalid):
        await api.result(bobs)


async def test_an_event_of_another_job_is_refused(api: RedisBroker, worker: RedisBroker, redis: Redis) -> None:
    annas, bobs = [await answered_job(api, worker, key, terms) for key, terms in (("a", ANNA), ("b", BOB))]
    await redis.copy(f"{{abs}}:events:{annas}", f"{{abs}}:events:{bobs}", replace=True)
    assert await all_events(api, annas) == [b"event of a"]
    with pytest.raises(MessageInvalid):
        await all_events(api, bobs)


async def test_a_result_of_another_attempt_is_refused(api: RedisBroker, worker: RedisBroker, redis: Redis) -> None:
    job_id = await answered_job(api, worker, "k", ANNA)
    await change(redis, job_id, '{"fence": 2}')
    with pytest.raises(MessageInvalid):
        await api.result(job_id)


async def rerun(api: RedisBroker, redis: Redis, job_id: str, body: bytes) -> bytes:
    """The result of a finished job that is put back."""
    await redis.hdel(RESULTS, job_id)
    await redis.hset(BODIES, job_id, body)
    await change(redis, job_id, '{"state": "waiting", "place": 1}')
    await redis.zadd(WAITING, {job_id: 1})
    while not await redis.hexists(RESULTS, job_id):
        await asyncio.sleep(0.05)
    return await api.result(job_id)


async def test_a_finished_job_put_back_runs_its_own_body(api: RedisBroker, worker: RedisBroker, redis: Redis) -> None:
    """The same body runs again until it expires, for the same caller."""
    job_id, other = [await api.submit("q", key, key.encode(), ANNA) for key in ("k", "other")]
    bodies = [await redis.hget(BODIES, each) for each in (job_id, other)]
    assert bodies[0] is not None and bodies[1] is not None
    answering = asyncio.create_task(answer_forever(worker))
    assert await api.result(job_id) == b"answer to k"
    assert await rerun(api, redis, job_id, bodies[0]) == b"answer to k"
    assert _error(await rerun(api, redis, job_id, bodies[1])) == "MessageInvalid"
    answering.cancel()


@pytest.mark.parametrize(("late_s", "error"), ((CLOCKS_S_MAX - 30, ""), (CLOCKS_S_MAX + 1, "DeadlineExceeded")))
@pytest.mark.parametrize("lasting", (False, True))
async def test_a_body_long_past_its_deadline_is_not_run(
    api: RedisBroker, worker: RedisBroker, redis: Redis, lasting: bool, late_s: float, error: str
) -> None:
    """With `lasting` the server says that the job has no deadline."""
    job_id = await api.submit("q", "k", b"body", SubmitOptions(kind="generate", deadline_in_s=-late_s))
    if lasting:
        await change(redis, job_id, '{"ends": 9e15, "deadline_in_s": 9e9}')
    answering = asyncio.create_task(answer_forever(worker))
    result = await api.result(job_id)
    assert result == b"answer to body" if not error else _error(result) == error
    answering.cancel()


async def test_each_body_expires(api: RedisBroker, redis: Redis) -> None:
    """One that others may join expires after the longest wait of all."""
    longest_s = settings(LEASE_S).requests.timeout_s_max
    cases = [(SubmitOptions(), longest_s), (SubmitOptions(deadline_in_s=2.0), longest_s)]
    cases += [(SubmitOptions(kind="decode"), longest_s), (SubmitOptions(kind="decode", deadline_in_s=2.0), 2.0)]
    for number, (options, expires_in_s) in enumerate(cases):
        before = time.time()
        job_id = await api.submit("q", str(number), b"body", options)
        after = time.time()
        signed = await redis.hget(BODIES, job_id)
        assert signed is not None
        header = Signatures(SECRET).open(signed, "body", f"q:v{VERSION}", job_id).partition(b"\n")[0]
        assert before <= float(header) - expires_in_s + 0.001 <= after + 0.002


def _error(result: bytes) -> str:
    failure = load(result)
    assert isinstance(failure, Failure)
    return failure.error
