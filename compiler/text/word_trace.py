"""The word trace lists the propositions that hold at each unit.

A unit is a maximal run of word characters, or one character that is neither a word character nor white space. The
transducer reads a text's characters and emits a unit's propositions at the unit's end. A proposition holds at a unit
when some match of its pattern that starts at a unit's start ends at that unit's end. So the tracker restarts every
pattern at each unit, and reads all patterns side by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.automata import DEAD, NO_END, CharSet, CharTransducer, Minterms, category, minimize_transducer, minterms
from compiler.limits import ResourceGuard
from compiler.regex import CharNfa, Node, alternation, concat, literal_node, node_nfa, parse_pattern, space_run_node
from compiler.spec import EOS, NOMATCH, Proposition


@dataclass(frozen=True, slots=True, eq=False)
class WordTransducer:
    """The characters of a text to its word trace. The letters are the sets of propositions that can hold together."""

    transducer: CharTransducer
    start: int
    letters: tuple[frozenset[str], ...]


def proposition_node(proposition: Proposition, guard: ResourceGuard) -> Node:
    """The pattern of a proposition. It is the regex, or the alternation of the words and phrases."""
    if proposition.regex is not None:
        return parse_pattern(proposition.regex, guard)
    return alternation([_phrase_node(phrase, not proposition.case_sensitive) for phrase in proposition.words])


def _phrase_node(phrase: str, ignore_case: bool) -> Node:
    """The pattern of a phrase. Any run of white space may separate its words."""
    words = [literal_node(word, ignore_case) for word in phrase.split()]
    # Any run of white space may stand between two words of a phrase, a line break too.
    spaced = [node for word in words for node in (space_run_node(), word)]
    return concat(spaced[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Patterns:
    """All patterns side by side as one position automaton. Sets of positions are bit masks.

    accepting  per proposition the positions that end a match
    reads      for each minterm the positions that read it
    kind       for each minterm WORD_CHAR, SPACE_CHAR or OTHER_CHAR
    """

    first: int
    follow: tuple[int, ...]
    accepting: tuple[tuple[str, int], ...]
    reads: tuple[int, ...]
    kind: tuple[int, ...]
    minterms: Minterms

    def after(self, positions: int) -> int:
        """The positions that may be read next."""
        reachable = 0
        while positions:
            low = positions & -positions
            reachable |= self.follow[low.bit_length() - 1]
            positions ^= low
        return reachable

    def letter(self, positions: int) -> frozenset[str]:
        """The propositions that hold at a unit that ends after these positions."""
        holding = frozenset(name for name, ends in self.accepting if positions & ends)
        return holding or frozenset((NOMATCH,))


_WORD_CHAR, _SPACE_CHAR, _OTHER_CHAR = range(3)


def _patterns(nfas: Sequence[tuple[str, CharNfa]]) -> _Patterns:
    first, offset = 0, 0
    follow: list[int] = []
    accepting: list[tuple[str, int]] = []
    # The two categories come first, so that every minterm is a word character, white space or neither.
    sets: dict[CharSet, int] = {category(r"\w"): 0, category(r"\s"): 0}  # each with the positions that read it
    for name, nfa in nfas:
        # All patterns share one numbering of positions: those of a pattern begin at its offset.
        first |= nfa.first << offset
        follow.extend(mask << offset for mask in nfa.follow)
        accepting.append((name, nfa.last << offset))
        for position, number in enumerate(nfa.position_set):
            read = nfa.sets[number]
            sets[read] = sets.get(read, 0) | 1 << (offset + position)
        offset += nfa.positions
    parts = minterms(list(sets))
    reads = [0] * parts.count
    for members, positions in zip(parts.members, sets.values(), strict=True):
        for minterm in members:
            reads[minterm] |= positions
    # parts.members[0] and [1] are the minterms of word characters and of white space.
    kind = [_OTHER_CHAR] * parts.count
    for minterm in parts.members[0]:
        kind[minterm] = _WORD_CHAR
    for minterm in parts.members[1]:
        kind[minterm] = _SPACE_CHAR
    return _Patterns(
        first=first, follow=tuple(follow), accepting=tuple(accepting), reads=tuple(reads), kind=tuple(kind),
        minterms=parts,
    )


class _Tracker:
    """The powerset construction. A state says whether a word is being read, and which positions were just read."""

    def __init__(self, patterns: _Patterns, with_eos: bool, guard: ResourceGuard) -> None:
        self._patterns = patterns
        self._guard = guard
        self._letters: dict[frozenset[str], int] = {}
        self._outputs: dict[tuple[int, ...], int] = {(): 0}
        self._states: dict[tuple[bool, int], int] = {}
        self._order: list[tuple[bool, int]] = []
        # The letters after the last unit: the step of `eos`, where a leaf reads it.
        self._ending = (self._letter(frozenset((EOS,))),) if with_eos else ()

    def build(self) -> tuple[CharTransducer, int, tuple[frozenset[str], ...]]:
        """The transducer, its start, and its letters."""
        minterm_count = self._patterns.minterms.count
        # No word is being read, and no pattern is under way.
        start = self._state(False, 0)
        rows, outputs_of, final_output = [[DEAD] * minterm_count], [[0] * minterm_count], [NO_END]
        while len(final_output) <= len(self._order):
            # States are numbered in the order in which they are met; row 0 is the dead one.
            in_word, positions = self._order[len(final_output) - 1]
            row, emitted = self._row(in_word, positions)
            rows.append(row)
            outputs_of.append(emitted)
            final_output.append(self._string((*self._closing_letter(in_word, positions), *self._ending)))
            self._guard.check("dfa_states_max", len(self._order))
            self._guard.check_time()
        outputs = tuple(self._outputs)
        transducer = CharTransducer(
            next_state=np.array(rows, dtype=np.int32), output=np.array(outputs_of, dtype=np.int32),
            final_output=np.array(final_output, dtype=np.int32), outputs=outputs, minterms=self._patterns.minterms,
        )
        return transducer, start, tuple(self._letters)

    def _row(self, in_word: bool, positions: int) -> tuple[list[int], list[int]]:
        """The state after each minterm from a state, and the output."""
        patterns = self._patterns
        # Patterns that began at an earlier unit; `starting` adds those that begin at this one.
        continuing_positions = patterns.after(positions)
        all_positions = continuing_positions | patterns.first
        closing = self._closing_letter(in_word, positions)
        closing_output = self._string(closing)
        row, emitted = [], []
        for reads, kind in zip(patterns.reads, patterns.kind, strict=True):
            # Inside a word no pattern begins: a match starts where a unit does.
            if kind == _WORD_CHAR:
                row.append(self._state(True, (continuing_positions if in_word else all_positions) & reads))
                emitted.append(0)
            # White space ends the word before it, and belongs to no unit itself.
            elif kind == _SPACE_CHAR:
                row.append(self._state(False, continuing_positions & reads))
                emitted.append(closing_output)
            else:  # a unit of its own: the word before it ends, and so does it
                read = all_positions & reads
                row.append(self._state(False, read))
                emitted.append(self._string((*closing, self._letter(patterns.letter(read)))))
        return row, emitted

    def _closing_letter(self, in_word: bool, positions: int) -> tuple[int, ...]:
        """The letter that the end of the word emits. It is empty where no word is in progress."""
        return (self._letter(self._patterns.letter(positions)),) if in_word else ()

    def _state(self, in_word: bool, positions: int) -> int:
        # Both parts are needed: a pattern may be under way between words, as a phrase is.
        key = (in_word, positions)
        if key not in self._states:
            self._order.append(key)
            self._states[key] = len(self._order)  # state 0 is the dead one
        return self._states[key]

    def _letter(self, holding: frozenset[str]) -> int:
        number = self._letters.setdefault(holding, len(self._letters))
        self._guard.check("letters_max", len(self._letters))
        return number

    def _string(self, letters: tuple[int, ...]) -> int:
        return self._outputs.setdefault(letters, len(self._outputs))


def word_transducer(propositions: Mapping[str, Proposition], with_eos: bool, guard: ResourceGuard) -> WordTransducer:
    """The transducer of the word trace under these propositions, minimal.

    with_eos  one last step is added in which only `eos` holds
    Raises what the patterns' compilers raise, and LimitExceeded over `dfa_states_max` or `letters_max`.
    """
    nfas: list[tuple[str, CharNfa]] = []
    for name, proposition in propositions.items():
        nfas.append((name, node_nfa(proposition_node(proposition, guard), guard)))
        # The tracker's sets range over the positions of all patterns together.
        guard.check("nfa_positions_max", sum(nfa.positions for _, nfa in nfas))
    transducer, start, letters = _Tracker(_patterns(nfas), with_eos, guard).build()
    # Different sets of positions often behave alike, such as those of words with a common end.
    minimal_transducer, number = minimize_transducer(transducer, guard)
    return WordTransducer(minimal_transducer, int(number[start]), letters)
