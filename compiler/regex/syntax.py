"""Parses patterns into trees of six node types. Python's own parser reads them, so syntax and verdicts are those of
`re.fullmatch`.

Owns the syntax, the flags and the refusals. Knows nothing of automata.
"""

from __future__ import annotations

import contextlib
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, Literal, NoReturn, TypeAlias

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
from compiler.regex.unsupported import place_of

Node: TypeAlias = "Chars | Words | Concat | Alternation | Repeat | Anchor"

NO_LETTER = -1  # in `Words.before`: a word begins here
_SHARED_DEPTH_MAX = 32  # of alternatives with common beginnings inside one another


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set; the empty set matches nothing."""

    charset: CharSet


@dataclass(frozen=True, slots=True)
class Words:
    """Any one of several words, stored as a flat trie. A nested tree of a long list of words would be too deep to walk.

    letters   the set of characters that each letter of the trie may be; it is reached by one way only
    before    the letter before each, which has a lower number, NO_LETTER where a word begins
    ends      the letters at which a word may end
    nullable  whether the empty text is one of the words
    """

    letters: tuple[CharSet, ...]
    before: tuple[int, ...]
    ends: tuple[int, ...]
    nullable: bool

    def spelled(self) -> Alternation:
        """The same, each word written out on its own."""
        words: list[Node] = [EMPTY] if self.nullable else []
        for end in self.ends:
            word, at = list[Node](), end
            while at != NO_LETTER:
                word.append(Chars(self.letters[at]))
                at = self.before[at]
            words.append(concat(word[::-1]))
        return Alternation(tuple(words))


@dataclass(frozen=True, slots=True)
class Concat:
    """The items one after the other; without items, the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """Any one of the items; without items, nothing at all."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The item `minimum` to `maximum` times, None for any number. Greedy or not is the same language."""

    item: Node
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in the text: `start`, `end`, or `final` (the end, or before a newline that is the last character)."""

    position: Literal["start", "end", "final"]


EMPTY = Concat(())
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
    _constants.ATOMIC_GROUP: "atomic group",
    _constants.POSSESSIVE_REPEAT: "possessive repeat",
}
_BOUNDARIES = (_constants.AT_BOUNDARY, _constants.AT_NON_BOUNDARY)
_MULTILINE_ONLY = (_constants.AT_BEGINNING, _constants.AT_END)
# plain ints: the parser counts in ints, and arithmetic on the enumeration is slow
_ASCII, _DOTALL, _IGNORECASE, _MULTILINE = int(re.ASCII), int(re.DOTALL), int(re.IGNORECASE), int(re.MULTILINE)
_TYPE_FLAGS = int(re.ASCII | re.LOCALE | re.UNICODE)
_TEMPLATE = getattr(_constants, "SRE_FLAG_TEMPLATE", 0)  # gone from Python 3.13
_warnings_lock = threading.Lock()  # catch_warnings swaps a list that the whole process shares


def parse_pattern(pattern: str, guard: ResourceGuard) -> Node:
    """The tree of a pattern.

    Raises SpecSyntaxError (with the offset) where `re` refuses the pattern, SpecUnsupported (with the offset, where
    that is found) for what no finite automaton of ours reads, LimitExceeded over `pattern_chars_max` or
    `nesting_depth_max`.
    """
    guard.check("pattern_chars_max", len(pattern))
    tree = _parse(pattern, guard)
    # The undocumented flag disables backtracking in old versions of Python.
    if tree.state.flags & _TEMPLATE:
        _refuse("template flag")
    try:
        return _PatternReader(guard).sequence(tree, int(tree.state.flags), 0)
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


def _parse(pattern: str, guard: ResourceGuard) -> Any:
    try:
        # A pattern of a caller must not write deprecation warnings into the log.
        with _warnings_lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _parser.parse(pattern)
    # `re` raises others than its own for a repetition number too large, and for flags that exclude each other.
    except (re.error, OverflowError, ValueError) as error:
        message, position = f"not a pattern: {_reason(error)}", getattr(error, "pos", None)
        raise SpecSyntaxError(message, source=pattern, position=position) from None
    except RecursionError:
        cap = guard.limits.nesting_depth_max
        raise LimitExceeded("nesting_depth_max", cap, pattern.count("(")) from None


class _PatternReader:
    """Walks the parser's tree. `flags`: those in force where it is; `depth`: groups, repeats and branches around it."""

    def __init__(self, guard: ResourceGuard) -> None:
        self._guard = guard
        self._literals: dict[tuple[int, int], Chars] = {}

    def sequence(self, tree: Any, flags: int, depth: int) -> Node:
        self._guard.check("nesting_depth_max", depth)
        self._guard.check_time()
        items, literals = [], self._literals
        for op, value in tree.data:
            if op is _constants.LITERAL:  # most of most patterns
                # One node for each distinct literal: `alternation` compares nodes, and equal ones are then identical.
                item: Node | None = literals.get((value, flags))
                if item is None:
                    item = literals[value, flags] = Chars(_leaf(op, value, flags))
            else:
                item = self.node(op, value, flags, depth)
            items.append(item)
        return concat(items)

    def node(self, op: Any, value: Any, flags: int, depth: int) -> Node:
        if op is _constants.BRANCH:
            return alternation([self.sequence(branch, flags, depth + 1) for branch in value[1]])
        if op is _constants.SUBPATTERN:
            _, added, removed, tree = value
            # (?a:...), (?L:...) and (?u:...) exclude each other: the inner one replaces the outer one.
            base_flags = flags & ~_TYPE_FLAGS if added & _TYPE_FLAGS else flags
            return self.sequence(tree, (base_flags | added) & ~removed, depth + 1)
        # Greedy and lazy repeats differ in what they capture, not in what matches as a whole.
        if op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            minimum, maximum, tree = value
            last = None if maximum == _constants.MAXREPEAT else int(maximum)
            return Repeat(self.sequence(tree, flags, depth + 1), int(minimum), last)
        if op is _constants.AT:
            return _anchor(value, flags)
        self._guard.check_time()
        return Chars(_leaf(op, value, flags))


