"""Signatures cover each part of jobs, results and events."""

from __future__ import annotations

import pytest

from app.api.jobs import ID
from app.errors import DeadlineExceeded, MessageInvalid
from app.messages import Signatures, sign, verify
from app.messages.signing import CLOCKS_S_MAX

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
    signed = signatures.sign_body("q", "job", b"body", 60.0)
    assert signatures.open_body("q", "job", signed) == b"body"
    forged = [signed[:place] + bytes([signed[place] ^ 1]) + signed[place + 1 :] for place in range(len(signed))]
    for other in (*forged, *(signed[:size] for size in range(len(signed))), signed + b" ", b""):
        with pytest.raises(MessageInvalid):
            signatures.open_body("q", "job", other)
    for queue, job_id in (("q", "other"), ("r", "job")):
        with pytest.raises(MessageInvalid):
            signatures.open_body(queue, job_id, signed)


def test_a_job_of_another_version_or_secret_is_refused() -> None:
    signed = Signatures(NEW, 1).sign_body("q", "job", b"body", 60.0)
    for signatures in (Signatures(NEW, 2), Signatures(OLD, 1)):
        with pytest.raises(MessageInvalid):
            signatures.open_body("q", "job", signed)


def test_a_job_past_its_deadline_and_the_tolerance_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    assert CLOCKS_S_MAX <= 600, "minutes"
    signatures = Signatures(NEW)
    for expires_in_s in (60.0, 0.0, 30 - CLOCKS_S_MAX):
        assert signatures.open_body("q", "job", signatures.sign_body("q", "job", b"a\nb", expires_in_s)) == b"a\nb"
    with pytest.raises(DeadlineExceeded):
        signatures.open_body("q", "job", signatures.sign_body("q", "job", b"", -CLOCKS_S_MAX - 1))
    assert "job job is not run: by the clock of this process it expired 301 s ago" in caplog.text


def test_an_id_is_accepted_for_its_terms_only() -> None:
    signatures, terms = Signatures(NEW), ("key", "anna", "generate", "digest")
    job_id = signatures.new_job_id(*terms)
    assert ID.fullmatch(job_id) and signatures.new_job_id(*terms) != job_id
    for secret in (NEW, NEW + b"," + OLD, OLD + b"," + NEW):
        Signatures(secret).check_job_id(job_id, *terms)
    changed = [[*terms[:place], "other", *terms[place + 1 :]] for place in range(len(terms))]
    for others in (*changed, terms[1:], ("keya", "nna", *terms[2:]), ("anna", "key", *terms[2:])):
        with pytest.raises(MessageInvalid):
            signatures.check_job_id(job_id, *others)
    with pytest.raises(MessageInvalid):
        Signatures(OLD).check_job_id(job_id, *terms)


def test_no_changed_id_is_accepted() -> None:
    signatures, terms = Signatures(NEW), ("key", "", "", "")
    job_id = signatures.new_job_id(*terms)
    forged = [job_id[:place] + "g" + job_id[place + 1 :] for place in range(len(job_id))]
    for other in (*forged, *(job_id[:size] for size in range(len(job_id))), job_id + "0", job_id[::-1], "\u00e9" * 32):
        with pytest.raises(MessageInvalid):
            signatures.check_job_id(other, *terms)


def test_the_first_value_signs_and_all_are_accepted() -> None:
    both = NEW + b", " + OLD
    assert sign(both, "key", b"value") == sign(NEW, "key", b"value")
    assert verify(both, "key", sign(OLD, "key", b"value")) == b"value"
    assert verify(OLD, "key", sign(both, "key", b"value")) is None
