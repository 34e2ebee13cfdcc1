"""Names the characters that a constraint needs and no token spells."""

from __future__ import annotations

from collections import deque

import numpy as np

from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import ResourceGuard
from compiler.pushdown import Configurations, ExitCosts, PushdownAutomaton, saturate
from compiler.vocab import Vocabulary

_NAMED_MAX = 8
_STATES_MAX = 20_000  # the search stops beyond this many states; the refusal then names no characters
_SPELLED = 1e-6  # what a byte costs that is in a token; costs are above 0
_SMALL_LETTERS_FIRST = sorted(range(256), key=lambda byte: (chr(byte).isupper(), byte))  # where either case would do


def missing_characters(
    over_bytes: TokenAutomaton | PushdownAutomaton, vocabulary: Vocabulary, guard: ResourceGuard
) -> tuple[str, ...]:
    """The characters that a satisfying text needs and no tokens spell. The text is the one with the fewest bytes that
    are in no token.

    over_bytes  the constraint over single bytes; ids 0..255 are the bytes
    Empty where each character can be spelled and only their combination fails, or where the search is too long.
    """
    in_tokens = np.zeros(256, dtype=bool)
    for token in vocabulary.tokens:
        if token:
            in_tokens[np.frombuffer(token, dtype=np.uint8)] = True
    # A text that needs the fewest missing bytes blames the fewest characters.
    if isinstance(over_bytes, PushdownAutomaton):
        read = _cheapest_derived(over_bytes, ~in_tokens, guard)
    else:
        read = _cheapest(over_bytes, ~in_tokens, guard)
    text = read.decode(errors="ignore")
    pieces = _Pieces(vocabulary)
    unspellable = dict.fromkeys(character for character in text if not pieces.spell(character.encode()))
    return tuple(unspellable)[:_NAMED_MAX]


class _Pieces:
    """The parts of a character that tokens can hold.

    A part is the whole character, its beginning, its middle or its end.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        texts = [token for token in vocabulary.tokens if token]
        self._texts = set(texts)
        # UTF-8 characters have at most four bytes. A token may end with the start of one, or start with its end.
        self._starts = {text[:length] for text in texts for length in range(1, min(4, len(text)) + 1)}
        self._ends = {text[-length:] for text in texts for length in range(1, min(4, len(text)) + 1)}
        self._characters = set("".join(text.decode(errors="ignore") for text in texts))

    def spell(self, character: bytes) -> bool:
        """True when tokens in sequence contain the character, whatever stands around it."""
        if character.decode() in self._characters:
            return True
        length = len(character)
        # Prefixes of the character that some sequence of tokens can write, by their lengths.
        covered = {cut for cut in range(1, length + 1) if character[:cut] in self._ends}
        # Tokens that lie inside the character extend a prefix.
        for cut in range(1, length):
            if cut in covered:
                covered |= {end for end in range(cut + 1, length) if character[cut:end] in self._texts}
        return length in covered or any(character[cut:] in self._starts for cut in covered if cut < length)


def _cheapest(over_bytes: TokenAutomaton, costly: np.ndarray, guard: ResourceGuard) -> bytes:
    """A satisfying text with the fewest costly bytes.

    It is found by breadth-first search over edges of cost 0 and 1.
    """
    choices = _choices(over_bytes.token_class, costly)
    # The state and the byte before each visited state; of the start, which has none, they mean nothing.
    arrived_by = {over_bytes.start: (over_bytes.start, 0)}
    now, later = deque([over_bytes.start]), list[tuple[int, int, int]]()
    # States are visited by rounds: `now` costs as much as before, `later` one byte more.
    while (now or later) and len(arrived_by) <= _STATES_MAX:
        guard.check_time()
        if not now:
            for target, state, byte in later:
                if target not in arrived_by:
                    arrived_by[target] = (state, byte)
                    now.append(target)
            later = []
            continue
        state = now.popleft()
        if over_bytes.distance[state] == 1:
            return _path(arrived_by, state, over_bytes.start)
        successors = over_bytes.successors(state)
        alive = over_bytes.distance[successors] != UNREACHABLE
        for (column, expensive), byte in choices.items():
            target = int(successors[column])
            if not alive[column] or target in arrived_by:
                continue
            if expensive:
                later.append((target, state, byte))
            else:
                arrived_by[target] = (state, byte)
                now.append(target)
    return b""


def _choices(token_class: np.ndarray, costly: np.ndarray) -> dict[tuple[int, bool], int]:
    """Of bytes that act alike, one that costs and one other."""
    choices = dict[tuple[int, bool], int]()
    for byte in _SMALL_LETTERS_FIRST:
        choices.setdefault((int(token_class[byte]), bool(costly[byte])), byte)
    return choices


def _cheapest_derived(over_bytes: PushdownAutomaton, costly: np.ndarray, guard: ResourceGuard) -> bytes:
    """The same of a grammar. It follows the least costs from byte to byte."""
    choices, eos = _choices(over_bytes.token_class, costly), int(over_bytes.token_class[over_bytes.eos_ids[0]])
    expensive = [token_class for token_class, is_costly in choices if is_costly and (token_class, False) not in choices]
    cost = np.full(over_bytes.classes, _SPELLED)
    cost[expensive] = 1.0
    tables = over_bytes.tables
    costs = ExitCosts(tables, saturate(tables, guard, cost))
    states, text = Configurations(over_bytes, costs=costs), bytearray()
    state = states.start
    while len(text) <= _STATES_MAX:
        guard.check_time()
        further = cost + states.class_costs(np.array([state]))[0]
        chosen = int(np.where(states.distances_after(state) == UNREACHABLE, np.inf, further).argmin())
        if chosen == eos:
            return bytes(text)
        text.append(choices[chosen, chosen in expensive])
        state = states.advance(state, text[-1])
    return b""


def _path(arrived_by: dict[int, tuple[int, int]], state: int, start: int) -> bytes:
    read = bytearray()
    while state != start:
        state, byte = arrived_by[state]
        read.append(byte)
    return bytes(reversed(read))
