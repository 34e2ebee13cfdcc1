"""Combines a tree of constraints into one automaton over texts. It also has the printable names of symbols and letters.

Leaves that speak of the whole text are automata over characters and combine among themselves; leaves that speak of the
word trace are automata over its letters and combine among themselves; where the two meet, the text is read by both
side by side. `combine` plans which constructions may serve, and takes the first that keeps to the limits. The names
decide nothing: only people read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from compiler.automata import (
    ByteTransducer,
    CharDfa,
    Dfa,
    Minterms,
    coarsened,
    describe,
    inner_estimate,
    live_states,
    minimize,
    to_byte_transducer,
)
from compiler.errors import LimitExceeded
from compiler.limits import SIZE_LIMITS, ResourceGuard
from compiler.spec import CLOSER, NOMATCH, SENTENCE_END, STEP, Proposition, meaning_name, normalize
from compiler.text.letter_dfas import holds_by_characters, holds_by_outcome, letter_dfa
from compiler.text.per_character import per_character_transducer, word_trace_per_character
from compiler.text.text_automaton import PerCharacterAutomaton, TextAutomaton, WholeTextAutomaton, WordTraceAutomaton
from compiler.text.transducer import Outcome, TextTransducer, joint_transducer
from compiler.text.tree import (
    CharLeaf,
    ConstraintTree,
    LengthLeaf,
    WordLeaf,
    leaves_of_type,
    normal_form,
    split_mandatory,
)
from compiler.text.word_trace import WordTransducer, word_transducer

_INNER_STATES_MAX = 4_000  # of a transducer's states inside characters, before its tables cost more than letters do
_LONG, _FEW_MINTERMS, _MANY_CHARACTERS = 20_000, 8, 16  # see `_is_count`
_JOINT_INNER_STATES_MAX = 5_000  # the same of a joint transducer, which has some for its words anyway
NO_LETTERS = Dfa(np.zeros(0, dtype=np.int32), np.zeros((1, 0), dtype=np.int32), np.ones(1, dtype=bool))
LetterNames = tuple[tuple[str, ...] | None, ...]
_INTERNAL_NAMES = {  # of our own propositions
    meaning_name(STEP): "(a word)",
    meaning_name(SENTENCE_END): "(the end of a sentence)",
    meaning_name(CLOSER): "(a closing mark)",
}
_SPACE_NAME = "(a leading space)"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Combination:
    """A tree as one transducer and one DFA over its letters.

    mandatory       the whole-text DFA that every text is in, if the transducer runs one
    strips_space    whether one leading space of a raw text is no part of the answer
    with_nomatch    whether a leaf reads the letter at which no proposition holds
    internal_names  the names of propositions that no caller knows
    per_character   whether the letters are the characters' minterms, and their DFA is the mandatory one
    """

    transducer: TextTransducer
    letters: Dfa
    mandatory: CharDfa | None
    strips_space: bool
    with_nomatch: bool = False
    internal_names: frozenset[str] = frozenset()
    per_character: bool = False

    def byte_transducer(self, guard: ResourceGuard) -> ByteTransducer:
        """The transducer over the bytes of a raw text. Raises LimitExceeded over `table_bytes_max`."""
        return to_byte_transducer(self.transducer.transducer, self.transducer.start, guard)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Parts:
    """A tree in normal form, taken apart.

    root           the tree
    mandatory      the whole-text constraint that must hold whatever else does
    optional       the remaining tree
    words          the word trace that the leaves read together; None where no leaf reads one
    leading_space  whether a raw text may begin with one space more than its answer
    """

    root: ConstraintTree
    mandatory: CharDfa | None
    optional: ConstraintTree | None
    words: WordTransducer | None
    leading_space: bool


def combine(tree: ConstraintTree, guard: ResourceGuard) -> Combination:
    """The automata of a tree. Raises LimitExceeded over any limit of states, letters, positions, bytes or time."""
    # The strategies build only their transducers here. The chosen strategy builds its letters afterwards.
    parts = _take_apart(tree, guard)
    return _first_within_limits(_plan(parts, guard)).build()


def to_text_automaton(tree: ConstraintTree, guard: ResourceGuard) -> TextAutomaton:
    """The automaton over texts of a tree. Raises what `combine` raises."""
    combination = combine(tree, guard)
    transducer, mandatory = combination.transducer, combination.mandatory
    # Names are made here, since the automaton is displayed without its constraint.
    names = _letter_names(combination)
    common: dict[str, Any] = {
        "transducer": combination.byte_transducer(guard),
        "letters": combination.letters,
        "text_start": transducer.text_start,
        "strips_space": combination.strips_space,
        "limits": guard.limits,
    }
    # Four kinds of DFA can be displayed; labels, which are no texts, are the fourth.
    if combination.per_character:
        letters = combination.letters.symbols
        # The letters are the characters, and perhaps one more, the leading space.
        symbol_names = (*_minterm_names(transducer.transducer.minterms), _SPACE_NAME)[:letters]
        return PerCharacterAutomaton(**common, symbol_names=symbol_names, letter_names=(None,) * letters)
    if mandatory is None or transducer.alphabet.units:
        return WordTraceAutomaton(**common, symbol_names=_symbol_names(combination, names), letter_names=names)
    return WholeTextAutomaton(
        **common,
        whole_dfa=mandatory.dfa,
        whole_state=transducer.display_state,
        symbol_names=_minterm_names(mandatory.minterms),
        letter_names=names,
    )


def _take_apart(tree: ConstraintTree, guard: ResourceGuard) -> _Parts:
    # One leaf that forbids a leading space decides for all of them.
    spaces = {leaf.leading_space for leaf in leaves_of_type(tree, CharLeaf)}
    # The leading spaces were read before this: merging leaves drops them.
    root = normal_form(tree, guard)
    mandatory, optional = split_mandatory(root)
    words = _word_trace(leaves_of_type(optional, WordLeaf), guard)
    return _Parts(
        root=root, mandatory=mandatory, optional=optional, words=words,
        leading_space=True in spaces and False not in spaces,
    )


def _word_trace(leaves: Sequence[WordLeaf], guard: ResourceGuard) -> WordTransducer | None:
    """The one transducer that all leaves on the word trace read."""
    if not leaves:
        return None
    propositions: dict[str, Proposition] = {}
    for leaf in leaves:
        for name, meaning in leaf.propositions.items():
            if normalize(propositions.setdefault(name, meaning)) != normalize(meaning):
                raise ValueError(f"two meanings go by one name, {name!r}")
    return word_transducer(propositions, any(leaf.with_eos for leaf in leaves), guard)


# --- which construction ---------------------------------------------------------------------------------------------


class _Attempt(NamedTuple):
    """The first half of a construction, its transducer. The planner decides by it whether the construction is used.

    is_wide  whether the transducer would have very many states inside characters
    build    the second half
    """

    is_wide: bool
    build: Callable[[], Combination]


def _plan(parts: _Parts, guard: ResourceGuard) -> list[Callable[[], _Attempt]]:
    """The constructions that may serve, the preferred one first."""
    # Wide constraints are those whose transducer would have many states inside UTF-8 characters. Counts have many
    # states that most tokens leave, and few functions on these.
    strategies: list[Callable[[_Parts, ResourceGuard], _Attempt]]
    if parts.mandatory is not None and parts.optional is None and (
        _is_wide(parts.mandatory) or _is_count(parts.mandatory)
    ):
        strategies = [_whole_text_per_character]
    elif leaves_of_type(parts.root, CharLeaf):
        strategies = [_side_by_side, _words_per_character]
    else:
        strategies = [_side_by_side]  # without whole-text constraints there is nothing to read per character
    return [partial(strategy, parts, guard) for strategy in strategies]


def _first_within_limits(attempts: Sequence[Callable[[], _Attempt]]) -> _Attempt:
    """The first attempt that is not wide. Without one, the first that kept to the limits of size.

    Raises the last attempt's LimitExceeded where none did. Other limits than those of size end the search at once.
    """
    first_wide: _Attempt | None = None
    for number, attempt in enumerate(attempts, 1):
        try:
            construction = attempt()
        except LimitExceeded as error:
            if error.limit not in SIZE_LIMITS or (number == len(attempts) and first_wide is None):
                raise
            continue
        if not construction.is_wide:
            return construction
        first_wide = first_wide or construction
    assert first_wide is not None  # each attempt was returned, kept or has exceeded a limit
    return first_wide


def _is_wide(texts: CharDfa) -> bool:
    """Whether a transducer would need very many states inside characters."""
    return inner_estimate(texts.dfa.next_state[:, texts.dfa.symbol_class], texts.minterms) > _INNER_STATES_MAX


def _is_count(texts: CharDfa) -> bool:
    """Whether many tokens leave many states, though characters do few things."""
    dfa, parts = texts.dfa, texts.minterms
    if dfa.states < _LONG or parts.count > _FEW_MINTERMS:
        return False
    leaving = live_states(dfa)[dfa.next_state[:, dfa.symbol_class]] @ parts.sizes()
    return bool(leaving.mean() > _MANY_CHARACTERS)


def _whole_text_per_character(parts: _Parts, guard: ResourceGuard) -> _Attempt:
    """One whole-text constraint, with one letter per character. The letter DFA is the constraint's own."""
    assert parts.mandatory is not None
    # Nothing else reads the text, so this construction needs no test of its width.
    transducer, letters = per_character_transducer(parts.mandatory, parts.leading_space, guard)
    combination = Combination(
        transducer=transducer,
        letters=letters,
        mandatory=parts.mandatory,
        per_character=True,
        strips_space=parts.leading_space,
    )
    return _Attempt(False, lambda: combination)


