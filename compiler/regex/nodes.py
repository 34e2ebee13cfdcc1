"""The trees of patterns. There are eight types of nodes, and functions that build short trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, TypeAlias

from compiler.automata import CharSet, category, charset_complement, literal

Node: TypeAlias = "Chars | Words | Concat | Alternation | Repeat | Anchor | Look | AtomicGroup"

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
    """The item `minimum` to `maximum` times, None for any number.

    Greedy or lazy is the same language, but in an atomic group.
    """

    item: Node
    minimum: int
    maximum: int | None
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Anchor:
    """A place in the text: `start`, `end`, or `final` (the end, or before a newline that is the last character)."""

    position: Literal["start", "end", "final"]


@dataclass(frozen=True, slots=True)
class Look:
    """A look-around: a condition on a place, which reads nothing.

    The item matches a text that begins there, or with `behind` one that ends there; with `negative` it matches none.
    """

    item: Node
    behind: bool
    negative: bool


@dataclass(frozen=True, slots=True)
class AtomicGroup:
    """The first match of the item that backtracking finds at a place."""

    item: Node


EMPTY = Concat(())


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


def word_boundary(word: CharSet, at_boundary: bool, *, in_empty_text: bool = True) -> Node:
    """A place where a word begins or ends, or any other place.

    word           the characters of words
    in_empty_text  whether the place in an empty text is one of the others
    """
    inside = {behind: Look(Chars(word), behind, negative=False) for behind in (True, False)}
    outside = {behind: Look(Chars(word), behind, negative=True) for behind in (True, False)}
    if at_boundary:
        return alternation([concat([inside[True], outside[False]]), concat([outside[True], inside[False]])])
    between = [concat([outside[True], outside[False]])]
    if not in_empty_text:
        # Some character is there, on one side or the other.
        other = charset_complement(word)
        between = [
            concat([outside[not behind], Look(Chars(other), behind, negative=False)]) for behind in (True, False)
        ]
    return alternation([concat([inside[True], inside[False]]), *between])


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


def has_condition(node: Node) -> bool:
    """Whether the tree holds an anchor, a look-around or an atomic group."""
    if isinstance(node, Concat | Alternation):
        return any(map(has_condition, node.items))
    return has_condition(node.item) if isinstance(node, Repeat) else isinstance(node, Anchor | Look | AtomicGroup)


def leaves_of(node: Node) -> Iterator[Chars | Words | Anchor]:
    """The nodes of a tree without nodes below them, left to right."""
    if isinstance(node, Chars | Words | Anchor):
        yield node
    else:
        for item in (node.item,) if isinstance(node, Repeat | Look | AtomicGroup) else node.items:
            yield from leaves_of(item)
