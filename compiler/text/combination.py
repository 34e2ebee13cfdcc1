"""Constraints put together: a tree of all, any and not over leaves, and the automaton over texts that it becomes.

Leaves that speak of the whole text are automata over characters and combine among themselves; leaves that speak of the
word trace are automata over its letters and combine among themselves; where the two meet, the text is read by both
side by side. Knows the leaves as automata, not as specs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.automata import (
    CharDfa,
    Dfa,
    char_complement,
    char_intersection,
    char_union,
    coarsened,
    complement,
    inner_estimate,
    intersection,
    minimize,
    union,
)
from compiler.errors import LimitExceeded
from compiler.limits import ResourceGuard
from compiler.spec import EOS, NOMATCH, Proposition, normalised
from compiler.text.transducer import (
    CharacterClasses,
    LetterAlphabet,
    TextTransducer,
    joint_transducer,
    letter_by_letter,
    spelled_words,
)
from compiler.text.word_trace import WordTransducer, word_transducer

_INNER_STATES_MAX = 4_000  # of a labeller's states inside characters, before its tables cost more than letters do
_JOINT_INNER_STATES_MAX = 5_000  # the same of a joint transducer, which has some for its words anyway
LetterDfa = Callable[[Sequence[frozenset[str]], ResourceGuard], Dfa]


@dataclass(frozen=True, slots=True, eq=False)
class WordLeaf:
    """A constraint on the word trace.

    propositions  what its letters are made of, by names that mean the same in every leaf
    with_eos      whether its trace has one last step, at which `eos` holds
    with_nomatch  whether it asks where nothing holds
    build         its automaton over given letters; the empty trace is its start
    ours          whether its propositions are ours: no caller knows them
    """

    propositions: dict[str, Proposition]
    with_eos: bool
    with_nomatch: bool
    build: LetterDfa
    ours: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CharLeaf:
    """A constraint on the whole text. leading_space: None where it does not care about one space before it."""

    texts: CharDfa
    leading_space: bool | None


@dataclass(frozen=True, slots=True)
class LengthLeaf:
    """An upper bound on the number of characters."""

    max_chars: int


@dataclass(frozen=True, slots=True, eq=False)
class BooleanNode:
    """All of the parts, or any."""

    every: bool
    parts: tuple[ConstraintTree, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Negation:
    """Not the part."""

    part: ConstraintTree


ConstraintTree = WordLeaf | CharLeaf | LengthLeaf | BooleanNode | Negation


@dataclass(frozen=True, slots=True, eq=False)
class Combined:
    """A tree as one transducer and one DFA over its letters.

    required      the whole-text DFA that must hold, if any
    with_nomatch  whether a leaf asks where nothing holds
    hidden        the names of propositions that are ours alone
    spelled       whether the letters are the characters' minterms, and their DFA is the required one
    strips_space  whether one leading space of a raw text is no part of the answer
    """

    joint: TextTransducer
    letters: Dfa
    required: CharDfa | None
    with_nomatch: bool
    hidden: frozenset[str]
    spelled: bool
    strips_space: bool


NO_LETTERS = Dfa(np.zeros(0, dtype=np.int32), np.zeros((1, 0), dtype=np.int32), np.ones(1, dtype=bool))


def combine(tree: ConstraintTree, guard: ResourceGuard) -> Combined:
    """The automata of a tree. Raises LimitExceeded over any limit of states, letters, positions, bytes or time."""
    wanted = [leaf.leading_space for leaf in _leaves(tree) if isinstance(leaf, CharLeaf)]
    leading_space = True in wanted and False not in wanted
    root = _folded(_normal(tree, negated=False), guard)
    required, rest = _required(root)
    if required is not None and rest is None and _is_wide(required):
        return Combined(
            *letter_by_letter(required, leading_space, guard), required, False, frozenset(), True, leading_space
        )
    found = [] if rest is None else _leaves(rest)
    asked = [leaf.texts for leaf in found if isinstance(leaf, CharLeaf)]
    texts = [leaf.texts for leaf in _leaves(root) if isinstance(leaf, CharLeaf)]
    word_leaves = [leaf for leaf in found if isinstance(leaf, WordLeaf)]
    words = _word_trace(word_leaves, guard)
    counted = any(isinstance(leaf, LengthLeaf) for leaf in found)
    try:
        joint = joint_transducer(words, required, asked, counted, leading_space, guard)
    except LimitExceeded as error:
        if not _may_be_spelled(error, texts):
            raise
        joint = None
    if joint is None or (texts and _is_wide_joint(joint)):
        try:
            spelled, spelling = spelled_words(words, texts, leading_space, guard)
            letters = minimize(_PerCharacterDfa(spelled.letters, texts, spelling, guard).dfa(root), guard)
            joint, required, rest = spelled, None, None
        except LimitExceeded as error:
            if joint is None or not _may_be_spelled(error, texts):
                raise
    if rest is not None:
        letters = minimize(_Verdict(joint.letters, asked, guard).dfa(rest), guard)
    elif required is not None:
        letters = NO_LETTERS
    with_nomatch = any(leaf.with_nomatch for leaf in word_leaves)
    ours = {name for leaf in word_leaves if leaf.ours for name in leaf.propositions}
    ours -= {name for leaf in word_leaves if not leaf.ours for name in leaf.propositions}
    return Combined(joint, letters, required, with_nomatch, frozenset(ours), False, leading_space)


def _may_be_spelled(error: LimitExceeded, texts: Sequence[CharDfa]) -> bool:
    """Whether the limit is one of size, which the other way to read whole-text constraints may keep to."""
    return bool(texts) and error.limit in ("dfa_states_max", "table_bytes_max")


def _is_wide_joint(joint: TextTransducer) -> bool:
    transducer = joint.transducer
    return inner_estimate(transducer.next_state, transducer.minterms) > _JOINT_INNER_STATES_MAX


def _is_wide(texts: CharDfa) -> bool:
    """Whether a labeller would need very many states inside characters."""
    return inner_estimate(texts.dfa.next_state[:, texts.dfa.symbol_class], texts.minterms) > _INNER_STATES_MAX


def flattened(tree: ConstraintTree, guard: ResourceGuard) -> CharDfa:
    """The minimal DFA of the tree's texts over characters, without any leading space: for a part of a larger text.

    Raises what `combine` raises.
    """
    tree = _folded(_normal(_without_space(tree), negated=False), guard)
    if isinstance(tree, CharLeaf):
        return tree.texts
    combined = combine(tree, guard)
    transducer, letters = combined.joint.transducer, combined.letters
    states, columns = transducer.next_state.shape
    width = letters.states
    guard.check("table_bytes_max", states * width * columns * 8)
    moves = np.stack([_moved(letters, string) for string in transducer.strings])  # [strings, Q]
    table = transducer.next_state[:, None, :].astype(np.int64) * width  # [S, 1, M]
    table = table + moves[transducer.emission].transpose(0, 2, 1)  # [S, Q, M]
    flushed = letters.accepting[moves[np.maximum(transducer.flush, 0)]]  # [S, Q]
    accepting = flushed & (transducer.flush >= 0)[:, None]
    start = combined.joint.text_start * width + letters.start
    symbols = np.arange(columns, dtype=np.int32)
    whole = Dfa(symbols, table.reshape(-1, columns).astype(np.int32), accepting.reshape(-1), start)
    return coarsened(CharDfa(minimize(whole, guard), transducer.minterms))


def _moved(letters: Dfa, string: tuple[int, ...]) -> np.ndarray:
    states = np.arange(letters.states)
    for letter in string:
        states = letters.next_state[states, letters.symbol_class[letter]]
    return states


def _leaves(part: ConstraintTree) -> list[WordLeaf | CharLeaf | LengthLeaf]:
    if isinstance(part, BooleanNode):
        return [leaf for inner in part.parts for leaf in _leaves(inner)]
    return _leaves(part.part) if isinstance(part, Negation) else [part]


def _without_space(part: ConstraintTree) -> ConstraintTree:
    match part:
        case BooleanNode():
            return BooleanNode(part.every, tuple(_without_space(inner) for inner in part.parts))
        case Negation():
            return Negation(_without_space(part.part))
        case CharLeaf():
            return CharLeaf(part.texts, None)
        case _:
            return part


def _normal(part: ConstraintTree, negated: bool) -> ConstraintTree:
    """The same with negations at the leaves only, and no junction inside one of its own kind."""
    if isinstance(part, Negation):
        return _normal(part.part, not negated)
    if isinstance(part, CharLeaf):
        return CharLeaf(char_complement(part.texts), part.leading_space) if negated else part
    if not isinstance(part, BooleanNode):
        return Negation(part) if negated else part
    every = part.every is not negated
    parts: list[ConstraintTree] = []
    for inner in part.parts:
        normal = _normal(inner, negated)
        parts.extend(normal.parts if isinstance(normal, BooleanNode) and normal.every is every else (normal,))
    return BooleanNode(every, tuple(parts)) if len(parts) > 1 else parts[0]


def _folded(part: ConstraintTree, guard: ResourceGuard) -> ConstraintTree:
    """The same with the whole-text constraints of each junction made one."""
    if not isinstance(part, BooleanNode):
        return part
    parts = [_folded(inner, guard) for inner in part.parts]
    texts = [inner.texts for inner in parts if isinstance(inner, CharLeaf)]
    others: list[ConstraintTree] = [inner for inner in parts if not isinstance(inner, CharLeaf)]
    if texts:
        join = char_intersection if part.every else char_union
        others.insert(0, CharLeaf(join(texts, guard), None))
    return others[0] if len(others) == 1 else BooleanNode(part.every, tuple(others))


def _required(root: ConstraintTree) -> tuple[CharDfa | None, ConstraintTree | None]:
    """The whole-text constraint that must hold whatever else does, and the rest."""
    if isinstance(root, CharLeaf):
        return root.texts, None
    if isinstance(root, BooleanNode) and root.every and isinstance(root.parts[0], CharLeaf):
        rest = root.parts[1:]
        return root.parts[0].texts, rest[0] if len(rest) == 1 else BooleanNode(True, rest)
    return None, root


def _word_trace(leaves: Sequence[WordLeaf], guard: ResourceGuard) -> WordTransducer | None:
    if not leaves:
        return None
    propositions: dict[str, Proposition] = {}
    for leaf in leaves:
        for name, meaning in leaf.propositions.items():
            if normalised(propositions.setdefault(name, meaning)) != normalised(meaning):
                raise ValueError(f"two meanings go by one name, {name!r}")
    guard.check("propositions_max", len(propositions))
    return word_transducer(propositions, any(leaf.with_eos for leaf in leaves), guard)


class _Verdict:
    """The automaton over joint letters of each part of a tree; `asked` are the whole-text leaves, in their order."""

    def __init__(self, letters: LetterAlphabet, asked: Sequence[CharDfa], guard: ResourceGuard) -> None:
        self._letters, self._guard = letters, guard
        self._asked = {id(texts): number for number, texts in enumerate(asked)}

    def dfa(self, part: ConstraintTree) -> Dfa:
        """The part holds in some reading of the text."""
        if self._letters.readings == 1:
            return self._of(part, 0)
        every = [self._met(reading, None) for reading in range(self._letters.readings)]
        read = [self._of(part, reading) for reading in range(self._letters.readings)]
        both = zip(every, read, strict=True)
        return union([intersection(pair, self._guard) for pair in both], self._guard)

    def _of(self, part: ConstraintTree, reading: int) -> Dfa:
        match part:
            case BooleanNode():
                join = intersection if part.every else union
                return join([self._of(inner, reading) for inner in part.parts], self._guard)
            case Negation():
                return complement(self._of(part.part, reading))
            case WordLeaf():
                return self._word(part)
            case LengthLeaf():
                return self._size(part.max_chars + reading)  # a reading without the space has one character less
            case CharLeaf():
                return self._met(reading, self._asked[id(part.texts)])

    def _word(self, leaf: WordLeaf) -> Dfa:
        """The leaf's automaton; letters that are no step of its trace leave its state as it is."""
        number: dict[frozenset[str], int] = {}
        read = [self._projected(unit, leaf) for unit in self._letters.units]
        for letter in read:
            if letter is not None:
                number.setdefault(letter, len(number))
        own = leaf.build(list(number), self._guard)
        stay = own.next_state.shape[1]
        column = [stay if letter is None else int(own.symbol_class[number[letter]]) for letter in read]
        column += [stay] * (len(self._letters) - len(read))
        if stay not in column:
            return Dfa(np.array(column, dtype=np.int32), own.next_state, own.accepting, own.start)
        table = np.column_stack([own.next_state, np.arange(own.states, dtype=own.next_state.dtype)])
        return Dfa(np.array(column, dtype=np.int32), table, own.accepting, own.start)

    def _projected(self, unit: frozenset[str], leaf: WordLeaf) -> frozenset[str] | None:
        """What a leaf sees at a unit; None where it has no such step."""
        if unit == {EOS}:
            return unit if leaf.with_eos else None
        return unit.intersection(leaf.propositions) or frozenset((NOMATCH,))

    def _size(self, most: int) -> Dfa:
        """A chain that each character's letter steps along; its last state is one too many."""
        self._guard.check("dfa_states_max", most + 2)
        states = np.arange(most + 2, dtype=np.int32)
        table = np.column_stack([states, np.minimum(states + 1, most + 1)]).astype(np.int32)
        symbol_class = np.zeros(len(self._letters), dtype=np.int32)
        symbol_class[self._letters.characters] = 1
        return Dfa(symbol_class, table, states <= most)

    def _met(self, reading: int, asked: int | None) -> Dfa:
        """Whether the last letter says that this reading meets what is required, and this asked constraint if any."""
        first = len(self._letters) - len(self._letters.verdicts)
        symbol_class = np.zeros(len(self._letters), dtype=np.int32)
        outcomes = [outcome[reading] for outcome in self._letters.verdicts]
        symbol_class[first:] = [1 + (met is not None and (asked is None or met[asked])) for met in outcomes]
        table = np.array([[0, 0, 1], [1, 0, 1]], dtype=np.int32)  # what came before does not matter
        return Dfa(symbol_class, table, np.array([False, True]))


