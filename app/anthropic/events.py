"""The JSON of the blocks and events of `/v1/messages`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from app.messages import Warnings
from app.openai.responses import DeferredModel, Notes

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageUsageBody(DeferredModel):
    """The tokens of the prompt, and those of the answer."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0


class TextBlockBody(DeferredModel):
    """A reply in words."""

    type: Literal["text"]
    text: str


class ThinkingBlockBody(DeferredModel):
    """A thought. Its signature is empty."""

    type: Literal["thinking"]
    thinking: str
    signature: Literal[""]


class ToolUseBlockBody(DeferredModel):
    """A call of a tool."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


ContentBlockBody = Annotated[TextBlockBody | ThinkingBlockBody | ToolUseBlockBody, Field(discriminator="type")]


class MessagesAnswerBody(DeferredModel):
    """An answer: blocks of thinking, text and calls. `automaton` and the fields behind it are additions of ours."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: tuple[ContentBlockBody, ...]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsageBody
    automaton: str | None = None
    seed: int | None = None
    not_enforced: Notes = None
    approximate: Notes = None
    warnings: Warnings = ()


class MessageStartBody(DeferredModel):
    """The message without its content. Its tokens are not counted yet."""

    type: Literal["message_start"]
    message: MessagesAnswerBody


class ContentBlockStartBody(DeferredModel):
    """A block that begins, empty."""

    type: Literal["content_block_start"]
    index: int
    content_block: ContentBlockBody


class TextDeltaBody(DeferredModel):
    """What is added to a text."""

    type: Literal["text_delta"]
    text: str


class ThinkingDeltaBody(DeferredModel):
    """What is added to a thought."""

    type: Literal["thinking_delta"]
    thinking: str


class InputDeltaBody(DeferredModel):
    """What is added to the JSON text of a call's input."""

    type: Literal["input_json_delta"]
    partial_json: str


class ContentBlockDeltaBody(DeferredModel):
    """What is added to a block."""

    type: Literal["content_block_delta"]
    index: int
    delta: Annotated[TextDeltaBody | ThinkingDeltaBody | InputDeltaBody, Field(discriminator="type")]


class ContentBlockStopBody(DeferredModel):
    """A block that ends."""

    type: Literal["content_block_stop"]
    index: int


class StopBody(DeferredModel):
    """Why an answer ended."""

    stop_reason: StopReason
    stop_sequence: str | None


class MessageDeltaBody(DeferredModel):
    """The end of the content, with the tokens. The fields behind them are additions of ours."""

    type: Literal["message_delta"]
    delta: StopBody
    usage: MessageUsageBody
    not_enforced: tuple[str, ...]
    approximate: tuple[str, ...]
    warnings: Warnings = ()


class MessageStopBody(DeferredModel):
    """The end of a stream."""

    type: Literal["message_stop"]


MESSAGE_EVENTS = (
    MessageStartBody, ContentBlockStartBody, ContentBlockDeltaBody, ContentBlockStopBody, MessageDeltaBody,
    MessageStopBody,
)  # fmt: skip
"""All events of a stream but `error`. The name of each is its `type`."""
