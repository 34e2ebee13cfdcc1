"""Reads the texts of a generation: their messages and their thoughts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from app.formats import AnswerReader, call_id, remove_stop
from app.messages import AnsweredCallBody, AnsweredFunctionBody, AnswerMessageBody, GenerateJob, GenerateJobResult
from compiler.text import AnyText, answer_text, stripped_answer


def answer_and_stop(raw: str, job: GenerateJob, automaton: AnyText, before: str | None) -> tuple[str, str]:
    """The answer in a raw text, and the stop string behind it.

    The stop string is empty if there is none. Needless white space around the answer is removed. A job that keeps white
    space loses the optional space before a text alone, which is no part of it.

    before  the part of the constrained text before the answer; None if the answer is the whole text
    """
    if job.keep_white_space:
        return raw if before is not None else answer_text(automaton, raw), ""
    stop = ""
    if job.stops:
        reader, text = None if job.answer is None else AnswerReader.of(job.answer), answer_text(automaton, raw)
        stop = text[len(remove_stop(text, job.stops, reader)) :]
    return stripped_answer(automaton, raw.removesuffix(stop), before), stop


def with_parts(
    result: GenerateJobResult, job: GenerateJob, token_sizes: Sequence[Sequence[int]]
) -> GenerateJobResult:
    """The result with thoughts counted, and messages if the job requests them.

    token_sizes  the bytes of each token of each choice, without the end token
    """
    if job.answer is None:
        return result
    reader, choices = AnswerReader.of(job.answer), result.choices
    counts = [
        _thought_tokens(reader, choice.raw_text or choice.text, sizes)
        for choice, sizes in zip(choices, token_sizes, strict=True)
    ]
    if job.messages:
        choices = tuple(
            replace(choice, message=_message(reader, choice.text, job.id, number))
            for number, choice in enumerate(choices)
        )
    return replace(result, choices=choices, usage=replace(result.usage, reasoning_tokens=sum(counts)))


def _thought_tokens(reader: AnswerReader, text: str, sizes: Sequence[int]) -> int:
    """How many tokens write some of the thought of an answer."""
    span = reader.thought_span(text)
    if span is None:
        return 0
    start, end = (len(text[:char].encode()) for char in span)
    # The text may lack a space that the first token has written.
    ends = accumulate(sizes, initial=len(text.encode()) - sum(sizes))
    return sum(max(before, start) < min(after, end) for before, after in pairwise(ends))


def _message(reader: AnswerReader, text: str, job_id: str, number: int) -> AnswerMessageBody:
    parts = reader.read(text, finished=True)
    calls = tuple(
        AnsweredCallBody(call_id(job_id, number, place), AnsweredFunctionBody(call.name, call.arguments))
        for place, call in enumerate(parts.calls)
    )
    return AnswerMessageBody(
        parts.content or (None if calls else ""), tool_calls=calls or None, reasoning_content=parts.reasoning or None
    )
