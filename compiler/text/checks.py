"""Checks finished texts, and replays their tokens, without a vocabulary."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import NamedTuple, TypeAlias

from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.products import DistinctAutomaton, LazyProduct, Part, PartStart, ProductStart
from compiler.pushdown import PushdownAutomaton, Stacks
from compiler.text.distinct_text import DistinctText
from compiler.text.product_text import PartText, ProductText
from compiler.text.pushdown_text import PushdownText, StackReader
from compiler.text.text_automaton import TextAutomaton, states_along

UNIT = re.compile(r"\w+|[^\w\s]")  # the units of a text's word trace: docs/constraints/ltlf.md
AnyText: TypeAlias = TextAutomaton | PushdownText | ProductText
"""A constraint over texts. All kinds have a reader, and say where a text goes wrong."""
_DEAD: tuple[PartStart, PartStart] = (0, ())  # of an explicit part, and of the others
AnyTokens: TypeAlias = TokenAutomaton | PushdownAutomaton | LazyProduct
"""The automaton over tokens of each kind."""


@dataclass(frozen=True, slots=True)
class WordStep:
    """One unit of a word trace. It has its text, the propositions that hold at it, and the state after it."""

    text: str
    letters: tuple[str, ...]
    state: int


@dataclass(frozen=True, slots=True)
class TextCheck:
    """Whether a text satisfies a constraint.

    violated_at  None where satisfied; else the offset of the first character after which no continuation can
                 satisfy any more, or the text's length where it merely ends too early
    """

    satisfied: bool
    words: tuple[WordStep, ...]
    violated_at: int | None


@dataclass(frozen=True, slots=True)
class ReplayStep:
    """The state after one token, and the letters it wrote. A letter is a set of propositions.

    state  of `display_dfa`, or the least control state of a pushdown machine
    stack  the rules of a grammar that are open, the innermost last; None without a grammar
    """

    state: int
    letters: tuple[tuple[str, ...], ...]
    stack: tuple[str, ...] | None = None


class _Unit(NamedTuple):
    """A unit of a word trace in a replay.

    It has the step that completes it, and the propositions that hold there.
    """

    step: int
    propositions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prefix:
    """How far tokens can continue a text to one that satisfies.

    start  the state of the token automaton after the text; it means nothing where `chars` is not the whole text. That
           of a product has no witness: `LazyProduct.started_at` searches for one
    chars  how many of its characters can be continued
    """

    start: int | Stacks | ProductStart
    chars: int


def read_prefix(automaton: AnyText, tokens: AnyTokens, text: str) -> Prefix:
    """The state from which tokens continue a text. The text itself is read as characters.

    tokens  the token automaton that was lifted from this one
    """
    if isinstance(automaton, ProductText):
        assert isinstance(tokens, LazyProduct)
        return _read_product(automaton, tokens, text)
    return Prefix(*_read_part(automaton, tokens, text))


def _read_product(automaton: ProductText, tokens: LazyProduct, text: str) -> Prefix:
    """The same where the parts are read one by one. Parts that read a space before a text are dead then."""
    read = [_read_part(*pair, text) for pair in zip(automaton.parts, tokens.parts, strict=False)]
    chars = automaton.fold(lambda part: read[part][1], min, max)
    starts = [_DEAD[not isinstance(part, TokenAutomaton)] for part in tokens.parts]
    for number, (start, continued) in enumerate(read):
        if continued == len(text):
            starts[number] = start
    return Prefix(ProductStart(tuple(starts), 0, None), chars)


def _read_part(automaton: PartText, tokens: Part | LazyProduct, text: str) -> tuple[PartStart, int]:
    """The state after a text, and how many characters can be continued."""
    if isinstance(automaton, PushdownText):
        assert isinstance(tokens, PushdownAutomaton)
        return automaton.after(tokens, text)
    if isinstance(automaton, DistinctText):
        assert isinstance(tokens, DistinctAutomaton)
        return automaton.after(tokens, text)
    assert isinstance(tokens, TokenAutomaton)
    states = states_along(automaton, text)
    alive = [offset for offset, state in enumerate(states) if tokens.distance[state] != UNREACHABLE]
    return states[-1], alive[-1] if alive else 0


def replay(automaton: AnyText, pieces: Sequence[bytes], before: str | None = None) -> tuple[ReplayStep, ...]:
    """Replay a finished text byte by byte, token by token. The result has one step for each piece and one for EOS.

    before  what the text begins with, where the pieces are only its end
    Without it a leading space that is not part of the answer is passed over.
    """
    parts = parts_of_text(automaton)
    readers = [part.reader() for part in parts]
    if before is None:
        raw = b"".join(pieces).decode()
        # One leading space at most, which the first non-empty piece holds.
        skipped = len(raw) - len(answer_text(automaton, raw))
        first = next((number for number, piece in enumerate(pieces) if piece), 0)
        pieces = [piece[skipped:] if number == first else piece for number, piece in enumerate(pieces)]
    else:
        # The prompt's own states are passed over, not reported.
        for reader in readers:
            reader.read(before.encode())
    units: list[list[_Unit]] = [[] for _ in parts]
    shown = list[tuple[int, tuple[str, ...] | None]]()
    # The last step is that of EOS, which writes what the end of the text writes.
    for step, piece in enumerate((*pieces, None)):
        for part, reader, read in zip(parts, readers, units, strict=True):
            letters = reader.end() or [] if piece is None else reader.read(piece)
            names = (part.letter_names[letter] for letter in letters)
            read.extend(_Unit(step, propositions) for propositions in names if propositions is not None)
        stack = next((reader.stack for reader in readers if isinstance(reader, StackReader)), None)
        shown.append((readers[0].state, stack))
    written = _written_units(units)
    return tuple(ReplayStep(state, tuple(written[step]), stack) for step, (state, stack) in enumerate(shown))


def _written_units(units: list[list[_Unit]]) -> dict[int, list[tuple[str, ...]]]:
    """The units that each step writes, as all parts read them.

    units  those that each part has read; a part that is dead reads no more
    """
    written = defaultdict[int, list[tuple[str, ...]]](list)
    for alike in zip_longest(*units):
        read = [unit for unit in alike if unit is not None]
        # Parts may read a unit at different bytes of the character behind it.
        written[max(unit.step for unit in read)].append(_together([unit.propositions for unit in read]))
    return written


def _together(propositions: list[tuple[str, ...]]) -> tuple[str, ...]:
    """What holds at a unit for any part."""
    return propositions[0] if len(propositions) == 1 else tuple(sorted(set(chain.from_iterable(propositions))))


def check_text(automaton: AnyText, text: str) -> TextCheck:
    """Decide whether a text satisfies the constraint.

    Otherwise the result names the offset from which it cannot any more.

    Raises UnicodeEncodeError where the text holds half of a surrogate pair.

    >>> from compiler.pipeline import compile_text
    >>> from compiler.spec import RegexSpec
    >>> check_text(compile_text(RegexSpec("a+b")), "aac").violated_at
    2
    """
    # The automaton over bytes is built only where there is a violation to locate.
    violated_at = None if _accepts(automaton, text) else automaton.violation(text)
    traced = [part for part in parts_of_text(automaton) if isinstance(part, TextAutomaton) and part.traced]
    if traced:
        steps = [_word_steps(part, text) for part in traced]
        return TextCheck(violated_at is None, tuple(map(_joined, zip_longest(*steps))), violated_at)
    return TextCheck(violated_at is None, _unit_steps(automaton, text), violated_at)


def parts_of_text(automaton: AnyText) -> tuple[PartText, ...]:
    """The parts of a product, or the text itself."""
    return automaton.parts if isinstance(automaton, ProductText) else (automaton,)


def _joined(steps: tuple[WordStep | None, ...]) -> WordStep:
    """One unit as several parts read it. The state is that of the first; some traces have one last step more."""
    read = [step for step in steps if step is not None]
    return replace(read[0], letters=_together([step.letters for step in read]))


def _accepts(automaton: AnyText, text: str) -> bool:
    reader = automaton.reader()
    reader.read(text.encode())
    return reader.end() is not None and reader.accepting


def _word_steps(automaton: TextAutomaton, text: str) -> tuple[WordStep, ...]:
    reader = automaton.reader()
    letters = [*reader.read(text.encode()), *(reader.end() or [])]
    units = UNIT.findall(text)
    state, steps = automaton.letters.start, list[WordStep]()
    for letter in letters:
        state = automaton.letters.step(state, letter)
        names = automaton.letter_names[letter]
        if names is not None:
            # Letters and units come in the same order, one letter a unit.
            unit = units[len(steps)] if len(steps) < len(units) else ""  # the step of `eos` has no text
            steps.append(WordStep(unit, names, state))
    return tuple(steps)


def _unit_steps(automaton: AnyText, text: str) -> tuple[WordStep, ...]:
    # Without a word trace the units are those of the text itself, with no propositions.
    reader, at, steps = automaton.reader(), 0, []
    for unit in UNIT.finditer(text):
        reader.read(text[at : unit.end()].encode())
        at = unit.end()
        steps.append(WordStep(unit[0], (), reader.state))
    return tuple(steps)


def answer_text(automaton: AnyText, raw: str) -> str:
    """The answer in a generated text.

    One leading space is removed where the constraint allows a space before the text.
    """
    # The space is part of the answer where the answer is wrong without it.
    if automaton.strips_space and raw.startswith(" ") and _accepts(automaton, raw[1:]):
        return raw[1:]
    return raw


def stripped_answer(automaton: AnyText, raw: str, before: str | None = None) -> str:
    """The answer in a raw text, without needless white space around it.

    before  the part of the constrained text before the answer; its end joins the answer, so only white space at the
            end is removed. None: there is none
    """
    if before is not None:
        return raw.rstrip() if _accepts(automaton, before + raw.rstrip()) else raw
    for text in dict.fromkeys((raw.strip(), raw.lstrip())):
        if text != raw and _accepts(automaton, text):
            return text
    # What has to begin with white space may still end with some in vain.
    end = raw.rstrip()
    return answer_text(automaton, end if end != raw and _accepts(automaton, end) else raw)
