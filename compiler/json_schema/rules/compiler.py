"""Translates JSON schemas to rules that call each other.

Every value inside an array or an object is the letter of a rule. A rule is named by nodes that hold together at a
position, without the values of other rules. So there are finitely many, and a schema that recurs calls itself. Rules
are closed under intersection and difference: where two objects are combined, the values under each key are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TypeVar

from compiler.json_schema.arrays import trie
from compiler.json_schema.clauses import Conjunction
from compiler.json_schema.compiler import SchemaCompiler
from compiler.json_schema.fragments import Fragment, ObjectLayout, Operation, combine
from compiler.json_schema.nodes import TYPES, Alternatives, Position, Schema
from compiler.json_schema.rules.letters import OutsideRules, combine_letters, read_letters, word_of
from compiler.json_schema.strings import StringAlphabet
from compiler.json_schema.value_sets import CONTAINER_TYPES, ScalarCompiler, ValueSet
from compiler.limits import ResourceGuard

_ALL_TYPES = TYPES - {"integer"}  # an integer is a number
_T = TypeVar("_T")
_TESTS_MAX = 3  # of `contains` at one place: every subset has a rule


@dataclass(frozen=True, slots=True)
class RuleKey:
    """The values at a position that fit all the nodes. Those of some rules are taken away."""

    nodes: tuple[int, ...]
    without: tuple[int, ...]
    position: Position


class RuleCompiler(SchemaCompiler):
    """Compiles the values of a document to rules, as they are called.

    keys    by number, what each rule stands for
    listed  the texts of rules whose values are listed: a minimal automaton each
    Raises OutsideRules where letters cannot express a combination, and what SchemaCompiler raises.
    """

    def __init__(
        self, nodes: Sequence[Schema], alphabet: StringAlphabet, layout: ObjectLayout, no_nesting: Position, *,
        scalars: ScalarCompiler, guard: ResourceGuard, approximate: Collection[str] = (),
    ) -> None:
        super().__init__(nodes, alphabet, layout, no_nesting, scalars=scalars, guard=guard, approximate=approximate)
        self.keys: list[RuleKey] = []
        self.listed = set[Fragment]()
        self._numbers: dict[RuleKey, int] = {}
        self._letter_texts: dict[int, Fragment] = {}
        self._rule_texts: dict[int, Fragment | None] = {}
        self._safe: dict[int, bool] = {}  # whether equal keys cannot change the verdict, letters aside
        self._scalar_rules: dict[bytes, int] = {}  # by a digest of their texts
        self._types: dict[tuple[int, ...], frozenset[str]] = {}
        # Rules whose values another one must not have: their verdict may not depend on equal keys.
        self._subtracted = set[int]()

    def texts(self, node_ids: Sequence[int], position: Position) -> list[Fragment | None]:
        """The texts of each rule, None where it has none. The first rule is that of the nodes."""
        first = self._rule(self._constraining_nodes(node_ids), (), position)
        texts = []
        for number, _ in enumerate(self.keys):  # grows while it is walked
            texts.append(self._text_of_rule(number))
        self._check_subtracted()
        return texts if first is not None else [None]

    def field_of(self, rule: int) -> str:
        """The field of a schema that a rule stands for."""
        return next((self.nodes[node].field or "the schema" for node in self.keys[rule].nodes), "any value")

    def is_scalar(self, rule: int) -> bool:
        """Whether no array or object fits a rule."""
        return not self._types_of(self.keys[rule].nodes) & {*CONTAINER_TYPES}

    def text(self, node_ids: Sequence[int], position: Position) -> tuple[Fragment | None, bool]:
        """The letter of the values that fit all the nodes."""
        rule = self._rule(self._constraining_nodes(node_ids), (), position)
        return None if rule is None else self._letter(rule), True

    def whole_text(self, node_ids: Sequence[int], position: Position) -> tuple[Fragment | None, bool]:
        """The texts themselves. It is the letter where they are nested without bound."""
        text = self._without_rules(lambda explicit: explicit.text(node_ids, replace(position, depth=0)))
        return self.text(node_ids, position) if text is None else text

    def labelled(self, text: Fragment | None, tests: Sequence[Fragment | None]) -> Fragment | None:
        """The letters of rules that part `text` by the tests."""
        rules = [None if each is None else read_letters(each).rules for each in (text, *tests)]
        if text is None or not any(rules):
            return super().labelled(text, tests)
        if not rules[0] or len(tests) > _TESTS_MAX:
            raise OutsideRules("an array has many `contains`, or one that tests its unique items")
        (item,), parts = rules[0], dict[int, int]()
        parts[item] = 0
        for bit, test in enumerate(rules[1:]):
            if test is None:
                continue
            (other,) = test
            apart = dict[int, int]()
            for part, bits in parts.items():
                if (both := self.both(part, other)) is not None:
                    apart[both] = bits | 1 << bit
                apart.update((rule, bits) for rule in self.rest(part, other))
            parts = apart
        return trie({word_of(rule): 1 + bits for rule, bits in parts.items()}, self.width)

    def both(self, left: int, right: int) -> int | None:
        """The rule of the values of two. None where there are none."""
        one, other = self.keys[left], self.keys[right]
        nodes, without = {*one.nodes, *other.nodes}, {*one.without, *other.without}
        if any({*self.keys[rule].nodes} <= nodes for rule in without):
            return None
        return self._rule(tuple(sorted(nodes)), tuple(sorted(without)), self._common_position(one, other))

    def rest(self, left: int, right: int) -> list[int]:
        """Rules that together have what `left` has and `right` has not."""
        key, other = self.keys[left], self.keys[right]
        if {*other.nodes} <= {*key.nodes} and {*other.without} <= {*key.without}:
            return []
        if self.both(left, right) is None:
            return [left]
        if other.without:
            # A difference leaves what is outside of its left side, and what its right side has.
            whole = self._rule(other.nodes, (), other.position)
            outside = [left] if whole is None else self.rest(left, whole)
            inside = [self.both(left, rule) for rule in other.without]
            return [*outside, *(rule for rule in inside if rule is not None)]
        self._common_position(key, other)
        rule = self._rule(key.nodes, tuple(sorted({*key.without, right})), key.position)
        return [] if rule is None else [rule]

    def _common_position(self, one: RuleKey, other: RuleKey) -> Position:
        positions = {key.position for key in (one, other) if key.position != self._no_nesting}
        if len(positions) > 1:
            raise OutsideRules("values at two places are combined")
        return positions.pop() if positions else self._no_nesting

    def _rule(self, nodes: tuple[int, ...], without: tuple[int, ...], position: Position) -> int | None:
        """The number of a rule. None where it is known to have no values."""
        types = self._types_of(nodes)
        if not types:
            return None
        scalar = not types & {*CONTAINER_TYPES}
        # Scalars are the same everywhere.
        key = RuleKey(nodes, without, self._no_nesting if scalar else position)
        if key not in self._numbers:
            self._numbers[key] = len(self.keys)
            self.keys.append(key)
        number = self._numbers[key]
        if not scalar:
            return number
        # Scalars with the same texts are one rule.
        text = self._text_of_rule(number)
        if text is None:
            return None
        digest = sha256(f"{text.table.shape}".encode())
        for array in (text.columns, text.table, text.label):
            digest.update(array.tobytes())
        self._numbers[key] = self._scalar_rules.setdefault(digest.digest(), number)
        return self._numbers[key]

    def _letter(self, rule: int) -> Fragment:
        if rule not in self._letter_texts:
            text = trie({word_of(rule): 1}, self.width)
            assert text is not None
            self._letter_texts[rule] = text
        return self._letter_texts[rule]

    def _text_of_rule(self, rule: int) -> Fragment | None:
        if rule not in self._rule_texts:
            values = self._values_of_rule(rule)
            self._safe[rule] = values.duplicate_key_safe
            self._rule_texts[rule] = self._text_of(values, self.keys[rule].position)
        return self._rule_texts[rule]

    def _listed_text(self, values: ValueSet) -> Fragment | None:
        # A rule is called, not copied: so the length of its list bounds its states.
        listed = values.texts()
        text = self.alphabet.texts(listed) if listed else None
        self.listed |= set() if text is None else {text}
        return text

    def _values_of_rule(self, rule: int) -> ValueSet:
        key = self.keys[rule]
        values = self.values(key.nodes, key.position)
        for other in key.without:
            nodes = self.keys[other].nodes
            field_node = nodes[0] if nodes else 0
            values = self._subtract(values, self.values(nodes, key.position), key.position, field_node)
        return values

    def combine(
        self, left: Fragment | None, right: Fragment | None, operation: Operation, guard: ResourceGuard
    ) -> Fragment | None:
        """The same as `combine`, where letters stand for values."""
        # The spelling of letters is enough for a union.
        if left is None or right is None or left is right or operation == "or":
            return combine(left, right, operation, guard)
        one, other = read_letters(left), read_letters(right)
        if not one.letters and not other.letters:
            return combine(left, right, operation, guard)
        return combine_letters(one, other, operation, algebra=self, guard=guard)

    def _subtract(self, left: ValueSet, right: ValueSet, position: Position, node: int) -> ValueSet:
        for name in CONTAINER_TYPES:
            language = right.language(name)
            if isinstance(language, Fragment):
                self._subtracted |= read_letters(language).rules
        return super()._subtract(left, right, position, node)

    def _check_subtracted(self) -> None:
        """Raise OutsideRules where equal keys may matter in what is taken away."""
        met, waiting = set(self._subtracted), list(self._subtracted)
        while waiting:
            rule = waiting.pop()
            text = self._text_of_rule(rule)
            if not self._safe[rule]:
                raise OutsideRules("equal keys may matter in what is taken away")
            called = set[int]() if text is None else read_letters(text).rules - met
            met |= called
            waiting += called

    def _conjunction(self, conjunction: Conjunction, position: Position) -> ValueSet:
        """The same, without rules where they express no combination."""
        try:
            return super()._conjunction(conjunction, position)
        except OutsideRules:
            flat = replace(position, depth=0)
            values = self._without_rules(lambda explicit: explicit._conjunction(conjunction, flat))
            if values is None:
                raise
            return values

    def _without_rules(self, compile_explicitly: Callable[[SchemaCompiler], _T]) -> _T | None:
        """What a compiler without rules makes. None where it leaves out values that are nested deeper."""
        # A new compiler has no cache: what it leaves out is what it was asked for.
        explicit = SchemaCompiler(
            self.nodes, self.alphabet, self.layout, self._no_nesting, scalars=self.scalars, guard=self.guard,
            approximate=self.approximate,
        )  # fmt: skip
        made = compile_explicitly(explicit)
        self.approximated |= explicit.approximated
        self.unique_cut |= explicit.unique_cut
        return None if explicit.cuts else made

    def _types_of(self, nodes: tuple[int, ...]) -> frozenset[str]:
        """The types of values that may fit nodes. It has `number` for integers."""
        if nodes not in self._types:
            self._types[nodes] = types = _ALL_TYPES  # of an option that leads back to here
            conjunction = self._gather(nodes, frozenset())
            for node in (self.nodes[number] for number in conjunction.nodes):
                types &= _types_of_node(node)
            for clause in conjunction.clauses:
                if isinstance(clause, Alternatives):
                    types &= frozenset[str]().union(*(self._types_of((option,)) for option in clause.nodes))
            self._types[nodes] = types
        return self._types[nodes]


def _types_of_node(node: Schema) -> frozenset[str]:
    if node.never:
        return frozenset()
    types = _ALL_TYPES
    if node.types is not None:
        types = frozenset("number" if name == "integer" else name for name in node.types)
    if node.values is not None:
        types &= frozenset(_type_of(value) for value in node.values)
    return types


def _type_of(value: object) -> str:
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "boolean" if isinstance(value, bool) else "number"
