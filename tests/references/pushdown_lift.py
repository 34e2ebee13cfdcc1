"""Lifts a pushdown machine byte by byte.

Every token is read from every state. A pending is the bytes that are left of a token, so nothing is numbered before all
is known. Shares only the machine with the compiler's lift.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np

from compiler.pushdown import END, PushdownMachine
from compiler.pushdown.machine import NOWHERE
from compiler.vocab import Vocabulary

Word: TypeAlias = tuple[int, ...]  # columns of bytes


class Landing(NamedTuple):
    """Symbols on the stack, the top first, and a state."""

    pushed: tuple[int, ...]
    state: int


class Exit(NamedTuple):
    """The component is left before the rest of the bytes."""

    code: int
    rest: Word


Items: TypeAlias = frozenset[Landing | Exit]


class ByteReader:
    """What bytes do from a control state on any stack."""

    def __init__(self, machine: PushdownMachine) -> None:
        self._machine = machine
        self.items = cache(self._items)
        self._viable = cache(self._is_viable)

    def columns(self, text: Iterable[int]) -> Word:
        return tuple(int(self._machine.byte_class[byte]) for byte in text)

    def _items(self, state: int, word: Word) -> Items:
        """Where bytes lead from a state. Exits before the first byte may be such that no stack takes them."""
        if self._machine.eager[state]:
            return frozenset({Exit(int(self._machine.code[state]), word)})
        landings, exits = {Landing((), state)}, set[Exit]()
        for place in range(len(word)):
            reached = set[Landing]()
            for at in landings:
                self._read(at, word[place:], reached, exits)
            landings = reached
            exits = {each for each in exits if each.rest == word or self._viable(each)}
        return frozenset(landings | exits)

    def _read(self, at: Landing, rest: Word, reached: set[Landing], exits: set[Exit]) -> None:
        """Add where a landing gets by the first byte of the rest."""
        machine, (pushed, state) = self._machine, at
        for symbols, target in machine.actions(state, rest[0]):
            above, here = (*reversed(symbols), *pushed), target
            while here != NOWHERE and machine.eager[here] and above:
                here, above = int(machine.resume[above[0], machine.code[here]]), above[1:]
            if here != NOWHERE and machine.eager[here]:
                exits.add(Exit(int(machine.code[here]), rest[1:]))
            elif here != NOWHERE:
                reached.add(Landing(above, here))
        if machine.pop[state, rest[0]]:
            code = int(machine.code[state])
            if not pushed:
                exits.add(Exit(code, rest))
            elif machine.resume[pushed[0], code] != NOWHERE:
                self._read(Landing(pushed[1:], int(machine.resume[pushed[0], code])), rest, reached, exits)

    def _is_viable(self, exit_: Exit) -> bool:
        """Whether some stack takes the rest."""
        met, waiting = {exit_}, [exit_]
        while waiting and exit_.rest:
            for item in set().union(*self._behind(waiting.pop()).values()) - met:
                if isinstance(item, Landing) or item.rest != exit_.rest:
                    return True
                met.add(item)
                waiting.append(item)
        return not exit_.rest

    def _behind(self, exit_: Exit) -> dict[int, Items]:
        resume = self._machine.resume[:, exit_.code]
        symbols = np.flatnonzero(resume != NOWHERE).tolist()
        return {symbol: self.items(int(resume[symbol]), exit_.rest) for symbol in symbols}

    def entries(self, exit_: Exit) -> dict[int, Items]:
        """The items of the rest behind each symbol that takes the code."""
        found = {symbol: self.viable(items) for symbol, items in self._behind(exit_).items()}
        return {symbol: items for symbol, items in found.items() if items}

    def viable(self, items: Items) -> Items:
        """The items without exits that no stack takes."""
        return frozenset(item for item in items if isinstance(item, Landing) or self._viable(item))


def lifted(machine: PushdownMachine, vocabulary: Vocabulary, reader: ByteReader) -> dict[tuple[int, int], Items]:
    """The items of each token in each reached control state. Dead tokens have none."""
    texts = {
        token: reader.columns((END,) if token in vocabulary.eos_ids else text or ())
        for token, text in enumerate(vocabulary.tokens)
    }
    resumed = [int(state) for state in machine.resume[machine.resume != NOWHERE] if not machine.eager[state]]
    found, waiting = dict[tuple[int, int], Items](), [*{machine.start, *resumed}]
    met = set(waiting)
    while waiting:
        state = waiting.pop()
        for token, word in texts.items():
            found[state, token] = reader.viable(reader.items(state, word)) if word else frozenset()
            new = {item.state for item in found[state, token] if isinstance(item, Landing)} - met
            waiting += new
            met |= new
    return found
