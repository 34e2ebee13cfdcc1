"""The alphabet of a schema, and automata over its strings' contents. This module knows no JSON grammar.

Every ASCII character is a symbol of its own, since JSON's grammar needs most of them. Beyond ASCII, characters that no
pattern, name or constant tells apart share a symbol.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

import numpy as np

from compiler.automata import (
    ANYTHING,
    NO_MINTERM,
    CharDfa,
    Dfa,
    Minterms,
    char_complement,
    char_intersection,
    common_minterms,
    minterms,
    single,
    words_dfa,
)
from compiler.errors import SpecSyntaxError
from compiler.json_schema.formats import EXCEPT, FORMATS, short_pattern
from compiler.json_schema.fragments import DEAD, ENTRY_BYTES, ESCAPES, START, Fragment, fragment_of
from compiler.json_schema.nodes import EmbeddedConstraint, Schema, StringFacts
from compiler.limits import Limits, ResourceGuard
from compiler.regex import (
    Anchor,
    Chars,
    Concat,
    Repeat,
    blame_field,
    concat,
    node_to_dfa,
    parse_ecmascript,
    pattern_dfa,
)

ASCII = 128
Embed = Callable[[object, str], CharDfa]
# ("pattern", its text), ("format", its name), ("short format", its name), or a constraint
ContentKey = tuple[str, str] | EmbeddedConstraint
_ANY_TEXT = Repeat(Chars(ANYTHING), 0, None)


class StringAlphabet:
    """The symbols of one schema, and its strings' contents as fragments.

    minterms  sets of characters; symbol i is minterm i, and the ASCII character i for i < 128
    width     the number of symbols
    escapes   the escapes that are written
    Raises what parsing a pattern and `embed` raise, and LimitExceeded.
    """

    def __init__(self, nodes: Iterable[Schema], embed: Embed, guard: ResourceGuard, *, shortens: bool = True) -> None:
        """shortens: whether control characters of long escapes are left out.

        Those are written all the same that no other character can stand for.
        """
        self._guard = guard
        # Automata over characters first: their minterms decide the alphabet.
        self._contents: dict[ContentKey, CharDfa] = {}
        literals: set[str] = set()
        for node in nodes:
            literals.update(*_literals(node))
            self._compile_contents(node, embed)
        # A symbol must lie within one minterm of each automaton, and each literal character must have its own.
        beyond = frozenset(char for char in "".join(literals) if ord(char) >= ASCII)
        families = [_single_minterms(beyond), *self._content_minterms()]
        self.minterms, symbols = common_minterms(families) if self._contents else (families[0], [])
        self.width = self.minterms.count
        self.escapes = self._short_escapes(literals) if shortens else dict(ESCAPES)
        self.symbol_sizes = self.minterms.sizes()
        # For each automaton, the symbol of its own that each symbol of the schema is: int64 [width].
        self._symbols = dict(zip(self._contents, symbols[1:], strict=True))
        self._fragments: dict[ContentKey, Fragment | None] = {}

    def _short_escapes(self, literals: Iterable[str]) -> dict[str, int]:
        needed = set[str]().union(*literals)
        if self._contents:
            parts = common_minterms(self._content_minterms())[0]
            printable = {int(parts.of(np.array([ord(" ")]))[0]), *parts.cell[parts.cuts > ord(" ")].tolist()}
            controls = enumerate(parts.of(np.arange(ord(" "))).tolist())
            needed |= {chr(code) for code, part in controls if part not in printable}
        return {text: code for text, code in ESCAPES.items() if len(text) == 1 or chr(code) in needed}

    def _content_minterms(self) -> list[Minterms]:
        return [content.minterms for content in self._contents.values()]

    def _compile_contents(self, node: Schema, embed: Embed) -> None:
        """Compile a node's conditions on strings and keys. Each pattern and format is compiled once."""
        strings = node.strings or StringFacts()
        objects = node.objects
        patterns = [*strings.patterns, *((text, field) for text, field, _ in (objects.patterns if objects else ()))]
        for pattern, field in patterns:
            if ("pattern", pattern) not in self._contents:
                with blame_field(field):
                    self._contents["pattern", pattern] = search_dfa(pattern, self._guard)
        for name in strings.formats:
            self._contents["format", name] = format_dfa(FORMATS[name], name)
            if short_pattern(name) != FORMATS[name]:
                self._contents["short format", name] = format_dfa(short_pattern(name), name)
        for constraint in strings.constraints:
            self._contents[constraint] = embed(constraint.value, constraint.field)

    def word(self, text: str) -> list[int]:
        """The symbol of each character. Raises SpecSyntaxError for half a surrogate pair, which no text holds."""
        word = self.minterms.word(text)
        if NO_MINTERM in word:
            raise SpecSyntaxError("a string of the schema holds half a surrogate pair")
        return word

    def content(self, key: ContentKey) -> Fragment | None:
        """The strings of a pattern, a format or a constraint. None where there are none."""
        if key not in self._fragments:
            dfa = self._contents[key].dfa
            # Only the map from symbols to columns changes; the table is shared.
            self._fragments[key] = fragment_of(
                Dfa(dfa.symbol_class[self._symbols[key]], dfa.next_state, dfa.accepting, dfa.start)
            )
        return self._fragments[key]

    def short_key(self, key: ContentKey, *, counted: bool) -> ContentKey:
        """The key of a format's short form. Other keys stay.

        counted  whether the strings have a maximum. Only regexes have a short form without one
        """
        if isinstance(key, tuple) and key[0] == "format" and (counted or key[1] == "regex"):
            short = ("short format", key[1])
            return short if short in self._contents else key
        return key

    def matches(self, pattern: str, text: str) -> bool:
        """True when a pattern is found in the text."""
        return self._contents["pattern", pattern].accepts(text)

    def texts(self, texts: Collection[str], states: ResourceGuard | None = None) -> Fragment | None:
        """Exactly these texts. `states` limits the number of states, which else their length bounds."""
        return fragment_of(self.texts_dfa(texts, states))

    def texts_dfa(self, texts: Collection[str], states: ResourceGuard | None = None) -> Dfa:
        """The minimal DFA of exactly these texts, in canonical form."""
        characters = "".join(sorted(set().union(*texts)))
        symbol = dict(zip(characters, self.word(characters), strict=True))
        words = (map(symbol.__getitem__, text) for text in texts)
        return words_dfa(words, self.width, states or self._guard, counts_states=states is not None)

    def listed(self, content: Fragment, texts_max: int) -> list[str] | None:
        """The texts of a content, shortest first. None where there are more than `texts_max`.

        content  a fragment in which every state leads to a text
        """
        texts, beginnings = list[str](), [("", START)]
        while beginnings:
            # Each beginning leads to texts of its own. One with more characters than states passes a state twice.
            if len(texts) + len(beginnings) > texts_max or len(beginnings[0][0]) > content.states:
                return None
            texts += [text for text, state in beginnings if content.label[state]]
            longer = list[tuple[str, int]]()
            for text, state in beginnings:
                following = content.table[state][content.columns]
                symbols = np.flatnonzero(following)
                if self.symbol_sizes[symbols].sum() > texts_max:
                    return None
                for symbol in symbols.tolist():
                    codes = (code for span in self.minterms.charset([symbol]) for code in range(*span))
                    longer += [(text + chr(code), int(following[symbol])) for code in codes]
            beginnings = longer
        return texts

    def lengths(self, minimum: int, maximum: int | None) -> Fragment | None:
        """The texts of `minimum` to `maximum` characters."""
        # Contradictory bounds are allowed, and nothing fits them.
        if maximum is not None and maximum < minimum:
            return None
        # State START + n has read n characters; with no maximum the last state has read that many or more.
        last = minimum if maximum is None else maximum
        self._guard.check("dfa_states_max", last)
        self._guard.check("table_bytes_max", (START + last + 1) * ENTRY_BYTES)
        following = np.arange(START + 1, START + last + 2, dtype=np.int32)
        following[-1] = START + last if maximum is None else DEAD
        table = np.zeros((START + last + 1, 1), dtype=np.int32)  # one column: all characters count alike
        table[START:] = following[:, None]
        label = np.zeros(len(table), dtype=np.int32)
        label[START + minimum :] = 1
        return Fragment(np.zeros(self.width, dtype=np.int32), table, label)


