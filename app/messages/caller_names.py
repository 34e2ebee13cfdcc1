"""Results with propositions as the caller calls them: stored automata name them by what they mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from app.messages.jobs import DecodeJobResult, GenerateJobResult
from app.messages.parts import LabelStepBody, TokenStepBody, WordBody
from compiler.spec import in_caller_names

Names = Mapping[str, tuple[str, ...]]


def named_generation(result: GenerateJobResult, names: Names) -> GenerateJobResult:
    """The answers of a generation, their words and traces named."""
    # An automaton is shared by callers who name its propositions differently, so each answer is renamed.
    choices = tuple(
        dataclasses.replace(choice, words=named_words(choice.words, names), trace=_named_trace(choice.trace, names))
        for choice in result.choices
    )
    return dataclasses.replace(result, choices=choices)


def named_decoding(result: DecodeJobResult, names: Names) -> DecodeJobResult:
    """A decoded sequence of labels, its trace named."""
    return dataclasses.replace(result, trace=tuple(_named_label(step, names) for step in result.trace))


def named_words(words: tuple[WordBody, ...], names: Names) -> tuple[WordBody, ...]:
    """A word trace, named."""
    return tuple(dataclasses.replace(word, propositions=in_caller_names(word.propositions, names)) for word in words)


def _named_label(step: LabelStepBody, names: Names) -> LabelStepBody:
    return dataclasses.replace(step, propositions=in_caller_names(step.propositions, names))


def _named_trace(trace: tuple[TokenStepBody, ...] | None, names: Names) -> tuple[TokenStepBody, ...] | None:
    if trace is None:
        return None
    named = (tuple(in_caller_names(letter, names) for letter in step.propositions) for step in trace)
    return tuple(
        dataclasses.replace(step, propositions=propositions) for step, propositions in zip(trace, named, strict=True)
    )
