"""Decides by the definition whether tokens are a text of a sequence. Also random parts.

Every way to divide the text is tried. Shares only the types of the parts with the compiler.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from compiler.spec import (
    AnyPart,
    CapturePart,
    FreePart,
    OptionalPart,
    Part,
    RepeatPart,
    SequencePart,
    SequenceSpec,
    Spec,
    TextPart,
    TokenPart,
)


@dataclass(frozen=True, slots=True)
class Atom:
    """A character, or a named token. It has the first and the last token that write it."""

    text: str
    named: bool = False
    first: int = 0
    last: int = 0


def atoms_of_text(text: str) -> list[Atom]:
    """A text whose tokens are not known."""
    return [Atom(character) for character in text]


def atoms_of_tokens(pieces: Sequence[bytes | str]) -> list[Atom] | None:
    """Tokens, of which named ones are strings. None where the bytes are no text."""
    atoms, pending, first = list[Atom](), b"", 0
    for number, piece in enumerate(pieces):
        if isinstance(piece, str):
            if pending:
                return None
            atoms.append(Atom(piece, True, number, number))
            continue
        for byte in piece:
            first = first if pending else number
            pending += bytes([byte])
            try:
                atoms.append(Atom(pending.decode(), False, first, number))
                pending = b""
            except UnicodeDecodeError:
                if len(pending) > 4:
                    return None
    return None if pending else atoms


class Matcher:
    """Divides one text.

    by_tokens  whether the tokens are known; otherwise budgets may end anywhere, and named tokens are their names
    satisfies  whether a text satisfies a constraint of its own
    """

    def __init__(self, atoms: Sequence[Atom], by_tokens: bool, satisfies: Callable[[Spec, str], bool]) -> None:
        self._atoms, self._by_tokens, self._satisfies = atoms, by_tokens, satisfies
        self.ends = cache(self._ends)

    def matches(self, part: Part) -> bool:
        """Whether the whole is a text of the part."""
        return len(self._atoms) in self.ends(part, 0)

    def _ends(self, part: Part, begin: int) -> frozenset[int]:
        match part:
            case str():
                return self._literal(part, begin)
            case TokenPart():
                if not self._by_tokens:
                    return self._literal(part.name, begin)
                atom = self._atoms[begin] if begin < len(self._atoms) else Atom("")
                return frozenset({begin + 1} if atom.named and atom.text == part.name else ())
            case FreePart():
                return frozenset(self._free(part, begin))
            case TextPart():
                texts = ((end, self._text(begin, end)) for end in range(begin, len(self._atoms) + 1))
                return frozenset(end for end, text in texts if text is not None and self._satisfies(part.spec, text))
            case OptionalPart():
                return self.ends(part.part, begin) | {begin}
            case CapturePart():
                return self.ends(part.part, begin)
            case AnyPart():
                return frozenset().union(*(self.ends(each, begin) for each in part.parts))
            case SequencePart():
                ends = frozenset({begin})
                for each in part.parts:
                    ends = self._after(ends, each)
                return ends
            case RepeatPart():
                return self._repeated(part, begin)

    def _after(self, begins: frozenset[int], part: Part) -> frozenset[int]:
        return frozenset[int]().union(*(self.ends(part, begin) for begin in begins))

    def _repeated(self, part: RepeatPart, begin: int) -> frozenset[int]:
        found, ends, count = set[int](), frozenset({begin}), 0
        seen = set[tuple[int, frozenset[int]]]()
        while ends and (part.maximum is None or count <= part.maximum):
            if count >= part.minimum:
                found |= ends
            state = (min(count, max(part.minimum, 1)), ends)
            if part.maximum is None and state in seen:
                break
            seen.add(state)
            if count and part.separator is not None:
                ends = self._after(ends, part.separator)
            ends, count = self._after(ends, part.part), count + 1
        return frozenset(found)

    def _text(self, begin: int, end: int) -> str | None:
        atoms = self._atoms[begin:end]
        return None if any(atom.named for atom in atoms) else "".join(atom.text for atom in atoms)

    def _literal(self, text: str, begin: int) -> frozenset[int]:
        end = begin + len(text)
        return frozenset({end} if self._text(begin, end) == text else ())

    def _free(self, part: FreePart, begin: int) -> Iterator[int]:
        for end in range(begin, len(self._atoms) + 1):
            text = self._text(begin, end)
            if text is None or any(word in text for word in part.without):
                return
            if part.max_chars is not None and len(text) > part.max_chars:
                return
            stopped = any(text.endswith(word) for word in part.until)
            tokens, spent = self._tokens(begin, end)
            if self._by_tokens and part.max_tokens is not None:
                if tokens > part.max_tokens:
                    return
                spent = spent and tokens == part.max_tokens
            else:
                spent = part.max_tokens is not None and end > begin
            if stopped or spent or not part.until:
                yield end
            if stopped:
                return

    def _tokens(self, begin: int, end: int) -> tuple[int, bool]:
        """How many tokens write some of these atoms.

        The second value is whether the last one ends with them.
        """
        if begin == end:
            return 0, False
        last = self._atoms[end - 1].last
        return last - self._atoms[begin].first + 1, end == len(self._atoms) or self._atoms[end].first > last


def random_part(draw: random.Random, depth: int, leaf: Callable[[], Part]) -> Part:
    """A part of a sequence. `leaf` makes those without parts inside."""
    if depth == 0 or draw.random() < 0.35:
        return leaf()
    below = partial(random_part, draw, depth - 1, leaf)
    match draw.randrange(5):
        case 0:
            return OptionalPart(below())
        case 1:
            low = draw.randint(0, 2)
            high = draw.choice((None, low + draw.randint(0, 2)))
            return RepeatPart(below(), low, high, below() if draw.random() < 0.5 else None)
        case 2:
            return AnyPart(tuple(below() for _ in range(draw.randint(1, 3))))
        case 3:
            return CapturePart("c", below())
        case _:
            return SequencePart(tuple(below() for _ in range(draw.randint(1, 3))))


def random_free(draw: random.Random) -> FreePart:
    """Free text without a budget."""
    stops = ("a", "b", ".", "ab", "a.", "aa", "é")
    until = draw.sample(stops, draw.randint(0, 2))
    without = draw.sample(stops, draw.choice((0, 0, 1)))
    return FreePart(tuple(until), tuple(without), None, draw.choice((None, None, 1, 2, 3)))


def spec_without_captures(spec: SequenceSpec) -> SequenceSpec:
    """The sequence without captures, which may stand under a negation."""

    def without(part: Part) -> Part:
        match part:
            case CapturePart():
                return without(part.part)
            case OptionalPart():
                return OptionalPart(without(part.part))
            case RepeatPart():
                separator = None if part.separator is None else without(part.separator)
                return replace(part, part=without(part.part), separator=separator)
            case AnyPart() | SequencePart():
                return replace(part, parts=tuple(map(without, part.parts)))
            case _:
                return part

    root = without(spec.root)
    assert isinstance(root, SequencePart)
    return replace(spec, root=root)
