"""The JSON of requests and answers, as the OpenAPI document shows it.

Unknown fields are errors, and no value is coerced.
"""

from __future__ import annotations

import functools
import itertools
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass

from app.api.constraint_schema import CONSTRAINT_SCHEMA
from app.api.conversations import Messages, PolicyBody, Tools, policy_params
from app.api.errors import FAULTS_MAX
from app.api.near_misses import checked_object
from app.auth import KeyPolicy
from app.errors import InternalError
from app.messages import (
    CONFIG,
    USED_BY,
    CompileResponse,
    DecodeResponse,
    GeneratedBody,
    GenerateJobResult,
    GenerationOptions,
    Priority,
    Result,
    StrictModel,
)
from app.requests import GenerateParams
from app.service import PolicyParams
from compiler.diagnostics import ConstraintExplanation
from compiler.exact_json import dump_json
from compiler.spec import Spec, spec_from_json

Constraint = Annotated[dict[str, Any], BeforeValidator(checked_object), WithJsonSchema(CONSTRAINT_SCHEMA)]
Strings = Annotated[list[str], Field(fail_fast=True)]  # reporting a million faults would take seconds
_EITHER_SCHEMA = {"anyOf": [{"type": "object"}, {"type": "string"}, {"type": "null"}]}
ObjectOrString = Annotated[Any, WithJsonSchema(_EITHER_SCHEMA)]
AutomatonHash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
POLICY_STATES_MAX = 1_000  # that POST /compile lists
STOPS_MAX, STOP_CHARS_MAX = 16, 64


def _stops(value: object) -> object:
    # One validator instead of a union, which would report an error for each of its members.
    stops = [value] if isinstance(value, str) else value
    if stops is None:
        return ()
    if not isinstance(stops, list) or not all(isinstance(stop, str) and stop for stop in stops):
        raise ValueError("must be a non-empty string or a list of non-empty strings")
    if len(stops) > STOPS_MAX or any(len(stop) > STOP_CHARS_MAX for stop in stops):
        raise ValueError(f"contains more than {STOPS_MAX} strings, or one of more than {STOP_CHARS_MAX} characters")
    return tuple(dict.fromkeys(stops))


_STOPS_SCHEMA = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": STOP_CHARS_MAX}, {"type": "null"},
        {"type": "array", "maxItems": STOPS_MAX,
         "items": {"type": "string", "minLength": 1, "maxLength": STOP_CHARS_MAX}},
    ]
}
Stops = Annotated[tuple[str, ...], BeforeValidator(_stops), WithJsonSchema(_STOPS_SCHEMA)]


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_json(kind: Any, value: object) -> bytes:
    """The JSON of a body, without the fields that a message adds."""
    return _adapter(kind).dump_json(value, by_alias=True)


def to_exact_json(kind: Any, value: object) -> bytes:
    """The same of a body with schemas. Their numbers keep their decimals, which takes longer."""
    return dump_json(_adapter(kind).dump_python(value, by_alias=True), ensure_ascii=False).encode()


class Body(StrictModel):
    """A request body. Errors report at most the first `FAULTS_MAX` unknown fields."""

    @model_validator(mode="before")
    @classmethod
    def _limit_unknown_names(cls, body: object) -> object:
        if not isinstance(body, dict) or len(body) <= len(cls.model_fields) + FAULTS_MAX:
            return body
        # The first unknown names stay, so that validation still refuses the body.
        unknown = (name for name in body if name not in cls.model_fields)
        reported = frozenset(itertools.islice(unknown, FAULTS_MAX))
        return {name: value for name, value in body.items() if name in cls.model_fields or name in reported}


class _ConstraintBody(Body):
    constraint: Constraint | None = None
    policy: PolicyBody | None = Field(None, description="Rules over a conversation, in place of a constraint")
    tools: Tools | None = Field(None, description="With a policy: the tools that may be called, as in the chat API")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.constraint is None) == (self.policy is None):
            raise ValueError("give exactly one of constraint and policy")
        if self.policy is None and self.tools is not None:
            raise ValueError("tools goes with policy")
        return self

    def spec(self) -> Spec:
        """The constraint, checked. Raises SpecSyntaxError."""
        assert self.constraint is not None  # the paths apply a policy before
        return spec_from_json(self.constraint)


