"""What rules say of events, beside an independent validator."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from compiler.errors import SpecSyntaxError
from compiler.policies import Event, EventKind
from compiler.policies.events import EventProposition, read_proposition

VALUES: list[Any] = [
    {}, {"amount": 100}, {"amount": 100.5}, {"amount": 1e2}, {"amount": "100"}, {"amount": True}, {"amount": None},
    {"amount": -3}, {"customer": {"id": 7}}, {"customer": {"id": "7"}}, {"customer": 7}, {"amount": [100]}, [], "text",
    3, {"a.b": 1}, {"note": 'say "no"'}, {"amount": 100.0000000000000001},
]  # fmt: skip


def read(source: str) -> EventProposition:
    found = read_proposition(source, 0)
    assert found is not None and found[1] == len(source)
    return found[0]


@pytest.mark.parametrize(
    "source",
    [
        "call(refund, amount > 99)", "call(refund, amount >= 100)", "call(refund, amount < 100.5)",
        "call(refund, amount <= 100)", "call(refund, amount = 100)", "call(refund, amount = 100.0)",
        "call(refund, amount != 100)", "call(refund, amount = true)", "call(refund, amount = null)",
        'call(refund, amount = "100")', "call(refund, customer.id = 7)", 'call(refund, "a.b" = 1)',
        'call(refund, note = "say \\"no\\"")', "call(refund, amount > -5)", "call(refund, amount != null)",
    ],
)  # fmt: skip
def test_a_condition_holds_where_its_schema_is_valid(source: str) -> None:
    (condition,) = read(source).conditions
    validator = Draft202012Validator(condition.schema())
    truths = [condition.holds(value) for value in VALUES]
    assert truths == [validator.is_valid(value) for value in VALUES]
    assert any(truths) and not all(truths)
    assert truths == [condition.holds(json.loads(json.dumps(value))) for value in VALUES]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("reply", EventProposition(EventKind.REPLY)),
        ("call", EventProposition(EventKind.CALL)),
        ("result", EventProposition(EventKind.RESULT)),
        ("call(refund)", EventProposition(EventKind.CALL, "refund")),
        ("result( refund )", EventProposition(EventKind.RESULT, "refund")),
        ('call("delete account")', EventProposition(EventKind.CALL, "delete account")),
        ("call(get.user-v2)", EventProposition(EventKind.CALL, "get.user-v2")),
    ],
)
def test_events_are_read(source: str, expected: EventProposition) -> None:
    assert read(source) == expected
    assert read(str(expected)) == expected


@pytest.mark.parametrize("source", ["refund", "replying", "caller", "results", "F", "(", "recall(a)"])
def test_other_words_are_no_events(source: str) -> None:
    assert read_proposition(source, 0) is None


def test_a_word_within_a_name_is_no_event() -> None:
    assert read_proposition("no_reply", 3) is None


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ("call()", 5), ("call(refund", 11), ("call(refund, )", 12), ("call(refund, amount)", 12),
        ("call(refund, amount > )", 12), ('call(refund, amount > "5")', 22), ("call(refund amount)", 12),
        ("result(refund, ok = yes)", 14), ("call(refund, amount > 05)", 23), ("call(a, b = 'c')", 7),
    ],
)  # fmt: skip
def test_a_faulty_event_is_refused_with_its_place(source: str, position: int) -> None:
    with pytest.raises(SpecSyntaxError) as caught:
        read_proposition(source, 0)
    assert caught.value.position == position
    assert "call(tool, path > 5)" in caught.value.expected


def test_conditions_apply_to_their_kind_and_tool_alone() -> None:
    assert Event(EventKind.CALL, "refund", {"amount": 5}) != Event(EventKind.RESULT, "refund", {"amount": 5})
    assert str(read('call(refund,amount>5,customer.id="x")')) == 'call(refund, amount > 5, customer.id = "x")'
