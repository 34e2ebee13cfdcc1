"""The JSON of the requests: OpenAI's fields, those of other servers, and ours.

A field that is not supported is accepted with the value that clients send by default, and otherwise rejected with a
reason.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from app.api.conversations import NO_EFFECT, MessageText, PastArguments, PastText, PolicyBody, require_kind
from app.api.schemas import AutomatonHash, Constraint, GenerateRequest, ObjectOrString, Stops, Strings
from app.messages import ALTERNATIVES_MAX, GenerationOptions
from app.openai.fields import BUILD_AT_ONCE, NeutralValues, OpenBody, spelled_elsewhere, unsupported
from app.openai.tool_bodies import ToolBody

TOOLS_MAX = 1024
PROMPTS_MAX = 64
ENTRIES_MAX = 64  # of an object whose keys are the caller's
_TEXT_ONLY = "the model reads and writes text only: leave it out"
_LENGTH = 'for a least length, for example {"min_words": 5}'
_NO_SPECIAL_TOKENS = "an answer shows the special tokens that its constraint names, and has no others: leave it out"
_PROMPT_TYPES = "must be a text, token ids, or a list of them, which are not empty"

class _UnsupportedFields(NeutralValues):
    """Fields of OpenAI and of other servers that are not supported."""

    ignore_eos: Any = spelled_elsewhere("constraint", _LENGTH, False)
    min_tokens: Any = spelled_elsewhere("constraint", _LENGTH, 0)
    early_stopping: Any = unsupported("a search ends when no better answer is possible: leave it out", False)
    stop_token_ids: Any = spelled_elsewhere("stop", "it takes the text of the tokens", [])
    include_stop_str_in_output: Any = unsupported("no answer contains a stop string: leave it out", False)
    skip_special_tokens: Any = unsupported(_NO_SPECIAL_TOKENS, True)
    spaces_between_special_tokens: Any = unsupported(_NO_SPECIAL_TOKENS, True, False)


def _check_entries(value: object) -> object:
    # Before the entries themselves, because each may add errors of its own.
    if isinstance(value, dict) and len(value) > ENTRIES_MAX:
        raise ValueError(f"contains more than {ENTRIES_MAX} entries")
    return value


_LIMITED_ENTRIES = BeforeValidator(_check_entries)


class _IgnoredFields(OpenBody):
    """Fields that are accepted and have no effect."""

    user: str | None = Field(None, description=NO_EFFECT)
    metadata: Annotated[dict[str, str], _LIMITED_ENTRIES] | None = Field(None, description=NO_EFFECT)
    store: bool | None = Field(None, description="No effect: nothing is stored beyond the job")
    service_tier: str | None = Field(None, description=NO_EFFECT)
    safety_identifier: str | None = Field(None, description=NO_EFFECT)
    prompt_cache_key: str | None = Field(None, description=NO_EFFECT)
    prompt_cache_retention: str | None = Field(None, description=NO_EFFECT)
    guided_decoding_backend: str | None = Field(None, description=NO_EFFECT)


class StreamOptionsBody(OpenBody):
    """With `include_usage` the last chunk holds the token counts."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = Field(None, description="No effect: no chunk is padded")
    continuous_usage_stats: bool | None = Field(None, description="No effect: the last chunk alone has token counts")


Schema = ObjectOrString  # a JSON schema, as an object or as a string of JSON
_DEPRECATED: dict[str, JsonValue] = {"deprecated": True}


