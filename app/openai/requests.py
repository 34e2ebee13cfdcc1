"""The JSON of the requests, in OpenAI's words, in those of other servers, and in our own.

What real clients send by default is taken; what would change the answer and cannot be had is refused, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from app.api.schemas import AutomatonHash, Body, Constraint, Strings
from app.messages import SEED_MAX, Algorithm, Priority
from app.openai.responses import Deferred

STOPS_MAX, STOP_CHARS_MAX = 16, 64
ENTRIES_MAX = 64  # of an object whose names are the caller's own
_OWN_PROBABILITIES = "answers are ranked by the model's own probabilities: leave it out, or say how with `temperature`"
_NO_TOOLS = (
    "there are no tools: leave it out, and ask for a typed answer by response_format of type json_schema (NativeOutput "
    "in pydantic-ai, Mode.JSON_SCHEMA in instructor)"
)
_TEXT_ALONE = "the model reads and writes text alone: leave it out"
_NOT = "Not supported: "
_WHOLE = "every answer ends by itself within max_tokens: leave it out"
_NO_SPECIAL = "no answer holds a special token: leave it out"
_NO_GRAMMAR = "grammars are not read: use a regex, a JSON schema, or `constraint`, which combines them"


_AT_ONCE = ConfigDict(defer_build=False)  # what FastAPI asks of the body of a request


def _refused(reason: str, *neutral: JsonValue) -> Any:
    """A field that may only say what is the case anyway."""
    return Field(None, description=f"{_NOT}{reason}", json_schema_extra={"enum": [None, *neutral]})


class _Neutral(Deferred, Body):
    """Checks the fields that `_refused` makes."""

    @field_validator("*", mode="before")
    @classmethod
    def _only_neutral(cls, value: object, info: ValidationInfo) -> object:
        assert info.field_name is not None
        field = cls.model_fields[info.field_name]
        described, extra = field.description or "", field.json_schema_extra
        if not described.startswith(_NOT) or not isinstance(extra, dict):
            return value
        allowed = extra["enum"]
        assert isinstance(allowed, list)
        if value not in allowed:
            raise ValueError(f"not supported: {described.removeprefix(_NOT)}")
        return None


class _Refused(_Neutral):
    """Fields of OpenAI's and of other servers that cannot be had here."""

    frequency_penalty: Any = _refused(_OWN_PROBABILITIES, 0)
    presence_penalty: Any = _refused(_OWN_PROBABILITIES, 0)
    repetition_penalty: Any = _refused(_OWN_PROBABILITIES, 1)
    logit_bias: Any = _refused(_OWN_PROBABILITIES, {})
    top_k: Any = _refused("use top_p", -1, 0)
    min_p: Any = _refused("use top_p", 0)
    ignore_eos: Any = _refused(_WHOLE, False)
    min_tokens: Any = _refused('say how long the text is by a constraint, {"min_words": 5} say', 0)
    early_stopping: Any = _refused("a search ends when nothing better can come: leave it out", False)
    stop_token_ids: Any = _refused("name the text by `stop`, not its tokens", [])
    include_stop_str_in_output: Any = _refused("no answer holds a stop string: leave it out", False)
    skip_special_tokens: Any = _refused(_NO_SPECIAL, True)
    spaces_between_special_tokens: Any = _refused(_NO_SPECIAL, True, False)
    guided_grammar: Any = _refused(_NO_GRAMMAR)
    ebnf: Any = _refused(_NO_GRAMMAR)
    structural_tag: Any = _refused(_NO_GRAMMAR)


def _few(value: object) -> object:
    """Each entry may have faults of its own, which are all looked for."""
    if isinstance(value, dict) and len(value) > ENTRIES_MAX:
        raise ValueError(f"holds at most {ENTRIES_MAX} entries")
    return value


_FEW = BeforeValidator(_few)


class _Ignored(Deferred):
    """Fields that say something about the request, and change nothing here."""

    user: str | None = Field(None, description="Changes nothing")
    metadata: Annotated[dict[str, str], _FEW] | None = Field(None, description="Changes nothing")
    store: bool | None = Field(None, description="Changes nothing: nothing is stored beyond the job")
    service_tier: str | None = Field(None, description="Changes nothing")
    safety_identifier: str | None = Field(None, description="Changes nothing")
    prompt_cache_key: str | None = Field(None, description="Changes nothing")
    prompt_cache_retention: str | None = Field(None, description="Changes nothing")
    guided_decoding_backend: str | None = Field(None, description="Changes nothing")


