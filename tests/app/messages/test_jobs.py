from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.errors import MessageInvalid, NotReady
from app.messages import (
    VERSION,
    CheckJob,
    CheckJobResult,
    ChoiceBody,
    CompileJob,
    CompileJobResult,
    DecodeJob,
    DecodeJobResult,
    DescribeJob,
    DescribeJobResult,
    Failure,
    GenerateJob,
    GenerateJobResult,
    GenerationOptions,
    LabelStepBody,
    Progress,
    RestartMessage,
    ScorerTask,
    StepMessage,
    StepRowBody,
    TimingsBody,
    TokenStepBody,
    UsageBody,
    WordBody,
    dump,
    failure_of,
    load,
    read_signed,
    sign,
)
from compiler.errors import LimitExceeded, SpecSyntaxError

TIMINGS = TimingsBody(0.0, 0.5, 9.0, 10.0, cached=True)
OPTIONS = GenerationOptions(max_tokens=8, n=2, algorithm="abs", scope="full", beams=4, trace=True)
WORD = WordBody("dog", ("dog", "animal"), 1)
TOKEN = TokenStepBody(5, "dog", 1, 1, 0.5, -1.0, -0.5, (("dog",), ()))
CHOICES = (
    ChoiceBody("dog", "eos", -1.0, -0.5, True, (WORD,), (TOKEN,)),
    ChoiceBody("a dog", "eos", -1.5, -0.5, True, (WORD,), None, proven_gap=0.25),
)
SIZES = CompileJobResult("ab" * 32, 4, 4, 100, 20, 3, False, 1.5)
CHECK_JOB = CheckJob({"ltlf": "F(dog)", "propositions": {}}, "a dög 🐕", 12.5)
MESSAGES = [
    CompileJob("ab" * 32, {"keywords": [["dog", "dogs"]], "ordered": False}, 12.5),
    CHECK_JOB,
    GenerateJob("abs-1", "ab" * 32, "a", OPTIONS, 12.5, "steps"),
    GenerateJob("abs-1", "ab" * 32, "a", GenerationOptions(max_tokens=8, algorithm="sample", seed=2**60), 12.5),
    DecodeJob("ab" * 32, ((-1.5, None), (0.0, -2.0)), "exact", 0.5, 1.0, 12.5),
    DecodeJob("ab" * 32, ((-1.5, None),), 16, 0.5, 1.0, 12.5),
    DecodeJob("ab" * 32, (), 16, 0.5, 1.0, 12.5, scorer=ScorerTask("claims", ("a",), 8, 0.5)),
    Progress("decode", 3, 8),
    StepMessage(3, 5, (StepRowBody("a dög", 0, 1, 2, 0.5, -1.0, -2.0, False),)),
    SIZES,
    CheckJobResult(False, (WORD,), 3),
    GenerateJobResult("ab" * 32, CHOICES, 7, UsageBody(4, 5, 2), TIMINGS, (2, 3)),
    DecodeJobResult(("a", "b"), -1.0, -0.5, True, (LabelStepBody("a", 1, 0, ("p",), -1.0),), SIZES.automaton, TIMINGS),
    DescribeJob("ab" * 32, True, 12.5, names={"dog": ("d", "e")}, compile_job="c", spec={"regex": "a"}),
    DescribeJobResult.of(SIZES, None),
    RestartMessage(2),
    Failure("LimitExceeded", "too big", {"limit": "dfa_states_max", "cap": 20}),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_the_wire(message: object) -> None:
    assert load(dump(message)) == message  # type: ignore[arg-type]


@given(st.binary())
def test_arbitrary_bytes_raise_only_message_invalid(data: bytes) -> None:
    with pytest.raises(MessageInvalid):
        load(data)


@pytest.mark.parametrize(
    "change", [{"version": VERSION + 1}, {"kind": "other"}, {"deadline": "soon"}, {"extra": 1}, {"text": None}]
)
def test_a_message_of_another_shape_is_refused(change: dict[str, object]) -> None:
    fields = json.loads(dump(CHECK_JOB)) | change
    with pytest.raises(MessageInvalid):
        load(json.dumps(fields).encode())


def test_an_error_is_carried_by_name_with_its_fields() -> None:
    failure = failure_of(SpecSyntaxError("bad", source="F(", position=2, expected="a formula"))
    assert (failure.error, failure.detail) == ("SpecSyntaxError", "bad")
    assert (failure.fields["position"], failure.fields["line"], failure.fields["column"]) == (2, 1, 3)
    assert failure_of(LimitExceeded("letters_max", 4, float("inf"))).fields["value"] == "inf"
    assert failure_of(NotReady(("a", "b"))).fields["reasons"] == ["a", "b"]
    assert load(dump(failure)) == failure


def test_a_remote_error_is_passed_on_unchanged() -> None:
    failure = failure_of(LimitExceeded("letters_max", 4, 5))
    assert failure_of(failure.as_error()) == failure


def test_a_signed_message_verifies_under_its_key_only() -> None:
    signed_bytes = sign(b"s" * 32, "key", dump(SIZES))
    assert read_signed(b"s" * 32, "key", signed_bytes) == SIZES
    for secret, key, data in (
        (b"t" * 32, "key", signed_bytes), (b"s" * 32, "other", signed_bytes), (b"s" * 32, "key", signed_bytes + b" "),
        (b"s" * 32, "key", signed_bytes[:20]), (b"s" * 32, "key", b""), (b"s" * 32, "key", dump(SIZES)),
        (b"s" * 32, "key", sign(b"s" * 32, "key", b'{"version": 0}')),
    ):
        assert read_signed(secret, key, data) is None


@pytest.mark.parametrize("position", range(0, 200, 7))
def test_a_signed_message_with_a_changed_bit_is_rejected(position: int) -> None:
    signed_bytes = bytearray(sign(b"s" * 32, "key", dump(SIZES)))
    signed_bytes[position % len(signed_bytes)] ^= 1
    assert read_signed(b"s" * 32, "key", bytes(signed_bytes)) is None


def test_a_bug_is_carried_without_its_text() -> None:
    failure = failure_of(ZeroDivisionError("the caller's secret prompt"))
    assert failure.error == "InternalError"
    assert "secret" not in str(failure)
