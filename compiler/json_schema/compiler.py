"""Translates JSON schemas to automata over the texts of allowed values.

The properties of an object are written in the schema's order or in any, undeclared ones behind them. Strings are
spelled as `json.dumps(text, ensure_ascii=False)` does, and white space is that of an `ObjectLayout`. Nesting is
bounded where the schema does not spell it out. `format` is asserted.

Nodes are compiled to sets of values. Conjunctions are merged before anything is built, and choices are distributed over
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial, reduce

from compiler.automata import Dfa
from compiler.errors import SpecSyntaxError
from compiler.json_schema.arrays import ArrayBuilder, label_by
from compiler.json_schema.clauses import Branching, ChoicePlan, Clause, Conjunction, negates
from compiler.json_schema.fragments import START, Assembler, Fragment, ObjectLayout, combine, dfa_of, string_fragment
from compiler.json_schema.nodes import Alternatives, Condition, Position, Scalar, Schema
from compiler.json_schema.objects import ObjectBuilder
from compiler.json_schema.strings import FiniteLanguage, StringAlphabet
from compiler.json_schema.value_sets import (
    AUTOMATON_TYPES,
    NO_VALUES,
    ScalarCompiler,
    Trivial,
    TypeLanguage,
    ValueSet,
    from_fragment,
    intersect,
    subtract,
    unite,
    without_symbol,
)
from compiler.limits import ResourceGuard

_MARK = "\0"  # JSON writes it as an escape, so no text holds it
_COMBINATIONS_MAX = 16  # of options of all choices: up to here, choices are distributed over each other
_Key = tuple[tuple[int, ...], Position]  # sorted nodes at a position
_Builder = type[ArrayBuilder] | type[ObjectBuilder]


class SchemaCompiler:
    """Compiles the nodes of one document; equal work is done once.

    no_nesting  a position where neither array nor object may stand, for the contents of strings
    marks       whether a mark stands for the arrays and objects that are nested too deep
    cuts        the bounds of depth because of which arrays or objects were left out
    unique_cut  whether arrays were left out because there are too many sets of unique items
    approximated  the paths of `uniqueItems` without an effect, or whose items come in one order
    Raises SpecUnsupported and LimitExceeded.
    """

    combine = staticmethod(combine)

    def __init__(
        self, nodes: Sequence[Schema], alphabet: StringAlphabet, layout: ObjectLayout, no_nesting: Position, *,
        scalars: ScalarCompiler, guard: ResourceGuard, marks: bool = False, approximate: Collection[str] = (),
    ) -> None:
        self.nodes, self.alphabet, self.layout, self.guard = nodes, alphabet, layout, guard
        self.width = alphabet.width
        self._no_nesting = no_nesting
        self._values: dict[_Key, ValueSet] = {}
        self._texts: dict[_Key, Fragment | None] = {}
        self._needs_narrowing = any(node.needs_narrowing() for node in nodes)
        self._active: set[_Key] = set()  # under construction, to notice a schema that negates itself
        self._strings: dict[Fragment, Fragment] = {}  # contents to strings
        self._bytes = 0  # of all texts in the cache
        self.scalars, self._marks, self.unique_cut = scalars, marks, False
        self.cuts: dict[tuple[str, int], None] = {}  # ordered, each once
        self.negates, self.approximate = any(map(negates, nodes)), approximate
        self.approximated: dict[tuple[str, ...], None] = {}  # ordered, each once

    def minimal_dfa(self, node_ids: Sequence[int], position: Position) -> Dfa | None:
        """The minimal DFA of the texts that fit all the nodes. None without any."""
        listed = self.values(node_ids, position).texts()
        if listed:
            return self.alphabet.texts_dfa(listed)
        text = self.text(node_ids, position)[0]
        dfa = None if text is None else dfa_of(text, self.guard)
        return dfa if dfa is not None and dfa.accepting.any() else None

    def text(self, node_ids: Sequence[int], position: Position) -> tuple[Fragment | None, bool]:
        """The texts of the values that fit all the nodes.

        The second value is True where equal keys cannot change the verdict.
        """
        key = (self._constraining_nodes(node_ids), position)
        values = self.values(node_ids, position)
        if key not in self._texts:
            self._texts[key] = self._text_of(values, position)
        return self._texts[key], values.duplicate_key_safe

    def whole_text(self, node_ids: Sequence[int], position: Position) -> tuple[Fragment | None, bool]:
        """The same as `text`, without calls where that can be."""
        return self.text(node_ids, position)

    def labelled(self, text: Fragment | None, tests: Sequence[Fragment | None]) -> Fragment | None:
        """The text, labelled by the tests that it fits, as in `label_by`."""
        return label_by(text, tests, self.guard)

    def first_letter(self, words: tuple[tuple[int, ...], ...]) -> int:
        """The first letter of those behind an array's items. 0 where letters cannot stand."""
        return 0

    def content(self, node_ids: Sequence[int]) -> Fragment | None:
        """The contents of the strings that fit all the nodes."""
        language = self.values(node_ids, self._no_nesting).language("string")
        return self._fragment("string", language, self._no_nesting)

    def listed_texts(self, node_ids: Sequence[int]) -> list[tuple[int, ...]]:
        """The scalars that nodes list, as symbols of their texts."""
        nodes = [self.nodes[number] for number in self._gather(node_ids, frozenset()).nodes]
        values = [value for node in nodes for value in node.values or ()]
        return [tuple(self.alphabet.word(self.scalars.text(value))) for value in values]

    def _constraining_nodes(self, node_ids: Sequence[int]) -> tuple[int, ...]:
        """The nodes that say something, in a canonical order."""
        return tuple(sorted({number for number in node_ids if not self.nodes[number].is_unconstrained()}))

    def values(self, node_ids: Sequence[int], position: Position) -> ValueSet:
        """The values at a position that fit all the nodes."""
        key = (self._constraining_nodes(node_ids), position)
        if key not in self._values:
            # Recursion through arrays and objects uses up depth. Only a negation or an `if` leads back to the same key.
            if key in self._active:
                field = self.nodes[key[0][0]].field
                raise SpecSyntaxError(
                    "this schema negates itself", expected="a $ref that does not lead back", field=field
                )
            self._active.add(key)
            try:
                self._values[key] = self._conjunction(self._gather(key[0], frozenset()), position)
            finally:
                self._active.remove(key)
        return self._values[key]

    def _gather(self, node_ids: Sequence[int], visited: frozenset[int]) -> Conjunction:
        """The nodes and all nodes that they imply. Those in `visited` are left out."""
        # Breadth-first closure under `allOf` and `$ref`, each node once.
        order = [number for number in dict.fromkeys(node_ids) if number not in visited]
        gathered = {*visited, *order}
        for number in order:  # grows while it is walked
            new_nodes = [other for other in self.nodes[number].all_of if other not in gathered]
            order.extend(dict.fromkeys(new_nodes))
            gathered.update(new_nodes)
        choices: list[Clause] = []
        negations: list[Clause] = []
        for node in (self.nodes[number] for number in order):
            choices += [*node.choices, *(test for test in node.conditions if not test.only_evaluates())]
            negations += node.none_of
        return Conjunction(tuple(order), (*choices, *negations), frozenset(gathered))

    def _extend(self, conjunction: Conjunction, node_ids: Sequence[int]) -> Conjunction:
        """The conjunction with more nodes and their clauses."""
        more = self._gather(node_ids, conjunction.visited)
        # Negations come last in the list. They are eliminated last, so they subtract from what all else has narrowed.
        clauses = sorted((*conjunction.clauses, *more.clauses), key=lambda clause: isinstance(clause, int))
        nodes = (*conjunction.nodes, *more.nodes)
        return replace(conjunction, nodes=nodes, clauses=tuple(clauses), visited=more.visited)

    def _conjunction(self, conjunction: Conjunction, position: Position) -> ValueSet:
        """The values that fit nodes and clauses. The first clause is eliminated here, the others recursively."""
        self.guard.check_time()
        if not conjunction.clauses:
            return self._merge_facts(conjunction.nodes, position)
        match conjunction.clauses[0]:
            case Alternatives() as choice:
                return self._choice(conjunction, choice, position)
            case Condition():
                plan = conjunction.condition_plan(partial(self._can_negate, position=position))
                return self._condition(conjunction, *plan, position)
            case negated:
                others = self._conjunction(conjunction.without(negated), position)
                return self._subtract(others, self.values((negated,), position), position, negated)

    def _choice(self, conjunction: Conjunction, choice: Alternatives, position: Position) -> ValueSet:
        """The values of a conjunction whose first clause is a choice."""
        others, plan = conjunction.without(choice), self._choice_plan(conjunction, choice)
        texts = self._container_texts(conjunction, choice, position)
        if plan is ChoicePlan.LIST or texts is not None:
            plan = ChoicePlan.LIST
            union = self.scalars.constants(self._constants(choice), texts or ())
        else:
            # The nodes without clauses stay: beside them, an option is far smaller than alone.
            base = others if plan is ChoicePlan.DISTRIBUTE else replace(conjunction, clauses=())
            options = [self._conjunction(self._extend(base, (node,)), position) for node in choice.nodes]
            union = self._union(options, choice, position)
        if plan is ChoicePlan.DISTRIBUTE:
            return union
        return intersect(self._conjunction(others, position), union, self.guard, self.combine)

    def _choice_plan(self, conjunction: Conjunction, choice: Alternatives) -> ChoicePlan:
        """Chosen from the clauses alone, before anything is built."""
        constants = self._constants(choice)
        distinct = {(isinstance(value, bool), value) for value in constants}
        # A value that `oneOf` lists twice is not allowed, so the list is not the set of values.
        repeated = choice.exactly_one and len(distinct) < len(constants)
        if all(self.nodes[node].only_constants() for node in choice.nodes) and not repeated:
            return ChoicePlan.LIST
        many = len(conjunction.clauses) > 1 and conjunction.combination_count() > _COMBINATIONS_MAX
        return ChoicePlan.INTERSECT if many else ChoicePlan.DISTRIBUTE

    def _container_texts(
        self, conjunction: Conjunction, choice: Alternatives, position: Position
    ) -> list[str] | None:
        """The texts of the arrays and objects that a choice lists.

        None where it has other options, other facts speak of arrays and objects, or one is nested too deep.
        """
        nodes = [self.nodes[number] for number in choice.nodes]
        others = [self.nodes[number] for number in conjunction.nodes]
        if (
            choice.exactly_one
            or not all(node.constant is not None or node.only_constants() for node in nodes)
            or all(node.constant is None for node in nodes)
            or any(node.arrays is not None or node.objects is not None for node in others)
            or len(conjunction.clauses) > 1
        ):
            return None
        listed = [node.constant for node in nodes if node.constant is not None]
        texts = [self.scalars.constant_text(value, position, self.layout) for value in listed]
        return None if None in texts else [text for text in texts if text is not None]

    def _constants(self, choice: Alternatives) -> list[Scalar]:
        """The scalars that the options of a choice list."""
        return [value for node in choice.nodes for value in self.nodes[node].values or ()]

    def _can_negate(self, condition: Condition, position: Position) -> bool:
        """Whether the other conditions may be compiled without this one.

        Its `if` is compiled once, and its set of values states whether that set can be negated by itself.
        """
        return not self._needs_narrowing and self.values((condition.if_,), position).duplicate_key_safe

    def _condition(
        self, conjunction: Conjunction, condition: Condition, branching: Branching, position: Position
    ) -> ValueSet:
        """The values for which a condition holds, and the others."""
        then = () if condition.then is None else (condition.then,)
        otherwise = () if condition.otherwise is None else (condition.otherwise,)
        others = conjunction.without(condition)
        base = others if branching is Branching.TOGETHER else replace(conjunction, clauses=())
        holds = self._conjunction(self._extend(base, (condition.if_, *then)), position)
        fails = self._conjunction(self._extend(base, otherwise), position)
        if branching is Branching.APART:
            context = self._conjunction(others, position)
            holds, fails = (intersect(context, branch, self.guard, self.combine) for branch in (holds, fails))
        fails = self._subtract(fails, self.values((condition.if_,), position), position, condition.if_)
        return unite(holds, fails, self.guard, self.combine)

    def _subtract(self, left: ValueSet, right: ValueSet, position: Position, node: int) -> ValueSet:
        # A mark may stand for a value that is not subtracted.
        right = without_symbol(right, ord(_MARK)) if self._marks else right
        return subtract(
            left, right, lambda name: self._all(name, position), self.nodes[node].field, guard=self.guard,
            combine=self.combine,
        )  # fmt: skip

    def _union(self, options: Sequence[ValueSet], choice: Alternatives, position: Position) -> ValueSet:
        """The values in any of the options, or in exactly one."""
        if len(options) == 1:
            return options[0]
        if not choice.exactly_one:
            # In halves, so that each automaton is read log2(n) times and not n times.
            half = len(options) // 2
            left, right = (self._union(part, choice, position) for part in (options[:half], options[half:]))
            return unite(left, right, self.guard, self.combine)
        union, overlaps = self._overlaps(options)
        if not overlaps:
            return union
        overlap = reduce(lambda left, right: unite(left, right, self.guard, self.combine), overlaps)
        return self._subtract(union, overlap, position, choice.nodes[0])

    def _overlaps(self, options: Sequence[ValueSet]) -> tuple[ValueSet, list[ValueSet]]:
        """The union of the options, and sets that cover their overlaps.

        The union of these sets has the values in two options or more.
        """
        if len(options) == 1:
            return options[0], []
        half = len(options) // 2
        left, left_overlaps = self._overlaps(options[:half])
        right, right_overlaps = self._overlaps(options[half:])
        union, overlap = (join(left, right, self.guard, self.combine) for join in (unite, intersect))
        return union, [*left_overlaps, *right_overlaps, overlap]

    def _merge_facts(self, node_ids: Sequence[int], position: Position) -> ValueSet:
        """The values that fit nodes without clauses. The nodes' facts are merged, type by type."""
        nodes = [self.nodes[number] for number in node_ids]
        if any(node.never for node in nodes):
            return NO_VALUES
        types = [node.types for node in nodes if node.types is not None]

        def allows(name: str) -> bool:
            return all(name in allowed for allowed in types)

        literals = ({"null"} if allows("null") else set()) | ({"false", "true"} if allows("boolean") else set())
        strings: TypeLanguage = Trivial.EMPTY
        if allows("string"):
            strings = self.scalars.string_language(nodes, shortens=self.scalars.shortens_beside(node_ids))
        speaks_of_arrays = any(node.arrays is not None for node in nodes)
        speaks_of_objects = any(node.objects is not None for node in nodes)
        arrays, arrays_safe = self._container(
            ArrayBuilder, allows("array"), speaks_of_arrays, node_ids, position=position
        )
        objects, objects_safe = self._container(
            ObjectBuilder, allows("object"), speaks_of_objects, node_ids, position=position
        )
        numbers = self.scalars.number_language(nodes, types)
        values = ValueSet(frozenset(literals), (numbers, strings, arrays, objects), arrays_safe and objects_safe)
        for node in nodes:
            if node.values is not None:
                values = intersect(values, self.scalars.constants(node.values), self.guard, self.combine)
        return values

    def _container(
        self, builder: _Builder, allowed: bool, constrained: bool, node_ids: Sequence[int], *, position: Position
    ) -> tuple[TypeLanguage, bool]:
        """The arrays or the objects that fit nodes. The second value is True where they are safe from duplicate keys.

        A type that the nodes do not allow, or of which they say nothing, is not compiled.
        """
        # Facts about a type that is not allowed say nothing.
        if not (allowed and constrained):
            return Trivial.ALL if allowed else Trivial.EMPTY, True
        # Where no array or object may stand, there is none.
        fragment, safe = self._build(builder, node_ids, position)
        return from_fragment(fragment), safe

    def _build(self, builder: _Builder, node_ids: Sequence[int], position: Position) -> tuple[Fragment | None, bool]:
        """The arrays or the objects. Where they are nested too deep, it is what stands for them."""
        if position.may_nest():
            return builder(self, node_ids, position).build()
        self.cuts[position.bound] = None
        opening, closing = "[]" if builder is ArrayBuilder else "{}"
        return self.alphabet.texts([opening + _MARK + closing] if self._marks else []), True

    def _all(self, name: str, position: Position) -> Fragment | None:
        """All texts of a type."""
        if name == "number":
            return self.scalars.any_number()
        if name == "string":
            return self.scalars.any_text
        builder: _Builder = ArrayBuilder if name == "array" else ObjectBuilder
        return self._build(builder, (), position)[0]

    def _fragment(self, name: str, language: TypeLanguage, position: Position) -> Fragment | None:
        if isinstance(language, Trivial):
            return self._all(name, position) if language is Trivial.ALL else None
        return language.fragment() if isinstance(language, FiniteLanguage) else language

    def _string(self, content: Fragment | None) -> Fragment | None:
        if content is None:
            return None
        if content not in self._strings:
            self.guard.check_table(content.states, self.width)  # before it is written with all columns
            self._strings[content] = string_fragment(content, self.alphabet.escapes, self.guard)
        return self._strings[content]

    def _text_of(self, values: ValueSet, position: Position) -> Fragment | None:
        """The texts of a set of values."""
        text = self._listed_text(values) or self._assembled_text(values, position)
        # Texts stay in the cache, so all of them together are limited.
        self._bytes += 0 if text is None else text.table.nbytes
        self.guard.check("table_bytes_max", self._bytes)
        return text

    def _listed_text(self, values: ValueSet) -> Fragment | None:
        """The text of values that are listed. None for others, and for none."""
        listed = values.texts()
        return self.alphabet.texts(listed, self.guard) if listed else None

    def _assembled_text(self, values: ValueSet, position: Position) -> Fragment | None:
        is_open = all(language is Trivial.ALL for language in values.languages)
        parts = []
        for name, language in zip(AUTOMATON_TYPES, values.languages, strict=True):
            fragment = self.scalars.open_number() if is_open and name == "number" else None
            fragment = fragment or self._fragment(name, language, position)
            fragment = self._string(fragment) if name == "string" else fragment
            parts += [] if fragment is None else [fragment]
        if not parts and not values.literals:
            return None
        return parts[0] if len(parts) == 1 and not values.literals else self._either(parts, values.literals)

    def _either(self, parts: Sequence[Fragment], literals: Iterable[str]) -> Fragment:
        """The texts of any part, and the literals. Texts of different types begin with different characters."""
        self.guard.check_table(sum(fragment.states for fragment in parts), self.width)
        assembler = Assembler(self.width, self.guard)
        end = assembler.new_end()
        for literal in sorted(literals):
            assembler.add_text(START, literal, end)
        for fragment in parts:
            assembler.add_fragment(START, fragment, {1: end})
        return assembler.finish()
