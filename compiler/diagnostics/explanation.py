"""Explains a compiled constraint: sentences, letters, states and accepted texts.

Every text that is shown has been checked against the constraint. `prose` writes the clauses, `samples` walks the
automaton.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.artifact import CompiledConstraint
from compiler.diagnostics.prose import counted, sentence, shortened
from compiler.diagnostics.samples import STEPS_MAX, TextSampler
from compiler.errors import LimitExceeded
from compiler.lifting import TokenAutomaton
from compiler.limits import ResourceGuard
from compiler.products import LazyProduct, ProductStates
from compiler.pushdown import SPENT_BYTE, Configurations, PushdownAutomaton
from compiler.spec import EOS, NOMATCH, STEP, Spec, in_caller_names, meaning_name
from compiler.text import (
    SEPARATOR,
    AnyText,
    DistinctText,
    ProductText,
    PushdownText,
    TextAutomaton,
    check_labels,
    check_text,
)

SHOWN_MAX = 200  # states, and letters, that are listed
SAMPLES = 3
_WORD = "a word"  # the name of our proposition STEP for readers
_STEP_NAME = meaning_name(STEP)
_KIB = 1024
CHARACTER_NAME = "(a character)"  # of the letter that each character emits where they are counted


@dataclass(frozen=True, slots=True)
class Letter:
    """One letter of the automaton.

    means  in words
    holds  the propositions that hold at a unit or label; None where the letter is neither
    """

    name: str
    means: str
    holds: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class StateNote:
    """One state of the automaton. `distance` is the fewest tokens to the end, None where no answer can be finished."""

    state: int
    distance: int | None
    accepting: bool
    start: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintExplanation:
    """What was compiled, in words and numbers.

    sentences  the first says what is accepted, the others what became of it
    letters, states            the first of them, and `letters_more`, `states_more` how many more there are
    shortest   a shortest accepted text; of labels, joined by spaces. None where it is too long to be shown
    samples    random accepted texts, no two alike; fewer than three only where so few are accepted, or none is shown
    """

    sentences: tuple[str, ...]
    letters: tuple[Letter, ...]
    letters_more: int
    states: tuple[StateNote, ...]
    states_more: int
    shortest: str | None
    samples: tuple[str, ...]


def explain(compiled: CompiledConstraint, seed: int = 0, guard: ResourceGuard | None = None) -> ConstraintExplanation:
    """The explanation of a compiled constraint; the same for the same seed.

    guard  the limits of the walks; by default those that the constraint was compiled under
    Raises LimitExceeded over `compile_s_max`, CompileCancelled, and RuntimeError where a text that the automaton over
    bytes accepts fails its check, which is a bug of ours.
    """
    text = compiled.text
    examples, no_examples = _examples(compiled, seed, guard or ResourceGuard(text.limits))
    letters, states = _shown(compiled, text) if isinstance(text, TextAutomaton) else ((), ())
    shown = text.display_dfa if isinstance(text, TextAutomaton) else None
    return ConstraintExplanation(
        sentences=(sentence(compiled.spec), *_conventions(text), *_sizes(compiled), *no_examples),
        letters=letters,
        letters_more=shown.symbols - len(letters) if shown else 0,
        states=states,
        states_more=shown.states - len(states) if shown else 0,
        # The first example is the shortest text, the others are random.
        shortest=examples[0] if examples else None,
        samples=tuple(examples[1:]),
    )


def _shown(compiled: CompiledConstraint, text: TextAutomaton) -> tuple[tuple[Letter, ...], tuple[StateNote, ...]]:
    """The first letters and states."""
    dfa = text.display_dfa
    # Where the states that are shown belong to another automaton than the letters, its symbols hold no propositions.
    propositions = text.letter_names if dfa is text.letters else (None,) * dfa.symbols
    letters = tuple(
        _letter(text.kind, name, holds)
        for name, holds in zip(text.symbol_names[:SHOWN_MAX], propositions[:SHOWN_MAX], strict=True)
    )
    states = tuple(
        StateNote(state, distance, bool(dfa.accepting[state]), state == dfa.start)
        for state, distance in enumerate(compiled.state_distances[:SHOWN_MAX])
    )
    return letters, states


def with_caller_names(
    explanation: ConstraintExplanation, spec: Spec, names: Mapping[str, tuple[str, ...]]
) -> ConstraintExplanation:
    """The explanation with another caller's names of propositions. That caller wrote the same constraint as `spec`.

    names  the caller's names by meaning, from `compiler.spec.caller_names`
    """
    letters = tuple(
        letter if letter.holds is None else _rename_letter(letter, in_caller_names(letter.holds, names))
        for letter in explanation.letters
    )
    return dataclasses.replace(explanation, sentences=(sentence(spec), *explanation.sentences[1:]), letters=letters)


def _rename_letter(letter: Letter, holds: tuple[str, ...]) -> Letter:
    """The letter with other names. The name of a label is its own; that of a set of propositions lists them."""
    # Only the sentence shows that a letter is a label.
    return _at_step(letter.name, letter.means == _at_label(letter.name, letter.holds or ()), holds)


def _at_step(name: str, is_label: bool, holds: tuple[str, ...]) -> Letter:
    """A letter that is a step of the trace."""
    if is_label:
        return Letter(name, _at_label(name, holds), holds)
    return Letter(shortened(", ".join(holds) or "other"), _step_in_words(holds), holds)


def _letter(kind: str, name: str, holds: tuple[str, ...] | None) -> Letter:
    name = shortened(name)
    if kind == "characters":
        return Letter(name, f"one character of the class {name}", None)
    # The trace has no step for a letter that counts a character or ends the text.
    if holds is None:
        character = name == CHARACTER_NAME
        return Letter(
            name, "any one character" if character else "the end of the text, and what the whole is like", None
        )
    # Our own proposition for a word has an internal name.
    names = tuple(_WORD if meaning == _STEP_NAME else meaning for meaning in holds)
    return _at_step(name, kind == "labels", names)


def _at_label(name: str, holds: Sequence[str]) -> str:
    return f"the label {name}, at which {_step_in_words(holds)}" if holds else f"the label {name}"


def _step_in_words(holds: Sequence[str]) -> str:
    """A step of the trace, by the propositions that hold at it."""
    if EOS in holds:
        return "the step after the last word"
    if not holds or tuple(holds) == (NOMATCH,):
        return "no proposition holds"
    return shortened(f"{' and '.join(holds)} {'holds' if len(holds) == 1 else 'hold'}")


def _conventions(text: AnyText) -> list[str]:
    """How the text is read, where that matters."""
    conventions = []
    if isinstance(text, TextAutomaton) and text.kind == "words" and text.traced:
        conventions.append(
            "A word is a run of letters, digits and underscores; it is one step of the word trace, and so is every "
            "other character that is no white space."
        )
    if any(EOS in (names or ()) for names in text.letter_names):
        conventions.append("One last step follows the last word; at it eos holds and nothing else.")
    if text.strips_space:
        conventions.append("One space before the answer is allowed, and is not part of it.")
    elif text.kind in ("characters", "grammar"):
        conventions.append("No space is allowed before the answer.")
    return conventions


def _letters(text: TextAutomaton) -> str:
    """How many letters there are, and of what kind."""
    number = text.display_dfa.symbols
    match text.kind:
        case "characters":
            return f"{number:,} {'class' if number == 1 else 'classes'} of characters that it treats alike"
        case "labels":
            return counted(number, "label")
        case "words":
            ending = " or what the text as a whole is like" if None in text.letter_names else ""
            return f"{counted(number, 'letter')}, each a set of propositions that can hold at one step{ending}"


def _sizes(compiled: CompiledConstraint) -> list[str]:
    text, tokens = compiled.text, compiled.tokens
    unit = "label" if text.kind == "labels" else "token"
    if isinstance(text, PushdownText):
        states, symbols = text.machine.states, len(text.machine.resume)
        shown = f"Its pushdown automaton has {counted(states, 'control state')} and {counted(symbols, 'stack symbol')}."
    elif isinstance(text, ProductText):
        letters = sum(part.letters for part in text.parts if isinstance(part, DistinctText))
        shown = f"One automaton would be too large: {len(text.parts)} run side by side."
        if letters:
            items = f"Which of {counted(letters, 'item')} an array holds is counted beside the states."
            shown = f"{shown} {items}" if len(text.parts) > 1 else items
    else:
        # The sizes are those of the automaton that is shown; the token automaton has its own sentence.
        accepting = int(text.display_dfa.accepting.sum())
        dead = sum(distance is None for distance in compiled.state_distances)
        shown = f"Its automaton has {counted(text.display_dfa.states, 'state')}, {accepting:,} accepting"
        # States from which acceptance is unreachable are mentioned only where there are some.
        shown += f" and {dead:,} from which no answer can be finished" if dead else ""
        shown += f", over {_letters(text)}."
    tables = f"{tokens.table_bytes / _KIB:,.1f} KiB of tables"
    state = "control state" if isinstance(tokens, PushdownAutomaton) else "state"
    shortest = f"The shortest answer takes {counted(tokens.min_tokens, unit)}"
    if isinstance(tokens, LazyProduct) and tokens.min_tokens_at_least < tokens.min_tokens:
        least = f"{tokens.min_tokens_at_least:,} to {counted(tokens.min_tokens, unit)}"
        shortest = f"The shortest answer takes {least}: a search within limits found no closer bounds"
    return [
        shown,
        f"{shortest}, the end of the answer counted as one.",
        f"The automaton over {unit}s has {counted(tokens.states, state)}, tells {tokens.classes:,} kinds of {unit}s "
        f"apart and takes {tables}.",
    ]


def _examples(compiled: CompiledConstraint, seed: int, guard: ResourceGuard) -> tuple[list[str], list[str]]:
    """A shortest accepted text and random ones. Where there are none, a sentence gives the reason."""
    text = compiled.text
    try:
        sampler = _sampler(compiled, guard)
    # An explanation without examples is better than none.
    except LimitExceeded as error:
        return [], [f"No examples are shown: to find them takes more than the limit {error.limit}."]
    # A text of that length helps no reader.
    if sampler.least_steps > STEPS_MAX:
        unit = "label" if text.kind == "labels" else "byte"
        return [], [f"No examples are shown: the shortest takes {counted(sampler.least_steps, unit)}."]
    return [_text_of(text, word) for word in (sampler.shortest(), *sampler.different(SAMPLES, seed))], []


def _sampler(compiled: CompiledConstraint, guard: ResourceGuard) -> TextSampler:
    text, tokens = compiled.text, compiled.tokens
    if isinstance(text, PushdownText):
        states = Configurations(text.byte_automaton, start=((text.text_start, ()),))
        return TextSampler(states, states.start, over_bytes=True, guard=guard)
    if isinstance(text, ProductText):
        product = ProductStates(text.byte_automaton)
        return TextSampler(product, product.start, over_bytes=True, guard=guard)
    if text.kind == "labels":
        assert isinstance(tokens, TokenAutomaton)
        return TextSampler(tokens, tokens.start, over_bytes=False, guard=guard)
    # A state of the automaton is a pair (transducer state, letter state), packed into one number.
    automaton = text.byte_automaton
    start = text.text_start * automaton.letter_states + text.letters.start
    return TextSampler(automaton, start, over_bytes=True, guard=guard)


def _text_of(text: AnyText, word: tuple[int, ...]) -> str:
    """The displayed text of a word of the automaton. Raises RuntimeError where the text is not accepted."""
    if isinstance(text, TextAutomaton) and text.kind == "labels":
        labels = [text.symbol_names[label] for label in word]
        example, check = SEPARATOR.join(labels), check_labels(text, labels)
    else:
        # Bytes that no text holds stand around named tokens, and where a budget ends.
        example = bytes(byte for byte in word if byte < SPENT_BYTE).decode()
        check = check_text(text, example)
    # The walk and the check are independent: a disagreement is a bug, and is never shown.
    if not check.satisfied:
        raise RuntimeError("a text that was found by walking the automaton is not accepted by it")
    return example
