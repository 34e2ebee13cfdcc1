"""Samples of the accepted texts of an automaton. There is a shortest one and random ones, as readable as the automaton
allows.

A walk goes from symbol to symbol (bytes or labels) and never takes a symbol after which the end is out of reach, so
every walk ends. Weights of bytes and a list of words make the texts readable.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain, cycle, islice
from typing import NamedTuple, TypeAlias

import numpy as np

from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import ResourceGuard
from compiler.products import ProductStates
from compiler.pushdown import Configurations

STEPS_MAX = 4_096  # of a shown text: bytes or labels
_EXTRA_STEPS = (8, 24, 48, 80)  # steps that a random text may have more than the shortest
_DRAWS_PER_TEXT = 8
_CACHED_ROWS_MAX = 4_096
_PADDING_SHARE = 0.45  # of the steps of a walk that do not lead nearer to the end
_LONGER_SHARE = 0.5  # of the places where a text may end and goes on
_WORDS_TRIED = 3  # in one place
_WORDS = (
    b"the", b"a", b"small", b"red", b"old", b"dog", b"cat", b"house", b"tree", b"walks", b"sees", b"finds", b"and",
    b"with", b"near", b"under", b"over", b"today", b"very", b"good",
)  # fmt: skip
_INNER = range(0x80, 0xC0)  # bytes inside a UTF-8 character
_Automaton: TypeAlias = TokenAutomaton | Configurations | ProductStates
_LETTERS = "etaoinshrdlcumwfgypbvkjxqz"  # by their frequency in English


def _weights() -> np.ndarray:
    """The weight of each byte in random choices: float [256]. Bytes inside a character have one weight."""
    weight = np.full(256, 1e-9)
    # Lead bytes of Latin letters before those of other scripts, and these before emoji.
    for low, high, value in ((0xC3, 0xE0, 1e-6), (0xE1, 0xF0, 1e-7), (0xF0, 0xF1, 1e-8), (0x21, 0x7F, 1e-3)):
        weight[low:high] = value
    by_weight = (("0123456789", 0.5), (_LETTERS.upper(), 2e-2), (",.", 3e-2), ("!?", 1e-2), (" ", 3.0), ('\\"', 1e-4))
    for characters, value in by_weight:
        weight[list(characters.encode())] = value
    weight[list(_LETTERS.encode())] = np.linspace(2.0, 0.5, len(_LETTERS))
    weight[ord("\n")] = 1e-6
    # The lead byte has been chosen by its weight; what follows it completes the character.
    weight[list(_INNER)] = 1.0
    return weight


class _Row(NamedTuple):
    """The transitions of one state.

    after       the state after a symbol
    steps_left  int [n]: the fewest steps from there to the end, EOS included
    """

    after: Callable[[int], int]
    steps_left: np.ndarray


class _SearchNode(NamedTuple):
    """A node of a search tree. It has a state, a depth, a parent and the symbol on the edge from there."""

    state: int
    steps: int
    parent: _SearchNode | None
    symbol: int

    def word(self) -> tuple[int, ...]:
        """The symbols from the start to here."""
        symbols, node = list[int](), self
        while node.parent is not None:
            symbols.append(node.symbol)
            node = node.parent
        return tuple(reversed(symbols))


def _is_letter(byte: int) -> bool:
    """True for a letter or digit of ASCII."""
    return bytes((byte,)).isalnum()


class TextSampler:
    """Samples accepted words of an automaton, from `start` on. Its symbols are 0..n-1, and EOS is the id n.

    over_bytes  True where the symbols are bytes, which get weights; labels are all alike
    Raises LimitExceeded over `compile_s_max` and CompileCancelled.
    """

    def __init__(self, automaton: _Automaton, start: int, over_bytes: bool, guard: ResourceGuard) -> None:
        self._automaton, self._start, self._over_bytes, self._guard = automaton, start, over_bytes, guard
        self._symbols = automaton.eos_ids[0]
        self._weight = _weights() if over_bytes else np.ones(self._symbols)
        by_weight = np.argsort(-self._weight, kind="stable")
        # int64 [n]: the place of each symbol, the heaviest first.
        self._rank = np.empty(self._symbols, dtype=np.int64)
        self._rank[by_weight] = np.arange(self._symbols)
        self._rows: dict[int, _Row] = {}

    @property
    def least_steps(self) -> int:
        """The length of a shortest accepted word, without EOS. At least UNREACHABLE - 1 where there is none."""
        return self._steps_left(self._start) - 1

    def shortest(self) -> tuple[int, ...]:
        """A shortest accepted word. Of several, it is the one whose first symbols have the highest weights."""
        state, word = self._start, list[int]()
        for left in range(self.least_steps, 0, -1):
            row = self._row(state)
            # A step of a shortest word is one after which one step less is left.
            allowed = np.flatnonzero(row.steps_left == left)
            word.append(int(allowed[np.argmin(self._rank[allowed])]))
            state = row.after(word[-1])
        return tuple(word)

    def different(self, count: int, seed: int) -> tuple[tuple[int, ...], ...]:
        """Random accepted words, no two alike. There are fewer than `count` where no more are short enough."""
        rng = random.Random(seed)
        # Words of several lengths are drawn in turn.
        lengths = islice(cycle(self.least_steps + extra for extra in _EXTRA_STEPS), _DRAWS_PER_TEXT * count)
        drawn = (self._random(rng, length) for length in lengths)
        words: dict[tuple[int, ...], None] = {}
        # Random draws repeat where there are few words: the rest is enumerated.
        for word in chain(drawn, self._in_order(self.least_steps + max(_EXTRA_STEPS))):
            words.setdefault(word)
            if len(words) == count:
                break
        return tuple(words)

    def _random(self, rng: random.Random, longest: int) -> tuple[int, ...]:
        """A random accepted word of at most `longest` steps.

        Each round adds a symbol or a word: one that leads nearer to the end, or padding.
        """
        state, word, finishing_word = self._start, list[int](), False
        while self._steps_left(state) > 1 or (len(word) < longest and rng.random() < _LONGER_SHARE):
            self._guard.check_time()
            left = longest - len(word)
            finishing_word = finishing_word and self._over_bytes and _is_letter(word[-1]) and self._goes_on(state)
            # A character is completed before words are considered.
            if self._inside_character(state):
                piece = self._any_symbol(rng, state, left)
            elif self._steps_left(state) > 1 and (finishing_word or rng.random() > _PADDING_SHARE):
                fitting = [] if finishing_word else self._fitting_word(rng, state, word, self._steps_left(state) - 1)
                piece, finishing_word = fitting or self._step_towards_end(rng, state), not fitting
            else:
                piece, finishing_word = self._padding_word(rng, state, word, left), False
            # No padding fits. A text that may end does; any other goes on to its end.
            if not piece:
                if self._steps_left(state) == 1:
                    break
                piece = self._step_towards_end(rng, state)
            for symbol in piece:
                state = self._row(state).after(symbol)
            word.extend(piece)
        return tuple(word)

    def _inside_character(self, state: int) -> bool:
        allowed = np.flatnonzero(self._row(state).steps_left != UNREACHABLE)
        return self._over_bytes and bool(allowed.size) and int(allowed[0]) in _INNER

    def _goes_on(self, state: int) -> bool:
        """True when a letter leads nearer to the end. The word in progress is then not complete."""
        row = self._row(state)
        return any(_is_letter(int(symbol)) for symbol in np.flatnonzero(row.steps_left == self._steps_left(state) - 1))

    def _step_towards_end(self, rng: random.Random, state: int) -> list[int]:
        return self._draw(rng, np.flatnonzero(self._row(state).steps_left == self._steps_left(state) - 1))

    def _any_symbol(self, rng: random.Random, state: int, left: int) -> list[int]:
        """Any symbol after which the end is within reach."""
        return self._draw(rng, np.flatnonzero(self._row(state).steps_left <= left))

    def _padding_word(self, rng: random.Random, state: int, word: list[int], left: int) -> list[int]:
        """A padding word that the constraint allows here.

        Otherwise it is any symbol, and empty where every symbol would look odd.
        """
        if not self._over_bytes:
            return self._any_symbol(rng, state, left)
        piece = self._fitting_word(rng, state, word, left)
        if piece:
            return piece
        allowed = np.flatnonzero(self._row(state).steps_left <= left)
        after_letter = bool(word) and _is_letter(word[-1])
        # A letter would prolong a word that may end here.
        if after_letter and ord(" ") in allowed:
            allowed = allowed[[not _is_letter(symbol) for symbol in allowed.tolist()]]
        # The text may end here: only letters that prolong its last word improve it.
        if self._steps_left(state) == 1 and word:
            allowed = allowed[[_is_letter(symbol) and after_letter for symbol in allowed.tolist()]]
        return self._draw(rng, allowed)

    def _fitting_word(self, rng: random.Random, state: int, word: list[int], left: int) -> list[int]:
        """A listed word after which `left` steps suffice to the end. Empty where there is none."""
        if not self._over_bytes:
            return []
        # A space separates the word from letters before it.
        separator = b" " if word and _is_letter(word[-1]) else b""
        pieces = (separator + piece for piece in rng.sample(_WORDS, _WORDS_TRIED))
        return next((list(piece) for piece in pieces if self._fits(state, piece, left)), [])

    def _fits(self, state: int, piece: bytes, left: int) -> bool:
        for symbol in piece:
            row = self._row(state)
            if row.steps_left[symbol] == UNREACHABLE:
                return False
            state = row.after(symbol)
        return self._steps_left(state) - 1 <= left - len(piece)

    def _draw(self, rng: random.Random, allowed: np.ndarray) -> list[int]:
        if not allowed.size:
            return []
        return rng.choices(allowed.tolist(), self._weight[allowed].tolist())

    def _in_order(self, longest: int) -> Iterator[tuple[int, ...]]:
        """All accepted words of at most `longest` steps, the most readable first. They are found by depth-first search.

        Words are compared symbol by symbol, by the rank of each symbol.
        """
        pending = [_SearchNode(self._start, 0, None, 0)]
        while pending:
            self._guard.check_time()
            node = pending.pop()
            if self._steps_left(node.state) == 1:
                yield node.word()
            row = self._row(node.state)
            allowed = np.flatnonzero(row.steps_left <= longest - node.steps)
            # The last on the stack is visited first, so the heaviest symbol comes last.
            ordered = allowed[np.argsort(-self._rank[allowed])].tolist()
            pending.extend(_SearchNode(row.after(symbol), node.steps + 1, node, symbol) for symbol in ordered)

    def _steps_left(self, state: int) -> int:
        return self._automaton.distance_of(state)

    def _row(self, state: int) -> _Row:
        row = self._rows.get(state)
        if row is None:
            if len(self._rows) == _CACHED_ROWS_MAX:
                # Rows are computed again when needed; a bound on their number is enough.
                self._rows.clear()
            self._guard.check_time()
            distances, after = self._automaton.expand(state)
            classes = self._automaton.token_class[: self._symbols]
            row = self._rows[state] = _Row(lambda symbol: after(int(classes[symbol])), distances[classes])
        return row
