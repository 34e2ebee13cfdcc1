"""Checks a Redis server when a process starts. One that could lose jobs is rejected."""

from __future__ import annotations

import time

from redis.exceptions import NoPermissionError, ResponseError

from app.errors import SettingsInvalid, StorageDown
from app.redis.connection import Connection, without_password

REDIS_MIN, VALKEY_MIN = 7, 8  # major versions
POLICIES = ("volatile-lru", "noeviction")
_MIB = 2**20


async def check_server(url: str, setting: str, jobs: bool, volatile: bool, wait_s: float) -> dict[str, str]:
    """Facts about a server. They are server, policy, persistence, memory, and clock (s that it is ahead of ours).

    setting   the variable with the URL
    jobs      whether it stores jobs, which must not get lost
    volatile  whether a server of jobs may be without persistence
    Raises SettingsInvalid for an unsuitable server, StorageDown if it does not answer within `wait_s`.
    """
    source = f"{setting} = {without_password(url)}"
    try:
        connection = Connection(url)
    except SettingsInvalid as error:
        raise SettingsInvalid(f"{setting}: {error}") from None
    try:
        # INFO has all values that the checks need, and even a strict ACL can allow it.
        text = (await connection.command("check", "INFO", wait_s=wait_s)).decode()
        info = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        sent = time.time()
        seconds, microseconds = await connection.command("check", "TIME", wait_s=wait_s)
        ahead_s = int(seconds) + int(microseconds) / 1e6 - (sent + time.time()) / 2
    except StorageDown as down:
        raise StorageDown(f"{down.reason}: {source}") from down.__cause__
    except NoPermissionError:
        raise SettingsInvalid(f"{source}: the server's user may not send INFO: allow it as deploy/redis does") from None
    except ResponseError:
        raise SettingsInvalid(f"{source}: the server does not support INFO: use Redis or Valkey") from None
    finally:
        await connection.close()
    version = str(info.get("valkey_version") or info.get("redis_version", "0"))
    oldest = VALKEY_MIN if "valkey_version" in info else REDIS_MIN
    policy, persistence = str(info.get("maxmemory_policy", "")), "AOF" if int(info.get("aof_enabled", 0)) else "none"
    faults = {
        f"the server is of version {version}: {oldest} or newer is needed": int(version.split(".")[0]) < oldest,
        "the server is part of a cluster: use a single server":
            info.get("redis_mode", info.get("server_mode")) == "cluster",
        f"the server's maxmemory-policy is {policy}, which evicts jobs when memory is short: set volatile-lru":
            jobs and policy not in POLICIES,
        "the server is not persistent (appendonly no), so jobs are lost when it stops: set appendonly yes, or "
        "ABS_ALLOW_NON_PERSISTENT_REDIS=yes to accept that": jobs and not volatile and persistence == "none",
    }  # fmt: skip
    for message, found in faults.items():
        if found:
            raise SettingsInvalid(f"{source}: {message}")
    used, limit = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    return {
        "server": f"{info.get('server_name', 'redis')} {version}", "policy": policy, "persistence": persistence,
        "memory": f"{used // _MIB} MiB of {f'{limit // _MIB} MiB' if limit else 'all there is'}",
        "clock": f"{ahead_s:+.2f}",
    }  # fmt: skip
