"""What crosses a process boundary: jobs, progress, results, failures, as versioned JSON. Nothing is ever unpickled."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Discriminator, JsonValue, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from app.errors import JobFailed, MessageInvalid
from compiler.explain import Explanation
from compiler.spec import Spec
from compiler.spec_json import spec_to_json

VERSION: Final = 1
OWN_ERRORS = ("app.errors", "compiler.errors", "decoding.errors")  # modules whose errors are raised on purpose
_CONFIG = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, config=_CONFIG)
class CompileJob:
    """Compile a constraint for the served model and store it. `spec` is canonical JSON, `deadline` Unix time in s."""

    automaton: str
    spec: dict[str, JsonValue]
    deadline: float
    kind: Literal["compile"] = "compile"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class ExplainJob:
    """Explain a stored automaton, and store the explanation beside it."""

    automaton: str
    deadline: float
    kind: Literal["explain"] = "explain"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class CheckJob:
    """Check a text against a constraint, or a sequence of labels against one over labels; needs no model."""

    spec: dict[str, JsonValue]
    text: str | tuple[str, ...]
    deadline: float
    kind: Literal["check"] = "check"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class GenerateJob:
    """Continue `prompt` with a text that the stored automaton accepts, within `max_tokens` tokens."""

    id: str
    automaton: str
    prompt: str
    max_tokens: int
    beams: int
    algorithm: Literal["abs"]
    alpha_min: float
    gamma: float
    n: int
    rank_by: Literal["score", "log_prob"]
    trace: bool
    deadline: float
    kind: Literal["generate"] = "generate"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class Progress:
    """How far a job is: `step` of at most `steps`."""

    stage: Literal["compile", "decode"]
    step: int = 0
    steps: int = 0
    kind: Literal["progress"] = "progress"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class CompileResult:
    """The sizes of a compiled constraint. `compile_ms` is 0 where it was stored already."""

    automaton: str
    states: int
    letters: int
    token_states: int
    token_classes: int
    min_tokens: int
    cached: bool
    compile_ms: float
    kind: Literal["compiled"] = "compiled"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class ExplainResult:
    """What a compiled constraint is, in words and numbers; propositions go by the names of their meanings."""

    automaton: str
    explanation: Explanation
    kind: Literal["explained"] = "explained"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class Word:
    """One step of the word trace: a unit of the text, the propositions that hold there, the state after it."""

    text: str
    letters: tuple[str, ...]
    state: int


@dataclass(frozen=True, config=_CONFIG)
class CheckResult:
    """Whether a text satisfies, its word trace, and the character from which on no continuation can."""

    satisfied: bool
    words: tuple[Word, ...]
    violated_at: int | None
    kind: Literal["checked"] = "checked"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class TokenStep:
    """One token of an answer.

    state     of the constraint's automaton after the token, as GET /automata shows it
    distance  fewest tokens to the end after the token, exact, EOS among them
    alpha     the push-up at the state before the token
    letters   the propositions of each step of the word trace that this token completes
    """

    token: int
    text: str
    state: int
    distance: int
    alpha: float
    log_prob: float
    score: float
    letters: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, config=_CONFIG)
class Choice:
    """One answer, re-checked on its text."""

    text: str
    finish_reason: str
    log_prob: float
    score: float
    satisfied: bool
    words: tuple[Word, ...]
    tokens: int
    trace: tuple[TokenStep, ...] | None


@dataclass(frozen=True, config=_CONFIG)
class GenerateResult:
    """The answers, best first. Times in ms; `queue_ms` is what the job waited."""

    choices: tuple[Choice, ...]
    prompt_tokens: int
    queue_ms: float
    decode_ms: float
    kind: Literal["generated"] = "generated"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class Failure:
    """An error by its class name, so that a reader needs none of the packages that raise it."""

    error: str
    detail: str
    fields: dict[str, JsonValue] = field(default_factory=dict)
    kind: Literal["failure"] = "failure"
    version: Literal[1] = VERSION


Job = CompileJob | ExplainJob | CheckJob | GenerateJob
Result = CompileResult | ExplainResult | CheckResult | GenerateResult | Failure
Message = Annotated[Job | Result | Progress, Discriminator("kind")]
_MESSAGE: TypeAdapter[Job | Result | Progress] = TypeAdapter(Message)


def dump(message: Job | Result | Progress) -> bytes:
    """The bytes of a message."""
    return _MESSAGE.dump_json(message)


def load(data: bytes) -> Job | Result | Progress:
    """The message in some bytes. Raises MessageInvalid where they are not one of this version."""
    try:
        return _MESSAGE.validate_json(data)
    except ValidationError as error:
        raise MessageInvalid(f"not a message of version {VERSION} ({error.error_count()} faults)") from None


def is_own(error: BaseException) -> bool:
    """True for the errors that our packages raise on purpose; all others are bugs."""
    return type(error).__module__ in OWN_ERRORS


def failure_of(error: Exception) -> Failure:
    """The message that carries an error; of a bug nothing but that it happened."""
    if isinstance(error, JobFailed):
        return Failure(error.error, str(error), {name: _json(value) for name, value in error.fields.items()})
    if not is_own(error):
        return Failure("InternalError", "an internal error; the service's log has more")
    fields = {name: _json(value) for name, value in vars(error).items() if not name.startswith("_")}
    return Failure(type(error).__name__, str(error), fields)


def spec_json(spec: Spec) -> dict[str, JsonValue]:
    """A constraint as a job carries it."""
    return {name: _json(value) for name, value in spec_to_json(spec).items()}


def _json(value: object) -> JsonValue:
    """A value as JSON: tuples as arrays, what JSON has no word for as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(name): _json(item) for name, item in value.items()}
        case list() | tuple():
            return [_json(item) for item in value]
        case _:
            return str(value)
