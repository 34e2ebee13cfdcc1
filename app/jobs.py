"""What crosses a process boundary: jobs, news, results, failures, as versioned JSON. Nothing is ever unpickled."""

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
Algorithm = Literal["abs", "banked", "sample"]
ALGORITHM_DEFAULT: Final = "banked"
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
class GenerateOptions:
    """How to generate.

    max_tokens                                        the budget, in tokens with the end of the text
    n                                                 how many answers, at most
    scope                                             what satisfies: the "answer" alone, or the "full" text, from the
                                                      prompt's first character on
    beams                                             of the algorithms with beams
    alpha_min, gamma, rank_by                         of "abs"
    length_penalty                                    of "banked"
    temperature, top_p, seed                          of the algorithm "sample"; the seed is None for the others
    """

    max_tokens: int
    n: int = 1
    algorithm: Algorithm = ALGORITHM_DEFAULT
    scope: Literal["answer", "full"] = "answer"
    beams: int = 16
    alpha_min: float = 0.5
    gamma: float = 1.0
    rank_by: Literal["score", "log_prob"] = "log_prob"
    length_penalty: float = 0.5
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None

    @property
    def rows(self) -> int:
        """The texts that are written side by side, at most."""
        return self.n if self.algorithm == "sample" else self.beams


@dataclass(frozen=True, config=_CONFIG)
class GenerateJob:
    """Continue `prompt` with a text that the stored automaton accepts.

    trace  whether the answers carry their traces
    tell   what is told on the way: every step's beams, or how far it is
    """

    id: str
    automaton: str
    prompt: str
    options: GenerateOptions
    trace: bool
    deadline: float
    tell: Literal["nothing", "progress", "steps"] = "nothing"
    kind: Literal["generate"] = "generate"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class DecodeJob:
    """Decode a matrix of log-probs over the labels of a stored automaton: as many labels as the matrix has rows.

    log_probs         a row for each step, a column for each label; None is -inf
    beams             how many rows a search keeps, or "exact": the best sequence of all
    alpha_min, gamma  of the search by beams
    """

    automaton: str
    log_probs: tuple[tuple[float | None, ...], ...]
    beams: int | Literal["exact"]
    alpha_min: float
    gamma: float
    deadline: float
    kind: Literal["decode"] = "decode"
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
class StepRow:
    """One text as far as a step has written it.

    text      all that the model wrote, a leading space among it that is no part of the answer
    parent    the row that it continues, in the step before
    state     of the constraint's automaton after the text, as GET /automata shows it
    distance  fewest tokens to the end, exact, EOS among them; 0 where the text is finished
    alpha     the push-up at the state before the last token
    """

    text: str
    parent: int
    state: int
    distance: int
    alpha: float
    score: float
    log_prob: float
    finished: bool


@dataclass(frozen=True, config=_CONFIG)
class Step:
    """The rows after step `step`, from 1, with `budget_after` tokens left.

    Best first; of "banked" the finished ones come before the others.
    """

    step: int
    budget_after: int
    rows: tuple[StepRow, ...]
    kind: Literal["step"] = "step"
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
class LabelStep:
    """One label of a decoded sequence.

    state     of the constraint's automaton after the label, as GET /automata shows it
    distance  fewest further labels to acceptance; 0 where the sequence may end
    letters   the propositions that hold at the label
    log_prob  the matrix's own, as it was counted: -10000 at the least
    """

    label: str
    state: int
    distance: int
    letters: tuple[str, ...]
    log_prob: float


@dataclass(frozen=True, config=_CONFIG)
class DecodeResult:
    """A decoded sequence, checked once more. `score` is the pushed sum of a search by beams. Times in ms."""

    labels: tuple[str, ...]
    log_prob: float
    score: float
    satisfied: bool
    trace: tuple[LabelStep, ...]
    queue_ms: float
    decode_ms: float
    kind: Literal["decoded"] = "decoded"
    version: Literal[1] = VERSION


@dataclass(frozen=True, config=_CONFIG)
class Failure:
    """An error by its class name, so that a reader needs none of the packages that raise it."""

    error: str
    detail: str
    fields: dict[str, JsonValue] = field(default_factory=dict)
    kind: Literal["failure"] = "failure"
    version: Literal[1] = VERSION


Job = CompileJob | ExplainJob | CheckJob | GenerateJob | DecodeJob
Result = CompileResult | ExplainResult | CheckResult | GenerateResult | DecodeResult | Failure
News = Progress | Step
Message = Annotated[Job | Result | News, Discriminator("kind")]
_MESSAGE: TypeAdapter[Job | Result | News] = TypeAdapter(Message)


def dump(message: Job | Result | News) -> bytes:
    """The bytes of a message."""
    return _MESSAGE.dump_json(message)


def load(data: bytes) -> Job | Result | News:
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
