"""What comes of a job, as answers of OpenAI's kind, whole or in chunks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel

from app.errors import InternalError
from app.messages import ChoiceBody, GenerateJobResult, Result
from app.models import ModelFiles
from app.openai.responses import (
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChatMessage,
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    Delta,
    DeltaChoice,
    FinishReason,
    TokenLogprob,
    TokenUsage,
)
from app.openai.stops import without_stop
from app.openai.translate import TranslatedRequest
from app.requests import budget_beside


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an answer: its bytes, of which the answer's text is made, and its log-probability."""

    bytes: bytes
    log_prob: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer. `tokens` is None unless they were asked for; without the end of the text."""

    text: str
    finish_reason: FinishReason
    tokens: tuple[Token, ...] | None


def generated(result: Result) -> GenerateJobResult:
    """The result of a generation."""
    if not isinstance(result, GenerateJobResult):
        raise InternalError(f"a generation was answered by a {result.kind} message")
    return result


def answers(result: GenerateJobResult, order: TranslatedRequest, files: ModelFiles) -> tuple[Answer, ...]:
    """The answers, in their order: distinct ones of a search; of samples that were drawn to choose from the best."""
    choices = list(zip(result.choices, result.token_counts, strict=True))
    if order.best_by_token:
        choices = sorted(choices, key=lambda counted: -counted[0].log_prob / counted[1])[: order.n]
    budget = order.order.options.max_tokens
    if order.order.clamp_to_context:
        budget = budget_beside(budget, result.usage.prompt_tokens, files.context_tokens)
    found = tuple(_answer(choice, order, files, cut=tokens == budget) for choice, tokens in choices)
    if order.order.options.algorithm == "sample":
        return found
    distinct: dict[str, Answer] = {}
    for answer in found:  # best first; texts that differed in a stop string alone are one answer
        distinct.setdefault(answer.text, answer)
    return tuple(distinct.values())


def usage(result: GenerateJobResult) -> TokenUsage:
    """The tokens of a request; samples that were drawn and not chosen count."""
    prompt, written = result.usage.prompt_tokens, result.usage.completion_tokens
    return TokenUsage(prompt_tokens=prompt, completion_tokens=written, total_tokens=prompt + written)


def _answer(choice: ChoiceBody, order: TranslatedRequest, files: ModelFiles, cut: bool) -> Answer:
    """`cut`: the answer has as many tokens as the budget."""
    text = without_stop(choice.text, order.stops)
    tokens = _tokens(choice, text, files) if choice.trace is not None else None
    cut = cut and order.free and text == choice.text
    if order.before:
        text = order.before + _space(choice, files) + text
    return Answer(text, "length" if cut else "stop", tokens if order.logprobs else None)


def _written(choice: ChoiceBody, files: ModelFiles) -> list[tuple[bytes, float]]:
    """All that the model wrote, token by token, its end aside."""
    assert choice.trace is not None
    return [(files.vocabulary.tokens[step.token] or b"", step.log_prob) for step in choice.trace[:-1]]


def _space(choice: ChoiceBody, files: ModelFiles) -> str:
    """The space before an answer that is no part of it."""
    raw = b"".join(piece for piece, _ in _written(choice, files))
    return raw[: len(raw) - len(choice.text.encode())].decode()


def _tokens(choice: ChoiceBody, text: str, files: ModelFiles) -> tuple[Token, ...]:
    """The tokens whose bytes are the text: without the space before it, and what was taken off its end."""
    skipped, left = len(_space(choice, files)), len(text.encode())
    tokens = []
    for piece, log_prob in _written(choice, files):
        own = piece[skipped:][:left]
        skipped, left = max(0, skipped - len(piece)), left - len(own)
        if own or not piece:
            tokens.append(Token(own, log_prob))
    return tuple(tokens)


class Writer(Protocol):
    """Writes one request's answer."""

    def whole(self, result: GenerateJobResult, found: tuple[Answer, ...]) -> BaseModel:
        """The answer in one piece."""

    def opening(self, index: int) -> BaseModel | None:
        """The first chunk of an answer, before any text, where there is one."""

    def chunk(self, index: int, text: str, answer: Answer | None = None) -> BaseModel:
        """A chunk with more text; with the last one the answer that it completes."""

    def closing(self, result: GenerateJobResult) -> BaseModel:
        """The chunk that tells the tokens."""