@dataclass(frozen=True, slots=True, eq=False)
class FiniteLanguage:
    """Texts that are listed, each once. They become an automaton on demand."""

    texts: tuple[str, ...]
    alphabet: StringAlphabet

    @classmethod
    def of(cls, texts: Iterable[str], alphabet: StringAlphabet) -> FiniteLanguage:
        """Raises SpecSyntaxError as `StringAlphabet.word`."""
        listed = tuple(dict.fromkeys(texts))
        alphabet.word("".join(sorted(set().union(*listed))))
        return cls(listed, alphabet)

    def fragment(self) -> Fragment | None:
        """Exactly these texts."""
        return self.alphabet.texts(self.texts)

    def union(self, other: FiniteLanguage) -> FiniteLanguage:
        """The texts of both."""
        return replace(self, texts=tuple(dict.fromkeys((*self.texts, *other.texts))))

    def part(self, other: Fragment | FiniteLanguage, *, inside: bool) -> FiniteLanguage:
        """The texts that another language has, or those that it does not."""
        if isinstance(other, FiniteLanguage):
            accepted = set(other.texts)
            return replace(self, texts=tuple(text for text in self.texts if (text in accepted) == inside))
        symbol = {char: self.alphabet.word(char)[0] for char in set().union(*self.texts)}
        return replace(
            self, texts=tuple(text for text in self.texts if bool(other.run([symbol[c] for c in text])) == inside)
        )

    def without(self, char: str) -> FiniteLanguage:
        """The texts that do not hold a character."""
        return replace(self, texts=tuple(text for text in self.texts if char not in text))


