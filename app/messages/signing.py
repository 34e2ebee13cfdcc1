"""Signs and checks what processes exchange through servers.

A process that can write to a server, but does not have the secret, can neither forge a value nor move one to another
key, job or place in a job.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import time
from typing import Final

from app.errors import DeadlineExceeded, MessageInvalid

VERSION: Final = 1  # of jobs, results and events; each carries it, and queues and signatures name it
CLOCKS_S_MAX = 7_200.0  # by which the clocks of API and worker may differ
_MAC_BYTES = 32


@functools.lru_cache(maxsize=16)
def signing_keys(secret: bytes) -> tuple[bytes, ...]:
    """The keys of ABS_SECRET, separated by commas. The first one signs, and all are accepted."""
    return tuple(key.strip() for key in secret.split(b","))


def sign(secret: bytes, key: str, value: bytes) -> bytes:
    """The bytes to store under a key: the signature, then the value."""
    return _mac(signing_keys(secret)[0], key, value) + value


def verify(secret: bytes, key: str, stored: bytes) -> bytes | None:
    """The value that `sign` signed for this key. None if the signature does not match."""
    mac, value = stored[:_MAC_BYTES], stored[_MAC_BYTES:]
    # compare_digest takes equally long wherever the bytes differ, so its time does not reveal the signature.
    matches = [hmac.compare_digest(mac, _mac(each, key, value)) for each in signing_keys(secret)]
    return value if any(matches) else None


def _mac(secret: bytes, key: str, value: bytes) -> bytes:
    # Hashed, the key has a fixed length: no part of a key can pass for the beginning of a value.
    return hmac.digest(secret, hashlib.sha256(key.encode()).digest() + value, hashlib.sha256)


class Signatures:
    """Signs with the service's secret. A signature covers the format version, the kind, and the job's queue and id.

    It also covers the owner and the deadline of a body, the lease of a result, the lease and the number of an event.
    """

    def __init__(self, secret: bytes, version: int = VERSION) -> None:
        self._secret, self._version = secret, version

    def sign_body(self, queue: str, job_id: str, body: bytes, owner: str, deadline_in_s: float | None) -> bytes:
        """A job's signed body, with its owner and Unix time of expiry."""
        expires = None if deadline_in_s is None else time.time() + deadline_in_s
        return self.sign(json.dumps([owner, expires]).encode() + b"\n" + body, "body", queue, job_id)

    def open_body(self, queue: str, job_id: str, signed: bytes) -> bytes:
        """The body. Raises MessageInvalid for one that was not signed for this job, DeadlineExceeded for an old one."""
        header, _, body = self.open(signed, "body", queue, job_id).partition(b"\n")
        _, expires = json.loads(header)
        if expires is not None and time.time() > expires + CLOCKS_S_MAX:
            raise DeadlineExceeded()
        return body

    def sign(self, value: bytes, *name: str) -> bytes:
        """A signed value. Its name is its kind, its job, and its place in the job."""
        return sign(self._secret, self._name(name), value)

    def open(self, signed: bytes, *name: str) -> bytes:
        """The value. Raises MessageInvalid for one that was not signed with this name."""
        value = verify(self._secret, self._name(name), signed)
        if value is None:
            raise MessageInvalid("the server returned a message that this service did not write")
        return value

    def _name(self, parts: tuple[str, ...]) -> str:
        # JSON keeps the parts apart: joined strings of different parts could be equal.
        return json.dumps([self._version, *parts])