class _PerCharacterDfa(_Verdict):
    """The same where characters are letters: a whole-text constraint reads them itself."""

    def __init__(
        self, letters: LetterAlphabet, texts: Sequence[CharDfa], spelling: CharacterClasses, guard: ResourceGuard
    ) -> None:
        super().__init__(letters, texts, guard)
        self._texts, self._spelling = texts, spelling

    def _met(self, reading: int, asked: int | None) -> Dfa:
        """The constraint over the characters' letters; or, of none, whether there is a text to be read this way."""
        symbol_class = np.zeros(len(self._letters), dtype=np.int32)
        characters = self._letters.characters
        if asked is None:
            if self._letters.stripped:
                symbol_class[characters.stop - 1] = 1
            table = np.array([[0, 1], [1, 1]], dtype=np.int32)
            return Dfa(symbol_class, table, np.array([reading == 0, True]))
        own, dfa = self._spelling.own[asked], self._texts[asked].dfa
        read = dfa.symbol_class[own].tolist()
        if self._letters.stripped:  # the reading without the space passes over it
            read.append(dfa.next_state.shape[1] if reading else read[self._spelling.space])
        symbol_class[:] = dfa.next_state.shape[1]
        symbol_class[characters] = read
        stay = np.arange(dfa.states, dtype=dfa.next_state.dtype)
        return Dfa(symbol_class, np.column_stack([dfa.next_state, stay]), dfa.accepting, dfa.start)
