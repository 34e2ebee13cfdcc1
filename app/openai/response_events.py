"""The JSON of the items and events of `/v1/responses`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.messages import Warnings
from app.openai.responses import DeferredModel, TokenLogprobBody

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputTextBody(DeferredModel):
    """The text of a message."""

    type: Literal["output_text"]
    text: str
    annotations: tuple[()]
    logprobs: tuple[TokenLogprobBody, ...]


class ReasoningTextBody(DeferredModel):
    """The text of a thought."""

    type: Literal["reasoning_text"]
    text: str


class MessageItemBody(DeferredModel):
    """A reply in words. Its content is empty where it begins in a stream."""

    type: Literal["message"]
    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: tuple[OutputTextBody, ...]


class ReasoningItemBody(DeferredModel):
    """A thought. Its content is empty where it begins in a stream."""

    type: Literal["reasoning"]
    id: str
    status: ItemStatus
    summary: tuple[()]
    content: tuple[ReasoningTextBody, ...]


class FunctionCallItemBody(DeferredModel):
    """A call of a function. `arguments` is JSON text."""

    type: Literal["function_call"]
    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class CustomCallItemBody(DeferredModel):
    """A call of a custom tool."""

    type: Literal["custom_tool_call"]
    id: str
    call_id: str
    name: str
    input: str


OutputItemBody = Annotated[
    MessageItemBody | ReasoningItemBody | FunctionCallItemBody | CustomCallItemBody, Field(discriminator="type")
]
ContentPartBody = Annotated[OutputTextBody | ReasoningTextBody, Field(discriminator="type")]


class InputDetailsBody(DeferredModel):
    """Always zeros: the prompts that a worker keeps are not counted."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetailsBody(DeferredModel):
    """The generated tokens that are thoughts."""

    reasoning_tokens: int


class ResponseUsageBody(DeferredModel):
    """The tokens of the prompt, and those of the answer."""

    input_tokens: int
    input_tokens_details: InputDetailsBody
    output_tokens: int
    output_tokens_details: OutputDetailsBody
    total_tokens: int


class IncompleteDetailsBody(DeferredModel):
    """Why a text was cut."""

    reason: Literal["max_output_tokens"]


class ResponseBody(BaseModel):
    """A response. Its output has thoughts, a message, calls. `store` is always false: nothing is kept.

    `instructions` to `top_p` repeat the request.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    id: str
    object: Literal["response"] = "response"
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete"]
    output: tuple[OutputItemBody, ...]
    usage: ResponseUsageBody | None
    error: None = None
    incomplete_details: IncompleteDetailsBody | None = None
    store: Literal[False] = False
    background: Literal[False] = False
    previous_response_id: None = None
    truncation: Literal["disabled"] = "disabled"
    automaton: str | None = None
    seed: int | None = None
    not_enforced: tuple[str, ...] = ()
    approximate: tuple[str, ...] = ()
    warnings: Warnings = ()
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = Field(default_factory=dict)
    parallel_tool_calls: bool = True
    reasoning: dict[str, Any] | None = None
    temperature: float | None = None
    text: dict[str, Any] = Field(default_factory=dict)
    tool_choice: str | dict[str, Any] = "auto"
    tools: tuple[dict[str, Any], ...] = ()
    top_logprobs: int = 0
    top_p: float | None = None


class _EventBody(DeferredModel):
    type: str
    sequence_number: int


class ResponseStateEventBody(_EventBody):
    """The whole response, twice before its output and once behind it."""

    type: Literal["response.created", "response.in_progress", "response.completed", "response.incomplete"]
    response: ResponseBody


class OutputItemEventBody(_EventBody):
    """An item that begins or ends."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItemBody


class _ItemEventBody(_EventBody):
    item_id: str
    output_index: int


class ContentPartEventBody(_ItemEventBody):
    """A part of an item that begins or ends."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    content_index: Literal[0]
    part: ContentPartBody


class OutputTextDeltaBody(_ItemEventBody):
    """What is added to the text of a message."""

    type: Literal["response.output_text.delta"]
    content_index: Literal[0]
    logprobs: tuple[()]
    delta: str


class OutputTextDoneBody(_ItemEventBody):
    """The whole text of a message, with its log-probabilities."""

    type: Literal["response.output_text.done"]
    content_index: Literal[0]
    logprobs: tuple[TokenLogprobBody, ...]
    text: str


class ReasoningTextDeltaBody(_ItemEventBody):
    """What is added to a thought."""

    type: Literal["response.reasoning_text.delta"]
    content_index: Literal[0]
    delta: str


class ReasoningTextDoneBody(_ItemEventBody):
    """The whole thought."""

    type: Literal["response.reasoning_text.done"]
    content_index: Literal[0]
    text: str


class CallDeltaBody(_ItemEventBody):
    """What is added to the arguments or the input of a call."""

    type: Literal["response.function_call_arguments.delta", "response.custom_tool_call_input.delta"]
    delta: str


class FunctionCallDoneBody(_ItemEventBody):
    """The whole arguments of a call."""

    type: Literal["response.function_call_arguments.done"]
    arguments: str
    name: str


class CustomCallDoneBody(_ItemEventBody):
    """The whole input of a custom tool."""

    type: Literal["response.custom_tool_call_input.done"]
    input: str


RESPONSE_EVENTS = (
    ResponseStateEventBody, OutputItemEventBody, ContentPartEventBody, OutputTextDeltaBody, OutputTextDoneBody,
    ReasoningTextDeltaBody, ReasoningTextDoneBody, CallDeltaBody, FunctionCallDoneBody, CustomCallDoneBody,
)  # fmt: skip
"""All events of a stream but errors. The name of each is its `type`."""
