"""Constrains answers to a model's format, and reads them.

An answer is a thought, if the model thinks, then a reply or calls of tools. `tool_formats` has the texts that structure
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from app.models import ModelFiles
from app.openai.formats.tool_arguments import Arguments, Part, without_beginning
from app.openai.formats.tool_formats import CallFormat, ThinkFormat

LITERAL_CHARS = 5  # of text beside which a part of its own saves nothing
_ANY_REPLY = {"regex": r"(?:\S(?s:.*))?"}
"""A reply in words: any text that does not begin with white space."""


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
class OutputItem:
    """A thought, a reply or a call, where an answer is a list of them. `call` is its number among the calls."""

    kind: Literal["thought", "reply", "function", "custom"]
    text: str
    name: str = ""
    call: int = 0


def output_items(parts: AnswerParts, finished: bool, with_thought: bool) -> list[OutputItem]:
    """The items that the parts make, in their order. Only the last one may still grow; a finished answer has one."""
    items = list[OutputItem]()
    if parts.reasoning and with_thought:
        items.append(OutputItem("thought", parts.reasoning))
    if parts.content or (finished and not parts.calls):
        items.append(OutputItem("reply", parts.content))
    for number, call in enumerate(parts.calls):
        items.append(OutputItem("custom" if call.custom else "function", call.arguments, call.name, number))
    return items


@dataclass(slots=True)
class ItemProgress:
    """How much of a list of items was sent.

    begun, ended  numbers of items
    text          what was sent of the open one
    """

    begun: int = 0
    ended: int = 0
    text: str = ""

    def advance(
        self, items: Sequence[OutputItem], finished: bool
    ) -> Iterator[tuple[Literal["begin", "delta", "end"], int, str]]:
        """The steps from what was sent to these items, each with an item's number; a delta has the added text."""
        for number in range(self.ended, len(items)):
            if number == self.begun:
                self.begun, self.text = number + 1, ""
                yield "begin", number, ""
            if added := items[number].text[len(self.text) :]:
                self.text = items[number].text
                yield "delta", number, added
            if finished or number + 1 < len(items):
                self.ended = number + 1
                yield "end", number, ""


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool that an answer may call."""

    name: str
    arguments: Arguments
    custom: bool = False


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
class AnswerFormat:
    """The format of the answers to one request.

    split      splits text into literal text and single tokens
    calls      how calls are written; None if the answer calls nothing
    tools      those that the answer may call
    required   whether the answer must call
    parallel   whether it may call several times
    reply      the text before a reply
    thinking   how the answer thinks, None if it does not
    stop_free  the constraint that a reply without a constraint of its own contains no stop string
    """

    split: MarkerSplitter
    _: KW_ONLY
    calls: CallFormat | None = None
    tools: tuple[CallableTool, ...] = ()
    required: bool = False
    parallel: bool = True
    reply: str = ""
    thinking: Thinking | None = None
    stop_free: dict[str, Any] | None = None

    def constraint(self, reply: dict[str, Any] | None) -> dict[str, Any]:
        """The constraint of an answer. `reply` is the request's own constraint, which a reply in words satisfies."""
        thought: list[Part] = [] if self.thinking is None else [self._thought(self.thinking)]
        return {"sequence": [*thought, self._body(reply)]}

    def reply_path(self) -> str:
        """Where the request's own constraint stands in the constraint."""
        body = "sequence.0." if self.thinking is None else "sequence.1."
        body += "" if self.calls is None else "any.1."
        return f"{body}sequence.{len(self.split(self.reply))}." if self.reply else body

    def _body(self, reply: dict[str, Any] | None) -> Part:
        if self.calls is None:
            return self._reply(reply)
        calls = self._calls(self.calls)
        if self.required:
            return calls
        if reply is None and self.calls.trigger:
            return _in_order([self._reply(None), {"optional": calls}])  # the reply may be empty
        return {"any": [calls, self._reply(reply)]}

    def _reply(self, reply: dict[str, Any] | None) -> Part:
        before = self.split(self.reply)
        if reply is not None:
            return _in_order([*before, reply])
        excluded = [{"not": {"regex": f"{pattern}(?s:.*)"}} for pattern in self._beginnings()]
        excluded += [] if self.stop_free is None else [self.stop_free]
        return _in_order([*before, {"all": [_ANY_REPLY, *excluded]} if excluded else _ANY_REPLY])

    def _beginnings(self) -> Iterator[str]:
        """Patterns with which no reply begins, because calls or thoughts do."""
        if self.reply:
            return
        if self.calls is not None:
            trigger, first = self.calls.trigger, (self.calls.begin + self.calls.head)[:1]
            yield f"(?s:.*){re.escape(trigger)}" if trigger else re.escape(first)
        if self.thinking is not None and not self.thinking.opened:
            yield re.escape(self.thinking.format.begin.strip())

    def _calls(self, calls: CallFormat) -> Part:
        before, _, behind = calls.head.partition("{name}")
        called = [
            _in_order([*self.split.named("{name}" + behind, tool.name), *tool.arguments.parts]) for tool in self.tools
        ]
        each = _in_order([*self.split(before), {"any": called}, *self.split(calls.tail)])
        if calls.separator is not None and self.parallel:
            separator = {"separator": calls.separator} if calls.separator else {}
            each = {"repeat": each, "min": 1, **separator}
        return _in_order([*self.split(calls.begin), each, *self.split(calls.end)])

    def _thought(self, thinking: Thinking) -> Part:
        budget = {} if thinking.max_tokens is None else {"max_tokens": thinking.max_tokens}
        free: Part = {"free": {"without": [thinking.format.mark], **budget}} if thinking.max_tokens != 0 else ""
        end = self.split(thinking.format.end)
        if thinking.opened:
            return _in_order([free, *end])
        return {"optional": _in_order([*self.split(thinking.format.begin), free, *end])}

    def read(self, text: str, finished: bool) -> AnswerParts:
        """The parts of an answer, or of its beginning.

        Those of a text begin those of each continuation, so a stream may send them at once.
        """
        reasoning, at = self._read_thought(text, finished)
        if at is None:
            return AnswerParts(reasoning=reasoning)
        parts = self._read_body(text[at:], finished)
        return AnswerParts(parts.content, parts.calls, reasoning)

    def _read_thought(self, text: str, finished: bool) -> tuple[str, int | None]:
        """The thought, and where the text behind it begins. None if this is not certain yet."""
        if self.thinking is None:
            return "", 0
        begin = "" if self.thinking.opened else self.thinking.format.begin
        if not text.startswith(begin):
            return "", None if not finished and begin.startswith(text) else 0
        thought, end = text[len(begin) :], self.thinking.format.end
        mark = thought.find(end)
        if mark >= 0:
            return thought[:mark].lstrip("\n"), len(begin) + mark + len(end)
        # A finished text without an end is a reply that begins like a thought.
        return ("", 0) if finished else (without_beginning(thought, end).lstrip("\n"), None)

    def _read_body(self, text: str, finished: bool) -> AnswerParts:
        if self.calls is not None:
            parts = self._read_calls(self.calls, text, finished)
            if parts is not None:
                return parts
        if text.startswith(self.reply):
            return AnswerParts(text[len(self.reply) :])
        return AnswerParts() if not finished and self.reply.startswith(text) else AnswerParts(text)

    def _read_calls(self, calls: CallFormat, text: str, finished: bool) -> AnswerParts | None:
        """A reply and the calls behind it. None if the text is a reply alone."""
        if calls.trigger:
            start = text.find(calls.trigger)
            if start < 0:
                return AnswerParts(text if finished else without_beginning(text, calls.trigger))
        else:
            start = 0
            heads = [calls.begin + _head(calls, tool) for tool in self.tools]
            if not any(text.startswith(head) for head in heads):
                waits = not finished and any(head.startswith(text) for head in heads)
                return AnswerParts() if waits else None
        return AnswerParts(text[:start], tuple(self._found_calls(calls, text, start + len(calls.begin))))

    def _found_calls(self, calls: CallFormat, text: str, at: int) -> Sequence[ToolCall]:
        found = list[ToolCall]()
        while True:
            tool = next((each for each in self.tools if text.startswith(_head(calls, each), at)), None)
            if tool is None:
                return found
            arguments, end = tool.arguments.read(text, at + len(_head(calls, tool)))
            found.append(ToolCall(tool.name, arguments, tool.custom))
            if end is None:
                return found
            at = end + len(calls.tail) + len(calls.separator or "")


