"""Reads answers: thoughts, replies and calls."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

from pydantic import TypeAdapter

from app.formats.arguments_reader import ArgumentsReader, without_beginning
from app.formats.tool_formats import CallFormat, ThinkFormat

_NUMBER = re.compile("[0-9]*")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool. The end of the arguments may be missing in a stream.

    arguments  JSON text; of a custom tool its input
    """

    name: str
    arguments: str
    custom: bool = False


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """What an answer contains: a thought, a reply in words, calls. None of it is there before it is certain."""

    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


@dataclass(frozen=True, slots=True)
class Thinking:
    """How an answer thinks.

    opened      whether the prompt opens the thought; the answer then only closes it
    max_tokens  the tokens of the thought; None if only those of the answer are limited
    """

    format: ThinkFormat
    opened: bool = False
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ReadableTool:
    """A tool whose calls are read."""

    name: str
    arguments: ArgumentsReader
    custom: bool = False


@dataclass(frozen=True, slots=True)
class AnswerReader:
    """Reads the answers to one request. It has no schemas, so it is small enough for a job.

    calls      how calls are written; None if the answer calls nothing
    tools      those that the answer may call
    reply      the text before a reply
    thinking   how the answer thinks, None if it does not
    reply_end  the text behind a reply
    """

    calls: CallFormat | None
    tools: tuple[ReadableTool, ...]
    reply: str
    thinking: Thinking | None
    _: KW_ONLY
    reply_end: str = ""

    @classmethod
    def of(cls, fields: dict[str, Any]) -> AnswerReader:
        """The reader of JSON that `as_dict` has made."""
        return _adapter().validate_python(fields)

    def as_dict(self) -> dict[str, Any]:
        """The reader as JSON."""
        fields: dict[str, Any] = _adapter().dump_python(self, mode="json")
        return fields

    def read(self, text: str, finished: bool) -> AnswerParts:
        """The parts of an answer, or of its beginning.

        Those of a text begin those of each continuation, so a stream may send them at once.
        """
        reasoning, at = self._read_thought(text, finished)
        if at is None:
            return AnswerParts(reasoning=reasoning)
        parts = self._read_body(text[at:], finished)
        return AnswerParts(parts.content, parts.calls, reasoning)

    def thought_span(self, text: str) -> tuple[int, int] | None:
        """Where the thought stands in an answer, in characters and without markers. None before its end is written."""
        if self.thinking is None:
            return None
        begin = "" if self.thinking.opened else self.thinking.format.begin
        end = text.find(self.thinking.format.end, len(begin)) if text.startswith(begin) else -1
        return None if end < 0 else (len(begin), end)

    def _read_thought(self, text: str, finished: bool) -> tuple[str, int | None]:
        """The thought, and where the text behind it begins. None if this is not certain yet."""
        if self.thinking is None:
            return "", 0
        span = self.thought_span(text)
        if span is not None:
            return text[slice(*span)].lstrip("\n"), span[1] + len(self.thinking.format.end)
        begin = "" if self.thinking.opened else self.thinking.format.begin
        if not text.startswith(begin):
            return "", None if not finished and begin.startswith(text) else 0
        # A finished text without an end is a reply that begins like a thought.
        thought = without_beginning(text[len(begin) :], self.thinking.format.end)
        return ("", 0) if finished else (thought.lstrip("\n"), None)

    def _read_body(self, text: str, finished: bool) -> AnswerParts:
        if self.calls is not None:
            parts = self._read_calls(self.calls, text, finished)
            if parts is not None:
                return parts
        if text.startswith(self.reply):
            reply = text[len(self.reply) :]
            ended = reply.removesuffix(self.reply_end) if finished else without_beginning(reply, self.reply_end)
            return AnswerParts(ended)
        return AnswerParts() if not finished and self.reply.startswith(text) else AnswerParts(text)

    def _read_calls(self, calls: CallFormat, text: str, finished: bool) -> AnswerParts | None:
        """A reply and the calls behind it. None if the text is a reply alone."""
        if calls.trigger:
            start = text.find(calls.trigger)
            if start < 0:
                return AnswerParts(text if finished else without_beginning(text, calls.trigger))
        else:
            start = 0
            heads = [calls.begin + head_of(calls, tool.name, text, len(calls.begin)) for tool in self.tools]
            if not any(text.startswith(head) for head in heads):
                waits = not finished and any(head.startswith(text) for head in heads)
                return AnswerParts() if waits else None
        return AnswerParts(text[:start], tuple(self._found_calls(calls, text, start + len(calls.begin))))

    def _found_calls(self, calls: CallFormat, text: str, at: int) -> Sequence[ToolCall]:
        found, may_end = list[ToolCall](), functools.partial(self._may_end, calls, text)
        while True:
            heads = ((each, head_of(calls, each.name, text, at)) for each in self.tools)
            tool, head = next(((each, head) for each, head in heads if text.startswith(head, at)), (None, ""))
            if tool is None:
                return found
            arguments, end = tool.arguments.read(text, at + len(head) - len(calls.opening), may_end)
            found.append(ToolCall(tool.name, arguments, tool.custom))
            if end is None:
                return found
            at = end + len(calls.tail) + len(calls.separator or "")

    def _may_end(self, calls: CallFormat, text: str, end: int) -> bool:
        """Whether the arguments of a call may end at a place.

        What follows is, or begins, what can stand behind a call.
        """
        rest = text[end + len(calls.tail) :]
        if calls.separator is None or calls.end.startswith(rest):
            return calls.end.startswith(rest)
        at = len(text) - len(rest) + len(calls.separator)
        heads = (calls.separator + head_of(calls, each.name, text, at) for each in self.tools)
        return any(rest.startswith(head) or head.startswith(rest) for head in heads)


@functools.cache
def _adapter() -> TypeAdapter[AnswerReader]:
    return TypeAdapter(AnswerReader)


def head_of(calls: CallFormat, name: str, text: str, at: int) -> str:
    """The beginning of a call, up to its arguments. Its number is that of the call at a place in a text."""
    before, counted, behind = (part.replace("{name}", name) for part in calls.head.partition("{index}"))
    number = _NUMBER.match(text, at + len(before)) if counted else None
    return before + (number[0] if number else "") + behind + calls.opening


def call_id(job_id: str, answer: int, call: int) -> str:
    """The id of a call. A repeated response has the same."""
    return f"call_{hashlib.sha256(f'{job_id} {answer} {call}'.encode()).hexdigest()[:24]}"