def _side_by_side(parts: _Parts, guard: ResourceGuard) -> _Attempt:
    """The product of the word trace and the whole-text constraints. Its last letter tells which constraints hold."""
    leaves = leaves_of_type(parts.optional, CharLeaf)
    counts_characters = bool(leaves_of_type(parts.optional, LengthLeaf))
    optional = [leaf.texts for leaf in leaves]
    product = joint_transducer(
        parts.words, parts.mandatory, optional, counts_characters, leading_space=parts.leading_space, guard=guard
    )
    # Without whole-text constraints there is no other construction to fall back to, and no need to measure.
    measured = bool(leaves_of_type(parts.root, CharLeaf))
    inner_states = inner_estimate(product.transducer.next_state, product.transducer.minterms) if measured else 0

    def build() -> Combination:
        letters = NO_LETTERS
        if parts.optional is not None:
            # The mandatory constraint is no part of the letters: the transducer itself dies where it fails.
            holds = holds_by_outcome(product.alphabet, leaves)
            letters = minimize(letter_dfa(parts.optional, product.alphabet, holds, guard), guard)
        return _combine_words(parts, product, letters, parts.mandatory)

    return _Attempt(inner_states > _JOINT_INNER_STATES_MAX, build)


def _words_per_character(parts: _Parts, guard: ResourceGuard) -> _Attempt:
    """The word trace alone, each character a letter as well. Whole-text constraints read these letters."""
    leaves = leaves_of_type(parts.root, CharLeaf)
    texts = [leaf.texts for leaf in leaves]
    transducer, classes = word_trace_per_character(parts.words, texts, parts.leading_space, guard)
    holds = holds_by_characters(transducer.alphabet, leaves, classes)
    # Here every whole-text constraint is read from letters, the mandatory one too.
    letters = minimize(letter_dfa(parts.root, transducer.alphabet, holds, guard), guard)
    return _Attempt(False, partial(_combine_words, parts, transducer, letters, None))


