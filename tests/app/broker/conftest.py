"""Brokers and a client of an empty server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from app.broker.redis.broker import RedisBroker
from tests.app.broker.brokers import LEASE_S, connected_broker
from tests.servers.redis_server import RedisServer
from tests.servers.redis_worker import settings


@pytest.fixture
async def api(redis_server: RedisServer) -> AsyncIterator[RedisBroker]:
    """The broker of an API."""
    async with connected_broker(redis_server.url, settings(LEASE_S)) as broker:
        yield broker


@pytest.fixture
async def worker(redis_server: RedisServer) -> AsyncIterator[RedisBroker]:
    """The broker of a worker."""
    async with connected_broker(redis_server.url, settings(LEASE_S)) as broker:
        yield broker


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """A client of the server."""
    async with Redis.from_url(redis_server.url) as client:
        yield client
