r"""Parses patterns into trees. Python's own parser reads them, so syntax and verdicts are those of `re.fullmatch`.

Properties such as `\p{Lu}` are an addition. Owns the syntax, the flags and the refusals. Knows nothing of automata.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from re import _constants, _parser  # type: ignore[attr-defined, unused-ignore]  # by the order of modules
from typing import Any, NoReturn

from compiler.automata import (
    ANYTHING,
    CharSet,
    category,
    charset,
    charset_complement,
    charset_union,
    ignore_case,
    literal,
    single,
)
from compiler.errors import LimitExceeded, SpecSyntaxError, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.regex.nodes import (
    Alternation,
    Anchor,
    AtomicGroup,
    Chars,
    Look,
    Node,
    Repeat,
    alternation,
    concat,
    word_boundary,
)
from compiler.regex.properties import Substitution, property_error, property_set, substitute_properties
from compiler.regex.unsupported import place_of

_ANCHORS: dict[Any, Anchor] = {
    _constants.AT_BEGINNING: Anchor("start"),
    _constants.AT_BEGINNING_STRING: Anchor("start"),
    _constants.AT_END: Anchor("final"),
    _constants.AT_END_STRING: Anchor("end"),
}
_CATEGORIES: dict[Any, str] = {
    _constants.CATEGORY_WORD: r"\w",
    _constants.CATEGORY_NOT_WORD: r"\W",
    _constants.CATEGORY_DIGIT: r"\d",
    _constants.CATEGORY_NOT_DIGIT: r"\D",
    _constants.CATEGORY_SPACE: r"\s",
    _constants.CATEGORY_NOT_SPACE: r"\S",
}
_REFUSED: dict[Any, str] = {
    _constants.GROUPREF: "back-reference",
    _constants.GROUPREF_EXISTS: "conditional group",
}
_ATOMIC = (_constants.ATOMIC_GROUP, _constants.POSSESSIVE_REPEAT)
_BOUNDARIES = (_constants.AT_BOUNDARY, _constants.AT_NON_BOUNDARY)
_INSIDE_EMPTY_TEXT = re.compile(r"\B").search("") is not None  # from Python 3.14
_NO_NEWLINE = charset_complement(single(ord("\n")))
_LINE_ANCHORS: dict[Any, Look] = {
    _constants.AT_BEGINNING: Look(Chars(_NO_NEWLINE), behind=True, negative=True),
    _constants.AT_END: Look(Chars(_NO_NEWLINE), behind=False, negative=True),
}
# plain ints: the parser counts in ints, and arithmetic on the enumeration is slow
_ASCII, _DOTALL, _IGNORECASE, _MULTILINE = int(re.ASCII), int(re.DOTALL), int(re.IGNORECASE), int(re.MULTILINE)
_TYPE_FLAGS = int(re.ASCII | re.LOCALE | re.UNICODE)
_TEMPLATE = getattr(_constants, "SRE_FLAG_TEMPLATE", 0)  # gone from Python 3.13
_warnings_lock = threading.Lock()  # catch_warnings swaps a list that the whole process shares


def parse_pattern(pattern: str, guard: ResourceGuard) -> Node:
    """The tree of a pattern.

    Raises SpecSyntaxError (with the offset) where `re` refuses the pattern, but for properties; SpecUnsupported (with
    the offset, where that is found) for what no finite automaton of ours reads and for properties that are no general
    category; LimitExceeded over `pattern_chars_max` or `nesting_depth_max`.
    """
    guard.check("pattern_chars_max", len(pattern))
    substitution = substitute_properties(pattern)
    tree = _parse(substitution, pattern, guard)
    # The undocumented flag disables backtracking in old versions of Python.
    if tree.state.flags & _TEMPLATE:
        _refuse("template flag")
    try:
        reader = _PatternReader(guard, substitution.properties, pattern)
        return reader.sequence(tree, int(tree.state.flags), 0)
    except SpecUnsupported as error:
        error.position = place_of(error.construct, pattern)
        raise


@contextlib.contextmanager
def blame_field(field: str) -> Iterator[None]:
    """Name the constraint's field in the errors of a pattern."""
    try:
        yield
    except (SpecSyntaxError, SpecUnsupported) as error:
        error.field = field
        raise