class CompileRequest(_ConstraintBody):
    """A constraint to compile for a served model. Or a policy, whose states are listed."""

    model: str | None = None
    explain: bool = Field(True, description="Tell in words and examples what was compiled")

    def policy_params(self, key: KeyPolicy | None) -> PolicyParams | None:
        """The policies of request and key, to be listed; None without one."""
        return policy_params(self.policy, self.tools, key=key, states_max=POLICY_STATES_MAX)


class CheckRequest(_ConstraintBody):
    """A text to check. A constraint over labels checks a list of labels, a policy the messages of a conversation."""

    text: str | None = None
    labels: Strings | None = None
    messages: Messages | None = None
    conjuncts: bool = Field(False, description="Check each conjunct of the constraint by itself, too: the first 32")

    def policy_params(self, key: KeyPolicy | None) -> PolicyParams | None:
        """The policies of request and key, and the events; None without one.

        Raises InvalidRequest.
        """
        return policy_params(self.policy, self.tools, self.messages or (), key=key)

    @model_validator(mode="after")
    def _one_subject(self) -> CheckRequest:
        if (self.policy is None) != (self.messages is None):
            raise ValueError("policy and messages go together")
        if self.policy is not None:
            if self.text is not None or self.labels is not None or self.conjuncts:
                raise ValueError("text, labels and conjuncts go with a constraint")
            return self
        if (self.text is None) == (self.labels is None):
            raise ValueError("give exactly one of text and labels")
        return self

    def subject(self) -> str | tuple[str, ...]:
        """The text or the labels to check."""
        return self.text if self.text is not None else tuple(self.labels or ())


class GenerateRequest(Body, GenerationOptions):
    """A prompt to continue under a constraint. `automaton` may replace the constraint: the hash from POST /compile.

    With `messages` in place of the prompt, the answer is the next message of a conversation: a reply in words, which a
    constraint binds if there is one, or calls of tools.
    """

    prompt: str | None = None
    messages: Messages | None = Field(None, min_length=1, description="A conversation to continue, as in the chat API")
    tools: Tools | None = Field(None, description="With messages: the tools that may be called, as in the chat API")
    tool_choice: ObjectOrString = Field(
        None, description='With tools: "auto" (a reply or calls), "required", "none", one function, or allowed_tools'
    )
    parallel_tool_calls: bool | None = Field(
        None, description="With tools: whether an answer may have several calls; true by default"
    )
    policy: PolicyBody | None = Field(None, description="With tools: rules over the order of calls, results, replies")
    constraint: Constraint | None = None
    automaton: AutomatonHash | None = None
    model: str | None = None
    stream: bool = Field(False, description="Answer by server-sent events: compiled, step, and done or error")
    timeout_s: float | None = Field(None, gt=0)
    priority: Priority = Field("interactive", description="All that is interactive goes before what is batch")
    stop: Stops = Field((), description="Strings that no answer contains. One may end the text, and is no part of it")

    @field_validator(*USED_BY)
    @classmethod
    def _of_the_algorithm(cls, value: object, info: ValidationInfo) -> object:
        """Refuse options that the algorithm does not use.

        Only fields of the request are validated, so defaults pass.
        """
        assert info.field_name is not None
        algorithm, users = info.data.get("algorithm"), USED_BY[info.field_name]
        if value is not None and algorithm is not None and algorithm not in users:
            names = " or ".join(f'"{user}"' for user in users)
            raise ValueError(f'goes with algorithm {names}, not with "{algorithm}"')
        return value

    @model_validator(mode="after")
    def _one_constraint(self) -> GenerateRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give exactly one of prompt and messages")
        if self.messages is None:
            if self.tools is not None:
                raise ValueError("tools goes with messages")
            if (self.constraint is None) == (self.automaton is None):
                raise ValueError("give exactly one of constraint and automaton")
        elif self.constraint is not None and self.automaton is not None:
            raise ValueError("give one of constraint and automaton")
        elif self.scope == "full":
            raise ValueError('scope "full" goes with prompt')
        for name in ("policy", "tool_choice", "parallel_tool_calls"):
            if getattr(self, name) is not None and self.tools is None:
                raise ValueError(f"{name} goes with messages and tools")
        if self.algorithm != "sample" and self.n > self.beams:
            raise ValueError("n must not exceed beams")
        if self.rejected_top_k and not self.stream:
            raise ValueError("rejected_top_k goes with stream")
        if self.stop and self.automaton is not None:
            raise ValueError("stop goes with the constraint itself, not with automaton")
        if self.stop and self.scope == "full":
            raise ValueError('stop goes with scope "answer": the prompt may contain the string')
        if self.top_log_probs and not self.trace:
            raise ValueError("top_log_probs goes with trace")
        return self

    def to_params(self) -> GenerateParams:
        """The request as the service takes it. Raises SpecSyntaxError."""
        options: dict[str, Any] = {name: getattr(self, name) for name in GenerationOptions.model_fields}
        return GenerateParams(
            prompt=self.prompt or "",
            spec=None if self.constraint is None else spec_from_json(self.constraint),
            automaton=self.automaton,
            options=GenerationOptions(**options),
            timeout_s=self.timeout_s,
            priority=self.priority,
            stream=self.stream,
        )


