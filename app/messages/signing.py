"""Signs and checks small values of the store.

A process that can write to the store's server can neither forge a value nor move one to another key.
"""

from __future__ import annotations

import hashlib
import hmac

_MAC_BYTES = 32


def sign(secret: bytes, key: str, value: bytes) -> bytes:
    """The value as it is stored under a key."""
    return _mac(secret, key, value) + value


def verify(secret: bytes, key: str, stored: bytes) -> bytes | None:
    """The value that was stored under this key, None where these bytes were not."""
    value = stored[_MAC_BYTES:]
    return value if hmac.compare_digest(stored[:_MAC_BYTES], _mac(secret, key, value)) else None


def _mac(secret: bytes, key: str, value: bytes) -> bytes:
    return hmac.digest(secret, hashlib.sha256(key.encode()).digest() + value, hashlib.sha256)
