"""The protocol of stores. Every implementation passes the contract in tests/app/store/test_contract.py."""

from __future__ import annotations

from typing import Protocol

ENTRY_BYTES = 1_024  # added to each value's size in its owner's share, so that many small values count


class Store(Protocol):
    """Bytes by key, each with a time to live. A store may forget anything at any time, and never alters a value.

    A store whose server cannot be reached, or takes nothing, waits for a while and then raises StorageDown.
    """

    async def get(self, key: str, renew_s: float = 0.0) -> bytes | None:
        """The value, None if there is none. It is then kept for at least `renew_s` seconds."""

    async def put(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        """Keep `value` for `ttl_s` seconds and replace an earlier one. Values that are too long are not kept.

        owner  the caller whose share of the store holds the value; a full share drops its oldest values first. An
               empty owner has no share
        """

    async def delete(self, key: str, value: bytes) -> None:
        """Delete the key if it still holds `value`. A later value survives."""

    async def used_bytes(self) -> int:
        """The bytes of all values, or of all data on the server."""

    async def close(self) -> None:
        """Close the connections. The store must not be used afterwards."""