class StreamOptions(Deferred, Body):
    """`include_usage`: a last chunk tells the tokens."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = Field(None, description="Changes nothing: no chunk is padded")
    continuous_usage_stats: Literal[False] | None = None


def _stops(value: object) -> object:
    """One message for what is neither; a union would have one for each of its members."""
    given = [value] if isinstance(value, str) else value
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
        raise ValueError("must be a string, or a list of strings, none of them empty")
    if len(given) > STOPS_MAX or any(len(one) > STOP_CHARS_MAX for one in given):
        raise ValueError(f"holds at most {STOPS_MAX} strings of at most {STOP_CHARS_MAX} characters")
    return tuple(dict.fromkeys(given))


_STOPS_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": STOP_CHARS_MAX}, {"type": "null"},
        {"type": "array", "maxItems": STOPS_MAX,
         "items": {"type": "string", "minLength": 1, "maxLength": STOP_CHARS_MAX}},
    ]
}
Stops = Annotated[tuple[str, ...], BeforeValidator(_stops), WithJsonSchema(_STOPS_SCHEMA)]
_EITHER_SCHEMA = {"anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}]}
Schema = Annotated[Any, WithJsonSchema(_EITHER_SCHEMA)]  # a JSON schema, or one written out as a text


_FORMER: dict[str, JsonValue] = {"deprecated": True}


class _ConstraintFields(Deferred):
    """The ways to give a constraint: OpenAI's, vLLM's present and former ones, SGLang's, TGI's, and ours."""

    response_format: dict[str, Any] | None = Field(
        None, description='{"type": "json_schema", "json_schema": {"name": "...", "schema": {...}}} or {"type": "text"}'
    )
    structured_outputs: dict[str, Any] | None = Field(
        None, description="As vLLM: one of `regex`, `json` (a schema) and `choice`"
    )
    guided_regex: str | None = Field(None, description="As vLLM formerly", json_schema_extra=_FORMER)
    guided_json: Schema = Field(None, description="As vLLM formerly: a schema", json_schema_extra=_FORMER)
    guided_choice: Strings | None = Field(None, description="As vLLM formerly", json_schema_extra=_FORMER)
    regex: str | None = Field(None, description="As SGLang")
    json_schema: Schema = Field(None, description="As SGLang: a schema")
    grammar: dict[str, Any] | None = Field(
        None, description='As TGI: {"type": "json", "value": {...}}; the type may be json_schema or regex, too'
    )
    constraint: Constraint | None = Field(None, description="Our own: any form, as POST /generate takes it")
    automaton: AutomatonHash | None = Field(None, description="The hash of a constraint that POST /compile answered")


class OpenAIRequest(_Refused, _Ignored, _ConstraintFields):
    """What both calls take. What is null counts as left out."""

    model: str | None = None
    max_tokens: int | None = Field(None, ge=1, description="The budget; by default 64, or what the context leaves")
    n: int | None = Field(None, ge=1, description="How many answers; a search gives distinct ones, at most so many")
    temperature: float | None = Field(None, ge=0, le=100, description="0 asks for the most probable text")
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0, le=SEED_MAX)
    best_of: int | None = Field(None, ge=1, description="Of a search: its beams; of samples: how many are drawn")
    use_beam_search: bool | None = None
    stop: Stops = Field((), description="Strings that end the text and are no part of it")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    algorithm: Algorithm | None = Field(None, description="As POST /generate takes it, like those that follow")
    beams: int | None = Field(None, ge=1)
    length_penalty: float | None = Field(None, ge=0, le=2)
    alpha_min: float | None = Field(None, ge=0, le=1)
    gamma: float | None = Field(None, gt=0, le=100)
    rank_by: Literal["score", "log_prob"] | None = None
    timeout_s: float | None = Field(None, gt=0)
    priority: Priority | None = None

    @property
    def usage_in_stream(self) -> bool:
        """Whether a stream ends with a chunk that tells the tokens."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def _prompt(value: object) -> object:
    """One text. Several are several requests."""
    match value:
        case str():
            return value
        case [str() as text]:
            return text
        case [str(), *_]:
            raise ValueError("holds several prompts: send a request for each")
        case [int(), *_] | [[*_], *_]:
            raise ValueError("holds token ids: send the text, which is split here")
        case _:
            raise ValueError("must be a string, or a list of one string")


