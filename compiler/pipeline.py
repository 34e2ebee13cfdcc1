"""The story of a compilation: constraint, automaton over texts, automaton over tokens."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.charset import describe
from compiler.compiled import Compiled
from compiler.errors import SpecError, SpecSyntaxError, SpecUnsatisfiable, SpecUnspellable
from compiler.lift import lift
from compiler.limits import DEFAULT_LIMITS, Limits, Meter
from compiler.ltlf import formula_to_dfa
from compiler.ltlf_syntax import Builder, Formula, Op, parse_formula, propositions_of
from compiler.patterns import pattern_labeller
from compiler.regex import pattern_dfa
from compiler.regex_syntax import blame_field
from compiler.spec import KeywordsSpec, LtlfSpec, Proposition, RegexSpec, Spec
from compiler.text_automaton import NO_LETTERS, TextAutomaton
from compiler.token_automaton import UNREACHABLE, TokenAutomaton
from compiler.unspellable import missing_characters
from compiler.vocabulary import Vocabulary
from compiler.words import EOS, NOMATCH, PUNCTUATION, word_labeller


def check_limits(spec: Spec, limits: Limits = DEFAULT_LIMITS) -> None:
    """Raise LimitExceeded where a constraint is too long to be looked at; cheap, nothing is parsed."""
    meter = Meter(limits)
    match spec:
        case LtlfSpec():
            meter.charge("formula_chars_max", len(spec.formula))
            meter.charge("propositions_max", len(spec.propositions))
            meanings = [proposition for _, proposition in spec.propositions]
            meter.charge("keyword_chars_max", sum(len(word) for meaning in meanings for word in meaning.words))
            meter.charge("pattern_chars_max", sum(len(meaning.regex or "") for meaning in meanings))
        case KeywordsSpec():
            meter.charge("propositions_max", len(spec.concepts))
            meter.charge("keyword_chars_max", sum(len(form) for forms in spec.concepts for form in forms))
        case RegexSpec():
            meter.charge("pattern_chars_max", len(spec.pattern))


def compile_text(
    spec: Spec, limits: Limits = DEFAULT_LIMITS, cancelled: Callable[[], bool] | None = None
) -> TextAutomaton:
    """The automaton over texts of a constraint.

    Raises SpecSyntaxError or SpecUnsupported where it cannot be read, SpecUnsatisfiable where no text satisfies it,
    LimitExceeded where it outgrows a limit.
    """
    text = _compile_text(spec, Meter(limits, cancelled))
    if text.byte_automaton.min_tokens == UNREACHABLE:
        raise _unsatisfiable()
    return text


def compile_spec(
    spec: Spec,
    vocabulary: Vocabulary,
    limits: Limits = DEFAULT_LIMITS,
    cancelled: Callable[[], bool] | None = None,
) -> Compiled:
    """A constraint compiled for a vocabulary.

    cancelled  asked again and again; CompileCancelled once it says so
    Raises what compile_text raises, and SpecUnspellable where texts satisfy it but no tokens spell one.
    """
    meter = Meter(limits, cancelled)
    text = _compile_text(spec, meter)
    tokens = lift(text.labeller, text.letters, vocabulary, meter)
    if tokens.min_tokens == UNREACHABLE:
        raise _impossible(text, vocabulary, meter)
    return Compiled(spec, text, tokens, _state_distances(text, tokens), vocabulary.fingerprint)


def _compile_text(spec: Spec, meter: Meter) -> TextAutomaton:
    check_limits(spec, meter.limits)
    match spec:
        case LtlfSpec():
            formula = parse_formula(spec.formula, meter)
            return _words(formula, _propositions(formula, dict(spec.propositions)), meter)
        case KeywordsSpec():
            return _words(*_keywords(spec), meter)
        case RegexSpec():
            return _characters(spec, meter)


def _propositions(formula: Formula, declared: dict[str, Proposition]) -> dict[str, Proposition]:
    """What each proposition means: as declared, else a punctuation mark, else the word of that name."""
    named = [name for name in propositions_of(formula) if name not in (EOS, NOMATCH) and name not in declared]
    if not all(name.strip() for name in named):
        raise SpecSyntaxError("a name of white space alone stands for no word: declare what it means", field="ltlf")
    return declared | {name: PUNCTUATION.get(name) or Proposition(words=(name,)) for name in named}


def _keywords(spec: KeywordsSpec) -> tuple[Formula, dict[str, Proposition]]:
    """The formula of keywords. In order: (none yet) U (the first & X((none of the rest) U (the second & ...))).

    The first itself is among the none: what counts is where it first occurs, also where concepts share a form.
    """
    names: list[str] = []
    for forms in spec.concepts:
        name = forms[0]
        while name in (*names, EOS, NOMATCH):  # a keyword may be one of these words, or be given twice
            name += "'"
        names.append(name)
    build = Builder()
    concepts = [build.add(Op.NAME, (), name) for name in names]
    if spec.ordered:
        root = build.add(Op.FINALLY, concepts[-1:])
        for number in range(len(concepts) - 2, -1, -1):
            here = build.add(Op.AND, (concepts[number], build.add(Op.NEXT, (root,))))
            none = [build.add(Op.NOT, (concept,)) for concept in concepts[number:]]
            root = build.add(Op.UNTIL, (build.add(Op.AND, none), here))
    else:
        found = list(dict.fromkeys(build.add(Op.FINALLY, (concept,)) for concept in concepts))
        root = build.add(Op.AND, found) if len(found) > 1 else found[0]
    meanings = [Proposition(forms, case_sensitive=spec.case_sensitive) for forms in spec.concepts]
    return build.formula(root), dict(zip(names, meanings, strict=True))


def _words(formula: Formula, propositions: dict[str, Proposition], meter: Meter) -> TextAutomaton:
    meter.charge("propositions_max", len(propositions))
    mentioned = propositions_of(formula)
    found = word_labeller(propositions, EOS in mentioned, meter)
    letters = formula_to_dfa(formula, found.letters, meter)
    shown = [letter - {NOMATCH} if NOMATCH not in mentioned else letter for letter in found.letters]
    names = tuple(tuple(sorted(letter)) for letter in shown)
    return TextAutomaton(
        kind="words",
        labeller=found.labeller,
        letters=letters,
        dfa=letters,
        symbol_names=tuple(", ".join(letter) or "other" for letter in names),
        letter_names=names,
        dfa_state=np.zeros(0, dtype=np.int32),
        text_start=found.labeller.start,
        limits=meter.limits,
    )


def _characters(spec: RegexSpec, meter: Meter) -> TextAutomaton:
    with blame_field("regex"):
        dfa, minterms = pattern_dfa(spec.pattern, meter)
    found = pattern_labeller(dfa, minterms, spec.leading_space == "strip", meter)
    return TextAutomaton(
        kind="characters",
        labeller=found.labeller,
        letters=NO_LETTERS,
        dfa=dfa,
        symbol_names=tuple(describe(minterms.charset([minterm])) for minterm in range(minterms.count)),
        letter_names=(),
        dfa_state=found.dfa_state,
        text_start=found.text_start,
        limits=meter.limits,
    )


def _state_distances(text: TextAutomaton, tokens: TokenAutomaton) -> tuple[int | None, ...]:
    """Fewest tokens to acceptance from each state of text.dfa, as the paper's Figure 1 prints them.

    A letter state is taken between words; one that only the step of `eos` leads to is accepting with distance 0.
    """
    if text.kind == "words":
        first = text.labeller.start * tokens.letter_states
        found = tokens.distance[first : first + tokens.letter_states].copy()
        if any(EOS in letter for letter in text.letter_names):
            found[text.dfa.accepting & (found == UNREACHABLE)] = 0
    else:
        found = np.full(text.dfa.states, UNREACHABLE)
        between = np.arange(1, text.dfa.states + 1)
        found[text.dfa_state[between]] = tokens.distance[between]
    return tuple(None if distance == UNREACHABLE else int(distance) for distance in found)


def _unsatisfiable() -> SpecUnsatisfiable:
    return SpecUnsatisfiable("no text at all satisfies the constraint")


def _impossible(text: TextAutomaton, vocabulary: Vocabulary, meter: Meter) -> SpecError:
    """Why no tokens satisfy the constraint: no text does, or the vocabulary cannot spell those that do."""
    if text.byte_automaton.min_tokens == UNREACHABLE:
        return _unsatisfiable()
    characters = missing_characters(text.byte_automaton, vocabulary, meter)
    if not characters:
        return SpecUnspellable("texts satisfy the constraint, but the model's tokens cannot spell one")
    listed = ", ".join(f"{character!r} (U+{ord(character):04X})" for character in characters)
    return SpecUnspellable(
        f"no token of the model can spell {listed}, which the constraint needs", characters=characters
    )
