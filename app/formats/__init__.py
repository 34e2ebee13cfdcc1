"""The formats in which model families write answers.

`tool_formats` is the table of the formats. `tool_arguments` and `answer_format` write arguments and whole answers
(thoughts, replies and calls) as constraints; `arguments_reader` and `answer_reader` read them. A new format is one
entry of the table.
"""

from __future__ import annotations

from app.formats.answer_format import AnswerFormat, CallableTool, MarkerSplitter
from app.formats.answer_reader import AnswerParts, AnswerReader, Thinking, ToolCall, call_id
from app.formats.items import ItemProgress, OutputItem, output_items
from app.formats.stops import (
    STOP_PATH,
    STOPPED_PATH,
    constraint_without,
    contradiction_with_stops,
    names_stops,
    remove_partial_stop,
    remove_stop,
    stop_constraint,
)
from app.formats.tool_arguments import (
    NO_ARGUMENTS,
    Arguments,
    Part,
    TextSplit,
    raw_arguments,
    schema_arguments,
    schema_options,
)
from app.formats.tool_formats import (
    AUTO,
    CHAT_FORMATS,
    PLAIN_CALLS,
    THINK_FORMATS,
    CallFormat,
    ChatFormat,
    ThinkFormat,
    chat_format,
    think_format,
)

__all__ = [
    "AUTO", "CHAT_FORMATS", "NO_ARGUMENTS", "PLAIN_CALLS", "STOPPED_PATH", "STOP_PATH", "THINK_FORMATS",
    "AnswerFormat", "AnswerParts", "AnswerReader", "Arguments", "CallFormat", "CallableTool", "ChatFormat",
    "ItemProgress", "MarkerSplitter", "OutputItem", "Part", "TextSplit", "ThinkFormat", "Thinking", "ToolCall",
    "call_id", "chat_format", "constraint_without", "contradiction_with_stops", "names_stops", "output_items",
    "raw_arguments", "remove_partial_stop", "remove_stop", "schema_arguments", "schema_options", "stop_constraint",
    "think_format",
]  # fmt: skip
