"""Puts the caller's names of propositions into results.

An automaton is shared by callers who name its propositions differently, so each answer is renamed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeVar

from app.messages.jobs import DecodeJobResult, GenerateJobResult
from app.messages.parts import LabelStepBody, TokenStepBody, WordBody
from compiler.spec import in_caller_names

Names = Mapping[str, tuple[str, ...]]  # the names that a caller gave to the propositions of an automaton
Step = TypeVar("Step", WordBody, LabelStepBody)


def named_generation(result: GenerateJobResult, names: Names) -> GenerateJobResult:
    """A generation with the caller's names in its words and traces."""
    choices = tuple(
        dataclasses.replace(choice, words=named_words(choice.words, names), trace=_named_trace(choice.trace, names))
        for choice in result.choices
    )
    return dataclasses.replace(result, choices=choices)


def named_decoding(result: DecodeJobResult, names: Names) -> DecodeJobResult:
    """A decoded sequence of labels with the caller's names in its trace."""
    return dataclasses.replace(result, trace=named_words(result.trace, names))


def named_words(steps: tuple[Step, ...], names: Names) -> tuple[Step, ...]:
    """The steps of a word or label trace with the caller's names."""
    return tuple(dataclasses.replace(step, propositions=in_caller_names(step.propositions, names)) for step in steps)


def _named_trace(trace: tuple[TokenStepBody, ...] | None, names: Names) -> tuple[TokenStepBody, ...] | None:
    # A token that ends several words holds the letters of each.
    return trace and tuple(
        dataclasses.replace(step, propositions=tuple(in_caller_names(letter, names) for letter in step.propositions))
        for step in trace
    )
