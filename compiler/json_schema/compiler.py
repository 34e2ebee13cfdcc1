"""Nodes to values: conjunctions merged before anything is built, choices distributed over what surrounds them.

Knows nothing of documents and references.
"""

from __future__ import annotations

from collections.abc import Sequence
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
_CONDITIONS_MAX = 3  # decided together at most: each decides the clauses after it twice, so n of them take 2 ** n times
_CONDITIONS_TRIED_MAX = 8  # decided together at most where deciding them one by one refuses the schema
_DISTINCT_MAX = 8  # `uniqueItems` follows every subset of that many constants
_Clause = Either | Condition | int  # a choice, a condition, or a node that must not hold


@dataclass(frozen=True, slots=True)
class _All:
    """Nodes that hold together, and the clauses of them that are not yet decided. `seen` holds the nodes' kin too."""

    plain: tuple[int, ...]
    clauses: tuple[_Clause, ...]
    seen: frozenset[int]


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
        self._texts: dict[tuple[tuple[int, ...], Position], Fragment | None] = {}
        self._active: set[tuple[tuple[int, ...], Position]] = set()
        self._strings: dict[int, tuple[Fragment, Fragment | None]] = {}
        self._bytes = 0  # of all texts that are kept
        self._scalars = Scalars(nodes, alphabet, guard)
        self._conditions_apart = self._conditions_together = False  # of the conditions in hand, how they are decided

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
            together = [self.nodes[number] for number in self._gather(numbers, frozenset()).plain]
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
        if key not in self._known:
            if key in self._active:
                field = self.nodes[key[0][0]].field
                raise SpecSyntaxError(
                    "this schema negates itself", expected="a $ref that does not lead back", field=field
                )
            self._active.add(key)
            try:
                self._known[key] = self._decided(self._gather(key[0], frozenset()), spot)
            finally:  # what is refused may be tried in another way
                self._active.remove(key)
        return self._known[key]

    def _gather(self, numbers: Sequence[int], seen: frozenset[int]) -> _All:
        """The nodes and all that hold wherever they do; those in `seen` are left out."""
        order = [number for number in dict.fromkeys(numbers) if number not in seen]
        known = {*seen, *order}
        for number in order:  # grows while it is walked
            fresh = [other for other in self.nodes[number].all_of if other not in known]
            order.extend(dict.fromkeys(fresh))
            known.update(fresh)
        choices: list[_Clause] = []
        negations: list[_Clause] = []
        for node in (self.nodes[number] for number in order):
            choices += [*node.either, *(one for one in node.conditions if not one.says_nothing())]
            negations += node.none_of
        return _All(tuple(order), (*choices, *negations), frozenset(known))

    def _also(self, together: _All, rest: Sequence[_Clause], numbers: Sequence[int]) -> _All:
        """The same without a clause, and with some nodes more."""
        more = self._gather(numbers, together.seen)
        clauses = sorted((*rest, *more.clauses), key=lambda clause: isinstance(clause, int))
        return _All((*together.plain, *more.plain), tuple(clauses), more.seen)

    def _decided(self, together: _All, spot: Position) -> Value:
        """The values that fit nodes and clauses: one clause is decided, the others below."""
        self.guard.check_time()
        if not together.clauses:
            return self._plain(together.plain, spot)
        clause, rest = together.clauses[0], together.clauses[1:]
        if isinstance(clause, int):
            return self._less(
                self._decided(replace(together, clauses=rest), spot), self.value((clause,), spot), spot, clause
            )
        if isinstance(clause, Condition):
            return self._condition(together, clause, rest, spot)
        constants = self._constants(clause)
        if constants is not None:
            return both(self._decided(replace(together, clauses=rest), spot), constants, self.guard)
        ways = prod(len(one.nodes) for one in together.clauses if isinstance(one, Either))
        apart = bool(rest) and ways > _WAYS_MAX
        behind = () if apart else rest  # the plain facts stay: beside them an option is far smaller than alone
        options = [self._decided(self._also(together, behind, (node,)), spot) for node in clause.nodes]
        chosen = self._chosen(options, clause, spot)
        return both(self._decided(replace(together, clauses=rest), spot), chosen, self.guard) if apart else chosen

    def _constants(self, clause: Either) -> Value | None:
        """What a choice among scalars allows, all at once; None for any other choice."""
        nodes = [self.nodes[number] for number in clause.nodes]
        values = [value for node in nodes for value in node.values or ()]
        distinct = {(isinstance(value, bool), value) for value in values}
        if not all(node.only_lists() for node in nodes) or (clause.exactly_one and len(distinct) < len(values)):
            return None
        return self._scalars.listed(values)

    def _condition(self, together: _All, clause: Condition, rest: Sequence[_Clause], spot: Position) -> Value:
        """A condition beside all others; of many apart from them, where more is refused, as less narrows an open `if`.

        So where something is refused that way, and there are not very many, they are decided together all the same.
        """
        count = sum(isinstance(one, Condition) for one in together.clauses)
        if count <= _CONDITIONS_MAX or self._conditions_together:
            return self._condition_beside(together, clause, rest, spot, apart=False)
        if self._conditions_apart or count > _CONDITIONS_TRIED_MAX:
            return self._condition_beside(together, clause, rest, spot, apart=True)
        self._conditions_apart = True
        try:
            return self._condition_beside(together, clause, rest, spot, apart=True)
        except SpecUnsupported:
            self._conditions_together = True
            return self._condition_beside(together, clause, rest, spot, apart=False)
        finally:
            self._conditions_apart = self._conditions_together = False

    def _condition_beside(
        self, together: _All, clause: Condition, rest: Sequence[_Clause], spot: Position, apart: bool
    ) -> Value:
        then = () if clause.then is None else (clause.then,)
        otherwise = () if clause.otherwise is None else (clause.otherwise,)
        behind = () if apart else rest
        holds = self._decided(self._also(together, behind, (clause.if_, *then)), spot)
        fails = self._decided(self._also(together, behind, otherwise), spot)
        if apart:
            others = self._decided(replace(together, clauses=tuple(rest)), spot)
            holds, fails = both(others, holds, self.guard), both(others, fails, self.guard)
        return either(holds, self._less(fails, self.value((clause.if_,), spot), spot, clause.if_), self.guard)

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
