"""The formats in which model families write answers.

`tool_formats` is the table of the formats. `tool_arguments` writes and reads the arguments of calls, `answer_format`
whole answers: thoughts, replies and calls. A new format is one entry of the table.
"""

from __future__ import annotations

from app.openai.formats.answer_format import (
    AnswerFormat,
    AnswerParts,
    CallableTool,
    ItemProgress,
    MarkerSplitter,
    OutputItem,
    Thinking,
    ToolCall,
    output_items,
)
from app.openai.formats.tool_arguments import (
    Arguments,
    Part,
    TextSplit,
    raw_arguments,
    schema_arguments,
)
from app.openai.formats.tool_formats import (
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
    "AUTO", "CHAT_FORMATS", "PLAIN_CALLS", "THINK_FORMATS", "AnswerFormat", "AnswerParts", "Arguments",
    "CallFormat", "CallableTool", "ChatFormat", "ItemProgress", "MarkerSplitter", "OutputItem", "Part", "TextSplit",
    "ThinkFormat", "Thinking", "ToolCall", "chat_format", "output_items", "raw_arguments", "schema_arguments",
    "think_format",
]  # fmt: skip