class _ConstraintFields(OpenBody):
    """The spellings of a constraint: OpenAI's, vLLM's, SGLang's, TGI's, llama.cpp's and ours."""

    response_format: dict[str, Any] | None = Field(
        None, description='{"type": "json_schema", "json_schema": {"name": "...", "schema": {...}}}, '
        '{"type": "json_object"} for any JSON object, or {"type": "text"}'
    )
    structured_outputs: dict[str, Any] | None = Field(
        None, description="vLLM: one of `regex`, `json` (a schema), `json_object`, `choice` and `grammar`"
    )
    guided_regex: str | None = Field(None, description="vLLM before 0.12", json_schema_extra=_DEPRECATED)
    guided_json: Schema = Field(None, description="vLLM before 0.12: a schema", json_schema_extra=_DEPRECATED)
    guided_choice: Strings | None = Field(None, description="vLLM before 0.12", json_schema_extra=_DEPRECATED)
    guided_grammar: str | None = Field(
        None, description="vLLM before 0.12: Lark or EBNF", json_schema_extra=_DEPRECATED
    )
    regex: str | None = Field(None, description="SGLang")
    json_schema: Schema = Field(None, description="SGLang: a schema")
    ebnf: str | None = Field(None, description="SGLang: a grammar in EBNF")
    grammar: ObjectOrString = Field(
        None, description='llama.cpp: a grammar in GBNF. TGI: {"type": "json", "value": {...}}; the type may also be '
        "json_schema or regex"
    )
    constraint: Constraint | None = Field(None, description="Ours: any form that POST /generate accepts")
    automaton: AutomatonHash | None = Field(None, description="Ours: a hash that POST /compile returned")


CONSTRAINT_FIELDS = tuple(_ConstraintFields.model_fields)


class _SchemaFields(OpenBody):
    """How the schemas of tools and of `response_format` are read."""

    closed_objects: bool | None = Field(
        None, description="Ours: whether objects of tools and of response_format that declare properties are written "
        "without others, where their schema leaves that open; true by default"
    )


# Values of other servers, and what is read in their place: no seed, no priority, the most probable token alone.
_OTHER_VALUES: dict[str, tuple[int, float | None]] = {
    "seed": (-1, None), "priority": (0, None), "top_p": (0, sys.float_info.min),
}  # fmt: skip


def _option_fields() -> dict[str, Any]:
    """The fields of POST /generate that both calls accept. Each is None by default."""
    others = {"scope", "trace", "rejected_top_k", "top_log_probs"}
    names = set(GenerationOptions.model_fields) - others | {"timeout_s", "priority"}
    fields: dict[str, Any] = {}
    for name, field in GenerateRequest.model_fields.items():
        if name in names:
            kind: Any = field.annotation
            optional: Any = Field(None, description=field.description)
            optional.metadata = field.metadata  # the limits of the value
            fields[name] = kind | None, optional
    return fields


if TYPE_CHECKING:
    _OptionFields = OpenBody
else:
    # Options are read by name, so a new generation option needs no line in this package.
    _OptionFields = create_model("_OptionFields", __base__=OpenBody, **_option_fields())