@dataclass(frozen=True, config=CONFIG)
class GenerateResponse(GeneratedBody):
    """The answers, best first. `id` is the job's, by which GET /jobs/{id} returns the same for a while."""

    id: str
    model: str


Answer = GenerateResponse | DecodeResponse | CompileResponse


def answer_of(job_id: str, result: Result) -> Answer:
    """The JSON of the result of a caller's job."""
    match result:
        case GenerateJobResult():
            return GenerateResponse(
                result.automaton, result.choices, result.seed, result.usage, result.timings,
                not_enforced=result.not_enforced, approximate=result.approximate, warnings=result.warnings,
                id=job_id, model=result.model,
            )
        case DecodeResponse() | CompileResponse():
            return result
        case _:
            raise InternalError(f"a job of a caller's own was answered by a {result.kind} message")


class StateBody(StrictModel):
    """A state of an automaton. `distance` is the fewest tokens to the end, null where it is dead."""

    id: int
    accepting: bool
    distance: int | None


class TransitionBody(StrictModel):
    """All letters that lead from one state to another. Each is an index into the automaton's `letters`."""

    source: int = Field(serialization_alias="from", validation_alias="from")
    to: int
    letters: tuple[int, ...]


class AutomatonResponse(StrictModel):
    """A compiled constraint as a DFA over letters. A letter is the list of the propositions that hold; [] stands for
    none.

    For a regex a letter is one class of characters, over labels it is a label.
    """

    automaton: str
    constraint: dict[str, Any]
    kind: Literal["words", "characters", "labels"]
    start: int
    letters: tuple[tuple[str, ...], ...]
    states: tuple[StateBody, ...]
    transitions: tuple[TransitionBody, ...]
    accepting: tuple[int, ...]
    min_tokens: int
    explanation: ConstraintExplanation | None


class ModelCardBody(StrictModel):
    """A served model in OpenAI's format.

    vLLM has `root`, `parent`, the model that an adapter changes, and `max_model_len`, the size of its context, too.
    """

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "abs-server"
    root: str
    parent: str | None = None
    context_tokens: int | None
    max_model_len: int | None
    vocabulary: int


class ModelListResponse(StrictModel):
    """The served models, the default one first."""

    object: Literal["list"] = "list"
    data: tuple[ModelCardBody, ...]


class GroupBody(StrictModel):
    """The number of processes that share a model, and of living ones."""

    size: int
    alive: int


class StatusResponse(StrictModel):
    """The process is alive, or ready."""

    status: Literal["ok", "ready"]


class ReadyResponse(StatusResponse):
    """Requests would be served. `groups` has the models of this process that several processes share."""

    groups: dict[str, GroupBody] = Field(default_factory=dict)


class ProblemBody(BaseModel):
    """Every error, by RFC 9457. `code` is stable; further fields depend on it."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