class MarkerSplitter:
    """Splits text into literal text and single tokens of a vocabulary.

    Longer pieces are parts of their own. Equal ones are compiled once, so that many tools have small constraints.
    """

    def __init__(self, files: ModelFiles) -> None:
        names = files.vocabulary.names
        named = [name for name in files.markers if names[name] not in files.vocabulary.eos_ids]
        found = "|".join(re.escape(name) for name in sorted(named, key=len, reverse=True))
        self._pattern = re.compile(f"({found})") if found else None

    def __call__(self, text: str) -> list[Part]:
        """The parts of a sequence for a text."""
        pieces = [text] if self._pattern is None else self._pattern.split(text)
        # Every second piece is the name of a token.
        parts = [{"token": piece} if number % 2 else _literal(piece) for number, piece in enumerate(pieces)]
        return [part for part in parts if part != ""]

    def named(self, text: str, name: str) -> list[Part]:
        """The same with a name in place of `{name}`."""
        before, _, behind = text.partition("{name}")
        # The name and the character behind it stay literal: many names begin at one place.
        following = behind if self._pattern is None else self._pattern.split(behind)[0]
        return [*self(before), name + following[:1], *self(behind[len(following[:1]) :])]


def _literal(piece: str) -> Part:
    return {"choice": [piece]} if len(piece) > LITERAL_CHARS else piece


def _head(calls: CallFormat, tool: CallableTool) -> str:
    return calls.head.replace("{name}", tool.name)


def _in_order(parts: Sequence[Part]) -> Part:
    written = [part for part in parts if part != ""]
    return written[0] if len(written) == 1 else {"sequence": written or [""]}
