"""Signs and checks small values of the store.

A process that can write to the store's server can neither forge a value nor move one to another key.
"""

from __future__ import annotations

import hashlib
import hmac

_MAC_BYTES = 32


def sign(secret: bytes, key: str, value: bytes) -> bytes:
    """The bytes to store under a key: the signature, then the value."""
    return _mac(secret, key, value) + value


def verify(secret: bytes, key: str, stored: bytes) -> bytes | None:
    """The value that `sign` signed for this key. None if the signature does not match."""
    value = stored[_MAC_BYTES:]
    # compare_digest takes equally long wherever the bytes differ, so its time does not reveal the signature.
    return value if hmac.compare_digest(stored[:_MAC_BYTES], _mac(secret, key, value)) else None


def _mac(secret: bytes, key: str, value: bytes) -> bytes:
    # Hashed, the key has a fixed length: no part of a key can pass for the beginning of a value.
    return hmac.digest(secret, hashlib.sha256(key.encode()).digest() + value, hashlib.sha256)
