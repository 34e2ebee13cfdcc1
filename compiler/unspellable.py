"""Names the characters that a vocabulary lacks for a constraint. Only asked where nothing can be spelled."""

from __future__ import annotations

from collections import deque

import numpy as np

from compiler.token_automaton import UNREACHABLE, TokenAutomaton
from compiler.vocabulary import Vocabulary

_NAMED_MAX = 8
_SMALL_LETTERS_FIRST = sorted(range(256), key=lambda byte: (chr(byte).isupper(), byte))  # where either case would do


def missing_characters(over_bytes: TokenAutomaton, vocabulary: Vocabulary) -> tuple[str, ...]:
    """The characters that hold a byte no token holds, in the satisfying text that has the fewest such bytes.

    over_bytes  the constraint over single bytes; ids 0..255 are the bytes
    Empty where every byte occurs in some token and they only fail to combine.
    """
    held = np.zeros(256, dtype=bool)
    for token in vocabulary.tokens:
        if token:
            held[np.frombuffer(token, dtype=np.uint8)] = True
    text = _cheapest(over_bytes, (~held).tolist()).decode(errors="ignore")
    lacking = dict.fromkeys(character for character in text if not all(held[byte] for byte in character.encode()))
    return tuple(lacking)[:_NAMED_MAX]


def _cheapest(over_bytes: TokenAutomaton, costs: list[bool]) -> bytes:
    """A satisfying text with the fewest costly bytes: breadth first, costly bytes a round later."""
    came: dict[int, tuple[int, int]] = {}
    seen = {over_bytes.start}
    now, later = deque([over_bytes.start]), list[tuple[int, int, int]]()
    classes = [(byte, int(over_bytes.token_class[byte]), costs[byte]) for byte in _SMALL_LETTERS_FIRST]
    while now or later:
        if not now:
            for target, state, byte in later:
                if target not in seen:
                    seen.add(target)
                    came[target] = (state, byte)
                    now.append(target)
            later = []
            continue
        state = now.popleft()
        if over_bytes.distance[state] == 1:
            return _path(came, state, over_bytes.start)
        successors = over_bytes.successors(state).tolist()
        for byte, column, costly in classes:
            target = successors[column]
            if target in seen or over_bytes.distance[target] == UNREACHABLE:
                continue
            if costly:
                later.append((target, state, byte))
            else:
                seen.add(target)
                came[target] = (state, byte)
                now.append(target)
    return b""


def _path(came: dict[int, tuple[int, int]], state: int, start: int) -> bytes:
    read = bytearray()
    while state != start:
        state, byte = came[state]
        read.append(byte)
    return bytes(reversed(read))
