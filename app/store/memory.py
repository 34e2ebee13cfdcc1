"""A store inside this process: least recently used first out, bounded in bytes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from app.settings import Settings


class MemoryStore:
    """Obeys app.store.base.Store. Used from one event loop, so no method needs a lock."""

    def __init__(self, bytes_max: int, now: Callable[[], float] = time.monotonic) -> None:
        self._bytes_max = bytes_max
        self._now = now
        self._entries: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        self._bytes = 0

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> MemoryStore:
        """The store of a `memory://` URL."""
        return cls(settings.store_bytes_max)

    async def get(self, key: str, renew_s: float = 0.0) -> bytes | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, ends = entry
        if self._now() >= ends:
            self._drop(key)
            return None
        self._entries[key] = (value, max(ends, self._now() + renew_s))
        self._entries.move_to_end(key)
        return value

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        self._drop(key)
        if len(value) > self._bytes_max:
            return
        self._entries[key] = (value, self._now() + ttl_s)
        self._bytes += len(value)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._entries)))

    async def delete(self, key: str, value: bytes) -> None:
        if self._entries.get(key, (None, 0.0))[0] == value:
            self._drop(key)

    async def used_bytes(self) -> int:
        return self._bytes

    async def close(self) -> None:
        self._entries.clear()
        self._bytes = 0

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= len(entry[0])
