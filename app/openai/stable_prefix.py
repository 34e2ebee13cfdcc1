"""How much of each answer is certain while beams may still overtake one another. Knows steps, not how they are sent.

What is certain is what all texts begin with that may become the answer: the live rows of the last step, and of the
finished ones those that none has beaten yet. Every later row continues one of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from app.messages import GenerationOptions, StepMessage, StepRow
from app.openai.stops import without_beginning
from compiler.artifact import CompiledConstraint
from compiler.lifting import UNREACHABLE
from compiler.text import states_along

_UNFINISHED = "\ufffd"  # stands for a character whose last bytes are still missing
Said = Callable[[str], str]
"""What a raw text, as far as it is written, certainly says as an answer."""


class AnswerNormalizer:
    """What a raw text certainly says as an answer; obeys `Said`.

    Without what may be the beginning of a stop string, at its end, and without a leading space that is no part of the
    answer. Where the space may be either, nothing is certain.

    raw       no space is taken off
    compiled  the constraint, once it is known
    """

    def __init__(self, stops: Sequence[str] = (), raw: bool = False) -> None:
        self._stops, self._raw = stops, raw
        self.compiled: CompiledConstraint | None = None

    def __call__(self, raw: str) -> str:
        return without_beginning(self._unspaced(raw), self._stops)

    def _unspaced(self, raw: str) -> str:
        if self._raw or not raw.startswith(" "):
            return raw
        if self.compiled is None:
            return ""
        if not self.compiled.text.strips_space:
            return raw
        return "" if _may_begin_with_space(self.compiled) else raw[1:]


def _may_begin_with_space(compiled: CompiledConstraint) -> bool:
    """Whether there is an answer that begins with a space of its own."""
    return int(compiled.tokens.distance[states_along(compiled.text, " ")[-1]]) != UNREACHABLE


class StablePrefixTracker:
    """Follows one try at a generation.

    said  of a text that may go on; what is certain of it must stay so whatever comes
    """

    def __init__(self, options: GenerationOptions, said: Said) -> None:
        self._options, self._said = options, said
        self._beaten = _Finished(options)
        self._step = 0
        self._sure = [""] * options.rows
        self._blind = False

    def take(self, step: StepMessage) -> None:
        """What a step more makes certain."""
        if self._options.algorithm == "sample":
            self._sure = [self._certain(row) for row in step.rows]
            return
        if self._options.algorithm == "banked":
            self._blind = self._blind or step.step != self._step + 1  # a row may have finished in a missed step
            self._step = step.step
            self._beaten.add(step)
        if self._blind:
            return
        texts = [self._certain(row) for row in step.rows] + [self._said(text) for text in self._beaten.texts()]
        self._sure[0] = _beginning(texts)

    def text(self, index: int) -> str:
        """The beginning of answer `index` that is certain; of a search only that of the first, which is the best."""
        return self._sure[index] if index < len(self._sure) else ""

    def _certain(self, row: StepRow) -> str:
        return self._said(row.text if row.finished else row.text.rstrip(_UNFINISHED))


class _Finished:
    """The finished rows of "banked" that may be answers: the best ones and their ties.

    The ranking is that of the search. Only the step that finishes a row reports it. Texts that differ in a leading
    space count as one, because they may be one answer.
    """

    def __init__(self, options: GenerationOptions) -> None:
        self._options = options
        self._best: dict[str, dict[str, float]] = {}

    def add(self, step: StepMessage) -> None:
        """Adds the rows that this step has finished."""
        for row in step.rows:
            if row.finished:
                value = row.log_prob / step.step**self._options.length_penalty
                alike = self._best.setdefault(row.text.removeprefix(" "), {})
                alike[row.text] = max(value, alike.get(row.text, value))

    def texts(self) -> list[str]:
        """What may still be an answer."""
        ranked = sorted((max(alike.values()) for alike in self._best.values()), reverse=True)
        least = ranked[self._options.n - 1] if len(ranked) >= self._options.n else float("-inf")
        return [text for alike in self._best.values() for text, value in alike.items() if value >= least]


def _beginning(texts: Sequence[str]) -> str:
    """What all texts begin with."""
    first, last = min(texts), max(texts)  # those that differ soonest
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(character for character, _ in alike)
