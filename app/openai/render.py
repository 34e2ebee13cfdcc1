"""Renders the result of a job as an OpenAI response or chunks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, ClassVar, Literal

from pydantic import BaseModel

from app.errors import InternalError
from app.formats import AnswerParts, ToolCall, call_id, remove_stop
from app.messages import ChoiceBody, GenerateJobResult, Result, UsageBody, approximation_warnings
from app.models import ModelFiles
from app.openai.errors import error_body
from app.openai.logprobs import AnswerToken, chat_logprobs, completion_logprobs
from app.openai.responses import (
    ChatChoiceBody,
    ChatChunkBody,
    ChatCompletionResponse,
    ChatMessageBody,
    CompletionChoiceBody,
    CompletionResponse,
    CustomCallBody,
    DeltaBody,
    DeltaChoiceBody,
    FinishReason,
    TokenDetailsBody,
    TokenUsageBody,
    ToolCallBody,
    ToolCallDeltaBody,
    ToolCallFunctionBody,
)
from app.openai.translate import TranslatedRequest
from app.requests import budget_beside


@dataclass(frozen=True, slots=True)
class FinishedAnswer:
    """A finished answer. `tokens` excludes the end token, and is None unless log-probs are requested.

    index  its number among the answers to all prompts
    stop   the stop string that was removed from its end; empty if there was none
    notes  what of the constraint has no effect
    """

    text: str
    finish_reason: FinishReason
    tokens: tuple[AnswerToken, ...] | None
    parts: AnswerParts
    index: int = 0
    stop: str = ""
    notes: Mapping[str, Any] = field(default_factory=dict)


def generated(result: Result) -> GenerateJobResult:
    """The result, which must be that of a generation."""
    if not isinstance(result, GenerateJobResult):
        raise InternalError(f"a generation was answered by a {result.kind} message")
    return result


def answers(
    result: GenerateJobResult, translated: TranslatedRequest, files: ModelFiles, first: int = 0
) -> tuple[FinishedAnswer, ...]:
    """The answers, best first. Those of a search are distinct. For `best_of` they are the best samples.

    first  the number of the best one
    """
    choices = list(zip(result.choices, result.token_counts, strict=True))
    if translated.best_by_token:
        choices = sorted(choices, key=lambda counted: -counted[0].log_prob / counted[1])[: translated.n]
    budget = translated.params.options.max_tokens
    if translated.params.clamp_to_context:
        budget = budget_beside(budget, result.usage.prompt_tokens, files.context_tokens)
    prompt = _prompt_tokens(result, translated.prefix, files)
    finished = tuple(
        _answer(choice, translated, files, prompt=prompt, cut=tokens == budget) for choice, tokens in choices
    )
    if translated.params.options.algorithm != "sample":
        # Texts that differ only in a removed stop string are one answer: the best stays.
        distinct = {answer.text: answer for answer in reversed(finished)}
        finished = tuple(answer for answer in finished if distinct[answer.text] is answer)
    notes = _left_out(result)  # without the warnings, which a stream carries at its end
    return tuple(replace(answer, index=index, notes=notes) for index, answer in enumerate(finished, first))


def merged(results: Sequence[GenerateJobResult]) -> GenerateJobResult:
    """The results of several prompts as one: their tokens are added up."""
    counts = zip(*(astuple(result.usage) for result in results), strict=True)
    return replace(results[0], usage=UsageBody(*map(sum, counts)))


def constraint_notes(result: GenerateJobResult) -> dict[str, Any]:
    """What of the constraint has no effect, or is probably a mistake."""
    return {**_left_out(result), "warnings": (*result.warnings, *approximation_warnings(result.approximate))}


def _left_out(result: GenerateJobResult) -> dict[str, Any]:
    """What of the constraint has no effect."""
    return {"not_enforced": result.not_enforced, "approximate": result.approximate}


def usage(result: GenerateJobResult) -> TokenUsageBody:
    """The token counts of a request, including samples that were not chosen."""
    prompt, generated, thoughts = (
        result.usage.prompt_tokens, result.usage.completion_tokens, result.usage.reasoning_tokens
    )  # fmt: skip
    return TokenUsageBody(
        prompt_tokens=prompt, completion_tokens=generated, total_tokens=prompt + generated,
        completion_tokens_details=TokenDetailsBody(reasoning_tokens=thoughts) if thoughts else None,
    )  # fmt: skip


def _answer(
    choice: ChoiceBody, translated: TranslatedRequest, files: ModelFiles, *, prompt: tuple[AnswerToken, ...], cut: bool
) -> FinishedAnswer:
    """`cut`: the answer has as many tokens as the budget. `prompt`: the tokens of the echoed prompt."""
    reader = None if translated.answer is None else translated.answer.reader
    kept = remove_stop(choice.text, translated.stops, reader)
    stop = choice.text[len(kept) :].removesuffix("" if reader is None else reader.reply_end)
    text = kept.removesuffix(translated.suffix)
    cut = cut and translated.unconstrained and text == choice.text
    space = _space(choice, files) if translated.prefix else ""
    tokens = (*prompt, *_tokens(choice, space + text, files, space)) if choice.trace is not None else None
    if translated.prefix:
        text = translated.prefix + space + text
    parts = read_parts(translated, text, finished=True)
    reason: FinishReason = "tool_calls" if parts.calls else "length" if cut else "stop"
    return FinishedAnswer(text, reason, tokens if translated.logprobs else None, parts, stop=stop)


def read_parts(translated: TranslatedRequest, text: str, finished: bool = False) -> AnswerParts:
    """The thought, reply and calls in an answer or its beginning."""
    return AnswerParts(text) if translated.answer is None else translated.answer.read(text, finished)


def _written_tokens(choice: ChoiceBody, files: ModelFiles) -> list[AnswerToken]:
    """Each generated token except the end token."""
    assert choice.trace is not None
    return [
        AnswerToken(
            files.vocabulary.written[step.token] or b"", step.log_prob, step.constrained_log_prob,
            tuple(
                AnswerToken(_bytes_or_name(other.token, files), other.log_prob, other.constrained_log_prob)
                for other in step.top_log_probs or ()
            ),
        )
        for step in choice.trace[:-1]
    ]


def _bytes_or_name(token: int, files: ModelFiles) -> bytes:
    """The bytes of a token, or those of its name."""
    vocabulary = files.vocabulary
    named = (name.encode() for name, number in vocabulary.names.items() if number == token)
    return vocabulary.written[token] or next(named, b"")


def _space(choice: ChoiceBody, files: ModelFiles) -> str:
    """The leading space that the model wrote and the answer lacks."""
    raw = b"".join(token.bytes for token in _written_tokens(choice, files))
    return raw[: len(raw) - len(choice.text.encode())].decode()


def _prompt_tokens(result: GenerateJobResult, prompt: str, files: ModelFiles) -> tuple[AnswerToken, ...]:
    """The tokens of an echoed prompt. A space that the tokenizer puts in front is excluded."""
    tokens = [
        AnswerToken(
            files.vocabulary.written[token.token] or b"", token.log_prob,
            top=tuple(AnswerToken(_bytes_or_name(other, files), value) for other, value in token.top_log_probs),
        )
        for token in result.prompt_tokens or ()
    ]
    raw = b"".join(token.bytes for token in tokens)
    skipped = len(raw) - len(prompt.encode()) if raw.endswith(prompt.encode()) else 0
    return _cut(tokens, skipped, len(raw) - skipped)


def _tokens(choice: ChoiceBody, text: str, files: ModelFiles, space: str) -> tuple[AnswerToken, ...]:
    """The tokens of the text, which may begin with a space. The removed stop string is excluded."""
    return _cut(_written_tokens(choice, files), len(_space(choice, files)) - len(space), len(text.encode()))


def _cut(written: Sequence[AnswerToken], skipped: int, left: int) -> tuple[AnswerToken, ...]:
    """The tokens of the `left` bytes behind the first `skipped` ones.

    An alternative loses the bytes that its place loses, where it begins with them.
    """
    tokens = []
    for token in written:
        visible, lost = token.bytes[skipped:][:left], token.bytes[:skipped]
        skipped, left = max(0, skipped - len(token.bytes)), left - len(visible)
        # A token without bytes, a special one, stays in the list.
        if visible or not token.bytes:
            top = tuple(replace(other, bytes=other.bytes.removeprefix(lost)) for other in token.top)
            tokens.append(replace(token, bytes=visible, top=top))
    return tuple(tokens)


@dataclass(frozen=True, slots=True)
class Writer(ABC):
    """Renders the answers of one request.

    always_closes   whether a stream has the closing chunk without a request for it
    ends_with_done  whether a stream ends with `[DONE]`
    error_event     the name of an event with an error, which has the body of `error`; None without a name
    has_json        whether a response has JSON values of the caller or the model, whose numbers keep their decimals
    """

    always_closes: ClassVar[bool] = False
    ends_with_done: ClassVar[bool] = True
    error_event: ClassVar[str | None] = None
    has_json: ClassVar[bool] = False

    job_id: str
    model: str
    translated: TranslatedRequest
    created: int = field(default_factory=lambda: int(time.time()))  # Unix time in s

    @abstractmethod
    def response(self, result: GenerateJobResult, answers: tuple[FinishedAnswer, ...]) -> BaseModel:
        """The response without streaming."""

    @abstractmethod
    def opening(self, index: int) -> BaseModel | None:
        """The chunk before the text of an answer. None if there is none."""

    @abstractmethod
    def chunk(self, index: int, sent: str, text: str, answer: FinishedAnswer | None = None) -> BaseModel | None:
        """The chunk that continues the text that was sent to `text`. None if nothing of it is shown yet.

        The last one of an answer also gets the finished answer.
        """

    @abstractmethod
    def closing(self, result: GenerateJobResult) -> BaseModel:
        """The chunk with the token counts."""

    def error(self, problem: bytes) -> bytes:
        """A problem in the format of the stream."""
        return error_body(problem)

    def _head(self, prefix: str) -> dict[str, Any]:
        """The fields of every response and chunk."""
        return {"id": f"{prefix}-{self.job_id}", "created": self.created, "model": self.model, "usage": None}

    def _whole_head(self, prefix: str, result: GenerateJobResult) -> dict[str, Any]:
        """The fields with what the result tells of the whole answer."""
        return {**self._head(prefix), "usage": usage(result), **constraint_notes(result)}

    def _chunk_head(self, prefix: str, answer: FinishedAnswer | None) -> dict[str, Any]:
        """The fields of a chunk. The chunk that ends an answer also carries its notes."""
        return {**self._head(prefix), **(answer.notes if answer is not None else {})}


class CompletionWriter(Writer):
    """Renders the answers to a prompt."""

    def response(self, result: GenerateJobResult, answers: tuple[FinishedAnswer, ...]) -> BaseModel:
        choices = tuple(self._choice(answer.index, answer.text, answer) for answer in answers)
        return CompletionResponse(
            **self._whole_head("cmpl", result), choices=choices, automaton=result.automaton, seed=result.seed
        )

    def opening(self, index: int) -> BaseModel | None:
        return self.chunk(index, "", self.translated.prefix) if self.translated.prefix else None

    def chunk(self, index: int, sent: str, text: str, answer: FinishedAnswer | None = None) -> BaseModel:
        choice = self._choice(index, text[len(sent) :], answer)
        return CompletionResponse(**self._chunk_head("cmpl", answer), choices=(choice,))

    def closing(self, result: GenerateJobResult) -> BaseModel:
        return CompletionResponse(**self._whole_head("cmpl", result), choices=())

    def _choice(self, index: int, text: str, answer: FinishedAnswer | None) -> CompletionChoiceBody:
        tokens = None if answer is None else answer.tokens
        return CompletionChoiceBody(
            index=index, text=text, finish_reason=None if answer is None else answer.finish_reason,
            logprobs=None if tokens is None else completion_logprobs(tokens),
        )


class ChatWriter(Writer):
    """Renders the answers to messages."""

    def response(self, result: GenerateJobResult, answers: tuple[FinishedAnswer, ...]) -> BaseModel:
        choices = tuple(
            ChatChoiceBody(
                index=index, message=self._message(index, answer.parts), finish_reason=answer.finish_reason,
                logprobs=chat_logprobs(answer.tokens),
            )
            for index, answer in enumerate(answers)
        )
        return ChatCompletionResponse(
            **self._whole_head("chatcmpl", result), choices=choices, automaton=result.automaton, seed=result.seed
        )

    def opening(self, index: int) -> BaseModel | None:
        return self._chunk(index, DeltaBody(role="assistant", content=""))

    def chunk(self, index: int, sent: str, text: str, answer: FinishedAnswer | None = None) -> BaseModel | None:
        former = read_parts(self.translated, sent)
        parts = read_parts(self.translated, text) if answer is None else answer.parts
        if answer is None and parts == former:
            return None
        delta = self._delta(index, former, parts)
        return None if answer is None and delta == DeltaBody(content="") else self._chunk(index, delta, answer)

    def _message(self, index: int, parts: AnswerParts) -> ChatMessageBody:
        calls = tuple(
            ToolCallBody(id=call_id(self.job_id, index, number), type=_kind(call), **_called(call, call.arguments))
            for number, call in enumerate(parts.calls)
        )
        reasoning = parts.reasoning if self.translated.include_reasoning else ""
        return ChatMessageBody(
            content=parts.content or (None if calls else ""), tool_calls=calls or None,
            reasoning_content=reasoning or None, reasoning=reasoning or None,
        )

    def _delta(self, index: int, former: AnswerParts, parts: AnswerParts) -> DeltaBody:
        """What the parts add to those that were sent."""
        content, calls = parts.content[len(former.content) :], list[ToolCallDeltaBody]()
        for number, call in enumerate(parts.calls):
            if number >= len(former.calls):
                called, number_id = _called(call, call.arguments), call_id(self.job_id, index, number)
                calls.append(ToolCallDeltaBody(index=number, id=number_id, type=_kind(call), **called))
            elif added := call.arguments[len(former.calls[number].arguments) :]:
                calls.append(ToolCallDeltaBody(index=number, **_called(call, added, named=False)))
        reasoning = parts.reasoning[len(former.reasoning) :] if self.translated.include_reasoning else ""
        return DeltaBody(
            content=content if content or not (calls or reasoning) else None, tool_calls=tuple(calls) or None,
            reasoning_content=reasoning or None, reasoning=reasoning or None,
        )

    def closing(self, result: GenerateJobResult) -> BaseModel:
        return ChatChunkBody(**self._whole_head("chatcmpl", result), choices=())

    def _chunk(self, index: int, delta: DeltaBody, answer: FinishedAnswer | None = None) -> ChatChunkBody:
        reason = None if answer is None else answer.finish_reason
        logprobs = None if answer is None else chat_logprobs(answer.tokens)
        choice = DeltaChoiceBody(index=index, delta=delta, logprobs=logprobs, finish_reason=reason)
        return ChatChunkBody(**self._chunk_head("chatcmpl", answer), choices=(choice,))


def _kind(call: ToolCall) -> Literal["function", "custom"]:
    return "custom" if call.custom else "function"


def _called(call: ToolCall, arguments: str, named: bool = True) -> dict[str, Any]:
    """The field with arguments of a call, or what is added."""
    name = call.name if named else None
    if call.custom:
        return {"custom": CustomCallBody(name=name, input=arguments)}
    return {"function": ToolCallFunctionBody(name=name, arguments=arguments)}