def _combine_words(parts: _Parts, transducer: TextTransducer, letters: Dfa, mandatory: CharDfa | None) -> Combination:
    leaves = leaves_of_type(parts.optional, WordLeaf)
    internal = {name for leaf in leaves if leaf.internal for name in leaf.propositions}
    # A name that a caller uses as well stays visible.
    internal -= {name for leaf in leaves if not leaf.internal for name in leaf.propositions}
    return Combination(
        transducer=transducer,
        letters=letters,
        mandatory=mandatory,
        with_nomatch=any(leaf.with_nomatch for leaf in leaves),
        internal_names=frozenset(internal),
        strips_space=parts.leading_space,
    )


# --- a tree as a part of a larger text ------------------------------------------------------------------------------


def to_char_dfa(tree: ConstraintTree, guard: ResourceGuard) -> CharDfa:
    """The minimal DFA of the tree's texts over characters. It allows no leading space, since it becomes a part of a
    larger text.

    Raises what `combine` raises.
    """
    # Inside a larger text a leading space belongs to that text: the normal form does not ask for one.
    tree = normal_form(tree, guard)
    if isinstance(tree, CharLeaf):
        return tree.texts
    combination = combine(tree, guard)
    transducer, letters = combination.transducer.transducer, combination.letters
    states, columns = transducer.next_state.shape
    width = letters.states  # Q: the state (s, q) of the product has the number s * Q + q
    # int64 entries: the product is checked before it is written.
    guard.check("table_bytes_max", states * width * columns * 8)
    moves = np.stack([letters.moves(string) for string in transducer.outputs])  # [outputs, Q]
    # One product of the transducer and the letter DFA, written out: a character moves the letters by what it writes.
    table = transducer.next_state[:, None, :].astype(np.int64) * width  # [S, 1, M]
    table = table + moves[transducer.output].transpose(0, 2, 1)  # [S, Q, M]
    accepts_at_end = letters.accepting[moves[np.maximum(transducer.final_output, 0)]]  # [S, Q]
    # The end of the text writes its letters, after which the letter DFA must accept.
    accepting = accepts_at_end & (transducer.final_output >= 0)[:, None]
    start = combination.transducer.text_start * width + letters.start
    symbols = np.arange(columns, dtype=np.int32)
    product = Dfa(symbols, table.reshape(-1, columns).astype(np.int32), accepting.reshape(-1), start)
    return coarsened(CharDfa(minimize(product, guard), transducer.minterms))


