"""The story of a compilation: constraint, automaton over texts, automaton over tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.artifact import Compiled
from compiler.automata import NO_END, Dfa, Minterms, describe, to_labeller
from compiler.diagnostics import missing_characters, naming_conflicts
from compiler.engines import NATIVE, Engines
from compiler.errors import SpecError, SpecUnsatisfiable, SpecUnspellable, SpecUnsupported
from compiler.forms import part_of
from compiler.lifting import UNREACHABLE, TokenAutomaton, lift
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.spec import (
    CLOSER,
    EOS,
    NOMATCH,
    SENTENCE_END,
    STEP,
    LabelsSpec,
    LengthSpec,
    Spec,
    check_limits,
    leaves,
    meaning_name,
    trimmed,
)
from compiler.text import Combined, LetterAlphabet, Outcome, TextAutomaton, combine, label_automata
from compiler.vocab import Vocabulary

_OURS = {  # the names of our own propositions, as people read them
    meaning_name(STEP): "(a word)",
    meaning_name(SENTENCE_END): "(the end of a sentence)",
    meaning_name(CLOSER): "(a closing mark)",
}


def compile_text(
    spec: Spec,
    limits: Limits = DEFAULT_LIMITS,
    cancelled: Callable[[], bool] | None = None,
    engines: Engines = NATIVE,
) -> TextAutomaton:
    """The automaton over texts of a constraint.

    Raises SpecSyntaxError or SpecUnsupported where it cannot be read, SpecUnsatisfiable where no text satisfies it,
    LimitExceeded where it outgrows a limit.
    """
    guard = ResourceGuard(limits, cancelled)
    with naming_conflicts(spec, engines, guard):
        read = _read(spec, guard)
        if isinstance(read, LabelsSpec):
            return _compile_labels(read, engines, guard)[0]
        text = _compile_text(read, engines, guard)
        if text.byte_automaton.min_tokens == UNREACHABLE:
            raise SpecUnsatisfiable("no text satisfies the constraint")
        return text


def compile_spec(
    spec: Spec,
    vocabulary: Vocabulary,
    limits: Limits = DEFAULT_LIMITS,
    cancelled: Callable[[], bool] | None = None,
    engines: Engines = NATIVE,
) -> Compiled:
    """A constraint compiled for a vocabulary.

    cancelled  asked again and again; CompileCancelled once it says so
    Raises what compile_text raises, and SpecUnspellable where texts satisfy it but no tokens spell one.
    """
    guard = ResourceGuard(limits, cancelled)
    with naming_conflicts(spec, engines, guard):
        read = _read(spec, guard)
        if isinstance(read, LabelsSpec):  # over ids of its own: the vocabulary is only the one it is stored for
            text, tokens = _compile_labels(read, engines, guard)
            return Compiled(read, text, tokens, _label_distances(text, tokens), vocabulary.fingerprint)
        text = _compile_text(read, engines, guard)
        tokens = lift(text.labeller, text.letters, vocabulary, guard)
        if tokens.min_tokens == UNREACHABLE:
            raise _impossible(text, vocabulary, guard)
        return Compiled(read, text, tokens, _state_distances(text, tokens), vocabulary.fingerprint)


def _read(spec: Spec, guard: ResourceGuard) -> Spec:
    """The constraint without what says nothing in it, once it is known to be short enough to be looked at."""
    check_limits(spec, guard.limits)
    return trimmed(spec, guard)


def _compile_labels(spec: LabelsSpec, engines: Engines, guard: ResourceGuard) -> tuple[TextAutomaton, TokenAutomaton]:
    if any(isinstance(leaf, LengthSpec) and leaf.sentences is not None for leaf in leaves(spec)):
        raise SpecUnsupported("labels make up no sentences", construct="sentences", field="sentences")
    text, tokens = label_automata(part_of(spec.part, engines, guard), spec.labels, guard)
    if tokens.min_tokens == UNREACHABLE:
        raise SpecUnsatisfiable("no sequence of the labels satisfies the constraint")
    return text, tokens


def _label_distances(text: TextAutomaton, tokens: TokenAutomaton) -> tuple[int | None, ...]:
    """Fewest steps, the end among them, from each state. The token automaton has the DFA's states, after a dead one."""
    found = tokens.distance[1 : text.dfa.states + 1]
    return tuple(None if distance == UNREACHABLE else int(distance) for distance in found)


