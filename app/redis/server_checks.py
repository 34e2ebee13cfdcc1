"""What a server must be, looked at once when a process starts. A wrong one loses jobs, so it is refused."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from coredis import Redis
from coredis.exceptions import AuthorizationError, UnknownCommandError

from app.errors import SettingsInvalid, StorageDown
from app.redis.connection import Connection, without_password

VERSION_MIN = 7
POLICIES = ("volatile-lru", "noeviction")
_MIB = 2**20


async def check_server(url: str, setting: str, jobs: bool, volatile: bool, wait_s: float) -> dict[str, str]:
    """What there is to say of a server: server, policy, persistence, memory, clock (s that it is ahead of us).

    setting   the variable that names the server
    jobs      it holds jobs, which must not get lost, not only what can be made again
    volatile  a server of jobs that keeps nothing on disk will do
    Raises SettingsInvalid for a server that will not do, StorageDown where it does not answer within `wait_s`.
    """
    try:
        link = Connection(url, connections_max=1)
    except SettingsInvalid as error:
        raise SettingsInvalid(f"{setting}: {error}") from None
    try:
        return await link.call("check", lambda client: _facts(client, url, setting, jobs, volatile), wait_s)
    except StorageDown as down:
        raise StorageDown(f"{down.reason}: {setting} = {without_password(url)}") from down.__cause__
    finally:
        await link.close()


async def _facts(client: Redis[bytes], url: str, setting: str, jobs: bool, volatile: bool) -> dict[str, str]:
    here = f"{setting} = {without_password(url)}"
    told = await _told(client, here)
    policy, kept = str(told.get("maxmemory_policy", "")), "AOF" if int(told.get("aof_enabled", 0)) else "none"
    _require(
        _major(told) >= VERSION_MIN, here,
        f"the server is of version {_version(told)}: {VERSION_MIN} or newer is needed",
    )
    _require(
        told.get("redis_mode", told.get("server_mode")) != "cluster", here,
        "the server is part of a cluster: one that holds all keys is needed",
    )
    _require(
        not jobs or policy in POLICIES, here,
        f"the server's maxmemory-policy is {policy}, which throws jobs away when memory is short: set volatile-lru",
    )
    _require(
        not jobs or volatile or kept != "none", here,
        "the server keeps nothing on disk (appendonly no), so jobs are lost when it ends: set appendonly yes, or "
        "ABS_ALLOW_NON_PERSISTENT_REDIS=yes to accept that",
    )
    held, most = int(told.get("used_memory", 0)), int(told.get("maxmemory", 0))
    return {
        "server": f"{told.get('server_name', 'redis')} {_version(told)}",
        "policy": policy,
        "persistence": kept,
        "memory": f"{held // _MIB} MiB of {f'{most // _MIB} MiB' if most else 'all there is'}",
        "clock": f"{await _ahead_s(client):+.2f}",
    }


async def _told(client: Redis[bytes], here: str) -> Mapping[str, Any]:
    """The server's reply to INFO.

    INFO has all values that the checks need, and even a strict ACL can allow it.
    """
    try:
        return {str(name): value for name, value in (await client.info()).items()}
    except AuthorizationError:
        raise SettingsInvalid(f"{here}: the server's user may not send INFO: allow it, as deploy/redis does") from None
    except UnknownCommandError:
        raise SettingsInvalid(f"{here}: the server does not know INFO: it is no Redis or Valkey") from None


async def _ahead_s(client: Redis[bytes]) -> float:
    """By how many seconds the server's clock is ahead of ours."""
    asked = time.time()
    theirs = (await client.time()).timestamp()
    return theirs - (asked + time.time()) / 2


def _version(told: Mapping[str, Any]) -> str:
    return str(told.get("valkey_version") or told.get("redis_version", "0"))


def _major(told: Mapping[str, Any]) -> int:
    return int(_version(told).split(".")[0])


def _require(holds: bool, here: str, message: str) -> None:
    if not holds:
        raise SettingsInvalid(f"{here}: {message}")
