"""What rules say of events, beside an independent validator."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from compiler.errors import SpecSyntaxError
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.policies import Event, EventKind
from compiler.policies.events import EventCondition, EventProposition, read_proposition, values_apart
from compiler.policies.letters import literals, some_value_fits, with_parts, writable_within
from tests.tables import rows

VALUES: list[Any] = [
    {}, {"amount": 100}, {"amount": 100.5}, {"amount": 1e2}, {"amount": "100"}, {"amount": True}, {"amount": None},
    {"amount": -3}, {"customer": {"id": 7}}, {"customer": {"id": "7"}}, {"customer": 7}, {"amount": [100]}, [], "text",
    3, {"a.b": 1}, {"note": 'say "no"'}, {"amount": 100.0000000000000001},
]  # fmt: skip


def read(source: str) -> EventProposition:
    found = read_proposition(source, 0)
    assert found is not None and found[1] == len(source)
    return found[0]


@pytest.mark.parametrize("source", rows("policies", "a_condition_holds_where_its_schema_is_valid"))
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


@pytest.mark.parametrize(("source", "position"), rows("policies", "a_faulty_event_is_refused_with_its_place"))
def test_a_faulty_event_is_refused_with_its_place(source: str, position: int) -> None:
    with pytest.raises(SpecSyntaxError) as caught:
        read_proposition(source, 0)
    assert caught.value.position == position
    assert "call(tool, path > 5)" in caught.value.expected


def test_conditions_apply_to_their_kind_and_tool_alone() -> None:
    assert Event(EventKind.CALL, "refund", {"amount": 5}) != Event(EventKind.RESULT, "refund", {"amount": 5})
    assert str(read('call(refund,amount>5,customer.id="x")')) == 'call(refund, amount > 5, customer.id = "x")'


SCALARS = ("1", "2", "1.5", "1.50", "-3", "1e2", "true", "null", '"1"', '"ok"')


def random_conditions(draw: random.Random, paths: list[tuple[str, ...]]) -> list[EventCondition]:
    conditions = [
        EventCondition(draw.choice(paths), operation, draw.choice(SCALARS if operation in ("=", "!=") else SCALARS[:6]))
        for operation in draw.choices(("=", "!=", "<", "<=", ">", ">="), k=draw.randint(1, 3))
    ]
    return list(dict.fromkeys(conditions))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sample(6)
def test_conditions_fit_a_value_where_their_schema_has_one(seed: int) -> None:
    draw = random.Random(seed)
    writable = writable_within(ResourceGuard(DEFAULT_LIMITS))
    conditions = random_conditions(draw, [("a",), ("b",), ("c", "d"), ("c", "e")])
    for size in range(len(conditions) + 1):
        for part in itertools.combinations(range(len(conditions)), size):
            holds = frozenset(part)
            assert some_value_fits(conditions, holds) == writable(with_parts({}, literals(conditions, holds)))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sample(12)
def test_every_value_is_like_one_of_those_apart(seed: int) -> None:
    draw = random.Random(seed)
    conditions = random_conditions(draw, [("a",)])
    truths = {tuple(condition.holds(value) for condition in conditions) for value in values_apart(conditions)}
    values = [*map(json.loads, SCALARS), 0, 1.2, 1.49, 1.51, 99, 101, -2.9, False, "", [], {}, [1], {"a": 1}]
    for value in [*({"a": value} for value in values), {}, {"b": 1}, 1, None, "a"]:
        assert tuple(condition.holds(value) for condition in conditions) in truths


def test_a_path_that_continues_another_needs_a_schema() -> None:
    conditions = [EventCondition(("a",), "=", "1"), EventCondition(("a", "b"), "=", "1")]
    assert some_value_fits(conditions, frozenset({0, 1})) is None
