"""Reads the texts of a generation as messages of a conversation."""

from __future__ import annotations

from dataclasses import replace

from app.formats import AnswerReader, call_id
from app.messages import AnsweredCallBody, AnsweredFunctionBody, AnswerMessageBody, GenerateJob, GenerateJobResult


def with_messages(result: GenerateJobResult, job: GenerateJob) -> GenerateJobResult:
    """The result with a message in each choice. Of a job whose answers are texts it stays as it is."""
    if job.answer is None:
        return result
    reader = AnswerReader.of(job.answer)
    choices = tuple(
        replace(choice, message=_message(reader, choice.text, job.id, number))
        for number, choice in enumerate(result.choices)
    )
    return replace(result, choices=choices)


def _message(reader: AnswerReader, text: str, job_id: str, number: int) -> AnswerMessageBody:
    parts = reader.read(text, finished=True)
    calls = tuple(
        AnsweredCallBody(call_id(job_id, number, place), AnsweredFunctionBody(call.name, call.arguments))
        for place, call in enumerate(parts.calls)
    )
    return AnswerMessageBody(
        parts.content or (None if calls else ""), tool_calls=calls or None, reasoning_content=parts.reasoning or None
    )
