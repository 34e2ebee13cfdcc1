"""Nodes to values: conjunctions merged before anything is built, choices distributed over what surrounds them.

Knows nothing of documents and references.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from compiler.errors import SpecSyntaxError, SpecUnsupported
from compiler.json_schema.arrays import array_block
from compiler.json_schema.assembler import Assembler, ObjectLayout, string_block
from compiler.json_schema.fragments import START, Fragment
from compiler.json_schema.keywords import same
from compiler.json_schema.nodes import Condition, Either, Scalar, Schema
from compiler.json_schema.objects import object_block
from compiler.json_schema.scalars import Scalars
from compiler.json_schema.strings import StringAlphabet
from compiler.json_schema.texts import Position
from compiler.json_schema.value_sets import LANES, NO_VALUE, TypeLanguage, Value, Whole, both, either, lane_of, without
from compiler.limits import ResourceGuard

_WAYS_MAX = 16  # choices are distributed over each other as long as there are no more combinations than this
_CONDITIONS_MAX = 3  # branched on together without trying them apart: n of them compile the nodes 2 ** n times
_CONDITIONS_TRIED_MAX = 8  # branched on together at most where branching apart refuses the schema
_DISTINCT_MAX = 8  # `uniqueItems` follows every subset of that many constants
_Clause = Either | Condition | int  # a choice, a condition, or a node that must not hold


class _ChoicePlan(enum.Enum):
    """How a choice is eliminated from a conjunction.

    LIST        its options are scalars alone: one set of constants, intersected with the others
    DISTRIBUTE  each option is compiled with all other clauses, then the options are united
    INTERSECT   the options are compiled without the other clauses, then intersected with them
    """

    LIST = enum.auto()
    DISTRIBUTE = enum.auto()
    INTERSECT = enum.auto()


class _Branching(enum.Enum):
    """How the conditions of a conjunction are eliminated.

    TOGETHER  each branch keeps the clauses behind it: n conditions make up to 2 ** n branches
    APART     each condition is compiled without the others, then intersected with them: 2 * n branches
    """

    TOGETHER = enum.auto()
    APART = enum.auto()


@dataclass(frozen=True, slots=True)
class _Conjunction:
    """Nodes that hold together, and their clauses that are not yet eliminated.

    visited    the nodes, and all that were gathered with them
    branching  how conditions are eliminated; None where that is not chosen yet
    """

    nodes: tuple[int, ...]
    clauses: tuple[_Clause, ...]
    visited: frozenset[int]
    branching: _Branching | None = None

    def without_first(self) -> _Conjunction:
        """The same without its first clause."""
        return replace(self, clauses=self.clauses[1:])

    def choice_count(self) -> int:
        """How many combinations of options its choices have."""
        return prod(len(clause.nodes) for clause in self.clauses if isinstance(clause, Either))

    def branchings(self) -> tuple[_Branching, ...]:
        """How its conditions may be eliminated, the cheapest first.

        TOGETHER is more than a matter of speed: an `if` that other conditions narrow can be negated where it could not
        be by itself.
        """
        count = sum(isinstance(clause, Condition) for clause in self.clauses)
        if count <= _CONDITIONS_MAX or self.branching is _Branching.TOGETHER:
            return (_Branching.TOGETHER,)
        if count > _CONDITIONS_TRIED_MAX or self.branching is _Branching.APART:
            return (_Branching.APART,)
        return (_Branching.APART, _Branching.TOGETHER)


class SchemaCompiler:
    """Compiles the nodes of one document; equal work is done once. Raises SpecUnsupported and LimitExceeded."""

    def __init__(
        self,
        nodes: Sequence[Schema],
        alphabet: StringAlphabet,
        layout: ObjectLayout,
        outside: Position,
        guard: ResourceGuard,
    ) -> None:
        self.nodes, self.alphabet, self.layout, self.guard = nodes, alphabet, layout, guard
        self.width = alphabet.width
        self._outside = outside
        self._known: dict[tuple[tuple[int, ...], Position], Value] = {}
        self._refusals: dict[tuple[tuple[int, ...], Position], SpecUnsupported] = {}
        self._texts: dict[tuple[tuple[int, ...], Position], Fragment | None] = {}
        self._active: set[tuple[tuple[int, ...], Position]] = set()
        self._strings: dict[int, tuple[Fragment, Fragment | None]] = {}
        self._bytes = 0  # of all texts that are kept
        self._scalars = Scalars(nodes, alphabet, guard)

    def text(self, numbers: Sequence[int], spot: Position) -> tuple[Fragment | None, bool]:
        """The texts of the values that fit all the nodes, and whether equal keys cannot change the verdict."""
        key = (self._key(numbers), spot)
        value = self.value(numbers, spot)
        if key not in self._texts:
            self._texts[key] = self._written(value, spot)
        return self._texts[key], value.stable

    def content(self, numbers: Sequence[int]) -> Fragment | None:
        """The contents of the strings that fit all the nodes."""
        lane = self.value(numbers, self._outside).lane("string")
        return self._resolved("string", lane, self._outside)

    def finite(self, items: Sequence[Sequence[int]]) -> list[Fragment | None] | None:
        """The texts of each distinct scalar that the items may be; None where they may be many, or no scalars."""
        found: list[Scalar] = []
        for numbers in items:
            together = [self.nodes[number] for number in self._gather(numbers, frozenset()).nodes]
            if any(node.never for node in together):
                continue
            listed = [node.values for node in together if node.values is not None]
            listed += [_few(node) for node in together if node.types is not None and node.types <= {"null", "boolean"}]
            if not listed:
                return None
            found += [one for one in listed[0] if not any(same(one, other) for other in found)]
        if len(found) > _DISTINCT_MAX:
            return None
        return [self._written(self._scalars.listed((one,)), self._outside) for one in found]

    def _key(self, numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted({number for number in numbers if not self.nodes[number].says_nothing()}))

    def value(self, numbers: Sequence[int], spot: Position) -> Value:
        """The values at a place that fit all the nodes."""
        key = (self._key(numbers), spot)
        if key in self._refusals:
            raise self._refusals[key]
        if key not in self._known:
            if key in self._active:
                field = self.nodes[key[0][0]].field
                raise SpecSyntaxError(
                    "this schema negates itself", expected="a $ref that does not lead back", field=field
                )
            self._active.add(key)
            try:
                self._known[key] = self._conjunction(self._gather(key[0], frozenset()), spot)
            except SpecUnsupported as error:  # another branching around it would ask for the same values again
                self._refusals[key] = error
                raise
            finally:
                self._active.remove(key)
        return self._known[key]

    def _gather(self, numbers: Sequence[int], visited: frozenset[int]) -> _Conjunction:
        """The nodes and all that hold wherever they do, without those in `visited`."""
        order = [number for number in dict.fromkeys(numbers) if number not in visited]
        gathered = {*visited, *order}
        for number in order:  # grows while it is walked
            fresh = [other for other in self.nodes[number].all_of if other not in gathered]
            order.extend(dict.fromkeys(fresh))
            gathered.update(fresh)
        choices: list[_Clause] = []
        negations: list[_Clause] = []
        for node in (self.nodes[number] for number in order):
            choices += [*node.either, *(condition for condition in node.conditions if not condition.says_nothing())]
            negations += node.none_of
        return _Conjunction(tuple(order), (*choices, *negations), frozenset(gathered))

    def _joined(self, conjunction: _Conjunction, numbers: Sequence[int]) -> _Conjunction:
        """The conjunction with more nodes and their clauses."""
        more = self._gather(numbers, conjunction.visited)
        # Negations come last: what is subtracted from is as narrow as possible by then.
        clauses = sorted((*conjunction.clauses, *more.clauses), key=lambda clause: isinstance(clause, int))
        return replace(
            conjunction, nodes=(*conjunction.nodes, *more.nodes), clauses=tuple(clauses), visited=more.visited
        )

    def _conjunction(self, conjunction: _Conjunction, spot: Position) -> Value:
        """The values that fit nodes and clauses. The first clause is eliminated here, the others recursively."""
        self.guard.check_time()
        if not conjunction.clauses:
            return self._plain(conjunction.nodes, spot)
        match conjunction.clauses[0]:
            case Either() as choice:
                return self._choice(conjunction, choice, spot)
            case Condition() as condition:
                *cheaper, last = conjunction.branchings()
                for branching in cheaper:
                    with suppress(SpecUnsupported):  # whether an `if` can be negated is known once it is compiled
                        return self._condition(replace(conjunction, branching=branching), condition, branching, spot)
                fixed = replace(conjunction, branching=last) if cheaper else conjunction
                return self._condition(fixed, condition, last, spot)
            case negated:
                others = self._conjunction(conjunction.without_first(), spot)
                return self._less(others, self.value((negated,), spot), spot, negated)

    def _choice(self, conjunction: _Conjunction, choice: Either, spot: Position) -> Value:
        """The values of a conjunction whose first clause is a choice."""
        others = conjunction.without_first()
        match self._choice_plan(conjunction, choice):
            case _ChoicePlan.LIST:
                constants = self._scalars.listed(self._constants(choice))
                return both(self._conjunction(others, spot), constants, self.guard)
            case _ChoicePlan.DISTRIBUTE:
                options = [self._conjunction(self._joined(others, (node,)), spot) for node in choice.nodes]
                return self._chosen(options, choice, spot)
            case _ChoicePlan.INTERSECT:
                # The nodes without clauses stay: beside them, an option is far smaller than alone.
                alone = replace(conjunction, clauses=())
                options = [self._conjunction(self._joined(alone, (node,)), spot) for node in choice.nodes]
                chosen = self._chosen(options, choice, spot)
                return both(self._conjunction(others, spot), chosen, self.guard)

    def _choice_plan(self, conjunction: _Conjunction, choice: Either) -> _ChoicePlan:
        """Chosen from the clauses alone, before anything is built."""
        constants = self._constants(choice)
        distinct = {(isinstance(value, bool), value) for value in constants}
        exclusive = choice.exactly_one and len(distinct) < len(constants)
        if all(self.nodes[node].only_lists() for node in choice.nodes) and not exclusive:
            return _ChoicePlan.LIST
        many = len(conjunction.clauses) > 1 and conjunction.choice_count() > _WAYS_MAX
        return _ChoicePlan.INTERSECT if many else _ChoicePlan.DISTRIBUTE

    def _constants(self, choice: Either) -> list[Scalar]:
        """The scalars that the options of a choice list."""
        return [value for node in choice.nodes for value in self.nodes[node].values or ()]

    def _condition(
        self, conjunction: _Conjunction, condition: Condition, branching: _Branching, spot: Position
    ) -> Value:
        """The values of a conjunction whose first clause is a condition: those for which it holds, and the others."""
        then = () if condition.then is None else (condition.then,)
        otherwise = () if condition.otherwise is None else (condition.otherwise,)
        others = conjunction.without_first()
        beside = others if branching is _Branching.TOGETHER else replace(conjunction, clauses=())
        holds = self._conjunction(self._joined(beside, (condition.if_, *then)), spot)
        fails = self._conjunction(self._joined(beside, otherwise), spot)
        if branching is _Branching.APART:
            context = self._conjunction(others, spot)
            holds, fails = both(context, holds, self.guard), both(context, fails, self.guard)
        return either(holds, self._less(fails, self.value((condition.if_,), spot), spot, condition.if_), self.guard)

    def _less(self, left: Value, right: Value, spot: Position, node: int) -> Value:
        return without(left, right, lambda name: self._everything(name, spot), self.nodes[node].field, self.guard)

    def _chosen(self, options: Sequence[Value], clause: Either, spot: Position) -> Value:
        """Any of the options, or exactly one; in halves, so that no large automaton is read again for each."""
        if len(options) == 1:
            return options[0]
        if not clause.exactly_one:
            half = len(options) // 2
            left, right = (self._chosen(some, clause, spot) for some in (options[:half], options[half:]))
            return either(left, right, self.guard)
        some, several = self._halves(options)
        if not several:
            return some
        return self._less(
            some, reduce(lambda left, right: either(left, right, self.guard), several), spot, clause.nodes[0]
        )

    def _halves(self, options: Sequence[Value]) -> tuple[Value, list[Value]]:
        """The values in any option, and those in two or more."""
        if len(options) == 1:
            return options[0], []
        half = len(options) // 2
        left, twice_left = self._halves(options[:half])
        right, twice_right = self._halves(options[half:])
        return either(left, right, self.guard), [*twice_left, *twice_right, both(left, right, self.guard)]

    def _plain(self, numbers: Sequence[int], spot: Position) -> Value:
        """The values that fit nodes without clauses."""
        nodes = [self.nodes[number] for number in numbers]
        if any(node.never for node in nodes):
            return NO_VALUE
        types = [node.types for node in nodes if node.types is not None]

        def may(name: str) -> bool:
            return all(name in allowed for allowed in types)

        nothing = Whole.NOTHING
        literals = ({"null"} if may("null") else set()) | ({"false", "true"} if may("boolean") else set())
        strings = self._scalars.contents(nodes) if may("string") else nothing
        arrays, objects, stable = self._containers(numbers, spot)
        lanes = (
            self._scalars.numbers(nodes, types),
            strings,
            arrays if may("array") else nothing,
            objects if may("object") else nothing,
        )
        found = Value(frozenset(literals), lanes, stable)
        for node in nodes:
            if node.values is not None:
                found = both(found, self._scalars.listed(node.values), self.guard)
        return found

    def _containers(self, numbers: Sequence[int], spot: Position) -> tuple[TypeLanguage, TypeLanguage, bool]:
        """The arrays and the objects that fit nodes, as far as their types are allowed, and whether they are stable."""
        arrays: TypeLanguage = Whole.EVERYTHING
        objects: TypeLanguage = Whole.EVERYTHING
        stable = True
        nodes = [self.nodes[number] for number in numbers]
        types = [node.types for node in nodes if node.types is not None]
        if any(node.arrays is not None for node in nodes) and all("array" in allowed for allowed in types):
            block, stable = array_block(self, numbers, spot)
            arrays = lane_of(block)
        if any(node.objects is not None for node in nodes) and all("object" in allowed for allowed in types):
            block, steady = object_block(self, numbers, spot)
            objects, stable = lane_of(block), stable and steady
        return arrays, objects, stable

    def _everything(self, name: str, spot: Position) -> Fragment | None:
        """All texts of a lane."""
        if name == "number":
            return self._scalars.any_number()
        if name == "string":
            return self._scalars.any_text
        build = array_block if name == "array" else object_block
        return build(self, (), spot)[0]

    def _resolved(self, name: str, lane: TypeLanguage, spot: Position) -> Fragment | None:
        if isinstance(lane, Fragment):
            return lane
        return self._everything(name, spot) if lane is Whole.EVERYTHING else None

    def _string(self, content: Fragment | None) -> Fragment | None:
        if content is None:
            return None
        if id(content) not in self._strings:  # the content is kept too, so that its id stays its own
            self._strings[id(content)] = (content, string_block(content, self.guard))
        return self._strings[id(content)][1]

    def _written(self, value: Value, spot: Position) -> Fragment | None:
        """The texts of a value. Each kind begins with characters of its own."""
        machine = Assembler(self.width, self.guard)
        end, anything = machine.end(), bool(value.literals)
        for text in sorted(value.literals):
            machine.write(START, text, end)
        for name, lane in zip(LANES, value.lanes, strict=True):
            part = self._resolved(name, lane, spot)
            part = self._string(part) if name == "string" else part
            if part is not None:
                machine.read(START, part, {1: end})
                anything = True
        if not anything:
            return None
        found = machine.finish()
        self._bytes += found.table.nbytes
        self.guard.check("table_bytes_max", self._bytes)
        return found


def _few(node: Schema) -> tuple[Scalar, ...]:
    """The values of a node whose type has few."""
    allowed = node.types or frozenset()
    return (*((None,) if "null" in allowed else ()), *((False, True) if "boolean" in allowed else ()))