def _anchor(where: Any, flags: int) -> Anchor:
    if where in _BOUNDARIES:
        _refuse("word boundary")
    if flags & _MULTILINE and where in _MULTILINE_ONLY:
        _refuse("multi-line anchor")
    return _ANCHORS[where]


def _leaf(op: Any, value: Any, flags: int) -> CharSet:
    """The set of characters that a one-character item matches."""
    ascii_only, fold = bool(flags & _ASCII), bool(flags & _IGNORECASE)
    if op is _constants.LITERAL:
        return literal(value, fold, ascii_only)
    if op is _constants.NOT_LITERAL:
        return charset_complement(literal(value, fold, ascii_only))
    if op is _constants.ANY:
        return ANYTHING if flags & _DOTALL else charset_complement(single(ord("\n")))
    if op is _constants.IN:
        return _class(value, fold, ascii_only)
    if op in (_constants.ASSERT, _constants.ASSERT_NOT):
        _refuse("look-ahead" if value[0] > 0 else "look-behind")
    _refuse(_REFUSED.get(op, str(op).lower()))


def _class(items: Sequence[tuple[Any, Any]], fold: bool, ascii_only: bool) -> CharSet:
    """The characters in a class `[...]`."""
    negated = items[0][0] is _constants.NEGATE
    listed = items[1:] if negated else items
    characters = charset_union(*(_class_item(op, value, ascii_only) for op, value in listed))
    characters = charset_complement(characters) if negated else characters
    # Categories have no case; every other class is put to `re` once more with the flag.
    if not fold or all(op is _constants.CATEGORY for op, _ in listed):
        return characters
    source = "".join(_class_source(op, value) for op, value in listed)
    return ignore_case(f"[{'^' if negated else ''}{source}]", characters, ascii_only)


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
    raise SpecUnsupported(f"the pattern holds a {construct}, which is not supported", construct=construct)