def _reason(error: Exception) -> str:
    """The message of `re` without names that it quotes. These are names of groups and characters in the pattern."""
    return re.split(r"['\"]", str(getattr(error, "msg", error)), maxsplit=1)[0].strip()


def _parse(substitution: Substitution, pattern: str, guard: ResourceGuard) -> Any:
    try:
        # A pattern of a caller must not write deprecation warnings into the log.
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _parser.parse(substitution.text)
    # `re` raises others than its own for a repetition number too large, and for flags that exclude each other.
    except (re.error, OverflowError, ValueError) as error:
        message = substitution.restore(f"not a pattern: {_reason(error)}")
        position = substitution.offset(getattr(error, "pos", None))
        if position is not None and message.lower().endswith(r"bad escape \p"):
            raise property_error(pattern, position) from None
        raise SpecSyntaxError(message, source=pattern, position=position) from None
    except RecursionError:
        cap = guard.limits.nesting_depth_max
        raise LimitExceeded("nesting_depth_max", cap, pattern.count("(")) from None


class _PatternReader:
    """Walks the parser's tree. `flags`: those in force where it is; `depth`: groups, repeats and branches around it."""

    def __init__(self, guard: ResourceGuard, properties: Mapping[int, str], source: str) -> None:
        """properties: those of the characters that stand for one."""
        self._guard, self._properties, self._source = guard, properties, source
        self._ordered = False  # whether the order of alternatives matters, which is so in an atomic group
        self._literals: dict[tuple[int, int], Chars] = {}
        self._classes: dict[tuple[object, int], Chars] = {}

    def sequence(self, tree: Any, flags: int, depth: int) -> Node:
        self._guard.check("nesting_depth_max", depth)
        self._guard.check_time()
        items, literals = [], self._literals
        for op, value in tree.data:
            if op is _constants.LITERAL:  # most of most patterns
                # One node for each distinct literal: `alternation` compares nodes, and equal ones are then identical.
                item: Node | None = literals.get((value, flags))
                if item is None:
                    item = literals[value, flags] = Chars(self._leaf(op, value, flags))
            else:
                item = self.node(op, value, flags, depth)
            items.append(item)
        return concat(items)

    def node(self, op: Any, value: Any, flags: int, depth: int) -> Node:
        if op is _constants.BRANCH:
            branches = [self.sequence(branch, flags, depth + 1) for branch in value[1]]
            return Alternation(tuple(branches)) if self._ordered else alternation(branches)
        if op is _constants.SUBPATTERN:
            _, added, removed, tree = value
            # (?a:...), (?L:...) and (?u:...) exclude each other: the inner one replaces the outer one.
            base_flags = flags & ~_TYPE_FLAGS if added & _TYPE_FLAGS else flags
            return self.sequence(tree, (base_flags | added) & ~removed, depth + 1)
        if op in _ATOMIC:
            return self._atomic_group(op, value, flags, depth)
        if op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            minimum, maximum, tree = value
            last = None if maximum == _constants.MAXREPEAT else int(maximum)
            return Repeat(self.sequence(tree, flags, depth + 1), int(minimum), last, op is _constants.MIN_REPEAT)
        if op is _constants.AT:
            return _anchor(value, flags)
        if op in (_constants.ASSERT, _constants.ASSERT_NOT):
            direction, tree = value
            if direction < 0 and len(set(tree.getwidth())) > 1:
                raise SpecSyntaxError("not a pattern: look-behind requires fixed-width pattern", source=self._source)
            return Look(self.sequence(tree, flags, depth + 1), direction < 0, op is _constants.ASSERT_NOT)
        self._guard.check_time()
        if op is not _constants.IN:
            return Chars(self._leaf(op, value, flags))
        # Equal classes are one node, too: a property has hundreds of ranges.
        key = tuple(value), flags
        if key not in self._classes:
            self._classes[key] = Chars(self._class(value, flags))
        return self._classes[key]

    def _atomic_group(self, op: Any, value: Any, flags: int, depth: int) -> Node:
        """An atomic group. A possessive repeat is one of a repeat."""
        tree = value if op is _constants.ATOMIC_GROUP else value[2]
        low, high = tree.getwidth()
        outer, self._ordered = self._ordered, True
        node = self.sequence(tree, flags, depth + 1)
        self._ordered = outer
        if op is _constants.POSSESSIVE_REPEAT:
            # Each turn of it is atomic, as in CPython from 3.11.5; its documentation speaks of one atomic group.
            item = node if low == high or value[0] < 2 else AtomicGroup(node)
            node = Repeat(item, int(value[0]), None if value[1] == _constants.MAXREPEAT else int(value[1]))
            low, high = low * value[0], high * value[1]
        # Where all matches have one length, any of them ends where the first one does.
        return node if low == high else AtomicGroup(node)

    def _leaf(self, op: Any, value: Any, flags: int) -> CharSet:
        """The characters that an item other than a class matches."""
        if op is _constants.LITERAL:
            return self._character(value, flags)
        if op is _constants.NOT_LITERAL:
            return charset_complement(self._character(value, flags))
        if op is _constants.ANY:
            return ANYTHING if flags & _DOTALL else _NO_NEWLINE
        if op is _constants.FAILURE:  # (?!)
            return ()
        _refuse(_REFUSED.get(op, str(op).lower()))

    def _character(self, value: int, flags: int) -> CharSet:
        """A character, or the property for which it stands."""
        ascii_only, fold = bool(flags & _ASCII), bool(flags & _IGNORECASE)
        if value in self._properties:
            return property_set(self._properties[value], fold, ascii_only)
        return literal(value, fold, ascii_only)

    def _class(self, items: Sequence[tuple[Any, Any]], flags: int) -> CharSet:
        """The characters in a class `[...]`."""
        ascii_only = bool(flags & _ASCII)
        negated = items[0][0] is _constants.NEGATE
        listed, properties = list[tuple[Any, Any]](), list[CharSet]()
        for op, value in items[1:] if negated else items:
            if op is _constants.LITERAL and value in self._properties:
                properties.append(self._character(value, flags))
            else:
                self._check_range(op, value)
                listed.append((op, value))
        characters = charset_union(*(_class_item(op, value, ascii_only) for op, value in listed))
        # Properties and categories have no case; all other items are put to `re` once more with the flag.
        if flags & _IGNORECASE and any(op is not _constants.CATEGORY for op, _ in listed):
            source = "".join(_class_source(op, value) for op, value in listed)
            characters = ignore_case(f"[{source}]", characters, ascii_only)
        characters = charset_union(characters, *properties) if properties else characters
        return charset_complement(characters) if negated else characters

    def _check_range(self, op: Any, value: Any) -> None:
        """Raise SpecSyntaxError where a range begins or ends at a property. `re` says so of those that fall."""
        if op is _constants.RANGE and not self._properties.keys().isdisjoint(value):
            low, high = (self._properties.get(code, chr(code)) for code in value)
            raise SpecSyntaxError(f"not a pattern: bad character range {low}-{high}", source=self._source)


def _anchor(where: Any, flags: int) -> Node:
    if where in _BOUNDARIES:
        word = category(r"\w", bool(flags & _ASCII))
        return word_boundary(word, where is _constants.AT_BOUNDARY, in_empty_text=_INSIDE_EMPTY_TEXT)
    return (flags & _MULTILINE and _LINE_ANCHORS.get(where)) or _ANCHORS[where]


def _class_item(op: Any, value: Any, ascii_only: bool) -> CharSet:
    if op is _constants.CATEGORY:
        return category(_CATEGORIES[value], ascii_only)
    low, high = value if op is _constants.RANGE else (value, value)
    return charset(((low, high + 1),))


def _class_source(op: Any, value: Any) -> str:
    """An item of a character class, written as a pattern again. `re` then decides what it matches."""
    if op is _constants.CATEGORY:
        return _CATEGORIES[value]
    low, high = value if op is _constants.RANGE else (value, value)
    return f"\\U{low:08x}-\\U{high:08x}" if op is _constants.RANGE else f"\\U{low:08x}"


def _refuse(construct: str) -> NoReturn:
    message = f"the construct {construct} is not supported in a pattern: write the pattern without it"
    raise SpecUnsupported(message, construct=construct)
