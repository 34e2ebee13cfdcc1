"""Numbers in schemas are compared with exact decimals and `jsonschema`."""

from __future__ import annotations

import json
import random
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from compiler.automata import steps_to
from compiler.errors import SpecSyntaxError
from compiler.json_schema import read_decimal
from compiler.json_schema.decimals import canonical_text
from compiler.json_schema.nodes import NumberFacts
from compiler.json_schema.numbers import SYMBOLS, NumberSpelling, number_dfa
from tests.compiler.json_schema.test_random_schemas import compiled, random_text
from tests.references.json_instances import write_instance

THIRD, LONG = 1 / 3, 12345678901234567
LISTED = [1e20, -1e20, 1e-20, THIRD, 2 / 3, LONG, 10**30, 10**30 + 1, 1e300, -5e-324, 1, 2, 7, 0.25]
FACTS: list[dict[str, Any]] = [
    {"type": "integer"},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"exclusiveMinimum": 1e-20, "exclusiveMaximum": 1e20},
    {"minimum": THIRD, "maximum": THIRD},
    {"multipleOf": 2},
    {"multipleOf": 0.25, "minimum": 2},
]


def assert_agrees(schema: dict[str, Any], values: list[Any]) -> None:
    automaton, validator = compiled(schema), Draft202012Validator(schema)
    texts = {write_instance(schema, value): validator.is_valid(value) for value in values}
    assert {text: automaton.accepts(text) for text in texts} == texts


def random_number(rng: random.Random) -> str:
    """The text of a number as some program may write it."""
    digits = str(rng.randrange(10 ** rng.randrange(1, rng.choice((3, 6, 17, 22)))))
    exponent = f"e{rng.choice('+-')}{rng.choice((1, 5, 6, 7, 8, 19, 20, 21, 22, 30, 300, 306, 307, 308))}"
    fraction = f".{rng.randrange(10 ** rng.randrange(1, 16))}"
    small = f"0.{'0' * rng.randrange(8)}{rng.randrange(1, 1000)}"
    text = rng.choice((digits, digits + fraction, small, f"{rng.randrange(1, 10)}{rng.choice(('', '.25'))}{exponent}"))
    return rng.choice(("", "-")) + text


def random_facts(rng: random.Random) -> NumberFacts:
    lower, upper = ((Decimal(random_number(rng)), rng.random() < 0.5) if rng.random() < 0.6 else None for _ in range(2))
    divisors = [Decimal(rng.choice(("1", "3", "0.5", "2.5", "12", "0.01", "1e-7", "1000", "0.125", "0.007")))]
    return NumberFacts(rng.random() < 0.3, lower, upper, tuple(divisors if rng.random() < 0.4 else []))