def concat(nodes: Sequence[Node]) -> Node:
    """The nodes one after the other, flattened."""
    items = [item for node in nodes for item in (node.items if isinstance(node, Concat) else (node,))]
    # A sequence of one node is that node: equal patterns should have equal trees.
    return items[0] if len(items) == 1 else Concat(tuple(items))


def alternation(nodes: Sequence[Node], depth: int = 0) -> Node:
    """Any one of the nodes. Common beginnings are shared, so that a list of words costs a trie, not their sum.

    depth  common beginnings already taken out around these nodes
    """
    words, groups = list[list[CharSet]](), dict[object, list[tuple[Node, ...]]]()
    for number, node in enumerate(nodes):
        items = node.items if isinstance(node, Concat) else (node,)
        # A branch of characters alone is a word: all words together become one trie.
        word = [item.charset for item in items if isinstance(item, Chars)]
        if len(word) == len(items):
            words.append(word)
            continue
        # Branches are grouped by their first character, so that a common beginning is read once.
        shareable = isinstance(items[0], Chars) and depth < _SHARED_DEPTH_MAX
        groups.setdefault(items[0] if shareable else number, []).append(items)
    branches = [words_node(words)] if words else []
    branches += [_share(group, depth + 1) for group in groups.values()]
    return branches[0] if len(branches) == 1 else Alternation(tuple(branches))


def _share(group: Sequence[tuple[Node, ...]], depth: int) -> Node:
    """Factor out the longest common prefix of a group of alternatives."""
    if len(group) == 1:
        return concat(group[0])
    # The common beginning ends at the first place where two branches differ, or are not characters.
    columns = zip(*group, strict=False)
    alike = (isinstance(column[0], Chars) and all(item == column[0] for item in column) for column in columns)
    length = sum(takewhile(bool, alike))
    return concat([*group[0][:length], alternation([concat(items[length:]) for items in group], depth)])


def words_node(words: Iterable[Sequence[CharSet]]) -> Node:
    """The pattern of any one of the words.

    Each word is given by its characters' sets. Without words the language is empty.
    """
    # The trie grows by one letter for each character that no earlier word has there.
    below: list[dict[CharSet, int]] = [{}]  # the letters after no letter, then after each letter
    letters, before, ends = list[CharSet](), list[int](), dict[int, None]()
    for word in words:
        at = NO_LETTER
        for charset_of_char in word:
            letter = below[at + 1].setdefault(charset_of_char, len(letters))
            if letter == len(letters):
                letters.append(charset_of_char)
                before.append(at)
                below.append({})
            at = letter
        ends[at] = None
    if not ends:
        return Alternation(())
    # A trie of one word is a sequence, which other branches can share beginnings with.
    if len(ends) == 1 and all(len(after) < 2 for after in below):  # one word
        return concat([Chars(charset_of_char) for charset_of_char in letters])
    last = tuple(letter for letter in ends if letter != NO_LETTER)
    return Words(tuple(letters), tuple(before), last, NO_LETTER in ends)


def literal_node(text: str, ignore_case: bool) -> Node:
    """Exactly `text`, in any case when `ignore_case`."""
    return concat([Chars(literal(ord(char), ignore_case)) for char in text])


def space_run_node() -> Node:
    r"""One or more white-space characters, `\s+`."""
    return Repeat(Chars(category(r"\s")), 1, None)


def has_anchor(node: Node) -> bool:
    """True when the tree holds an anchor. An anchor only makes sense where the whole text is matched."""
    return any(isinstance(leaf, Anchor) for leaf in leaves_of(node))


def leaves_of(node: Node) -> Iterator[Chars | Words | Anchor]:
    """The nodes of a tree without nodes below them, left to right."""
    if isinstance(node, Chars | Words | Anchor):
        yield node
    else:
        for item in (node.item,) if isinstance(node, Repeat) else node.items:
            yield from leaves_of(item)