class OpenAIRequest(_UnsupportedFields, _IgnoredFields, _ConstraintFields, _SchemaFields, _OptionFields):
    """The fields of both calls. Null means that a field is left out."""

    model: str | None = None
    max_tokens: int | None = Field(None, ge=1, description="The budget; default 64 or what the context leaves")
    n: int | None = Field(None, ge=1, description="Number of answers; a search returns at most n distinct ones")
    best_of: int | None = Field(None, ge=1, description="For a search the beam width, otherwise the number of samples")
    use_beam_search: bool | None = None
    stop: Stops = Field((), description="Strings that end the text and are not part of it")
    stream: bool | None = None
    stream_options: StreamOptionsBody | None = None

    @field_validator(*_OTHER_VALUES, mode="before")
    @classmethod
    def _read_other_value(cls, value: object, info: ValidationInfo) -> object:
        assert info.field_name is not None
        other, ours = _OTHER_VALUES[info.field_name]
        return ours if type(value) in (int, float) and value == other else value  # `type`, because False equals 0

    @property
    def usage_in_stream(self) -> bool:
        """Whether the last chunk of a stream holds the token counts."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def _prompts(value: object) -> object:
    """The prompts: texts, or the token ids of each."""
    if not isinstance(value, str | list) or value == []:
        raise ValueError(_PROMPT_TYPES)
    prompts = [value] if isinstance(value, str) or isinstance(value[0], int) else value
    if len(prompts) > PROMPTS_MAX:
        raise ValueError(f"contains more than {PROMPTS_MAX} prompts")
    return tuple(prompt if isinstance(prompt, str) else _ids(prompt) for prompt in prompts)


def _ids(value: object) -> tuple[int, ...]:
    # `type`, not isinstance: True is an int in Python, but no number in JSON.
    if not isinstance(value, list) or not value or any(type(token) is not int for token in value):
        raise ValueError(_PROMPT_TYPES)
    return tuple(value)


_IDS_SCHEMA: Any = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_ONE_PROMPT: Any = [{"type": "string"}, _IDS_SCHEMA]
_PROMPT_SCHEMA = {
    "anyOf": [*_ONE_PROMPT, {"type": "array", "minItems": 1, "maxItems": PROMPTS_MAX, "items": {"anyOf": _ONE_PROMPT}}]
}
Prompts = Annotated[tuple[str | tuple[int, ...], ...], BeforeValidator(_prompts), WithJsonSchema(_PROMPT_SCHEMA)]


class CompletionRequest(OpenAIRequest):
    """A prompt to continue. Clients of OpenAI, vLLM, SGLang and TGI send this format."""

    model_config = BUILD_AT_ONCE

    prompt: Prompts = Field(description="One or several texts, or their token ids; each gets `n` answers")
    scope: Literal["answer", "full"] | None = Field(None, description="What satisfies: the text, or prompt and text")
    echo: bool | None = Field(None, description="Repeat the prompt before the text")
    logprobs: int | bool | None = Field(
        None, description="0 returns the log-probabilities of the text's tokens, a number up to 20 also that many of "
        "the model's most probable tokens in the place of each"
    )
    suffix: str | None = Field(None, description="The text behind the answer, which is not part of it")

    @field_validator("logprobs")
    @classmethod
    def _number_of_tokens(cls, value: int | bool | None) -> int | None:
        if value is None or value is False:
            return None
        if not 0 <= value <= ALTERNATIVES_MAX:
            raise ValueError(f"must be a number from 0 to {ALTERNATIVES_MAX}")
        return 0 if value is True else value

    @property
    def top_log_probs(self) -> int | None:
        """How many alternatives of each token to list. None: no log-probs at all."""
        return self.logprobs


class FunctionCallBody(OpenBody):
    """A call of a function. `arguments` are mostly the JSON text of an object, but any text is taken."""

    name: PastText
    arguments: PastArguments = "{}"


class MessageCustomCallBody(OpenBody):
    """A call of a custom tool with its text."""

    name: PastText
    input: PastText


class MessageToolCallBody(OpenBody):
    """A call in an earlier answer."""

    id: str | None = None
    type: Literal["function", "custom"] = "function"
    function: FunctionCallBody | None = None
    custom: MessageCustomCallBody | None = None

    @model_validator(mode="after")
    def _require_kind(self) -> Self:
        require_kind(self)
        return self


class MessageBody(NeutralValues):
    """One turn of a conversation. A turn of the role `tool` is the result of a call."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: MessageText = None
    name: str | None = None
    refusal: str | None = Field(None, description="The text of an earlier answer without content")
    annotations: list[Any] | None = Field(None, description=NO_EFFECT)
    tool_calls: Annotated[list[MessageToolCallBody], Field(max_length=ENTRIES_MAX)] | None = None
    tool_call_id: str | None = Field(None, description="Of a result: the id of its call")
    reasoning_content: str | None = Field(None, description="The thoughts before an earlier answer")
    reasoning: str | None = Field(None, description="vLLM's newer name of reasoning_content, which goes before it")
    function_call: Any = spelled_elsewhere("tool_calls", "it is the newer name")
    audio: Any = unsupported(_TEXT_ONLY)
    _place: str = PrivateAttr("")

    @property
    def place(self) -> str:
        """The path of what it means in a request of another API."""
        return self._place

    def placed(self, path: str) -> Self:
        """The message with its path in a request of another API."""
        self._place = path
        return self

    @model_validator(mode="before")
    @classmethod
    def _read_empty_content(cls, body: object) -> object:
        """Read an earlier answer without content as its refusal, or as empty."""
        if not isinstance(body, dict) or body.get("role") not in ("assistant", "tool"):
            return body
        return {**body, "content": body.get("refusal") or ""} if body.get("content") in (None, "", []) else body

    @model_validator(mode="after")
    def _require_text(self) -> Self:
        if self.content is None:
            raise ValueError("a message must have a text")
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only a message of the assistant has tool_calls")
        return self

    @property
    def thought(self) -> str | None:
        """The thoughts before an earlier answer."""
        return self.reasoning if self.reasoning_content is None else self.reasoning_content