@lru_cache(maxsize=64)
def _single_minterms(characters: frozenset[str]) -> Minterms:
    """Each ASCII character and each of these alone, all others together."""
    return minterms([single(code) for code in sorted({*range(ASCII), *map(ord, characters)})])


def _literals(node: Schema) -> list[str]:
    """The texts of a node that are written character by character. These are constants and property names."""
    texts = [value for value in node.values or () if isinstance(value, str)]
    return texts + [name for name in node.order if isinstance(name, str)]


def search_dfa(pattern: str, guard: ResourceGuard) -> CharDfa:
    """The texts that contain a match of the pattern."""
    # JSON Schema searches for a pattern: text may stand before and behind it.
    tree = parse_ecmascript(pattern, guard)
    items = [*tree.items] if isinstance(tree, Concat) else [tree]
    items = items[1:] if items[:1] == [Anchor("start")] else [_ANY_TEXT, *items]
    items = items[:-1] if items[-1:] == [Anchor("end")] else [*items, _ANY_TEXT]
    return CharDfa(*node_to_dfa(concat(items), guard))


@lru_cache(maxsize=2 * len(FORMATS))
def format_dfa(pattern: str, name: str) -> CharDfa:
    """The texts of a format. Its pattern is part of the program, so the caller's limits do not apply."""
    guard = ResourceGuard(Limits(pattern_chars_max=100_000, compile_s_max=inf))
    # Cached for the life of the process, since a format means the same in all schemas.
    allowed = CharDfa(*pattern_dfa(pattern, guard))
    if name not in EXCEPT:
        return allowed
    return char_intersection([allowed, char_complement(CharDfa(*pattern_dfa(EXCEPT[name], guard)))], guard)
