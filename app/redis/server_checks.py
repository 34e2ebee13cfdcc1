"""Checks a Redis server when a process starts. One that could lose jobs is rejected."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import NoPermissionError, ResponseError

from app.errors import SettingsInvalid, StorageDown
from app.redis.connection import Connection, without_password

VERSION_MIN = 7
POLICIES = ("volatile-lru", "noeviction")
_MIB = 2**20


async def check_server(url: str, setting: str, jobs: bool, volatile: bool, wait_s: float) -> dict[str, str]:
    """Facts about a server.

    They are server, policy, persistence, memory, and clock (s that it is ahead of ours).

    setting   the variable with the URL
    jobs      whether it stores jobs, which must not get lost
    volatile  whether a server of jobs may be without persistence
    Raises SettingsInvalid for an unsuitable server, StorageDown if it does not answer within `wait_s`.
    """
    try:
        connection = Connection(url, connections_max=1)
    except SettingsInvalid as error:
        raise SettingsInvalid(f"{setting}: {error}") from None
    try:
        return await connection.call("check", lambda client: _facts(client, url, setting, jobs, volatile), wait_s)
    except StorageDown as down:
        raise StorageDown(f"{down.reason}: {setting} = {without_password(url)}") from down.__cause__
    finally:
        await connection.close()


async def _facts(client: Redis, url: str, setting: str, jobs: bool, volatile: bool) -> dict[str, str]:
    source = f"{setting} = {without_password(url)}"
    info = await _info(client, source)
    policy, persistence = str(info.get("maxmemory_policy", "")), "AOF" if int(info.get("aof_enabled", 0)) else "none"
    _require(
        _major(info) >= VERSION_MIN, source,
        f"the server is of version {_version(info)}: {VERSION_MIN} or newer is needed",
    )
    _require(
        info.get("redis_mode", info.get("server_mode")) != "cluster", source,
        "the server is part of a cluster: use a single server",
    )
    _require(
        not jobs or policy in POLICIES, source,
        f"the server's maxmemory-policy is {policy}, which evicts jobs when memory is short: set volatile-lru",
    )
    _require(
        not jobs or volatile or persistence != "none", source,
        "the server is not persistent (appendonly no), so jobs are lost when it stops: set appendonly yes, or "
        "ABS_ALLOW_NON_PERSISTENT_REDIS=yes to accept that",
    )
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    return {
        "server": f"{info.get('server_name', 'redis')} {_version(info)}",
        "policy": policy,
        "persistence": persistence,
        "memory": f"{used // _MIB} MiB of {f'{limit // _MIB} MiB' if limit else 'all there is'}",
        "clock": f"{await _ahead_s(client):+.2f}",
    }


async def _info(client: Redis, source: str) -> Mapping[str, Any]:
    """The server's reply to INFO.

    INFO has all values that the checks need, and even a strict ACL can allow it.
    """
    try:
        return {str(name): value for name, value in (await client.info()).items()}
    except NoPermissionError:
        message = "the server's user may not send INFO: allow it, as deploy/redis does"
        raise SettingsInvalid(f"{source}: {message}") from None
    except ResponseError:
        raise SettingsInvalid(f"{source}: the server does not support INFO: use Redis or Valkey") from None


async def _ahead_s(client: Redis) -> float:
    """Seconds that the server's clock is ahead of ours."""
    sent = time.time()
    seconds, microseconds = await client.time()
    return seconds + microseconds / 1e6 - (sent + time.time()) / 2


def _version(info: Mapping[str, Any]) -> str:
    return str(info.get("valkey_version") or info.get("redis_version", "0"))


def _major(info: Mapping[str, Any]) -> int:
    return int(_version(info).split(".")[0])


def _require(holds: bool, source: str, message: str) -> None:
    if not holds:
        raise SettingsInvalid(f"{source}: {message}")
