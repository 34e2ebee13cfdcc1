from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api.middleware.body import read_json
from app.errors import InvalidJson

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda values: st.lists(values, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), values, max_size=4),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_valid_json_is_parsed_unchanged(value: object) -> None:
    assert read_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"{'a': 1}", b'{"a": NaN}', b"[Infinity]", b"[-Infinity]", b"[1e999]", b"[-1e999]",
        b'{"a": 1, "a": 2}', b'{"a": {"b": 1, "b": 1}}', b'["\\ud800"]', b'{"\\udfff": 1}', b"[" * 65 + b"]" * 65,
        b"[" * 100_000,
        b'{"a":' * 65 + b"1" + b"}" * 65, b"[" + b"9" * 5_000 + b"]", b"[" + b"9" * 310 + b"]", b'"\xff"',
        "\ufeff{}".encode(), '{"a": 1}'.encode("utf-16"), b"[1,]", b"[01]", b'"\x00"', b"{} {}",
    ],
)
def test_ambiguous_json_is_refused_without_quoting_it(body: bytes) -> None:
    with pytest.raises(InvalidJson) as refusal:
        read_json(body)
    assert len(str(refusal.value)) < 160


@pytest.mark.parametrize("value", [2**64 - 1, -(10**30), 10**308])
def test_an_integer_within_a_double_keeps_its_digits(value: int) -> None:
    assert read_json(b"[%d]" % value) == [value]


def test_a_pair_of_surrogate_escapes_is_one_character() -> None:
    assert read_json(b'"\\ud83d\\ude00"') == "😀"


def test_nesting_up_to_the_limit_is_read() -> None:
    assert read_json(b"[" * 64 + b"]" * 64)