_PROMPT_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "string"}}]
}


class CompletionRequest(OpenAIRequest):
    """A prompt to continue, as OpenAI's clients and those of vLLM, SGLang and TGI ask for it."""

    model_config = _AT_ONCE

    prompt: Annotated[str, BeforeValidator(_prompt), WithJsonSchema(_PROMPT_SCHEMA)]
    scope: Literal["answer", "full"] | None = Field(None, description="What satisfies: the text, or prompt and text")
    echo: bool | None = Field(None, description="The text begins with the prompt")
    logprobs: int | bool | None = Field(None, description="0: the log-probabilities of the tokens of the text")
    suffix: Any = _refused('use the constraint {"infill": "..."}', "")

    @field_validator("logprobs")
    @classmethod
    def _of_the_chosen(cls, value: int | bool | None) -> bool:
        if value is None or value is False:
            return False
        if value is True or value != 0:
            raise ValueError("only the log-probabilities of the text's own tokens are known: ask for 0")
        return True


def _content(value: object) -> object:
    """The text of a message, which may be given in parts."""
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError('must be a string, or a list of parts {"type": "text", "text": "..."}')
    return "\n".join(_parts(value))


def _parts(parts: Iterable[object]) -> Iterable[str]:
    for part in parts:
        match part:
            case {"type": "text", "text": str() as text}:
                yield text
            case _:
                raise ValueError("holds a part that is no text: the model reads text alone")


_CONTENT_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "array", "minItems": 1, "items": {
            "type": "object", "required": ["type", "text"],
            "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
        }},
    ]
}


class Message(_Neutral):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str | None, BeforeValidator(_content), WithJsonSchema(_CONTENT_SCHEMA)]
    name: str | None = None
    refusal: str | None = Field(None, description="Changes nothing")
    annotations: list[Any] | None = Field(None, description="Changes nothing")
    tool_calls: Any = _refused(_NO_TOOLS, [])
    function_call: Any = _refused(_NO_TOOLS)
    audio: Any = _refused(_TEXT_ALONE)

    @field_validator("content")
    @classmethod
    def _there(cls, value: str | None) -> str:
        if value is None:
            raise ValueError("a message has a text")
        return value


class ChatRequest(OpenAIRequest):
    """Messages to answer, made into a prompt by the model's own chat template."""

    model_config = _AT_ONCE

    messages: list[Message] = Field(min_length=1, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1, description="As max_tokens, but 256 by default")
    logprobs: bool | None = Field(None, description="The log-probabilities of the tokens of the answer")
    top_logprobs: Any = _refused("only the log-probabilities of the answer's own tokens are known: ask for 0", 0)
    add_generation_prompt: bool | None = None
    chat_template_kwargs: Annotated[dict[str, str | int | float | bool | None], _FEW] | None = Field(
        None, description="What the template is to be told beside the messages"
    )
    parallel_tool_calls: bool | None = Field(None, description="Changes nothing")
    tools: Any = _refused(_NO_TOOLS, [])
    tool_choice: Any = _refused(_NO_TOOLS, "none", "auto")
    functions: Any = _refused(_NO_TOOLS, [])
    function_call: Any = _refused(_NO_TOOLS, "none", "auto")
    modalities: Any = _refused(_TEXT_ALONE, ["text"])
    audio: Any = _refused(_TEXT_ALONE)
    prediction: Any = _refused("the text is not known beforehand: leave it out")
    web_search_options: Any = _refused("nothing is searched: leave it out")
    reasoning_effort: Any = _refused("leave it out; chat_template_kwargs tells the template how to ask")
    verbosity: Any = _refused('say how long the text is by a constraint, {"max_words": 20} say', "medium")
    chat_template: Any = _refused("the model's own is used")
    echo: Any = _refused("the messages are not repeated: leave it out", False)
    continue_final_message: Any = _refused("every answer is a message of its own: leave it out", False)
