"""Picks implementations, by tables: the one place that does."""

from __future__ import annotations

from collections.abc import Iterable
from pkgutil import resolve_name
from typing import TYPE_CHECKING, cast

from app.environment import let_idle_threads_sleep
from app.errors import SettingsInvalid
from app.models import model_sources, only
from app.settings import PREFIX, Settings
from compiler.errors import EngineFailure

if TYPE_CHECKING:
    from app.auth import Limiter
    from app.broker import Broker
    from app.store import Store
    from app.worker.handlers.base import OpenHandler

SERVERS = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
CLUSTERS = ("redis+cluster", "rediss+cluster")
BROKERS = dict.fromkeys(SERVERS, "app.broker.redis.broker:RedisBroker")
BROKERS |= {"memory": "app.broker.memory:MemoryBroker.from_url"}
STORES = dict.fromkeys(SERVERS, "app.store.redis:RedisStore") | {"memory": "app.store.memory:MemoryStore.from_url"}
LIMITERS = dict.fromkeys(SERVERS, "app.auth.redis_counters:shared_limiter")
LIMITERS |= {"memory": "app.auth.rate_limit:Limiter.from_url"}
CHECK = "app.redis.server_checks:check_server"
DEVICE = "decoding.engine:describe_device"
ENGINES = "compiler.engines:open_engines"
HANDLERS = {name: f"app.worker.handlers.{name}:open_handler" for name in ("compile", "generate")}


def open_broker(settings: Settings) -> Broker:
    """The broker that ABS_BROKER names. Raises SettingsInvalid for a URL of another scheme."""
    return cast("Broker", _by_url("broker", settings.storage.broker, BROKERS, settings))


def open_store(settings: Settings) -> Store:
    """The store that ABS_STORE names. Raises SettingsInvalid for a URL of another scheme."""
    return cast("Store", _by_url("store", settings.storage.store, STORES, settings))


def open_limiter(settings: Settings) -> Limiter:
    """The limiter of API keys. It counts at the broker, so that all replicas count together."""
    return cast("Limiter", _by_url("broker", settings.storage.broker, LIMITERS, settings))


async def check_storage(settings: Settings) -> dict[str, str]:
    """Facts about the server of jobs and automata, by name. Empty without a server.

    Raises SettingsInvalid where a server will not do, StorageDown where it does not answer.
    """
    facts: dict[str, str] = {}
    for name, url in (("store", settings.storage.store), ("broker", settings.storage.broker)):
        jobs = name == "broker"
        if url.partition("://")[0] in SERVERS and (jobs or settings.storage.store != settings.storage.broker):
            check = resolve_name(CHECK)
            facts |= await check(
                url, f"{PREFIX}{name.upper()}", jobs, settings.storage.allow_non_persistent_redis,
                settings.storage.redis_wait_s,
            )
    return facts


def require_engines(settings: Settings, queues: Iterable[str]) -> None:
    """Raises SettingsInvalid if a compile worker's selected engine is absent."""
    names = (settings.engines.ltlf_engine, settings.engines.regex_engine)
    if "compile" not in queues or names == ("native", "native"):
        return
    try:
        resolve_name(ENGINES)(*names)
    except EngineFailure as error:
        selected = f"{PREFIX}LTLF_ENGINE is {names[0]} and {PREFIX}REGEX_ENGINE is {names[1]}"
        raise SettingsInvalid(f"{selected}, but {error}") from None


def require_single_model(settings: Settings, queues: Iterable[str]) -> None:
    """Raises SettingsInvalid if the workers of a process would share several models."""
    generations = [queue for queue in queues if queue.partition("/")[0] == "generate"]
    if settings.inference.tensor_parallel > 1 and len(generations) > 1:
        raise SettingsInvalid(
            f"{PREFIX}TENSOR_PARALLEL: the processes of a worker share one model, and {PREFIX}MODEL names "
            f"{len(generations)}: name one, or run `abs worker generate/NAME` for each"
        )


def handler_opener(queue: str) -> OpenHandler:
    """A function that opens a queue's handler.

    For a queue of generations it has one model. It imports nothing until it runs in the worker, so an API loads no
    model code.
    """

    def open_handler(settings: Settings) -> object:
        let_idle_threads_sleep()
        opener = resolve_name(HANDLERS[queue.partition("/")[0]])
        source = next((source for source in model_sources(settings) if source.queue == queue), None)
        return opener(only(source, settings) if source else settings)

    return cast("OpenHandler", open_handler)


def describe_device(settings: Settings) -> str:
    """A description of the device of the generate worker's model. Loads the model code.

    Raises RuntimeError if there is no such device.
    """
    return str(resolve_name(DEVICE)(settings.inference.device))


def _by_url(name: str, url: str, table: dict[str, str], settings: Settings) -> object:
    scheme = url.partition("://")[0]
    if scheme in CLUSTERS:
        raise SettingsInvalid(f"{PREFIX}{name.upper()}: a Redis cluster is not supported: name a server or sentinels")
    if scheme not in table:
        schemes = ", ".join(f"{scheme}://" for scheme in table)
        raise SettingsInvalid(f"{PREFIX}{name.upper()} must be a URL that begins with {schemes}")
    try:
        return resolve_name(table[scheme])(url, settings)
    except SettingsInvalid as error:
        raise SettingsInvalid(f"{PREFIX}{name.upper()}: {error}") from None
