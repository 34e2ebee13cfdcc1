"""JSON keeps the decimals of numbers, and so do schemas."""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.codec import decode, encode
from compiler.engines import open_engines
from compiler.errors import SpecSyntaxError
from compiler.exact_json import DecimalFloat, dump_json, load_json, read_float
from compiler.forms import value_violation
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.spec import JsonSchemaSpec, spec_from_json, spec_hash, spec_to_json
from compiler.text import check_text
from compiler.vocab import byte_vocabulary
from tests.tables import table

DIGITS = ("12345678901234567890", "12345678901234567889", "12345678901234568")  # one double
CASES = {case["name"]: case for case in table("decimals")["case"]}
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
DECIMALS = st.from_regex(
    r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,25}([eE][-+]?[0-9]{1,3})?|[eE][-+]?[0-9]{1,3})", fullmatch=True
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4), max_leaves=9,
)


def parts(number: object) -> tuple[int, tuple[int, ...], int | str]:
    """The sign, the digits and the exponent of a number."""
    return Decimal(str(number)).as_tuple()


@given(DECIMALS)
def test_a_number_keeps_its_digits_and_exponent(text: str) -> None:
    number = read_float(text)
    assert number == float(text) and parts(repr(number)) == parts(text)
    assert parts(dump_json({"a": [number]})[6:-2]) == parts(text)
    # The integer -0 is read as 0.
    assert number == 0 or dump_json(load_json(dump_json(number))) == dump_json(number)


@given(VALUES)
def test_values_of_python_are_written_as_before(value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"))
    assert dump_json(value) == text
    again = load_json(text)
    assert again == value and "DecimalFloat" not in {type(each).__name__ for each in leaves_of(again)}
    assert dump_json([value, DecimalFloat("1.50")]) == f"[{text},1.50]"


def leaves_of(value: Any) -> list[Any]:
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inside is None else [leaf for each in inside for leaf in leaves_of(each)]


def test_copies_and_arithmetic_are_those_of_a_float() -> None:
    number = read_float("1.50")
    assert type(number) is DecimalFloat and number == 1.5 and number + 1 == 2.5
    assert [repr(each) for each in copy.deepcopy([number, copy.copy(number)])] == ["1.50", "1.50"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(Decimal("1.50"), "1.50"), (Decimal("0.25"), "0.25"), (Decimal(5), "5"), (Decimal("-7"), "-7"),
     (Decimal("1E+2"), "1E+2"), (Decimal("2.5E-7"), "2.5e-07"), (Decimal("-0.0"), "-0.0")],
)  # fmt: skip
def test_a_decimal_has_the_text_of_a_read_number(value: Decimal, text: str) -> None:
    assert dump_json(value) == text == dump_json(load_json(str(value)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_schema_of_decimals_is_exact_in_python(case: dict[str, Any]) -> None:
    constraint = {"json_schema": json.loads(case["schema"], parse_float=Decimal)}
    spec, of_text = spec_from_json(constraint), JsonSchemaSpec(case["schema"])
    assert spec_from_json({"json_schema": load_json(case["schema"])}) == spec
    assert spec_from_json(spec_to_json(spec)) == spec
    for each in (spec, of_text):
        assert isinstance(each, JsonSchemaSpec)
        found = value_violation(each, case["text"], open_engines(), ResourceGuard(DEFAULT_LIMITS))
        assert (found is None) == case["satisfied"], found
    if "canonical" in case:
        compiled = compile_spec(spec, byte_vocabulary())
        stored = decode(encode(compiled, b"secret"), b"secret", byte_vocabulary().fingerprint)
        assert stored.spec == spec
        assert check_text(stored.text, case["text"]).satisfied == case["canonical"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "says"),
    [(Decimal("NaN"), "NaN is no number of JSON"), (Decimal("-Infinity"), "-Infinity is no number"),
     (Decimal("sNaN"), "sNaN is no number"), (float("inf"), "not JSON compliant"), (b"1", "bytes"), ({1}, "set"),
     (1j, "complex")],
)  # fmt: skip
@pytest.mark.parametrize("field", ["json_schema", "schemas"])
def test_what_json_cannot_write_is_refused(field: str, value: object, says: str) -> None:
    constraint = {"json_schema": {}, "schemas": {}, **{field: {"a": {"const": value, "minimum": Decimal("0.10")}}}}
    with pytest.raises(SpecSyntaxError, match=f"the schema holds what JSON cannot write.*{says}") as refusal:
        spec_from_json(constraint)
    assert refusal.value.field == field


@pytest.mark.parametrize(
    "text", ["1E+401", "1e-401", "0." + "1" * 401, f"1e{'9' * 30}", f"-1.0e-{'9' * 30}", "1e400000000"]
)
def test_a_number_beyond_the_limits_is_refused_in_the_compiler(text: str) -> None:
    spec = spec_from_json({"json_schema": {"const": load_json(text)}})
    with pytest.raises(SpecSyntaxError, match=r"400 digits|exponent"):
        compile_spec(spec, byte_vocabulary())


def test_a_double_between_digits_does_not_join_two_hashes() -> None:
    texts = [f'{{"minimum": 0.{digits}}}' for digits in DIGITS]
    assert len({spec_hash(JsonSchemaSpec(text)) for text in texts}) == 3
    assert len({spec_hash(spec_from_json({"json_schema": load_json(text)})) for text in texts}) == 3
