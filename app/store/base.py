"""What a store of bytes must do. Every implementation passes the contract in tests/app/store/test_contract.py."""

from __future__ import annotations

from typing import Protocol

ENTRY_BYTES = 1_024  # what a value counts in its owner's share beside its own bytes


class Store(Protocol):
    """Bytes by key, each with a time to live. A store may forget anything at any time, and never alters a value.

    A store whose server cannot be reached, or takes nothing, waits for a while and then raises StorageDown.
    """

    async def get(self, key: str, renew_s: float = 0.0) -> bytes | None:
        """The value, or None where there is none or its time ran out. It lives on for `renew_s`, if that is more."""

    async def put(self, key: str, value: bytes, ttl_s: float, owner: str = "") -> None:
        """Keep `value` for `ttl_s` seconds and replace an earlier one. Values that are too long are not kept.

        owner  the caller whose share of the store holds the value; a full share drops its oldest values first. An
               empty owner has no share
        """

    async def delete(self, key: str, value: bytes) -> None:
        """Delete the key if it still holds `value`. A later value survives."""

    async def used_bytes(self) -> int:
        """What the store holds, as far as it can tell: its values, or all that its server does."""

    async def close(self) -> None:
        """Give up connections; the store is not used after."""
