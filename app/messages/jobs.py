"""Jobs, their results, events and failures, as versioned JSON. Nothing is ever unpickled.

A result or event adds its kind and version to the body that the API sends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, field
from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, JsonValue, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from app.errors import JobFailed, MessageInvalid
from app.messages.bodies import (
    CheckResponse,
    CompiledEventBody,
    CompileResponse,
    DecodeResponse,
    GeneratedBody,
    PolicyResponse,
    RestartEventBody,
    StepEventBody,
)
from app.messages.json_values import JsonObject
from app.messages.parts import CONFIG, GenerationOptions, PromptTokenBody, ScorerTask
from app.messages.places import RequestPlace
from app.messages.policies import PolicyEvent
from app.messages.signing import VERSION, verify
from app.messages.suggestions import WarningBody
from app.observability import logs, tracing
from compiler.diagnostics import ConstraintExplanation
from compiler.errors import INTERNAL, ErrorFacts


# Keyword-only fields let the subclasses declare positional fields without defaults.
@dataclass(frozen=True, config=CONFIG, kw_only=True)
class Versioned:
    """What every message carries beside its kind."""

    version: Literal[7] = VERSION


@dataclass(frozen=True, config=CONFIG, kw_only=True)
class JobHeader(Versioned):
    """The origin of a job: its request and its tracing span.

    owner       the caller whose share of the store holds the job's values; empty for no share
    written     when the job was written, Unix time in s, by the same clock as its deadline; other clocks may differ
    vocabulary, model  fingerprint of the vocabulary of the job's model, and its name; empty where not needed
    """

    # The defaults describe the request that is being handled when the job is created.
    owner: str = ""
    written: float = field(default_factory=time.time)
    request_id: str = field(default_factory=logs.current_request)
    traceparent: str = field(default_factory=tracing.traceparent)
    vocabulary: str = ""
    model: str = ""


@dataclass(frozen=True, config=CONFIG, kw_only=True)
class OwnedJob(JobHeader):
    """A job of one caller, whose result is the complete answer.

    arrived      when the request came, Unix time in s
    names        what the caller calls the propositions, by the names of their meanings
    compile_job  the compilation that the job waits for in the broker; None if the automaton was already stored
    spec         the constraint, in case the store loses the automaton; None if it is not known
    warnings     what is probably a mistake in it as the caller wrote it
    """

    arrived: float = field(default_factory=time.time)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    compile_job: str | None = None
    spec: JsonObject | None = None
    warnings: tuple[WarningBody, ...] = ()


@dataclass(frozen=True, config=CONFIG)
class CompileJob(JobHeader):
    """Compile a constraint for a vocabulary and store it. `spec` is canonical JSON, `deadline` Unix time in s."""

    automaton: str
    spec: JsonObject
    deadline: float
    kind: Literal["compile"] = "compile"


@dataclass(frozen=True, config=CONFIG)
class ExplainJob(JobHeader):
    """Explain a stored automaton, and store the explanation beside it."""

    automaton: str
    deadline: float
    kind: Literal["explain"] = "explain"


@dataclass(frozen=True, config=CONFIG)
class DescribeJob(OwnedJob):
    """Describe a compiled constraint to one caller. With `explain` the result has an explanation."""

    automaton: str
    explain: bool
    deadline: float
    kind: Literal["describe"] = "describe"


@dataclass(frozen=True, config=CONFIG)
class CheckJob(JobHeader):
    """Check a text or labels. With `conjuncts` each conjunct is checked as well. It needs no model."""

    spec: JsonObject
    text: str | tuple[str, ...]
    deadline: float
    conjuncts: bool = False
    kind: Literal["check"] = "check"


@dataclass(frozen=True, config=CONFIG)
class PolicyJob(JobHeader):
    """A job that applies a policy to the events of a conversation. It needs no model.

    tools       the JSON schema of each tool's arguments
    key_rules   the rules of the caller's API key, which hold beside the others
    states_max  how many states of the policy the result lists
    """

    rules: tuple[str, ...]
    tools: dict[str, JsonObject]
    events: tuple[PolicyEvent, ...]
    deadline: float
    _: KW_ONLY
    key_rules: tuple[str, ...] = ()
    assume: tuple[str, ...] = ()
    max_calls: int | None = None
    states_max: int = 0
    kind: Literal["policy"] = "policy"


@dataclass(frozen=True, config=CONFIG)
class TokenizeJob(JobHeader):
    """Tokenize a text, or write the text of token ids.

    add_special_tokens  whether the tokenizer puts its first tokens before a text
    markers             of a chat template's prompt: as of GenerateJob; no tokens are put before it
    """

    prompt: str | tuple[int, ...]
    deadline: float
    add_special_tokens: bool = True
    kind: Literal["tokenize"] = "tokenize"
    _: KW_ONLY
    markers: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, config=CONFIG)
class GenerateJob(OwnedJob):
    """Continue `prompt`, text or ids, with a text of the stored automaton.

    progress            the events to publish: none, the progress, or every step's beams
    markers             start and end of each special token of a chat's prompt; None if the tokenizer finds them
    clamp_to_context    whether the budget shrinks to the room that the model's context leaves beside the prompt
    answer              the JSON of an AnswerReader, which finds thoughts and messages; None if answers are texts
    messages            whether each choice has the message that the reader finds in it
    places              where the parts of `spec` stand in the request; None: all of it is the caller's constraint
    stops               strings that are removed where they end an answer; `excludes_stops`: as of GenerateParams
    prompt_log_probs    how many alternatives to list in the place of each token of the prompt; None: no log-probs of it
    keep_white_space    whether answers keep the white space around them
    """

    id: str
    automaton: str
    prompt: str | tuple[int, ...]
    options: GenerationOptions
    deadline: float
    progress: Literal["nothing", "progress", "steps"] = "nothing"
    markers: tuple[tuple[int, int], ...] | None = None
    clamp_to_context: bool = False
    answer: dict[str, JsonValue] | None = None
    messages: bool = False
    places: tuple[RequestPlace, ...] | None = None
    stops: tuple[str, ...] = ()
    excludes_stops: bool = False
    prompt_log_probs: int | None = None
    keep_white_space: bool = False
    kind: Literal["generate"] = "generate"


@dataclass(frozen=True, config=CONFIG)
class DecodeJob(OwnedJob):
    """Find the best labels, one for each row.

    log_probs                a row for each step, a column for each label; None is -inf; empty with a scorer
    beams, alpha_min, gamma  rows that a search keeps, and its options; "exact" rows: the best sequence of all
    """

    automaton: str
    log_probs: tuple[tuple[float | None, ...], ...]  # [steps, labels]; JSON has no -inf
    beams: int | Literal["exact"]
    alpha_min: float
    gamma: float
    deadline: float
    scorer: ScorerTask | None = None
    kind: Literal["decode"] = "decode"


@dataclass(frozen=True, config=CONFIG)
class Progress(Versioned):
    """How far a job is: `step` of at most `steps`."""

    stage: Literal["compile", "decode"]
    step: int = 0
    steps: int = 0
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, config=CONFIG)
class StepMessage(StepEventBody, Versioned):
    """The event of a decode step, to the subscribers of its job."""

    kind: Literal["step"] = "step"


@dataclass(frozen=True, config=CONFIG)
class RestartMessage(RestartEventBody, Versioned):
    """The restart of a job, to its subscribers."""

    kind: Literal["restarted"] = "restarted"


@dataclass(frozen=True, config=CONFIG)
class CompileJobResult(CompiledEventBody, Versioned):
    """The result of a compilation: the sizes of the constraint."""

    kind: Literal["compiled"] = "compiled"


@dataclass(frozen=True, config=CONFIG)
class ExplainJobResult(Versioned):
    """The explanation of a compiled constraint in words and numbers. Propositions have the names of their meanings."""

    automaton: str
    explanation: ConstraintExplanation
    kind: Literal["explained"] = "explained"


@dataclass(frozen=True, config=CONFIG)
class DescribeJobResult(CompileResponse, Versioned):
    """A compiled constraint as its caller receives it."""

    kind: Literal["described"] = "described"


@dataclass(frozen=True, config=CONFIG)
class CheckJobResult(CheckResponse, Versioned):
    """The check of a text."""

    kind: Literal["checked"] = "checked"


@dataclass(frozen=True, config=CONFIG)
class PolicyJobResult(PolicyResponse, Versioned):
    """What a policy says of a conversation."""

    kind: Literal["applied"] = "applied"


@dataclass(frozen=True, config=CONFIG)
class TokenizeJobResult(Versioned):
    """A text as token ids, with the tokenizer's name of each."""

    text: str
    ids: tuple[int, ...]
    names: tuple[str, ...]
    kind: Literal["tokenized"] = "tokenized"