@dataclass(frozen=True, slots=True)
class CompletionWriter:
    """Writes the answer to a prompt."""

    job_id: str
    model: str
    order: TranslatedRequest
    created: int

    def whole(self, result: GenerateJobResult, found: tuple[Answer, ...]) -> BaseModel:
        choices = tuple(self._choice(index, answer.text, answer) for index, answer in enumerate(found))
        return Completion(
            id=self._id, created=self.created, model=self.model, choices=choices, usage=usage(result),
            automaton=result.automaton, seed=result.seed,
        )

    def opening(self, index: int) -> BaseModel | None:
        return self.chunk(index, self.order.before) if self.order.before else None

    def chunk(self, index: int, text: str, answer: Answer | None = None) -> BaseModel:
        return self._chunk((self._choice(index, text, answer),))

    def closing(self, result: GenerateJobResult) -> BaseModel:
        return self._chunk((), usage(result))

    @property
    def _id(self) -> str:
        return f"cmpl-{self.job_id}"

    def _chunk(self, choices: tuple[CompletionChoice, ...], told: TokenUsage | None = None) -> Completion:
        return Completion(id=self._id, created=self.created, model=self.model, choices=choices, usage=told)

    def _choice(self, index: int, text: str, answer: Answer | None) -> CompletionChoice:
        tokens = None if answer is None else answer.tokens
        return CompletionChoice(
            index=index, text=text, finish_reason=None if answer is None else answer.finish_reason,
            logprobs=None if tokens is None else _completion_logprobs(tokens),
        )


@dataclass(frozen=True, slots=True)
class ChatWriter:
    """Writes the answer to messages."""

    job_id: str
    model: str
    order: TranslatedRequest
    created: int

    def whole(self, result: GenerateJobResult, found: tuple[Answer, ...]) -> BaseModel:
        choices = tuple(
            ChatChoice(
                index=index, message=ChatMessage(content=answer.text), finish_reason=answer.finish_reason,
                logprobs=_chat_logprobs(answer),
            )
            for index, answer in enumerate(found)
        )
        return ChatCompletion(
            id=self._id, created=self.created, model=self.model, choices=choices, usage=usage(result),
            automaton=result.automaton, seed=result.seed,
        )

    def opening(self, index: int) -> BaseModel | None:
        delta = Delta(role="assistant", content="")
        return self._chunk((DeltaChoice(index=index, delta=delta, logprobs=None, finish_reason=None),))

    def chunk(self, index: int, text: str, answer: Answer | None = None) -> BaseModel:
        reason = None if answer is None else answer.finish_reason
        logprobs = None if answer is None else _chat_logprobs(answer)
        delta = Delta(content=text)
        return self._chunk((DeltaChoice(index=index, delta=delta, logprobs=logprobs, finish_reason=reason),))

    def closing(self, result: GenerateJobResult) -> BaseModel:
        return self._chunk((), usage(result))

    @property
    def _id(self) -> str:
        return f"chatcmpl-{self.job_id}"

    def _chunk(self, choices: tuple[DeltaChoice, ...], told: TokenUsage | None = None) -> ChatChunk:
        return ChatChunk(id=self._id, created=self.created, model=self.model, choices=choices, usage=told)


def now() -> int:
    """Unix time in s, as answers tell when they were made."""
    return int(time.time())


def _completion_logprobs(tokens: tuple[Token, ...]) -> CompletionLogprobs:
    offsets, read = [], b""
    for token in tokens:
        offsets.append(len(read.decode(errors="ignore")))  # a token that begins inside a character begins with it
        read += token.bytes
    return CompletionLogprobs(
        tokens=tuple(_shown(token) for token in tokens), token_logprobs=tuple(token.log_prob for token in tokens),
        text_offset=tuple(offsets),
    )


def _chat_logprobs(answer: Answer) -> ChatLogprobs | None:
    if answer.tokens is None:
        return None
    return ChatLogprobs(content=tuple(
        TokenLogprob(token=_shown(token), logprob=token.log_prob, bytes=tuple(token.bytes)) for token in answer.tokens
    ))  # fmt: skip


def _shown(token: Token) -> str:
    return token.bytes.decode(errors="replace")
