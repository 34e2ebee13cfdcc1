"""The JSON of the responses in OpenAI's format.

`automaton`, `seed`, `not_enforced`, `approximate` and `warnings` are additions of ours; a request with the first two
repeats the answer.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.messages import StrictModel, Warnings

FinishReason = Literal["stop", "length", "tool_calls"]


def _is_none(value: object) -> bool:
    return value is None


class DeferredModel(StrictModel):
    """A model that builds its validator on first use. So the many models here do not delay the start."""

    model_config = ConfigDict(defer_build=True)


class TokenDetailsBody(DeferredModel):
    """The generated tokens that are thoughts, without the markers around these."""

    reasoning_tokens: int


class TokenUsageBody(DeferredModel):
    """Prompt tokens, and generated tokens of all answers including end tokens.

    The details are left out if none of the tokens are thoughts.
    """

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: Annotated[TokenDetailsBody | None, Field(exclude_if=_is_none)] = None


class CompletionLogprobsBody(DeferredModel):
    """Tokens of a text, their log-probabilities and their offsets in characters.

    The log-probabilities are the model's own, without the constraint. Those of the first token of an echoed prompt are
    null, because nothing is before it. Those that are called constrained are among the tokens that constraint and
    budget allow in a place. They are null without `top_logprobs`, and for tokens of the prompt; the tokens that are not
    allowed are left out of `constrained_top_logprobs`.
    """

    tokens: tuple[str, ...]
    token_logprobs: tuple[float | None, ...]
    top_logprobs: tuple[dict[str, float] | None, ...] | None = None
    constrained_token_logprobs: tuple[float | None, ...] | None = None
    constrained_top_logprobs: tuple[dict[str, float] | None, ...] | None = None
    text_offset: tuple[int, ...]


class CompletionChoiceBody(DeferredModel):
    """A text. `finish_reason` is null before its last chunk, and `length` if an unconstrained text was cut off."""

    index: int
    text: str
    logprobs: CompletionLogprobsBody | None
    finish_reason: FinishReason | None


Notes = Annotated[tuple[str, ...] | None, Field(exclude_if=_is_none)]  # a chunk within an answer has none


class _Response(DeferredModel):
    id: str
    object: str
    created: int
    model: str
    not_enforced: Notes = None
    approximate: Notes = None
    warnings: Warnings = ()


class CompletionResponse(_Response):
    """The response to a prompt. In a stream it is a chunk."""

    object: Literal["text_completion"] = "text_completion"
    choices: tuple[CompletionChoiceBody, ...]
    usage: TokenUsageBody | None
    automaton: str | None = None
    seed: int | None = None


class TopLogprobBody(DeferredModel):
    """A token and its log-probability.

    `logprob` is the model's own. `constrained_logprob` is that among the tokens that constraint and budget allow in
    this place; null where the token is not one of them, or no `top_logprobs` are requested.
    """

    token: str
    logprob: float
    bytes: tuple[int, ...]
    constrained_logprob: float | None = None


class TokenLogprobBody(TopLogprobBody):
    """A token of an answer, and the most probable ones there."""

    top_logprobs: tuple[TopLogprobBody, ...] = ()


class ChatLogprobsBody(DeferredModel):
    """The tokens of an answer."""

    content: tuple[TokenLogprobBody, ...]
    refusal: None = None


class ToolCallFunctionBody(DeferredModel):
    """The function of a call. `arguments` is JSON text; in a stream, what a chunk adds to it."""

    name: Annotated[str | None, Field(exclude_if=_is_none)] = None
    arguments: str


class CustomCallBody(DeferredModel):
    """The text for a custom tool. In a stream it is what a chunk adds."""

    name: Annotated[str | None, Field(exclude_if=_is_none)] = None
    input: str


class ToolCallBody(DeferredModel):
    """A call of a function, or of a custom tool."""

    id: str
    type: Literal["function", "custom"] = "function"
    function: Annotated[ToolCallFunctionBody | None, Field(exclude_if=_is_none)] = None
    custom: Annotated[CustomCallBody | None, Field(exclude_if=_is_none)] = None


class ToolCallDeltaBody(DeferredModel):
    """What a chunk adds to a call. The first chunk of a call has its id, its type and the function's name."""

    index: int
    id: Annotated[str | None, Field(exclude_if=_is_none)] = None
    type: Annotated[Literal["function", "custom"] | None, Field(exclude_if=_is_none)] = None
    function: Annotated[ToolCallFunctionBody | None, Field(exclude_if=_is_none)] = None
    custom: Annotated[CustomCallBody | None, Field(exclude_if=_is_none)] = None


class ChatMessageBody(DeferredModel):
    """The assistant's message: a content, calls, and the thoughts before them.

    Clients read thoughts as `reasoning_content`, or by the newer name `reasoning`.
    """

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: Annotated[str | None, Field(exclude_if=_is_none)] = None
    reasoning: Annotated[str | None, Field(exclude_if=_is_none)] = None
    tool_calls: Annotated[tuple[ToolCallBody, ...] | None, Field(exclude_if=_is_none)] = None


class ChatChoiceBody(DeferredModel):
    """One answer to the messages."""

    index: int
    message: ChatMessageBody
    logprobs: ChatLogprobsBody | None
    finish_reason: FinishReason


class ChatCompletionResponse(_Response):
    """The response to messages."""

    object: Literal["chat.completion"] = "chat.completion"
    choices: tuple[ChatChoiceBody, ...]
    usage: TokenUsageBody
    automaton: str
    seed: int | None


class DeltaBody(DeferredModel):
    """The text that a chunk adds to a message. The first chunk alone has the role."""

    role: Annotated[Literal["assistant"] | None, Field(exclude_if=_is_none)] = None
    content: str | None = None
    reasoning_content: Annotated[str | None, Field(exclude_if=_is_none)] = None
    reasoning: Annotated[str | None, Field(exclude_if=_is_none)] = None
    tool_calls: Annotated[tuple[ToolCallDeltaBody, ...] | None, Field(exclude_if=_is_none)] = None


class DeltaChoiceBody(DeferredModel):
    """The part of an answer in a chunk."""

    index: int
    delta: DeltaBody
    logprobs: ChatLogprobsBody | None
    finish_reason: FinishReason | None


class ChatChunkBody(_Response):
    """A chunk of the response to messages. A chunk with `usage`, if requested, is the last and has no choices."""

    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    choices: tuple[DeltaChoiceBody, ...]
    usage: TokenUsageBody | None


Event = dict[str, Any]


class EventGroup(BaseModel):
    """Named events that are sent together."""

    events: list[Event]


class ErrorDetailBody(BaseModel):
    """An error. `code` is stable and the same as outside /v1; further fields depend on it."""

    model_config = ConfigDict(extra="allow")

    message: str
    type: Literal[
        "invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "server_error"
    ]
    param: str | None
    code: str
    request_id: str


class ErrorBody(DeferredModel):
    """The body of every error below /v1."""

    error: ErrorDetailBody