@dataclass(frozen=True, config=CONFIG)
class GenerateJobResult(GeneratedBody, Versioned):
    """The answers of a generation, best first, in the caller's names.

    token_counts          how many tokens each choice has, with its end
    prompt_tokens, model  those of the prompt with their log-probs, if the job asks for them; the job's model
    """

    token_counts: tuple[int, ...]
    prompt_tokens: tuple[PromptTokenBody, ...] | None = None
    model: str = ""
    kind: Literal["generated"] = "generated"


@dataclass(frozen=True, config=CONFIG)
class DecodeJobResult(DecodeResponse, Versioned):
    """A decoded sequence, checked once more."""

    kind: Literal["decoded"] = "decoded"


@dataclass(frozen=True, config=CONFIG)
class Failure(Versioned):
    """An error with the facts of its class. A reader does not import the packages that raise it.

    error   name of the class
    fields  attributes of the error
    """

    error: str
    detail: str
    fields: dict[str, JsonValue] = field(default_factory=dict)
    facts: ErrorFacts = INTERNAL
    kind: Literal["failure"] = "failure"

    def as_error(self) -> JobFailed:
        """The error, to be raised again in another process."""
        return JobFailed(self.error, self.detail, self.fields, self.facts)


Job = CompileJob | ExplainJob | DescribeJob | CheckJob | PolicyJob | TokenizeJob | GenerateJob | DecodeJob
Result = (
    CompileJobResult | ExplainJobResult | DescribeJobResult | CheckJobResult | PolicyJobResult | TokenizeJobResult
    | GenerateJobResult | DecodeJobResult | Failure
)  # fmt: skip
News = Progress | StepMessage | RestartMessage
# `kind` selects the class before its fields are validated, so a fault is reported for one class only.
Message = Annotated[Job | Result | News, Discriminator("kind")]
_MESSAGE: TypeAdapter[Job | Result | News] = TypeAdapter(Message, config=ConfigDict(defer_build=True))


