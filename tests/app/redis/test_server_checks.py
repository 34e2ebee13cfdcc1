"""Accepted Redis servers, and the messages about others."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from app.errors import SettingsInvalid, StorageDown
from app.redis.connection import Connection, without_password
from app.redis.server_checks import check_server
from app.settings import Settings
from app.wiring import check_storage, open_broker, open_store
from tests.servers.redis_server import RedisServer, old_server_program, running_server

PASSWORD = "p@ss/w?rd#1"


def look_at(server: RedisServer, jobs: bool = True, volatile: bool = False) -> dict[str, str]:
    return asyncio.run(check_server(server.url, "ABS_BROKER", jobs, volatile, 20.0))


def test_a_suitable_server_is_accepted_and_described(redis_server: RedisServer) -> None:
    facts = asyncio.run(check_storage(Settings.of(broker=redis_server.url, store=redis_server.url)))
    assert set(facts) == {"server", "policy", "persistence", "memory", "clock"}
    assert (facts["policy"], facts["persistence"]) == ("volatile-lru", "AOF")
    assert abs(float(facts["clock"])) < 5
    assert asyncio.run(check_storage(Settings())) == {}


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_may_evict_jobs_is_refused(policy: str) -> None:
    with running_server("--maxmemory-policy", policy) as server:
        with pytest.raises(SettingsInvalid, match=f"maxmemory-policy is {policy}.*set volatile-lru"):
            look_at(server)
        look_at(server, jobs=False)  # what it holds can be made again


def test_a_non_persistent_server_is_refused_by_default() -> None:
    with running_server("--appendonly", "no", "--maxmemory-policy", "noeviction") as server:
        with pytest.raises(SettingsInvalid, match="set appendonly yes, or ABS_ALLOW_NON_PERSISTENT_REDIS=yes"):
            look_at(server)
        assert look_at(server, volatile=True)["persistence"] == "none"


def test_an_old_server_is_refused() -> None:
    old = r"is of version 6\.2\.\d+: 7 or newer is needed"
    with running_server(program=old_server_program()) as server, pytest.raises(SettingsInvalid, match=old):
        look_at(server)


@pytest.mark.parametrize(
    ("versions", "refusal"),
    [
        ("redis_version:6.2.7", r"6\.2\.7: 7 or newer"), ("redis_version:7.0.0", ""), ("redis_version:10.0.0", ""),
        ("redis_version:7.2.4\r\nvalkey_version:7.2.9", r"7\.2\.9: 8 or newer"), ("", "version 0: 7 or newer"),
        ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.0", ""),
        ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:10.1.0", ""),
    ],
)
def test_redis_7_and_valkey_8_are_the_oldest(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, versions: str, refusal: str
) -> None:
    ask = Connection.command
    rest = "\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"

    async def command(self: Connection, op: str, *words: Any, **options: Any) -> Any:
        return (versions + rest).encode() if words == ("INFO",) else await ask(self, op, *words, **options)

    monkeypatch.setattr(Connection, "command", command)
    if refusal:
        with pytest.raises(SettingsInvalid, match=refusal):
            look_at(redis_server)
    else:
        assert look_at(redis_server)["server"].endswith(versions.rpartition(":")[2])


def test_a_server_in_cluster_mode_is_refused() -> None:
    message = r"ABS_BROKER = unix://.*: the server is part of a cluster: use a single server"
    with running_server("--cluster-enabled", "yes") as server, pytest.raises(SettingsInvalid, match=message):
        look_at(server)


@pytest.mark.parametrize("scheme", ("redis+cluster", "rediss+cluster"))
@pytest.mark.parametrize("name", ("broker", "store"))
def test_the_url_of_a_cluster_is_refused_by_name(name: str, scheme: str) -> None:
    settings = Settings.of(**{name: f"{scheme}://:secret@localhost:6379"})
    with pytest.raises(SettingsInvalid, match=f"ABS_{name.upper()}: a Redis cluster is not supported") as error:
        open_broker(settings)
        open_store(settings)
    assert "secret" not in str(error.value)


def test_a_connection_error_names_the_server_without_its_password(
    own_redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    own_redis_server.ask("CONFIG", "SET", "requirepass", "another")
    with pytest.raises(StorageDown) as error:
        asyncio.run(check_server(f"unix://:secret-word@{own_redis_server.socket}", "ABS_BROKER", True, False, 0.5))
    assert "rejects our name or password" in str(error.value)
    assert f"ABS_BROKER = unix://{own_redis_server.socket}" in str(error.value)
    own_redis_server.kill()
    with pytest.raises(StorageDown, match="cannot be reached: ABS_BROKER"):
        asyncio.run(check_server(f"unix://:secret-word@{own_redis_server.socket}", "ABS_BROKER", True, False, 0.5))
    assert "secret-word" not in caplog.text + str(error.value)


@pytest.mark.parametrize(
    ("url", "public_url"),
    [
        (f"redis://:{PASSWORD}@host:6379/0", "redis://host:6379/0"),
        ("rediss://user:secret@host/2?ssl_cert_reqs=none", "rediss://host/2"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock"),
    ],
)
def test_urls_are_shown_without_passwords(url: str, public_url: str) -> None:
    assert without_password(url) == public_url


def test_an_invalid_server_url_is_a_settings_error() -> None:
    with pytest.raises(SettingsInvalid, match="redis://host:port") as error:
        asyncio.run(check_storage(Settings.of(broker="redis://:secret@host:port/0", redis_wait_s=0.2)))
    assert "secret" not in str(error.value)
