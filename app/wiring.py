"""Picks implementations, by tables: the one place that does."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from app.errors import SettingsInvalid
from app.settings import PREFIX, Settings, let_idle_threads_sleep

if TYPE_CHECKING:
    from app.broker.base import Broker
    from app.handlers.base import OpenHandler
    from app.store.base import Store

BROKERS = {"memory": "app.broker.memory:MemoryBroker"}
STORES = {"memory": "app.store.memory:MemoryStore"}
HANDLERS = {"compile": "app.handlers.compile:open_handler", "generate": "app.handlers.generate:open_handler"}


def open_broker(settings: Settings) -> Broker:
    """The broker that ABS_BROKER names. Raises SettingsInvalid for a URL of another scheme."""
    return cast("Broker", _by_url("broker", settings.broker, BROKERS, settings))


def open_store(settings: Settings) -> Store:
    """The store that ABS_STORE names. Raises SettingsInvalid for a URL of another scheme."""
    return cast("Store", _by_url("store", settings.store, STORES, settings))


def handler_opener(queue: str) -> OpenHandler:
    """What opens a queue's handler. It imports nothing until it runs, in the worker: an API loads no model code."""

    def open_handler(settings: Settings) -> object:
        let_idle_threads_sleep()
        return _named(HANDLERS[queue])(settings)  # type: ignore[operator]

    return cast("OpenHandler", open_handler)


def _by_url(name: str, url: str, table: dict[str, str], settings: Settings) -> object:
    scheme = url.partition("://")[0]
    if scheme not in table:
        known = ", ".join(f"{one}://" for one in table)
        raise SettingsInvalid(f"{PREFIX}{name.upper()} must be a URL that begins with {known}")
    return _named(table[scheme]).from_url(url, settings)  # type: ignore[attr-defined]


def _named(path: str) -> object:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