def dump(message: Job | Result | News) -> bytes:
    """The bytes of a message."""
    return _MESSAGE.dump_json(message)


def load(data: bytes) -> Job | Result | News:
    """The message in some bytes. Raises MessageInvalid where they are not one of this version."""
    try:
        return _MESSAGE.validate_json(data)
    except ValidationError as error:
        # Only the number of faults: pydantic's message would quote the data.
        raise MessageInvalid(f"not a message of version {VERSION} ({error.error_count()} faults)") from None


def read_signed(secret: bytes, key: str, stored: bytes) -> Job | Result | News | None:
    """The signed message under a key. None if the signature or the version does not match."""
    data = verify(secret, key, stored)
    if data is None:
        return None
    # A valid signature proves the origin, not the version: the bytes may be of an older release.
    try:
        return load(data)
    except MessageInvalid:
        return None


def is_expected_error(error: BaseException) -> bool:
    """True for errors that our packages raise on purpose. All others are bugs."""
    return _facts_of(error) is not None


def _facts_of(error: BaseException) -> ErrorFacts | None:
    return facts if isinstance(facts := getattr(error, "facts", None), ErrorFacts) else None


def failure_of(error: Exception) -> Failure:
    """The message that carries an error. For a bug it has no details."""
    if isinstance(error, JobFailed):  # passed on from another process, with the facts of the original class
        return Failure(error.error, str(error), _json_object(error.fields), error.facts)
    facts = _facts_of(error)
    if facts is None:  # a bug: its message may quote the request
        return Failure("InternalError", "an internal error; the service's log has more")
    # The public attributes of an error are its fields; the facts of its class say which of them HTTP shows.
    fields = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return Failure(type(error).__name__, str(error), _json_object(fields), facts)


def _json_object(values: Mapping[str, object]) -> dict[str, JsonValue]:
    return {name: _json(value) for name, value in values.items()}


def _json(value: object) -> JsonValue:
    """A value as JSON. Tuples become arrays, and values without a JSON type become text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)  # JSON has no NaN and no infinities
        case dict():
            return {str(name): _json(item) for name, item in value.items()}
        case list() | tuple():
            return [_json(item) for item in value]
        case _:
            return str(value)