def _compile_text(spec: Spec, engines: Engines, guard: ResourceGuard) -> TextAutomaton:
    combined = combine(part_of(spec, engines, guard), guard)
    joint, letters = combined.joint, combined.letters
    labeller = to_labeller(joint.transducer, joint.start, guard)
    letter_names = _letter_names(joint.letters, combined)
    if combined.required is None or joint.letters.units or combined.spelled:
        symbols = _spelled_names(joint.transducer.minterms, letters) if combined.spelled else None
        return TextAutomaton(
            kind="characters" if combined.spelled else "words",
            labeller=labeller,
            letters=letters,
            dfa=letters,
            symbol_names=symbols or _symbol_names(joint.letters, letter_names),
            letter_names=(None,) * letters.symbols if combined.spelled else letter_names,
            dfa_state=np.zeros(0, dtype=np.int32),
            text_start=joint.text_start,
            strips_space=combined.strips_space,
            limits=guard.limits,
        )
    whole, minterms = combined.required.dfa, combined.required.minterms
    return TextAutomaton(
        kind="characters",
        labeller=labeller,
        letters=letters,
        dfa=whole,
        symbol_names=_minterm_names(minterms),
        letter_names=letter_names,
        dfa_state=joint.shown,
        text_start=joint.text_start,
        strips_space=combined.strips_space,
        limits=guard.limits,
    )


def _minterm_names(minterms: Minterms) -> tuple[str, ...]:
    return tuple(describe(minterms.charset([minterm])) for minterm in range(minterms.count))


def _spelled_names(minterms: Minterms, letters: Dfa) -> tuple[str, ...]:
    """The names of letters that are characters, and of the one more that is the leading space."""
    return (*_minterm_names(minterms), "(a leading space)")[: letters.symbols]


def _letter_names(letters: LetterAlphabet, combined: Combined) -> tuple[tuple[str, ...] | None, ...]:
    """The propositions of each letter as people see them; None for one that is no step of the word trace."""
    silent = combined.hidden if combined.with_nomatch else {*combined.hidden, NOMATCH}
    shown = [letter - silent for letter in letters.units]
    return (*(tuple(sorted(letter)) for letter in shown), *[None] * (len(letters) - len(letters.units)))


def _shown_outcome(outcome: Outcome) -> str:
    """What the last letter says of the whole-text constraints, in their order; of both readings where there are two."""
    told = [
        "no text" if met is None else ", ".join("met" if one else "not met" for one in met) or "a text"
        for met in outcome
    ]
    return told[0] if len(told) == 1 else f"{told[0]}; without its first space {told[1]}"


def _symbol_names(letters: LetterAlphabet, letter_names: tuple[tuple[str, ...] | None, ...]) -> tuple[str, ...]:
    kinds = (sorted(_OURS[name] for name in letter & _OURS.keys()) for letter in letters.units)
    units = zip((letter for letter in letter_names if letter is not None), kinds, strict=True)
    names = [", ".join((*held, *kind)) or "other" for held, kind in units]
    names += ["(a character)"] * letters.counted + ["(a leading space)"] * letters.stripped
    names += [f"(end: {_shown_outcome(outcome)})" for outcome in letters.verdicts]
    return tuple(names)


def _state_distances(text: TextAutomaton, tokens: TokenAutomaton) -> tuple[int | None, ...]:
    """Fewest tokens to acceptance from each state of text.dfa, as the paper's Figure 1 prints them.

    A letter state is taken between words; one that only the step of `eos` leads to is accepting with distance 0. Where
    the text is read by a second automaton too, the distance is the one at best.
    """
    between = text.labeller.boundary
    if text.kind == "words":
        by_state = tokens.distance[: between * tokens.letter_states].reshape(between, -1)
        found = by_state.min(axis=0) if _constrained(text) else by_state[text.labeller.start].copy()
        if any(EOS in (letter or ()) for letter in text.letter_names):
            found[text.dfa.accepting & (found == UNREACHABLE)] = 0
    elif text.dfa is text.letters:
        first = text.text_start * tokens.letter_states
        found = tokens.distance[first : first + tokens.letter_states].copy()
    elif text.letters.symbols:
        best = tokens.distance[: between * tokens.letter_states].reshape(between, -1).min(axis=1)
        found = np.full(text.dfa.states, UNREACHABLE)
        np.minimum.at(found, text.dfa_state[1:], best[1:])
    else:
        found = np.full(text.dfa.states, UNREACHABLE)
        own = np.arange(1, text.dfa.states + 1)
        found[text.dfa_state[own]] = tokens.distance[own]
    return tuple(None if distance == UNREACHABLE else int(distance) for distance in found)


def _constrained(text: TextAutomaton) -> bool:
    """Whether the labeller does more than read the word trace."""
    ends = text.labeller.flush[1 : text.labeller.boundary]
    return bool((ends == NO_END).any()) or not text.traced or None in text.letter_names


def _impossible(text: TextAutomaton, vocabulary: Vocabulary, guard: ResourceGuard) -> SpecError:
    """Why no tokens satisfy the constraint: no text does, or the vocabulary cannot spell those that do."""
    if text.byte_automaton.min_tokens == UNREACHABLE:
        return SpecUnsatisfiable("no text satisfies the constraint")
    characters = missing_characters(text.byte_automaton, vocabulary, guard)
    if not characters:
        return SpecUnspellable("texts satisfy the constraint, but the model's tokens cannot spell one")
    listed = ", ".join(f"{character!r} (U+{ord(character):04X})" for character in characters)
    return SpecUnspellable(
        f"no token of the model can spell {listed}, which the constraint needs", characters=characters
    )
