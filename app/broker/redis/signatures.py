"""Signs jobs in the API, and their events and results in workers.

A process that can write to the server, but does not have the secret, can neither make a worker run a job nor make a
caller receive a result or event that was not made for its job and attempt.
"""

from __future__ import annotations

import json
import time

from app.errors import DeadlineExceeded, MessageInvalid
from app.messages import sign, verify

VERSION = 1  # raise it whenever the signed format changes
CLOCKS_S_MAX = 7_200.0  # by which the clocks of API and worker may differ


class Signatures:
    """Signs with the service's secret. A signature covers version, kind and job, and what is named below."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign_body(self, queue: str, job_id: str, body: bytes, owner: str, deadline_in_s: float | None) -> bytes:
        """A job's signed body, with its owner and Unix time of expiry."""
        expires = None if deadline_in_s is None else time.time() + deadline_in_s
        header = json.dumps([owner, expires]).encode()
        return sign(self._secret, _name("body", queue, job_id), header + b"\n" + body)

    def open_body(self, queue: str, job_id: str, signed: bytes) -> bytes:
        """The body. Raises MessageInvalid for one that was not signed for this job, DeadlineExceeded for an old one."""
        header, _, body = self._open(_name("body", queue, job_id), signed).partition(b"\n")
        _, expires = json.loads(header)
        if expires is not None and time.time() > expires + CLOCKS_S_MAX:
            raise DeadlineExceeded()
        return body

    def sign_result(self, job_id: str, fence: str, result: bytes) -> bytes:
        """The result of a job's attempt."""
        return sign(self._secret, _name("result", job_id, fence), result)

    def open_result(self, job_id: str, fence: str, signed: bytes) -> bytes:
        """The result. Raises MessageInvalid for one that was not signed for this job and attempt."""
        return self._open(_name("result", job_id, fence), signed)

    def sign_event(self, job_id: str, event_id: str, event: bytes) -> bytes:
        """An event of a job. Its id has the number of the lease."""
        return sign(self._secret, _name("event", job_id, event_id), event)

    def open_event(self, job_id: str, event_id: str, signed: bytes) -> bytes:
        """The event. Raises MessageInvalid for one that was not signed for this job and number."""
        return self._open(_name("event", job_id, event_id), signed)

    def _open(self, name: str, signed: bytes) -> bytes:
        value = verify(self._secret, name, signed)
        if value is None:
            raise MessageInvalid("the server returned a message that this service did not write")
        return value


def _name(*parts: object) -> str:
    # JSON keeps the parts apart: joined strings of different parts could be equal.
    return json.dumps([VERSION, *parts])
