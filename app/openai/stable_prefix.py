"""Finds the prefix of each answer that no later step can change.

The prefix is common to all texts that may become the answer: the live rows of the last step and the best finished rows.
It is stable because every later row continues one of the live rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from app.formats import remove_partial_stop
from app.messages import GenerationOptions, StepMessage, StepRowBody
from compiler.artifact import CompiledConstraint
from compiler.text import read_prefix

_INCOMPLETE = "\ufffd"  # replaces a character whose last bytes are not generated yet
Normalize = Callable[[str], str]
"""Maps an unfinished raw text to the prefix of the answer that it determines."""


class AnswerNormalizer:
    """Maps an unfinished raw text to a stable prefix of its answer. It implements `Normalize`.

    Removes a suffix that may become a stop string, and a leading space that is not part of the answer. If the space
    may or may not be part of it, the prefix is empty.

    raw       keep the leading space
    constraint
              the constraint; None until its compilation is reported
    """

    def __init__(self, stops: Sequence[str] = (), raw: bool = False) -> None:
        self._stops, self._raw = stops, raw
        self.constraint: CompiledConstraint | None = None

    def __call__(self, raw: str) -> str:
        return remove_partial_stop(self._without_space(raw), self._stops)

    def _without_space(self, raw: str) -> str:
        if self._raw or not raw.startswith(" "):
            return raw
        if self.constraint is None:
            return ""
        if not self.constraint.text.strips_space:
            return raw
        return "" if _may_begin_with_space(self.constraint) else raw[1:]


def _may_begin_with_space(constraint: CompiledConstraint) -> bool:
    """Whether an answer may begin with a space."""
    return read_prefix(constraint.text, constraint.tokens, " ").chars > 0


class StablePrefixTracker:
    """Tracks the stable prefixes of one attempt at a generation.

    normalize  must be monotone: a continuation of a raw text has a continuation of its prefix
    """

    def __init__(self, options: GenerationOptions, normalize: Normalize) -> None:
        self._options, self._normalize = options, normalize
        self._finished = _FinishedTexts(options)
        self._step = 0
        self._prefixes = [""] * options.rows
        self._missed_step = False

    def take(self, step: StepMessage) -> None:
        """Updates the prefixes with one step."""
        if self._options.algorithm == "sample":
            self._prefixes = [self._prefix(row) for row in step.rows]
            return
        if self._options.algorithm == "banked":
            # A row may have finished in a missed step, and only that step reports it: the prefix stays as it is.
            self._missed_step = self._missed_step or step.step != self._step + 1
            self._step = step.step
            self._finished.add(step)
        if self._missed_step:
            return
        texts = [self._prefix(row) for row in step.rows] + [self._normalize(text) for text in self._finished.texts()]
        self._prefixes[0] = _common_prefix(texts)

    def text(self, index: int) -> str:
        """The stable prefix of answer `index`. A search has one for answer 0 only."""
        return self._prefixes[index] if index < len(self._prefixes) else ""

    def _prefix(self, row: StepRowBody) -> str:
        return self._normalize(row.text if row.finished else row.text.rstrip(_INCOMPLETE))


class _FinishedTexts:
    """The finished texts of "banked" that may be answers. They are the n best and their ties.

    The ranking is that of the search. Texts that differ only in a leading space count as one, because they may be the
    same answer.
    """

    def __init__(self, options: GenerationOptions) -> None:
        self._options = options
        self._best: dict[str, dict[str, float]] = {}

    def add(self, step: StepMessage) -> None:
        """Adds the rows that this step has finished."""
        for row in step.rows:
            if row.finished:
                score = self._options.rank_value(row.log_prob, step.step)
                spellings = self._best.setdefault(row.text.removeprefix(" "), {})
                spellings[row.text] = max(score, spellings.get(row.text, score))
        # Values only rise, so what is below the n best now will never be an answer.
        minimum = self._minimum()
        self._best = {text: spellings for text, spellings in self._best.items() if max(spellings.values()) >= minimum}

    def texts(self) -> list[str]:
        """The texts that may still be answers."""
        minimum = self._minimum()
        return [text for spellings in self._best.values() for text, score in spellings.items() if score >= minimum]

    def _minimum(self) -> float:
        """The value of the worst of the n best texts."""
        ranked = sorted((max(spellings.values()) for spellings in self._best.values()), reverse=True)
        return ranked[self._options.n - 1] if len(ranked) >= self._options.n else float("-inf")


def _common_prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # all others have at least the common prefix of these two
    common = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(character for character, _ in common)
