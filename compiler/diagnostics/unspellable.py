"""Names the characters that a vocabulary lacks for a constraint. Only asked where nothing can be spelled."""

from __future__ import annotations

from collections import deque

import numpy as np

from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import ResourceGuard
from compiler.vocab import Vocabulary

_NAMED_MAX = 8
_STATES_MAX = 20_000  # the search stops beyond this many states; the refusal then names no characters
_SMALL_LETTERS_FIRST = sorted(range(256), key=lambda byte: (chr(byte).isupper(), byte))  # where either case would do


def missing_characters(over_bytes: TokenAutomaton, vocabulary: Vocabulary, guard: ResourceGuard) -> tuple[str, ...]:
    """The characters that no tokens spell, in the satisfying text that has the fewest bytes no token holds.

    over_bytes  the constraint over single bytes; ids 0..255 are the bytes
    Empty where each character can be spelled and they only fail to combine, or where the search is too long.
    """
    held = np.zeros(256, dtype=bool)
    for token in vocabulary.tokens:
        if token:
            held[np.frombuffer(token, dtype=np.uint8)] = True
    text = _cheapest(over_bytes, ~held, guard).decode(errors="ignore")
    pieces = _Pieces(vocabulary)
    lacking = dict.fromkeys(character for character in text if not pieces.spell(character.encode()))
    return tuple(lacking)[:_NAMED_MAX]


class _Pieces:
    """What tokens can contribute to a character: all of it, or its beginning, its middle or its end."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        texts = [token for token in vocabulary.tokens if token]
        self._whole = set(texts)
        self._starts = {text[:length] for text in texts for length in range(1, min(4, len(text)) + 1)}
        self._ends = {text[-length:] for text in texts for length in range(1, min(4, len(text)) + 1)}
        self._characters = set("".join(text.decode(errors="ignore") for text in texts))

    def spell(self, character: bytes) -> bool:
        """Whether some tokens, one after the other, write the character, whatever they write around it."""
        if character.decode() in self._characters:
            return True
        length = len(character)
        reached = {cut for cut in range(1, length + 1) if character[:cut] in self._ends}
        for cut in range(1, length):
            if cut in reached:
                reached |= {end for end in range(cut + 1, length) if character[cut:end] in self._whole}
        return length in reached or any(character[cut:] in self._starts for cut in reached if cut < length)


def _cheapest(over_bytes: TokenAutomaton, costly: np.ndarray, guard: ResourceGuard) -> bytes:
    """A satisfying text with the fewest costly bytes: breadth first, costly bytes a round later."""
    choices: dict[tuple[int, bool], int] = {}  # of the bytes that act alike, one that costs and one that does not
    for byte in _SMALL_LETTERS_FIRST:
        choices.setdefault((int(over_bytes.token_class[byte]), bool(costly[byte])), byte)
    came: dict[int, tuple[int, int]] = {}
    seen = {over_bytes.start}
    now, later = deque([over_bytes.start]), list[tuple[int, int, int]]()
    while (now or later) and len(seen) <= _STATES_MAX:
        guard.check_time()
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
        successors = over_bytes.successors(state)
        alive = over_bytes.distance[successors] != UNREACHABLE
        for (column, expensive), byte in choices.items():
            target = int(successors[column])
            if not alive[column] or target in seen:
                continue
            if expensive:
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