def holds(value: Decimal, facts: NumberFacts) -> bool:
    """The facts by the definitions, in decimals of 1,000 digits."""
    with localcontext() as context:
        context.prec = 1000
        multiple = all(value % divisor == 0 for divisor in (*facts.multiples, *([Decimal(1)] * facts.integer)))
    lower, upper = facts.lower, facts.upper
    above = lower is None or value > lower[0] or (value == lower[0] and not lower[1])
    return multiple and above and (upper is None or value < upper[0] or (value == upper[0] and not upper[1]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(1)
def test_numbers_are_compared_and_divided_as_decimals(seed: int) -> None:
    rng, accepted = random.Random(seed), 0
    for _ in range(25):
        facts = random_facts(rng)
        dfa = number_dfa(facts, NumberSpelling())
        near = [bound[0] for bound in (facts.lower, facts.upper) if bound is not None]
        steps = [Decimal(0), Decimal("1e-7"), Decimal("-0.01"), *facts.multiples]
        values = [Decimal(random_number(rng)) for _ in range(40)]
        values += [value + step for value in near for step in steps]
        values += [divisor * rng.randrange(-1000, 1000) for divisor in facts.multiples for _ in range(5)]
        for value in values:
            digits = "".join(map(str, value.as_tuple().digits)).strip("0")
            # Only numbers of few digits are written, of integers beyond 19 digits those that need not be integers.
            if len(digits) > 15 or not -307 <= value.adjusted() < (19 if facts.integer or facts.multiples else 307):
                continue
            accepted += holds(value, facts)
            word = [SYMBOLS.index(char) for char in canonical_text(value)]
            assert dfa.accepts(word) == holds(value, facts), (facts, value)
    assert accepted > 100


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sample(1)
def test_what_is_written_fits_and_is_canonical(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        facts = random_facts(rng)
        dfa = number_dfa(facts, NumberSpelling())
        distance = steps_to(dfa.next_state, dfa.accepting)
        for _ in range(20 if distance[dfa.start] < dfa.states else 0):
            state, text = dfa.start, ""
            while not dfa.accepting[state] or rng.random() < 0.8:
                following = dfa.next_state[state][dfa.symbol_class]
                alive = np.flatnonzero(distance[following] < dfa.states)
                if not len(alive):
                    break
                symbol = rng.choice(alive.tolist())
                state, text = int(following[symbol]), text + SYMBOLS[symbol]
            if dfa.accepting[state]:
                value = Decimal(text)
                assert holds(value, facts) and canonical_text(value) == text, (facts, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("-0.0", "0"), ("3.00", "3"), ("1E+2", "100"), ("0.10", "0.1"), ("1e20", "1" + "0" * 20), ("1e21", "1e+21"),
     ("1e-6", "0.000001"), ("1.5e-7", "1.5e-7"), ("-123e18", "-123" + "0" * 18), ("123e19", "1.23e+21")],
)  # fmt: skip
def test_a_number_is_written_as_ecmascript_does(text: str, expected: str) -> None:
    assert canonical_text(Decimal(text)) == expected


@pytest.mark.parametrize("text", ["1e401", "1e-401", "1e999999999", "-1e-999999999", "1" * 402, f"1e{'9' * 30}"])
@pytest.mark.parametrize("keyword", ["minimum", "multipleOf", "maxItems", "const"])
def test_a_number_that_is_too_long_is_refused_at_once(text: str, keyword: str) -> None:
    with pytest.raises(SpecSyntaxError):
        compiled(json.loads(f'{{"{keyword}": {text}}}', parse_float=read_decimal))


@pytest.mark.parametrize("facts", FACTS, ids=json.dumps)
@pytest.mark.parametrize(
    "around",
    [
        lambda facts: {"enum": LISTED, **facts},
        lambda facts: {"anyOf": [{"const": value} for value in LISTED], **facts},
        lambda facts: {"enum": LISTED, "not": facts},
        lambda facts: {"enum": LISTED, "not": {"anyOf": [{"not": facts}, {"const": 1}]}},
        lambda facts: {"enum": LISTED, "oneOf": [facts, {"enum": LISTED[::2]}]},
        lambda facts: {"enum": LISTED, "if": facts, "then": {"minimum": 1}, "else": {"type": "integer"}},
    ],
    ids=["enum", "consts", "not", "not not", "oneOf", "if"],
)
def test_an_enum_number_is_compared_by_value(around: Any, facts: Any) -> None:
    assert_agrees(around(facts), LISTED)


@pytest.mark.parametrize("value", [1e20, 10**30])
def test_an_enum_number_counts_among_array_items(value: float) -> None:
    schema = {"items": {"enum": [value, 1]}, "contains": {"minimum": 5}, "minContains": 1, "maxContains": 1}
    items = [[], [1], [value], [1, value], [value, value]]
    assert_agrees({"type": "array", **schema}, items)


@pytest.mark.parametrize("text", ["1.0", "2.50", "100.0", "12345678901234567890123", "0.1234567890123456789"])
def test_a_listed_number_is_written_as_in_the_schema(text: str) -> None:
    automaton = compiled(json.loads(f'{{"enum": [{text}]}}', parse_float=read_decimal))
    distance = steps_to(automaton.dfa.next_state, automaton.dfa.accepting)
    assert {random_text(random.Random(seed), automaton, distance) for seed in range(10)} == {text}


def test_a_listed_integer_is_written_without_a_fraction() -> None:
    automaton = compiled({"type": "integer", "enum": [1.0, 1e2]})
    assert automaton.accepts("1") and automaton.accepts("100")
    assert not any(automaton.accepts(text) for text in ("1.0", "100.0", "1e+2"))


@pytest.mark.parametrize("keyword", ["maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum", "const"])
def test_a_bound_is_the_decimal_that_is_written(keyword: str) -> None:
    bound = Decimal("9223372036854776000.0")
    values = [int(bound) + step for step in (-1024, -192, -1, 0, 1, 1024)]
    assert_agrees({"type": "integer", keyword: bound}, values)
