"""Renders an answer of `/v1/messages`.

It is one object, or a stream of events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from app.anthropic.errors import messages_error
from app.anthropic.events import MessageDeltaBody, MessagesAnswerBody, MessageUsageBody, StopReason
from app.formats import ItemProgress, OutputItem, call_id, output_items
from app.messages import GenerateJobResult
from app.openai.render import FinishedAnswer, Writer, constraint_notes, read_parts, usage
from app.openai.responses import Event, EventGroup
from compiler.exact_json import load_json


@dataclass(slots=True)
class _SentMessage:
    """What was sent of a stream."""

    items: ItemProgress = field(default_factory=ItemProgress)
    answer: FinishedAnswer | None = None


@dataclass(frozen=True, slots=True)
class MessagesWriter(Writer):
    """Renders the answer to one request."""

    always_closes = True
    ends_with_done = False
    error_event = "error"
    has_json = True

    state: _SentMessage = field(default_factory=_SentMessage)

    def response(self, result: GenerateJobResult, answers: tuple[FinishedAnswer, ...]) -> MessagesAnswerBody:
        answer = answers[0]
        items = output_items(answer.parts, True, self.translated.include_reasoning)
        return self._message(
            content=tuple(map(self._block, items)),
            stop_reason=_stop_reason(answer), stop_sequence=answer.stop or None, usage=_usage(result),
            automaton=result.automaton, seed=result.seed, **constraint_notes(result),
        )  # fmt: skip

    def opening(self, index: int) -> EventGroup:
        empty = MessageUsageBody(input_tokens=0, output_tokens=0)  # the worker counts them later
        message = self._message(content=(), stop_reason=None, stop_sequence=None, usage=empty)
        return EventGroup(events=[{"type": "message_start", "message": message.model_dump()}])

    def chunk(self, index: int, sent: str, text: str, answer: FinishedAnswer | None = None) -> EventGroup | None:
        parts = read_parts(self.translated, text) if answer is None else answer.parts
        if answer is not None:
            self.state.answer = answer
        items = output_items(parts, answer is not None, self.translated.include_reasoning)
        events = list(self._progress(items, answer))
        return EventGroup(events=events) if events else None

    def closing(self, result: GenerateJobResult) -> EventGroup:
        answer = self.state.answer
        assert answer is not None
        delta = {"stop_reason": _stop_reason(answer), "stop_sequence": answer.stop or None}
        last = MessageDeltaBody.model_validate({
            "type": "message_delta", "delta": delta, "usage": _usage(result), **constraint_notes(result),
        })  # fmt: skip
        return EventGroup(events=[last.model_dump(), {"type": "message_stop"}])

    def error(self, problem: bytes) -> bytes:
        return messages_error(problem)

    def _progress(self, items: list[OutputItem], answer: FinishedAnswer | None) -> Iterator[Event]:
        """The events of what the items add to those that were sent."""
        for step, number, added in self.state.items.advance(items, answer is not None):
            item = items[number]
            match step:
                case "begin":
                    block = self._block(OutputItem(item.kind, "", item.name, item.call))
                    yield {"type": "content_block_start", "index": number, "content_block": block}
                case "delta":
                    yield {"type": "content_block_delta", "index": number, "delta": _delta(item, added)}
                case "end":
                    yield {"type": "content_block_stop", "index": number}

    def _message(self, **fields: Any) -> MessagesAnswerBody:
        return MessagesAnswerBody(id=f"msg_{self.job_id}", model=self.model, **fields)

    def _block(self, item: OutputItem) -> dict[str, Any]:
        match item.kind:
            case "thought":
                return {"type": "thinking", "thinking": item.text, "signature": ""}
            case "reply":
                return {"type": "text", "text": item.text}
            case _:
                number = call_id(self.job_id, 0, item.call).replace("call_", "toolu_")
                arguments = load_json(item.text) if item.text else {}
                return {"type": "tool_use", "id": number, "name": item.name, "input": arguments}


def _delta(item: OutputItem, added: str) -> dict[str, str]:
    match item.kind:
        case "thought":
            return {"type": "thinking_delta", "thinking": added}
        case "reply":
            return {"type": "text_delta", "text": added}
        case _:
            return {"type": "input_json_delta", "partial_json": added}


def _stop_reason(answer: FinishedAnswer) -> StopReason:
    match answer.finish_reason:
        case "tool_calls":
            return "tool_use"
        case "length":
            return "max_tokens"
        case _:
            return "stop_sequence" if answer.stop else "end_turn"


def _usage(result: GenerateJobResult) -> MessageUsageBody:
    tokens = usage(result)
    return MessageUsageBody(input_tokens=tokens.prompt_tokens, output_tokens=tokens.completion_tokens)
