"""The JSON of the answers, as OpenAI's clients read it.

`automaton` and `seed` are ours: by them the same can be asked for again.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from app.messages import Strict

FinishReason = Literal["stop", "length"]


class Deferred(Strict):
    """Made ready when first used: there are many fields in this package, and an API is to start at once."""

    model_config = ConfigDict(defer_build=True)


class TokenUsage(Deferred):
    """Tokens read, and tokens written over all answers, each with its end."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionLogprobs(Deferred):
    """The tokens of a text, their log-probabilities, and where each begins, in characters."""

    tokens: tuple[str, ...]
    token_logprobs: tuple[float, ...]
    top_logprobs: None = None
    text_offset: tuple[int, ...]


class CompletionChoice(Deferred):
    """A text. `finish_reason` is null on the way, `length` where it was cut short for want of a constraint."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None


class Completion(Deferred):
    """The answer to a prompt, or a chunk of it in a stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: TokenUsage | None
    automaton: str | None = None
    seed: int | None = None


class TokenLogprob(Deferred):
    """A token of an answer and its log-probability."""

    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[()] = ()


class ChatLogprobs(Deferred):
    """The tokens of an answer."""

    content: tuple[TokenLogprob, ...]
    refusal: None = None


class ChatMessage(Deferred):
    """What the assistant says."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(Deferred):
    """An answer."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason


class ChatCompletion(Deferred):
    """The answer to messages."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[ChatChoice, ...]
    usage: TokenUsage
    automaton: str
    seed: int | None


class Delta(Deferred):
    """What a chunk adds to a message; the role in the first."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class DeltaChoice(Deferred):
    """What a chunk adds to an answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None


class ChatChunk(Deferred):
    """A chunk of the answer to messages. The last one tells the usage, where that was asked for, and has no choices."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: tuple[DeltaChoice, ...]
    usage: TokenUsage | None


class ErrorDetail(BaseModel):
    """What is wrong. `code` is stable, and the same as elsewhere; further fields depend on it."""

    model_config = ConfigDict(extra="allow")

    message: str
    type: Literal[
        "invalid_request_error", "authentication_error", "permission_error", "rate_limit_error", "server_error"
    ]
    param: str | None
    code: str
    request_id: str


class ErrorBody(Deferred):
    """Every error of these calls."""

    error: ErrorDetail
