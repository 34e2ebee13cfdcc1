"""Rows of many requests, as a table of pandas takes them. This module does not import pandas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypedDict, cast

from abs_client._requests import Prompt
from abs_client.constraints import ConstraintLike
from abs_client.errors import AbsError
from abs_client.results import CompileResult, GenerateResult

AnyConstraint = ConstraintLike | CompileResult
"""A Constraint, its JSON as a dict, or a CompileResult."""


class GenerateRow(TypedDict):
    """A text of `generate_rows`, or a request that failed. `pandas.DataFrame` takes a list of rows.

    request            the place of its prompt, from 0
    rank               the place of the text among those of its request, from 0 for the best; None if the request failed
    completion_tokens  of all texts of the request
    error              the code of the error; None for a text
    """

    request: int
    prompt: Prompt
    rank: int | None
    text: str | None
    satisfied: bool | None
    finish_reason: str | None
    log_prob: float | None
    prompt_tokens: int | None
    completion_tokens: int | None
    total_ms: float | None
    model: str | None
    automaton: str | None
    error: str | None
    detail: str | None


def numbered(
    prompts: Iterable[Prompt], constraint: AnyConstraint | Sequence[AnyConstraint] | None, concurrency: int
) -> list[tuple[int, Prompt, AnyConstraint | None]]:
    """The requests of a batch: place, prompt and constraint.

    Raises TypeError for a text as prompts, ValueError for unequal lengths and a concurrency below 1.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency is at least 1, not {concurrency}")
    if isinstance(prompts, str):
        raise TypeError("generate_rows takes a list of prompts, not a text")
    listed = list(prompts)
    if isinstance(constraint, list | tuple):
        each: list[AnyConstraint | None] = list(constraint)
    else:
        each = [cast("AnyConstraint | None", constraint)] * len(listed)
    if len(each) != len(listed):
        raise ValueError(f"there are {len(listed)} prompts and {len(each)} constraints")
    return [(number, prompt, one) for number, (prompt, one) in enumerate(zip(listed, each, strict=True))]


def rows_of(number: int, prompt: Prompt, outcome: GenerateResult | AbsError) -> Iterator[GenerateRow]:
    """The rows of a request."""
    if isinstance(outcome, AbsError):
        yield GenerateRow(
            request=number, prompt=prompt, rank=None, text=None, satisfied=None, finish_reason=None, log_prob=None,
            prompt_tokens=None, completion_tokens=None, total_ms=None, model=None, automaton=None,
            error=outcome.code or type(outcome).__name__, detail=outcome.detail,
        )  # fmt: skip
        return
    usage = outcome.usage
    for rank, choice in enumerate(outcome.choices):
        yield GenerateRow(
            request=number, prompt=prompt, rank=rank, text=choice.text, satisfied=choice.satisfied,
            finish_reason=choice.finish_reason, log_prob=choice.log_prob, prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens, total_ms=outcome.timings.total_ms, model=outcome.model,
            automaton=outcome.automaton, error=None, detail=None,
        )  # fmt: skip
