"""Renders an answer of `/v1/responses`.

It is one object, or a stream of events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from app.formats import AnswerParts, ItemProgress, OutputItem, call_id, output_items
from app.messages import GenerateJobResult
from app.openai.logprobs import logprob_fields
from app.openai.render import FinishedAnswer, Writer, constraint_notes, read_parts, usage
from app.openai.response_events import ResponseBody
from app.openai.responses import Event, EventGroup

_PARTS = ("thought", "reply")  # items whose text is in a part
_TYPES = {  # of items, and the beginnings of their ids
    "thought": ("reasoning", "rs"), "reply": ("message", "msg"), "function": ("function_call", "fc"),
    "custom": ("custom_tool_call", "ctc"),
}  # fmt: skip
_TEXT_EVENTS = {
    "thought": "response.reasoning_text", "reply": "response.output_text",
    "function": "response.function_call_arguments", "custom": "response.custom_tool_call_input",
}  # fmt: skip


@dataclass(slots=True)
class _StreamState:
    """What was sent of a response: how many events, and the items."""

    number: int = 0
    items: ItemProgress = field(default_factory=ItemProgress)
    answer: FinishedAnswer | None = None


@dataclass(frozen=True, slots=True)
class ResponsesWriter(Writer):
    """Renders the answer to one request.

    echoed  fields of the request that a response repeats
    """

    always_closes = True
    ends_with_done = False
    has_json = True

    echoed: dict[str, Any] = field(default_factory=dict)
    state: _StreamState = field(default_factory=_StreamState)

    def response(self, result: GenerateJobResult, answers: tuple[FinishedAnswer, ...]) -> ResponseBody:
        return self._body(answers[0], result)

    def opening(self, index: int) -> EventGroup:
        body = self._body(None, None).model_dump()
        return self._group([{"type": f"response.{name}", "response": body} for name in ("created", "in_progress")])

    def chunk(self, index: int, sent: str, text: str, answer: FinishedAnswer | None = None) -> EventGroup | None:
        parts = read_parts(self.translated, text) if answer is None else answer.parts
        if answer is not None:
            self.state.answer = answer
        events = list(self._progress(self._items(parts, answer is not None), answer))
        return self._group(events) if events else None

    def closing(self, result: GenerateJobResult) -> EventGroup:
        body = self._body(self.state.answer, result)
        return self._group([{"type": f"response.{body.status}", "response": body.model_dump()}])

    def _group(self, events: list[Event]) -> EventGroup:
        for event in events:
            event["sequence_number"] = self.state.number
            self.state.number += 1
        return EventGroup(events=events)

    def _items(self, parts: AnswerParts, finished: bool) -> list[OutputItem]:
        return output_items(parts, finished, self.translated.include_reasoning)

    def _progress(self, items: list[OutputItem], answer: FinishedAnswer | None) -> Iterator[Event]:
        """The events of what the items add to those that were sent."""
        for step, number, added in self.state.items.advance(items, answer is not None):
            item = items[number]
            match step:
                case "begin":
                    yield from self._begin(item, number)
                case "delta":
                    yield self._event(f"{_TEXT_EVENTS[item.kind]}.delta", item, number, delta=added)
                case "end":
                    yield from self._end(item, number, answer)

    def _begin(self, item: OutputItem, number: int) -> Iterator[Event]:
        body = self._body_of(OutputItem(item.kind, "", item.name, item.call), number, None)
        body |= {"content": ()} if item.kind in _PARTS else {}
        body |= {} if item.kind == "custom" else {"status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": number, "item": body}
        if item.kind in _PARTS:
            part = self._part(item.kind, "", None)
            yield self._event("response.content_part.added", item, number, part=part)

    def _end(self, item: OutputItem, number: int, answer: FinishedAnswer | None) -> Iterator[Event]:
        body = self._body_of(item, number, answer)
        done = f"{_TEXT_EVENTS[item.kind]}.done"
        match item.kind:
            case "function":
                yield self._event(done, item, number, arguments=item.text, name=item.name)
            case "custom":
                yield self._event(done, item, number, input=item.text)
            case _:
                (part,) = body["content"]
                yield self._event(done, item, number, text=item.text)
                yield self._event("response.content_part.done", item, number, part=part)
        yield {"type": "response.output_item.done", "output_index": number, "item": body}

    def _event(self, kind: str, item: OutputItem, number: int, **fields: Any) -> Event:
        """An event of a part of an item."""
        place: Event = {"type": kind, "item_id": self._item_id(item, number), "output_index": number}
        place |= {"content_index": 0} if item.kind in _PARTS else {}
        if kind.startswith("response.output_text"):
            place["logprobs"] = self._logprobs(self.state.answer) if kind.endswith(".done") else ()
        return place | fields

    def _body(self, answer: FinishedAnswer | None, result: GenerateJobResult | None) -> ResponseBody:
        cut = answer is not None and answer.finish_reason == "length"
        extra: dict[str, Any] = {}
        if result is not None:
            extra = {"automaton": result.automaton, "seed": result.seed, **constraint_notes(result)}
        return ResponseBody.model_validate({
            "id": f"resp_{self.job_id}", "created_at": self.created, "model": self.model,
            "status": "in_progress" if answer is None else "incomplete" if cut else "completed",
            "output": () if answer is None else tuple(
                self._body_of(item, number, answer) for number, item in enumerate(self._items(answer.parts, True))
            ),
            "usage": None if result is None else _usage(result),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None, **self.echoed, **extra,
        })  # fmt: skip

    def _body_of(self, item: OutputItem, number: int, answer: FinishedAnswer | None) -> dict[str, Any]:
        """An output item. Log-probs and a cut are those of the answer; None: it is not finished."""
        cut = answer is not None and answer.finish_reason == "length" and item.kind == "reply"
        body: dict[str, Any] = {"type": _TYPES[item.kind][0], "id": self._item_id(item, number)}
        if item.kind != "custom":
            body["status"] = "incomplete" if cut else "completed"
        match item.kind:
            case "function":
                call = call_id(self.job_id, 0, item.call)
                return {**body, "call_id": call, "name": item.name, "arguments": item.text}
            case "custom":
                return {**body, "call_id": call_id(self.job_id, 0, item.call), "name": item.name, "input": item.text}
            case "thought":
                return {**body, "summary": (), "content": (self._part("thought", item.text, answer),)}
            case "reply":
                return {**body, "role": "assistant", "content": (self._part("reply", item.text, answer),)}

    def _part(self, kind: str, text: str, answer: FinishedAnswer | None) -> dict[str, Any]:
        if kind == "thought":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": (), "logprobs": self._logprobs(answer)}

    def _logprobs(self, answer: FinishedAnswer | None) -> tuple[dict[str, Any], ...]:
        tokens = () if answer is None or answer.tokens is None else answer.tokens
        return tuple(
            {**logprob_fields(token), "top_logprobs": tuple(map(logprob_fields, token.top))} for token in tokens
        )

    def _item_id(self, item: OutputItem, number: int) -> str:
        return f"{_TYPES[item.kind][1]}_{hashlib.sha256(f'{self.job_id} {number}'.encode()).hexdigest()[:32]}"


def _usage(result: GenerateJobResult) -> dict[str, Any]:
    tokens = usage(result)
    return {
        "input_tokens": tokens.prompt_tokens, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": tokens.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": result.usage.reasoning_tokens},
        "total_tokens": tokens.total_tokens,
    }
