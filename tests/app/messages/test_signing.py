"""Signatures cover each part of jobs, results and events."""

from __future__ import annotations

import pytest

from app.errors import DeadlineExceeded, MessageInvalid
from app.messages import Signatures, sign, verify

OLD, NEW = b"an old secret of the service", b"a new secret of the service"
RESULT, EVENT = ("result", "job", "1"), ("event", "job", "1-1")
OTHER_NAMES = [
    (RESULT, ("body", "job", "1")), (RESULT, ("result", "other", "1")), (RESULT, ("result", "job", "2")),
    (EVENT, ("result", "job", "1-1")), (EVENT, ("event", "other", "1-1")), (EVENT, ("event", "job", "2-1")),
    (EVENT, ("event", "job", "1-2")), (EVENT, ("event", "job1", "-1")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "other"), OTHER_NAMES)
def test_results_and_events_belong_to_a_job_and_attempt(name: tuple[str, ...], other: tuple[str, ...]) -> None:
    signatures = Signatures(NEW)
    signed = signatures.sign(b"value", *name)
    assert signatures.open(signed, *name) == b"value"
    with pytest.raises(MessageInvalid):
        signatures.open(signed, *other)


def test_a_signature_covers_each_byte_of_a_job() -> None:
    signatures = Signatures(NEW)
    signed = signatures.sign_body("q", "job", b"body", "anna", 60.0)
    assert signatures.open_body("q", "job", signed) == b"body" and b"anna" in signed
    forged = [signed[:place] + bytes([signed[place] ^ 1]) + signed[place + 1 :] for place in range(len(signed))]
    for other in (*forged, *(signed[:size] for size in range(len(signed))), signed + b" ", b""):
        with pytest.raises(MessageInvalid):
            signatures.open_body("q", "job", other)
    for queue, job_id in (("q", "other"), ("r", "job")):
        with pytest.raises(MessageInvalid):
            signatures.open_body(queue, job_id, signed)


def test_a_job_of_another_version_or_secret_is_refused() -> None:
    signed = Signatures(NEW, 1).sign_body("q", "job", b"body", "", None)
    for signatures in (Signatures(NEW, 2), Signatures(OLD, 1)):
        with pytest.raises(MessageInvalid):
            signatures.open_body("q", "job", signed)


def test_a_job_after_its_deadline_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.messages.signing.CLOCKS_S_MAX", 0.0)
    signatures = Signatures(NEW)
    assert signatures.open_body("q", "job", signatures.sign_body("q", "job", b"", "", 60.0)) == b""
    with pytest.raises(DeadlineExceeded):
        signatures.open_body("q", "job", signatures.sign_body("q", "job", b"", "", -0.001))


def test_the_first_value_signs_and_all_are_accepted() -> None:
    both = NEW + b", " + OLD
    assert sign(both, "key", b"value") == sign(NEW, "key", b"value")
    assert verify(both, "key", sign(OLD, "key", b"value")) == b"value"
    assert verify(OLD, "key", sign(both, "key", b"value")) is None
