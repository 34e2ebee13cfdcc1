"""Signs and checks what processes exchange through servers.

A process that can write to a server, but does not have the secret, can neither forge a value nor move one to another
key, job or place in a job. The id of a job proves its terms, so a job is not taken for the one of another request or
owner.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
import logging
import secrets
import time
from typing import Final

from app.errors import DeadlineExceeded, MessageInvalid

VERSION: Final = 7  # of jobs, results and events; each carries it, and queues and signatures name it
# By which the clocks of API and worker may differ. NTP keeps them within a second; five minutes is what Kerberos allows
# (RFC 4120), for machines whose clocks are set by hand.
CLOCKS_S_MAX = 300.0
_MAC_BYTES = 32
# Of the tag in a job's id. Its forger has no way to try one but a request: 2**63 of them on average.
_TAG_BYTES = 8
log = logging.getLogger(__name__)


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


def _tag(key: bytes, nonce: str, terms: tuple[str, ...]) -> str:
    return _mac(key, json.dumps(["id", nonce, *terms]), b"")[:_TAG_BYTES].hex()


class Signatures:
    """Signs with the service's secret. A signature covers the format version, the kind and the job's id.

    It also covers the queue and the expiry of a body, the lease of a result, the lease and the number of an event. The
    id covers the terms of the job: its key, its owner, its name for the owner, the digest of its request.
    """

    def __init__(self, secret: bytes, version: int = VERSION) -> None:
        self._secret, self._version = secret, version

    def new_job_id(self, *terms: str) -> str:
        """An id for a job of these terms."""
        nonce = secrets.token_hex(8)
        return nonce + _tag(signing_keys(self._secret)[0], nonce, terms)

    def check_job_id(self, job_id: str, *terms: str) -> None:
        """Raises MessageInvalid for the id of a job of other terms."""
        nonce = job_id[: 2 * _TAG_BYTES]
        ids = [nonce + _tag(key, nonce, terms) for key in signing_keys(self._secret)]
        if not any([hmac.compare_digest(job_id.encode(), each.encode()) for each in ids]):
            raise MessageInvalid("the server returned a job of another request")

    def sign_body(self, queue: str, job_id: str, body: bytes, expires_in_s: float) -> bytes:
        """A job's signed body, with the Unix time of its expiry."""
        return self.sign(b"%.3f\n" % (time.time() + expires_in_s) + body, "body", queue, job_id)

    def open_body(self, queue: str, job_id: str, signed: bytes) -> bytes:
        """The body. Raises MessageInvalid for one that was not signed for this job, DeadlineExceeded for an old one."""
        expires, _, body = self.open(signed, "body", queue, job_id).partition(b"\n")
        late_s = time.time() - float(expires)
        if late_s > CLOCKS_S_MAX:
            log.warning("job %s is not run: by the clock of this process it expired %.0f s ago", job_id, late_s)
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
