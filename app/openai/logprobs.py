"""Log-probabilities of answers in OpenAI's formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from app.openai.responses import ChatLogprobsBody, CompletionLogprobsBody, TokenLogprobBody, TopLogprobBody


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """A token of an answer, or an alternative to it.

    bytes                 those of it in the text
    log_prob              the model's own; None for the first token of a prompt
    constrained_log_prob  among the tokens that are allowed there; None if it is not one, or is not requested
    top                   the model's most probable tokens in its place
    """

    bytes: bytes
    log_prob: float | None
    constrained_log_prob: float | None = None
    top: tuple[AnswerToken, ...] = ()


def completion_logprobs(tokens: tuple[AnswerToken, ...]) -> CompletionLogprobsBody:
    """The log-probs of an answer, as a completion lists them."""
    offsets, text = [], b""
    for token in tokens:
        # A token that starts inside a character has the offset of that character.
        offsets.append(len(text.decode(errors="ignore")))
        text += token.bytes
    listed = any(token.top for token in tokens)
    return CompletionLogprobsBody(
        tokens=tuple(_token_text(token) for token in tokens), token_logprobs=tuple(token.log_prob for token in tokens),
        text_offset=tuple(offsets),
        top_logprobs=_top_logprobs(tokens, _log_prob) if listed else None,
        constrained_token_logprobs=tuple(map(_constrained_log_prob, tokens)) if listed else None,
        constrained_top_logprobs=_top_logprobs(tokens, _constrained_log_prob) if listed else None,
    )


def _log_prob(token: AnswerToken) -> float | None:
    return token.log_prob


def _constrained_log_prob(token: AnswerToken) -> float | None:
    return token.constrained_log_prob


def _top_logprobs(
    tokens: Sequence[AnswerToken], of: Callable[[AnswerToken], float | None]
) -> tuple[dict[str, float] | None, ...]:
    """The most probable tokens in each place, and the written one. None where that has no value.

    Of equal texts the best one counts.
    """
    return tuple(None if of(token) is None else _by_text((*token.top, token), of) for token in tokens)


def _by_text(tokens: Iterable[AnswerToken], of: Callable[[AnswerToken], float | None]) -> dict[str, float]:
    known = [(value, _token_text(token)) for token in tokens if (value := of(token)) is not None]
    return {text: value for value, text in sorted(known, key=lambda pair: pair[0])}


def chat_logprobs(tokens: Sequence[AnswerToken] | None) -> ChatLogprobsBody | None:
    """The log-probs of an answer, as a chat lists them. None if they are not requested."""
    if tokens is None:
        return None
    return ChatLogprobsBody(content=tuple(
        TokenLogprobBody(
            **logprob_fields(token), top_logprobs=tuple(TopLogprobBody(**logprob_fields(other)) for other in token.top)
        )
        for token in tokens
    ))  # fmt: skip


def logprob_fields(token: AnswerToken) -> dict[str, Any]:
    """The log-probs of a token, as chats and responses show them."""
    return {
        "token": _token_text(token), "logprob": token.log_prob, "bytes": tuple(token.bytes),
        "constrained_logprob": token.constrained_log_prob,
    }


def _token_text(token: AnswerToken) -> str:
    return token.bytes.decode(errors="replace")
