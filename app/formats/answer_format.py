"""Constrains answers to a model's format.

An answer is a thought, if the model thinks, then a reply or calls of tools. `tool_formats` has the texts that structure
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

from app.formats.answer_reader import AnswerParts, AnswerReader, ReadableTool, Thinking
from app.formats.stops import stop_constraint
from app.formats.tool_arguments import Arguments, Part, parts_of
from app.formats.tool_formats import CallFormat
from app.messages import RequestPlace
from app.models import ModelFiles

LITERAL_CHARS = 5  # of text beside which a part of its own saves nothing
_INDEX = "{index}"
_ANY_REPLY = {"regex": r"(?:\S(?s:.*))?"}
"""A reply in words: any text that does not begin with white space."""
# The beginnings of JSON texts, and some others.
_BEGINS_JSON = re.compile(r'\s*(?:\{\s*["}]|\[\s*[\[\]{"\-0-9tfn]|["\-0-9tfn])')


@dataclass(frozen=True, slots=True)
class CallableTool:
    """A tool that an answer may call. `path` is that of its parameters in the request."""

    name: str
    arguments: Arguments
    custom: bool = False
    path: str = ""


@dataclass(frozen=True)
class AnswerFormat:
    """The format of the answers to one request.

    split       splits text into literal text and single tokens
    calls       how calls are written; None if the answer calls nothing
    tools       those that the answer may call
    required    whether the answer must call
    parallel    whether it may call several times
    reply       the text before a reply
    reply_end   the text behind a reply
    thinking    how the answer thinks, None if it does not
    reply_spec  the request's own constraint, which a reply satisfies; None for a reply in words
    stops       strings that no reply in words contains; an answer without calls may end with one
    """

    split: MarkerSplitter
    _: KW_ONLY
    calls: CallFormat | None = None
    tools: tuple[CallableTool, ...] = ()
    required: bool = False
    parallel: bool = True
    reply: str = ""
    reply_end: str = ""
    thinking: Thinking | None = None
    reply_spec: dict[str, Any] | None = None
    stops: tuple[str, ...] = ()

    @cached_property
    def constraint(self) -> dict[str, Any]:
        """The constraint of an answer."""
        thought: list[Part] = [] if self.thinking is None else [self._thought(self.thinking)]
        if self.reply_spec is not None and not self.required and (beginnings := self._beginnings_of(self.reply_spec)):
            calls = [] if self.calls is None else [{"sequence": [*thought, self._calls(self.calls)]}]
            return {"any": [*calls, *self._distinct_replies(self.reply_spec, beginnings)]}
        return {"sequence": [*thought, self._body()]}

    def places(self) -> tuple[RequestPlace, ...]:
        """Where parts of the constraint stand in it, and in the request."""
        stated = {} if self.reply_spec is None else {id(self.reply_spec): RequestPlace("")}
        for tool in self.tools:
            place = RequestPlace("", tool=tool.name, parameters=tool.path, is_text=tool.custom)
            grammars = tool.arguments.parts if tool.custom else []
            stated |= dict.fromkeys(map(id, grammars), place)
            schemas = [(within, each) for within, each in tool.arguments.schemas() if isinstance(each, dict)]
            stated |= {id(each): replace(place, within=within) for within, each in schemas}
        return tuple(replace(stated[id(part)], inside=path) for path, part in parts_of(self.constraint, stated))

    def _body(self) -> Part:
        if self.calls is None:
            return self._reply()
        calls = self._calls(self.calls)
        if self.required:
            return calls
        if self.reply_spec is None and self.calls.trigger:
            if not self.stops:
                return _in_order([self._reply(), {"optional": calls}])  # the reply may be empty
            return {"any": [_in_order([self._reply(ends=False), calls]), self._reply()]}
        return {"any": [calls, self._reply()]}

    def _reply(self, ends: bool = True) -> Part:
        """A reply. With `ends` nothing stands behind it, so it may end with a stop string."""
        before, behind = self.split(self.reply), self.split(self.reply_end)
        if self.reply_spec is not None:
            return _in_order([*before, self.reply_spec, *behind])
        excluded = [{"not": {"regex": f"{pattern}(?s:.*)"}} for pattern in self._beginnings_of_words()]
        excluded += [stop_constraint(self.stops, ends, "forbid")] if self.stops else []
        # The end may be missing, so that an answer without the stop string at its end is one, too.
        end: list[Part] = [{"optional": _in_order(behind)}] if behind else []
        return _in_order([*before, {"all": [_ANY_REPLY, *excluded]} if excluded else _ANY_REPLY, *end])

    def _beginnings_of_words(self) -> Iterator[str]:
        """Patterns with which calls or thoughts begin, but no reply in words."""
        if self.reply:
            return
        if self.calls is not None:
            trigger, first = self.calls.trigger, (self.calls.begin + self.calls.head)[:1]
            yield f"(?s:.*){re.escape(trigger)}" if trigger else re.escape(first)
        if self.thinking is not None and not self.thinking.opened:
            yield re.escape(self.thinking.format.begin.strip())

    def _beginnings_of(self, reply: dict[str, Any]) -> tuple[list[str], list[str]] | None:
        """The beginnings of calls and thoughts that constrained replies may have. None without any."""
        head = "" if self.calls is None else self.calls.begin + self.calls.head + self.calls.opening
        heads = [head.replace("{name}", tool.name) for tool in self.tools] if head else []
        thought = [] if self.thinking is None or self.thinking.opened else [self.thinking.format.begin]
        if self.reply:
            return None
        if "json_schema" in reply:
            heads, thought = (list(filter(_BEGINS_JSON.match, texts)) for texts in (heads, thought))
        return (heads, thought) if heads or thought else None

    def _distinct_replies(
        self, reply: dict[str, Any], beginnings: tuple[list[str], list[str]]
    ) -> Iterator[dict[str, Any]]:
        """The replies that do not begin as calls and thoughts do."""
        heads, thought = beginnings
        if self.thinking is not None:
            form = self.thinking.format
            ended = f"(?:(?!{re.escape(form.mark)})(?s:.))*{re.escape(form.end)}"
            parts = self._full_thought(self.thinking)
            begin = "" if self.thinking.opened else re.escape(form.begin)
            yield _without({"sequence": [parts, reply]}, f"{begin}{ended}", heads)
        if self.thinking is None or not self.thinking.opened:
            yield _without({"sequence": [reply]}, "", [*heads, *thought])

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
        thought = self._full_thought(thinking)
        return thought if thinking.opened else {"optional": thought}

    def _full_thought(self, thinking: Thinking) -> Part:
        budget = {} if thinking.max_tokens is None else {"max_tokens": thinking.max_tokens}
        free: Part = {"free": {"without": [thinking.format.mark], **budget}} if thinking.max_tokens != 0 else ""
        begin = [] if thinking.opened else self.split(thinking.format.begin)
        return _in_order([*begin, free, *self.split(thinking.format.end)])

    @cached_property
    def reader(self) -> AnswerReader:
        """Reads the answers."""
        tools = tuple(ReadableTool(tool.name, tool.arguments.reader, tool.custom) for tool in self.tools)
        calls = self.calls
        if calls is not None and self.reply_spec is not None:
            calls = replace(calls, trigger="")  # nothing is called behind a reply
        return AnswerReader(calls, tools, self.reply, self.thinking, reply_end=self.reply_end)

    def read(self, text: str, finished: bool) -> AnswerParts:
        """The parts of an answer, or of its beginning."""
        return self.reader.read(text, finished)


class MarkerSplitter:
    """Splits text into literal text and single tokens of a vocabulary.

    Longer pieces are parts of their own. Equal ones are compiled once, so that many tools have small constraints.
    """

    def __init__(self, files: ModelFiles) -> None:
        names = files.vocabulary.names
        named = [name for name in files.markers if names[name] not in files.vocabulary.eos_ids]
        found = "|".join(re.escape(name) for name in (_INDEX, *sorted(named, key=len, reverse=True)))
        self._pattern = re.compile(f"({found})")

    def __call__(self, text: str) -> list[Part]:
        """The parts of a sequence for a text."""
        pieces = self._pattern.split(text)
        # Every second piece is the name of a token or stands for a number.
        parts = [_named(piece) if number % 2 else _literal(piece) for number, piece in enumerate(pieces)]
        return [part for part in parts if part != ""]

    def named(self, text: str, name: str) -> list[Part]:
        """The same with a name in place of `{name}`."""
        before, _, behind = text.partition("{name}")
        # The name and the character behind it stay literal: many names begin at one place.
        following = self._pattern.split(behind)[0]
        return [*self(before), name + following[:1], *self(behind[len(following[:1]) :])]


def _named(piece: str) -> Part:
    return {"regex": "0|[1-9][0-9]{0,3}"} if piece == _INDEX else {"token": piece}


def _literal(piece: str) -> Part:
    return {"choice": [piece]} if len(piece) > LITERAL_CHARS else piece


def _without(texts: dict[str, Any], before: str, beginnings: Sequence[str]) -> dict[str, Any]:
    """The texts without those that begin with a pattern and a beginning."""
    if not beginnings:
        return texts
    written = "|".join(map(re.escape, beginnings)).replace(re.escape(_INDEX), "[0-9]*")
    return {"all": [texts, {"not": {"regex": f"{before}(?:{written})(?s:.*)"}}]}


def _in_order(parts: Sequence[Part]) -> Part:
    written = [part for part in parts if part != ""]
    return written[0] if len(written) == 1 else {"sequence": written or [""]}