Tools = Annotated[list[ToolBody], Field(max_length=TOOLS_MAX, fail_fast=True)] | None
TemplateArguments = Annotated[dict[str, str | int | float | bool | None], _LIMITED_ENTRIES] | None


_EFFORTS = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
ReasoningEffort = Annotated[
    _EFFORTS | None, Field(description="A variable of the chat template; `none`: no thoughts")
]


class CustomParamsBody(OpenBody):
    """Parameters of SGLang's processors of logits, of which one is read."""

    thinking_budget: int | None = Field(None, ge=0, description="max_thinking_tokens")


class ThinkingBody(OpenBody):
    """Whether the answer thinks first, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=0)

    @property
    def tokens(self) -> int | None:
        """The budget of thoughts. None without a limit."""
        return 0 if self.type == "disabled" else self.budget_tokens


class ThinkingFields(NeutralValues):
    """Fields of other servers and ours for the thoughts before an answer."""

    thinking: ThinkingBody | None = Field(None, description="DeepSeek, GLM, Anthropic: whether the answer thinks")
    max_thinking_tokens: int | None = Field(None, ge=0, description="The budget of thoughts, within that of the answer")
    thinking_token_budget: int | None = Field(None, ge=0, description="vLLM: max_thinking_tokens")
    thinking_budget: int | None = Field(None, ge=0, description="Qwen: max_thinking_tokens")
    include_reasoning: bool | None = Field(None, description="Whether answers contain the thoughts; true by default")
    custom_params: CustomParamsBody | None = Field(None, description="SGLang: holds another thinking_budget")
    separate_reasoning: Any = unsupported(
        'thoughts are always apart: leave it out, or send "include_reasoning": false', True
    )
    stream_reasoning: Any = unsupported("thoughts are sent as they are written: leave it out", True)


class ChatRequest(OpenAIRequest, ThinkingFields):
    """Messages to answer; the model's chat template makes a prompt of them."""

    model_config = BUILD_AT_ONCE

    messages: list[MessageBody] = Field(min_length=1, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1, description="OpenAI's newer name of max_tokens; default 256")
    logprobs: bool | None = Field(None, description="Return the log-probabilities of the answer's tokens")
    top_logprobs: int | None = Field(
        None, ge=0, le=ALTERNATIVES_MAX, description="With `logprobs`: how many of the model's most probable tokens to "
        "list in the place of each"
    )
    add_generation_prompt: bool | None = None
    chat_template_kwargs: TemplateArguments = Field(
        None, description="Variables of the chat template, beside the messages"
    )
    tools: Tools = Field(
        None, description="Tools that the answer may call. The arguments of a call satisfy the tool's parameters"
    )
    tool_choice: ObjectOrString = Field(
        None, description='"none", "auto" (a reply or a call), "required" (a call), one function, or allowed_tools'
    )
    parallel_tool_calls: bool | None = Field(
        None, description="Whether an answer may have several calls, if the model's format has; true by default"
    )
    policy: PolicyBody | None = Field(None, description="Rules over the order of calls, results and replies")
    functions: Any = spelled_elsewhere("tools", "it is the newer name", [])
    function_call: Any = spelled_elsewhere("tool_choice", "it is the newer name", "none", "auto")
    modalities: Any = unsupported(_TEXT_ONLY, ["text"])
    audio: Any = unsupported(_TEXT_ONLY)
    prediction: Any = unsupported("no text is predicted: leave it out")
    web_search_options: Any = unsupported("there is no web search: leave it out")
    reasoning_effort: ReasoningEffort = None
    verbosity: Any = unsupported('use a constraint on the length, for example {"max_words": 20}', "medium")
    chat_template: Any = unsupported("the model's chat template is always used: leave it out")
    echo: Any = unsupported("the messages cannot be repeated: leave it out", False)
    continue_final_message: Any = unsupported("every answer is a new message: leave it out", False)

    @property
    def top_log_probs(self) -> int | None:
        """How many alternatives of each token to list. None: no log-probs at all."""
        return self.top_logprobs or 0 if self.logprobs else None
