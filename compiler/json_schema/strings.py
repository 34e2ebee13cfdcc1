"""The characters that a schema tells apart, and the automata over the contents of its strings.

Every ASCII character is a symbol of its own, for JSON's grammar needs most of them; beyond ASCII, characters that no
pattern, name or constant tells apart share one. Knows nothing of JSON's grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np

from compiler.automata import (
    ANYTHING,
    NO_MINTERM,
    CharDfa,
    Dfa,
    char_complement,
    char_intersection,
    common_minterms,
    minterms,
    single,
)
from compiler.errors import SpecSyntaxError
from compiler.json_schema.formats import EXCEPT, FORMATS
from compiler.json_schema.fragments import Fragment, block_of, trie
from compiler.json_schema.nodes import Schema, StringFacts
from compiler.limits import Limits, ResourceGuard
from compiler.regex import (
    Alternation,
    Anchor,
    Chars,
    Concat,
    Node,
    Repeat,
    blame_field,
    concat,
    determinize,
    node_nfa,
    parse_pattern,
    pattern_dfa,
)

ASCII = 128
Embed = Callable[[object, str], CharDfa]
_ANY_TEXT = Repeat(Chars(ANYTHING), 0, None)


class StringAlphabet:
    """The symbols of one schema, and the contents of its strings as blocks over them. M symbols.

    minterms  symbol i is the ASCII character i for i < 128
    Raises what parsing a pattern and `embed` raise, and LimitExceeded.
    """

    def __init__(self, nodes: Iterable[Schema], embed: Embed, guard: ResourceGuard) -> None:
        self._guard = guard
        self._parts: dict[object, CharDfa] = {}
        literals: set[str] = set()
        for node in nodes:
            literals.update(*_literals(node))
            self._read(node, embed)
        codes = sorted({*range(ASCII), *map(ord, "".join(literals))})
        whole = minterms([single(code) for code in codes])
        families = [whole, *(part.minterms for part in self._parts.values())]
        self.minterms, own = common_minterms(families)
        self.width = self.minterms.count
        self._own = dict(zip(self._parts, own[1:], strict=True))
        self._blocks: dict[object, Fragment | None] = {}

    def _read(self, node: Schema, embed: Embed) -> None:
        strings = node.strings or StringFacts()
        objects = node.objects
        patterns = [*strings.patterns, *((text, field) for text, field, _ in (objects.patterns if objects else ()))]
        for pattern, field in patterns:
            if ("pattern", pattern) not in self._parts:
                with blame_field(field):
                    self._parts["pattern", pattern] = _searched(pattern, self._guard)
        for name in strings.formats:
            self._parts["format", name] = _format(name)
        for value, field in strings.constraints:
            self._parts["constraint", id(value)] = embed(value, field)

    def word(self, text: str) -> list[int]:
        """The symbol of each character. Raises SpecSyntaxError for half a surrogate pair, which no text holds."""
        word = self.minterms.word(text)
        if NO_MINTERM in word:
            raise SpecSyntaxError("a string of the schema holds half a surrogate pair")
        return word

    def content(self, kind: str, name: str | int) -> Fragment | None:
        """The strings of a `pattern`, a `format` or, by its value's id, a `constraint`; None where there are none."""
        key = (kind, name)
        if key not in self._blocks:
            dfa = self._parts[key].dfa
            wide = Dfa(dfa.symbol_class[self._own[key]], dfa.next_state, dfa.accepting, dfa.start)
            self._blocks[key] = block_of(wide)
        return self._blocks[key]

    def matches(self, pattern: str, text: str) -> bool:
        """True when a pattern is found in the text."""
        return self._parts["pattern", pattern].accepts(text)

    def texts(self, texts: Iterable[str]) -> Fragment | None:
        """Exactly these texts."""
        return trie([self.word(text) for text in texts], self.width, self._guard)

    def lengths(self, minimum: int, maximum: int | None) -> Fragment | None:
        """The texts of `minimum` to `maximum` characters."""
        if maximum is not None and maximum < minimum:
            return None
        last = minimum if maximum is None else maximum
        self._guard.check("dfa_states_max", last)
        self._guard.check("table_bytes_max", (last + 2) * np.dtype(np.int32).itemsize)
        following = np.arange(2, last + 3, dtype=np.int32)
        following[-1] = last + 1 if maximum is None else 0
        table = np.zeros((last + 2, 1), dtype=np.int32)
        table[1:] = following[:, None]
        label = np.zeros(last + 2, dtype=np.int32)
        label[1 + minimum :] = 1
        return Fragment(np.zeros(self.width, dtype=np.int32), table, label)


def _literals(node: Schema) -> list[str]:
    """Every text of a node that is written character by character."""
    texts = [value for value in node.values or () if isinstance(value, str)]
    return texts + [name for name in node.order if isinstance(name, str)]


def _searched(pattern: str, guard: ResourceGuard) -> CharDfa:
    """The texts in which a pattern is found; `$` is the very end."""
    tree = concat([_ANY_TEXT, _at_the_end(parse_pattern(pattern, guard)), _ANY_TEXT])
    return CharDfa(*determinize(node_nfa(tree, guard), guard))


def _at_the_end(node: Node) -> Node:
    """The same tree, with `$` not before a newline that ends the text."""
    if isinstance(node, Concat):
        return Concat(tuple(map(_at_the_end, node.items)))
    if isinstance(node, Alternation):
        return Alternation(tuple(map(_at_the_end, node.items)))
    if isinstance(node, Repeat):
        return Repeat(_at_the_end(node.item), node.minimum, node.maximum)
    return Anchor("end") if node == Anchor("final") else node


@lru_cache(maxsize=len(FORMATS))
def _format(name: str) -> CharDfa:
    """The texts of a format. Its pattern is ours, so no caller's limits apply."""
    guard = ResourceGuard(Limits(pattern_chars_max=100_000))
    allowed = CharDfa(*pattern_dfa(FORMATS[name], guard))
    if name not in EXCEPT:
        return allowed
    return char_intersection([allowed, char_complement(CharDfa(*pattern_dfa(EXCEPT[name], guard)))], guard)
