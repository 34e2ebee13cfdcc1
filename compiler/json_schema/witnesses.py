"""Finitely many numbers that stand for all others.

The bounds and listed values of a schema cut the number line into points and open intervals. Within an interval, only
the divisors of a number matter. One value for each interval and set of divisors stands for all that share them: a
Boolean combination of the schema's conditions holds of some number exactly if it holds of one of these values.
So they tell which bound leaves out all values of a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import combinations, pairwise
from math import lcm

from compiler.errors import SpecUnsupported
from compiler.json_schema.decimals import PLAIN_EXPONENT_MAX, is_integer, significant_digits
from compiler.json_schema.nodes import NumberFacts, Schema
from compiler.json_schema.numbers import DIGITS_MAX, EXPONENT_MAX, NumberSpelling, number_texts
from compiler.limits import ResourceGuard

Compile = Callable[[Sequence[Decimal], bool], bool]  # whether there are texts with more numbers, and nested deeper
_DIVISORS_MAX = 6  # every set of them is looked at


def witnesses(facts: Sequence[NumberFacts], listed: Iterable[Decimal]) -> list[Decimal] | None:
    """The values that stand for all numbers. None where the divisors are too many.

    >>> [str(value) for value in witnesses([NumberFacts(lower=(Decimal(3), False), integer=True)], [])]
    ['-2.9', '-2.0', '0.0', '0.1', '1.0', '3.0', '3.1', '4.0']
    """
    bounds = [bound[0] for fact in facts for bound in (fact.lower, fact.upper) if bound is not None]
    divisors = {divisor for fact in facts for divisor in fact.multiples}
    divisors |= {Decimal(1)} if any(fact.integer for fact in facts) else set()
    if len(divisors) > _DIVISORS_MAX:
        return None
    points = {Decimal(0), *bounds, *listed}
    # One decimal more than any of them has: a number that needs it is a multiple of no divisor.
    places = 1 + max(0, *(-int(value.as_tuple().exponent) for value in (*points, *divisors)))
    units = sorted({_scaled(value, places) for value in points})
    moduli = sorted({_scaled(divisor, places) for divisor in divisors})
    steps = sorted({lcm(*chosen) for size in range(1, len(moduli) + 1) for chosen in combinations(moduli, size)})
    reach = (2 ** len(moduli) + 1) * max(steps, default=10)
    ends = [units[0] - reach, *units, units[-1] + reach]
    chosen = list(units)
    for low, high in pairwise(ends):
        chosen += _between(low, high, moduli, steps)
    return [Decimal(f"{value}e-{places}") for value in sorted(chosen)]


def _scaled(value: Decimal, places: int) -> int:
    """The value times 10 ** places, exactly."""
    sign, digits, exponent = value.as_tuple()
    magnitude = int("".join(map(str, digits))) * int(10 ** (int(exponent) + places))
    return -magnitude if sign else magnitude


def _between(low: int, high: int, moduli: Sequence[int], steps: Sequence[int]) -> Iterable[int]:
    """Numbers of an open interval, one for each set of moduli.

    The moduli divide it, and no others do. Sets that divide no number there are left out.

    Of 2 ** n successive multiples of a step, at least one is a multiple of none of n other moduli, unless all are
    (Crittenden and Vanden Eynden 1970).
    """
    found = {frozenset[int](): low + 1}
    for step in steps:
        first = (low // step + 1) * step
        for value in range(first, min(high, first + step * 2 ** len(moduli)), step):
            found.setdefault(frozenset(modulus for modulus in moduli if value % modulus == 0), value)
    return found.values()


def exceeded_bound(value: Decimal, spelling: NumberSpelling) -> tuple[str, int] | None:
    """The name and the value of the bound that a number exceeds.

    None for a number that is written wherever it fits.
    """
    if is_integer(value):
        written = not value or value.adjusted() < spelling.integer_digits
        return None if written else ("integer_digits_max", spelling.integer_digits)
    if len(significant_digits(value)) > DIGITS_MAX:
        return ("number_digits", DIGITS_MAX)
    lowest = -EXPONENT_MAX if spelling.exponents else -PLAIN_EXPONENT_MAX
    return None if value.adjusted() >= lowest else ("number_exponent", -lowest)


def bound_in_the_way(
    nodes: Sequence[Schema], compile_again: Compile, max_depth: int | None, guard: ResourceGuard
) -> list[tuple[str, int]]:
    """The bound that may leave out all values of a schema.

    The list is empty where the schema has no instance; otherwise it has one bound.

    max_depth  None where no value was left out because of it
    """
    spelling, listed = number_texts(nodes, guard)
    facts = [node.numbers for node in nodes if node.numbers is not None]
    facts += [NumberFacts(integer=True) for node in nodes if node.types is not None and "integer" in node.types]
    values = witnesses(facts, listed)
    if values is None:
        return [("number_digits", DIGITS_MAX)]
    beyond = {value: bound for value in values if (bound := exceeded_bound(value, spelling)) is not None}
    extra: list[Decimal] = []
    for bound in dict.fromkeys(beyond.values()):
        extra += [value for value, exceeded in beyond.items() if exceeded == bound]
        if compile_again(extra, False):
            return [bound]
    if max_depth is not None and _may_have_deeper_values(nodes, extra, compile_again):
        return [("max_depth", max_depth)]
    return []


def _may_have_deeper_values(nodes: Sequence[Schema], extra: Sequence[Decimal], compile_again: Compile) -> bool:
    # A mark may count as an item that it is not.
    if any(contains.maximum is not None for node in nodes if node.arrays for contains in node.arrays.contains):
        return True
    try:
        return compile_again(extra, True)
    except SpecUnsupported:  # marks may meet what the schema's own values do not
        return True
