"""A store inside this process. The least recently used values leave first; its bytes are bounded in all and for each
owner.
"""

from __future__ import annotations

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable

from app.settings import Settings
from app.store.base import ENTRY_BYTES


class MemoryStore:
    """Implements app.store.base.Store. It is used from one event loop, so no method needs a lock."""

    def __init__(
        self, bytes_max: int, now: Callable[[], float] = time.monotonic, owner_bytes_max: int = 0
    ) -> None:
        self._bytes_max, self._owner_bytes_max = bytes_max, owner_bytes_max
        self._now = now
        self._entries: OrderedDict[str, tuple[bytes, float]] = OrderedDict()  # least recently used first
        self._bytes = 0
        self._owners: dict[str, str] = {}  # of the entries in a share, by key
        self._shares: defaultdict[str, dict[str, int]] = defaultdict(dict)  # sizes by key, the oldest first
        self._share_bytes: defaultdict[str, int] = defaultdict(int)

    @classmethod
    def from_url(cls, url: str, settings: Settings) -> MemoryStore:
        """The store of a `memory://` URL."""
        return cls(settings.retention.store_bytes_max, owner_bytes_max=settings.auth.key_store_bytes_max)

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

    async def put(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        self._drop(key)
        if len(value) > self._bytes_max:
            return
        self._entries[key] = (value, self._now() + ttl_s)
        self._bytes += len(value)
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._entries)))
        if owner and self._owner_bytes_max and key in self._entries:
            self._put_into_share(owner, key, len(value))

    async def delete(self, key: str, value: bytes) -> None:
        if self._entries.get(key, (None, 0.0))[0] == value:
            self._drop(key)

    async def used_bytes(self) -> int:
        return self._bytes

    async def close(self) -> None:
        """There are no connections."""

    def _put_into_share(self, owner: str, key: str, size: int) -> None:
        """Add a value to its owner's share and drop the oldest values. The newest stays, whatever its size."""
        share = self._shares[owner]
        self._owners[key], share[key] = owner, size + ENTRY_BYTES
        self._share_bytes[owner] += share[key]
        while len(share) > 1 and self._share_bytes[owner] > self._owner_bytes_max:
            self._drop(next(iter(share)))

    def _drop(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= len(entry[0])
        owner = self._owners.pop(key, None)
        if owner is not None:
            self._share_bytes[owner] -= self._shares[owner].pop(key)
            if not self._shares[owner]:
                del self._shares[owner], self._share_bytes[owner]
