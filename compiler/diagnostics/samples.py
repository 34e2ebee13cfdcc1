"""Accepted texts of an automaton, for people to read: a shortest one and random ones.

A walk goes from symbol to symbol (bytes, or labels) and never takes one after which the end is out of reach, so every
walk arrives. Which symbols people like to read is a table here; what they must be is the automaton's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import ResourceGuard

STEPS_MAX = 4_096  # of a shown text: bytes or labels
_SPARE = (8, 24, 48, 80)  # steps that a random text may have more than the shortest
_DRAWS_PER_TEXT = 8
_KEPT_ROWS_MAX = 4_096
_FILLER = 0.45  # how often a walk does not head for the end
_ANOTHER = 0.5  # how often a text goes on where it may end
_TRIES = 3  # words that are tried for a place
_WORDS = (
    b"the", b"a", b"small", b"red", b"old", b"dog", b"cat", b"house", b"tree", b"walks", b"sees", b"finds", b"and",
    b"with", b"near", b"under", b"over", b"today", b"very", b"good",
)  # fmt: skip
_INNER = range(0x80, 0xC0)  # bytes inside a UTF-8 character
_LETTERS = "etaoinshrdlcumwfgypbvkjxqz"


def _weights() -> np.ndarray:
    """How much people like to read each byte: float [256]. Bytes within a character are all alike."""
    weight = np.full(256, 1e-9)
    for low, high, value in ((0xC3, 0xE0, 1e-6), (0xE1, 0xF0, 1e-7), (0xF0, 0xF1, 1e-8), (0x21, 0x7F, 1e-3)):
        weight[low:high] = value
    liked = (("0123456789", 0.5), (_LETTERS.upper(), 2e-2), (",.", 3e-2), ("!?", 1e-2), (" ", 3.0), ('\\"', 1e-4))
    for characters, value in liked:
        weight[list(characters.encode())] = value
    weight[list(_LETTERS.encode())] = np.linspace(2.0, 0.5, len(_LETTERS))
    weight[ord("\n")] = 1e-6
    weight[list(_INNER)] = 1.0
    return weight


class _Row(NamedTuple):
    """What each symbol does from one state: the state after it, and the fewest steps from there, EOS among them."""

    after: np.ndarray
    to_go: np.ndarray


class _Place(NamedTuple):
    """Where a search is: a state, how many steps it took, the place before and the symbol that led on from there."""

    state: int
    steps: int
    before: _Place | None
    symbol: int

    def word(self) -> tuple[int, ...]:
        """The symbols from the start to here."""
        symbols, place = list[int](), self
        while place.before is not None:
            symbols.append(place.symbol)
            place = place.before
        return tuple(reversed(symbols))


def _is_letter(byte: int) -> bool:
    """Whether a byte is a letter or digit of ASCII."""
    return bytes((byte,)).isalnum()


class TextSampler:
    """Walks from `start` over the symbols 0..n-1 of an automaton whose EOS is the id n.

    spelled  whether the symbols are bytes, which are not all equally good to read
    """

    def __init__(self, automaton: TokenAutomaton, start: int, spelled: bool, guard: ResourceGuard) -> None:
        self._automaton, self._start, self._spelled, self._guard = automaton, start, spelled, guard
        self._symbols = automaton.eos_ids[0]
        self._weight = _weights() if spelled else np.ones(self._symbols)
        liked = np.argsort(-self._weight, kind="stable")
        self._rank = np.empty(self._symbols, dtype=np.int64)
        self._rank[liked] = np.arange(self._symbols)
        self._rows: dict[int, _Row] = {}

    @property
    def least_steps(self) -> int:
        """Steps of a shortest accepted word, without EOS; of a large number where there is none."""
        return self._to_go(self._start) - 1

    def shortest(self) -> tuple[int, ...]:
        """A shortest accepted word; of several the most readable, compared from the first symbol on."""
        state, word = self._start, list[int]()
        for left in range(self.least_steps, 0, -1):
            row = self._row(state)
            allowed = np.flatnonzero(row.to_go == left)
            word.append(int(allowed[np.argmin(self._rank[allowed])]))
            state = int(row.after[word[-1]])
        return tuple(word)

    def different(self, count: int, seed: int) -> tuple[tuple[int, ...], ...]:
        """Random accepted words, no two alike; fewer than `count` where there are fewer as long as they may be."""
        draw = random.Random(seed)
        found: dict[tuple[int, ...], None] = {}
        for number in range(_DRAWS_PER_TEXT * count):
            if len(found) == count:
                break
            spare = _SPARE[number % len(_SPARE)]
            found.setdefault(self._random(draw, self.least_steps + spare))
        if len(found) < count:
            for word in self._in_order(self.least_steps + max(_SPARE)):
                found.setdefault(word)
                if len(found) == count:
                    break
        return tuple(found)

    def _random(self, draw: random.Random, longest: int) -> tuple[int, ...]:
        state, word, heading = self._start, list[int](), False
        while self._to_go(state) > 1 or (len(word) < longest and draw.random() < _ANOTHER):
            self._guard.check_time()
            left = longest - len(word)
            heading = heading and self._spelled and _is_letter(word[-1]) and self._goes_on(state)
            if self._inside_character(state):
                piece = self._one(draw, state, left)
            elif self._to_go(state) > 1 and (heading or draw.random() > _FILLER):
                whole = [] if heading else self._fitting_word(draw, state, word, self._to_go(state) - 1)
                piece, heading = whole or self._nearer(draw, state), not whole
            else:
                piece, heading = self._filler(draw, state, word, left), False
            if not piece:  # nothing may follow, or not within what is left
                if self._to_go(state) == 1:
                    break
                piece = self._nearer(draw, state)
            for symbol in piece:
                state = int(self._row(state).after[symbol])
            word.extend(piece)
        return tuple(word)

    def _inside_character(self, state: int) -> bool:
        return state // self._automaton.letter_states >= len(self._automaton.edge_boundary)

    def _goes_on(self, state: int) -> bool:
        """Whether a letter leads nearer to the end, so that the word under way is not finished."""
        row = self._row(state)
        return any(_is_letter(int(symbol)) for symbol in np.flatnonzero(row.to_go == self._to_go(state) - 1))

    def _nearer(self, draw: random.Random, state: int) -> list[int]:
        return self._drawn(draw, np.flatnonzero(self._row(state).to_go == self._to_go(state) - 1))

    def _one(self, draw: random.Random, state: int, left: int) -> list[int]:
        """Any symbol after which the end is within reach."""
        return self._drawn(draw, np.flatnonzero(self._row(state).to_go <= left))

    def _filler(self, draw: random.Random, state: int, word: list[int], left: int) -> list[int]:
        """A filler word that the constraint allows here; else any symbol.

        A space separates the word from a word before it. Returns nothing where every symbol would look odd.
        """
        if not self._spelled:
            return self._one(draw, state, left)
        piece = self._fitting_word(draw, state, word, left)
        if piece:
            return piece
        allowed = np.flatnonzero(self._row(state).to_go <= left)
        after_letter = bool(word) and _is_letter(word[-1])
        if after_letter and ord(" ") in allowed:  # the word is complete
            allowed = allowed[[not _is_letter(symbol) for symbol in allowed.tolist()]]
        if self._to_go(state) == 1 and word:  # it is complete without what is no letter
            allowed = allowed[[_is_letter(symbol) and after_letter for symbol in allowed.tolist()]]
        return self._drawn(draw, allowed)

    def _fitting_word(self, draw: random.Random, state: int, word: list[int], left: int) -> list[int]:
        """A word that may stand here, so that the end is at most `left` steps away from here; none where none may."""
        if not self._spelled:
            return []
        apart = b" " if word and _is_letter(word[-1]) else b""
        pieces = (apart + piece for piece in draw.sample(_WORDS, _TRIES))
        return next((list(piece) for piece in pieces if self._fits(state, piece, left)), [])

    def _fits(self, state: int, piece: bytes, left: int) -> bool:
        for symbol in piece:
            row = self._row(state)
            if row.to_go[symbol] == UNREACHABLE:
                return False
            state = int(row.after[symbol])
        return self._to_go(state) - 1 <= left - len(piece)

    def _drawn(self, draw: random.Random, allowed: np.ndarray) -> list[int]:
        if not allowed.size:
            return []
        return draw.choices(allowed.tolist(), self._weight[allowed].tolist())

    def _in_order(self, longest: int) -> Iterator[tuple[int, ...]]:
        """All accepted words of at most `longest` steps, the most readable first.

        Words are compared symbol by symbol, by the rank of each symbol.
        """
        pending = [_Place(self._start, 0, None, 0)]
        while pending:
            self._guard.check_time()
            place = pending.pop()
            if self._to_go(place.state) == 1:
                yield place.word()
            row = self._row(place.state)
            allowed = np.flatnonzero(row.to_go <= longest - place.steps)
            ordered = allowed[np.argsort(-self._rank[allowed])].tolist()
            pending.extend(_Place(int(row.after[symbol]), place.steps + 1, place, symbol) for symbol in ordered)

    def _to_go(self, state: int) -> int:
        return int(self._automaton.distance[state])

    def _row(self, state: int) -> _Row:
        row = self._rows.get(state)
        if row is None:
            if len(self._rows) == _KEPT_ROWS_MAX:
                self._rows.clear()
            self._guard.check_time()
            after = self._automaton.successors(state)[self._automaton.token_class[: self._symbols]]
            row = self._rows[state] = _Row(after, self._automaton.distance[after])
        return row
