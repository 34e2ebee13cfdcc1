"""Renders an answer of `/v1/responses`.

It is one object, or a stream of events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict

from app.formats import AnswerParts, call_id
from app.messages import GenerateJobResult
from app.openai.render import FinishedAnswer, Writer, logprob_fields, read_parts, usage

Event = dict[str, Any]


class ResponseBody(BaseModel):
    """A response. Its output is a message or a call. `store` is always false: nothing is kept for later requests."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: str = "response"
    created_at: int
    model: str
    status: str
    output: list[dict[str, Any]]
    usage: dict[str, Any] | None
    error: None = None
    incomplete_details: dict[str, str] | None = None
    store: bool = False
    background: bool = False
    previous_response_id: None = None
    truncation: str = "disabled"
    automaton: str | None = None
    seed: int | None = None


class EventGroup(BaseModel):
    """Events that are sent together."""

    events: list[Event]


@dataclass(slots=True)
class _StreamState:
    """What was sent of a response."""

    number: int = 0  # of the next event
    answer: FinishedAnswer | None = None
    item: str = ""  # the id of the open item, empty before it


@dataclass(frozen=True, slots=True)
class ResponsesWriter(Writer):
    """Renders the answer to one request.

    echoed  fields of the request that a response repeats
    """

    echoed: dict[str, Any] = field(default_factory=dict)
    state: _StreamState = field(default_factory=_StreamState)

    def response(self, result: GenerateJobResult, answers: tuple[FinishedAnswer, ...]) -> ResponseBody:
        return self._body(answers[0], result)

    def opening(self, index: int) -> EventGroup:
        body = self._body(None, None).model_dump()
        return self._group([{"type": f"response.{name}", "response": body} for name in ("created", "in_progress")])

    def chunk(self, index: int, sent: str, text: str, answer: FinishedAnswer | None = None) -> EventGroup | None:
        former = read_parts(self.translated, sent)
        parts = read_parts(self.translated, text) if answer is None else answer.parts
        events = list(self._deltas(former, parts, finished=answer is not None))
        if answer is not None:
            self.state.answer = answer
            events += self._ends(answer)
        return self._group(events) if events else None

    def closing(self, result: GenerateJobResult) -> EventGroup:
        body = self._body(self.state.answer, result)
        return self._group([{"type": f"response.{body.status}", "response": body.model_dump()}])

    def _group(self, events: list[Event]) -> EventGroup:
        for event in events:
            event["sequence_number"] = self.state.number
            self.state.number += 1
        return EventGroup(events=events)

    def _deltas(self, former: AnswerParts, parts: AnswerParts, finished: bool) -> Iterator[Event]:
        """The events of what the parts add to those that were sent."""
        item = self._item(parts)
        place = {"item_id": item["id"], "output_index": 0}
        is_call, undecided = bool(parts.calls), not parts.calls and not parts.content
        if undecided and not finished:
            return
        if not self.state.item:
            self.state.item = item["id"]
            empty: Event = {"arguments": ""} if is_call else {"content": []}
            start = {**item, "status": "in_progress", **empty}
            yield {"type": "response.output_item.added", "output_index": 0, "item": start}
            if not is_call:
                part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                yield {"type": "response.content_part.added", **place, "content_index": 0, "part": part}
        if parts.calls:
            sent = former.calls[0].arguments if former.calls else ""
            if delta := parts.calls[0].arguments[len(sent) :]:
                yield {"type": "response.function_call_arguments.delta", **place, "delta": delta}
        elif delta := parts.content[len(former.content) :]:
            text = {"content_index": 0, "delta": delta, "logprobs": []}
            yield {"type": "response.output_text.delta", **place, **text}

    def _ends(self, answer: FinishedAnswer) -> Iterator[Event]:
        item = self._item(answer.parts, answer)
        place = {"item_id": item["id"], "output_index": 0}
        if answer.parts.calls:
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **place, **done}
        else:
            (part,) = item["content"]
            text = {"text": part["text"], "logprobs": part["logprobs"], "content_index": 0}
            yield {"type": "response.output_text.done", **place, **text}
            yield {"type": "response.content_part.done", **place, "content_index": 0, "part": part}
        yield {"type": "response.output_item.done", "output_index": 0, "item": item}

    def _body(self, answer: FinishedAnswer | None, result: GenerateJobResult | None) -> ResponseBody:
        cut = answer is not None and answer.finish_reason == "length"
        extra: dict[str, Any] = {}
        if result is not None:
            extra = {
                "automaton": result.automaton, "seed": result.seed, "not_enforced": list(result.not_enforced),
                "approximate": list(result.approximate),
            }
        return ResponseBody(
            id=f"resp_{self.job_id}", created_at=self.created, model=self.model,
            status="in_progress" if answer is None else "incomplete" if cut else "completed",
            output=[] if answer is None else [self._item(answer.parts, answer)],
            usage=None if result is None else _usage(result),
            incomplete_details={"reason": "max_output_tokens"} if cut else None, **self.echoed, **extra,
        )  # fmt: skip

    def _item(self, parts: AnswerParts, answer: FinishedAnswer | None = None) -> dict[str, Any]:
        """The output item that the parts make."""
        status = "incomplete" if answer is not None and answer.finish_reason == "length" else "completed"
        number = hashlib.sha256(self.job_id.encode()).hexdigest()[:32]
        if parts.calls:
            return {
                "type": "function_call", "id": f"fc_{number}", "call_id": call_id(self.job_id, 0, 0), "status": status,
                "name": parts.calls[0].name, "arguments": parts.calls[0].arguments,
            }
        tokens = () if answer is None or answer.tokens is None else answer.tokens
        logprobs = [{**logprob_fields(token), "top_logprobs": list(map(logprob_fields, token.top))} for token in tokens]
        content = {"type": "output_text", "text": parts.content, "annotations": [], "logprobs": logprobs}
        return {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": status, "content": [content]}


def _usage(result: GenerateJobResult) -> dict[str, Any]:
    tokens = usage(result)
    return {
        "input_tokens": tokens.prompt_tokens, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": tokens.completion_tokens, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens.total_tokens,
    }