def _minterm_names(minterms: Minterms) -> tuple[str, ...]:
    """The characters of each minterm."""
    return tuple(describe(minterms.charset([minterm])) for minterm in range(minterms.count))


def _letter_names(combination: Combination) -> LetterNames:
    """The caller's propositions of each letter. None for a letter that the word trace does not show."""
    alphabet = combination.transducer.alphabet
    hidden_names = combination.internal_names if combination.with_nomatch else {*combination.internal_names, NOMATCH}
    units = (tuple(sorted(letter - hidden_names)) for letter in alphabet.units)
    return (*units, *[None] * (len(alphabet) - len(alphabet.units)))


def _symbol_names(combination: Combination, names: LetterNames) -> tuple[str, ...]:
    """The names of all letters. `names` are those of `_letter_names`."""
    alphabet = combination.transducer.alphabet
    # Names in the order of LetterAlphabet: units, characters, the leading space, outcomes.
    steps = zip(alphabet.units, names, strict=False)  # the units come first among the letters
    units = (", ".join((*(propositions or ()), *_internal_names(letter))) or "other" for letter, propositions in steps)
    characters = ["(a character)"] * alphabet.character_letters + [_SPACE_NAME] * alphabet.has_space_letter
    return (*units, *characters, *(f"(end: {_outcome_name(outcome)})" for outcome in alphabet.outcomes))


def _internal_names(letter: frozenset[str]) -> list[str]:
    return sorted(_INTERNAL_NAMES[name] for name in letter & _INTERNAL_NAMES.keys())


def _outcome_name(outcome: Outcome) -> str:
    """The outcome of the whole-text constraints, in their order. Where there are two readings, both are named."""
    readings = [
        "no text" if met is None else ", ".join("met" if holds else "not met" for holds in met) or "a text"
        for met in outcome
    ]
    return readings[0] if len(readings) == 1 else f"{readings[0]}; without its first space {readings[1]}"
