"""The JSON of requests and answers, as the OpenAPI document shows it. Strict: nothing unknown, nothing coerced."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from app.jobs import TokenStep, Word
from app.service import GenerateAnswer, GenerateOrder
from compiler.spec import Spec, spec_from_json

_WORDS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
_PROPOSITION = {
    "anyOf": [
        _WORDS,
        {
            "type": "object", "additionalProperties": False,
            "properties": {"words": _WORDS, "regex": {"type": "string"}, "case_sensitive": {"type": "boolean"}},
        },
    ]
}
_FORMS = (
    ("ltlf", "An LTLf formula over the words of the text", {
        "ltlf": {"type": "string", "examples": ["F(coffee & X(F(cat)))"]},
        "propositions": {"type": "object", "additionalProperties": _PROPOSITION},
    }),
    ("regex", "The whole text matches, as re.fullmatch says", {
        "regex": {"type": "string", "examples": ["[A-Z][a-z ]+\\."]},
        "leading_space": {"enum": ["strip", "forbid"], "default": "strip"},
    }),
    ("keywords", "Each concept occurs, in any of its forms, in this order if asked", {
        "keywords": {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string"}, _WORDS]}},
        "ordered": {"type": "boolean", "default": False},
        "case_sensitive": {"type": "boolean", "default": False},
    }),
)
_CONSTRAINT_SCHEMA = {
    "oneOf": [
        {"type": "object", "title": form, "description": text, "additionalProperties": False,
         "required": [form], "properties": properties}
        for form, text, properties in _FORMS
    ]
}
Constraint = Annotated[dict[str, Any], WithJsonSchema(_CONSTRAINT_SCHEMA)]
AutomatonHash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Strict(BaseModel):
    """Nothing is coerced, nothing unknown is passed over."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class CompileRequest(Strict):
    """A constraint to compile for the served model."""

    constraint: Constraint
    model: str | None = None

    def spec(self) -> Spec:
        """The constraint, checked. Raises SpecSyntaxError."""
        return spec_from_json(self.constraint)


class CompileResponse(Strict):
    """The name of a compiled constraint, its sizes, and the least max_tokens that can meet it."""

    automaton: str
    states: int
    letters: int
    token_states: int
    token_classes: int
    min_tokens: int
    cached: bool
    compile_ms: float


class GenerateRequest(Strict):
    """A prompt to continue under a constraint, given whole or by the hash that POST /compile answered."""

    prompt: str
    constraint: Constraint | None = None
    automaton: AutomatonHash | None = None
    model: str | None = None
    max_tokens: int = Field(64, ge=1, description="The budget in tokens, the end of the text among them")
    beams: int = Field(16, ge=1)
    algorithm: Literal["abs"] = "abs"
    alpha_min: float = Field(0.5, ge=0, le=1)
    gamma: float = Field(1.0, gt=0, le=100)
    n: int = Field(1, ge=1, description="How many distinct answers, at most")
    rank_by: Literal["score", "log_prob"] = "log_prob"
    trace: bool = False
    timeout_s: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one_constraint(self) -> GenerateRequest:
        if (self.constraint is None) == (self.automaton is None):
            raise ValueError("give exactly one of constraint and automaton")
        if self.n > self.beams:
            raise ValueError("n must not exceed beams")
        return self

    def order(self) -> GenerateOrder:
        """The request as the service takes it. Raises SpecSyntaxError."""
        fields = self.model_dump(exclude={"constraint"})
        return GenerateOrder(spec=None if self.constraint is None else spec_from_json(self.constraint), **fields)


class Choice(Strict):
    """One answer. `trace` is null unless asked for."""

    text: str
    finish_reason: str
    log_prob: float
    score: float
    satisfied: bool
    trace: tuple[TokenStep, ...] | None
    words: tuple[Word, ...]


class Usage(Strict):
    """Tokens read, tokens written over all choices (each with its end), and the beams used."""

    prompt_tokens: int
    completion_tokens: int
    beams: int


class Timings(Strict):
    """Where the time went. `cached`: the constraint was compiled already."""

    compile_ms: float
    queue_ms: float
    decode_ms: float
    total_ms: float
    cached: bool


class GenerateResponse(Strict):
    """The answers, best first: fewer than `n` where there are fewer distinct ones among the beams."""

    id: str
    model: str
    automaton: str
    choices: tuple[Choice, ...]
    usage: Usage
    timings: Timings


class CheckRequest(Strict):
    """A text to check."""

    constraint: Constraint
    text: str

    def spec(self) -> Spec:
        """The constraint, checked. Raises SpecSyntaxError."""
        return spec_from_json(self.constraint)


class CheckResponse(Strict):
    """`violated_at` is null where satisfied; else the offset of the first character after which nothing can satisfy
    any more, or the text's length where it only ends too early."""

    satisfied: bool
    words: tuple[Word, ...]
    violated_at: int | None


class State(Strict):
    """A state of an automaton. `distance` is the fewest tokens to the end, null where it is dead."""

    id: int
    accepting: bool
    distance: int | None


class Transition(Strict):
    """All letters that lead from one state to another, by their places in `letters` of the automaton."""

    source: int = Field(serialization_alias="from", validation_alias="from")
    to: int
    letters: tuple[int, ...]


class AutomatonResponse(Strict):
    """What a compiled constraint looks like: a DFA over letters, each the list of propositions that hold ([]: none).

    For a regex a letter is one class of characters.
    """

    automaton: str
    constraint: dict[str, Any]
    kind: Literal["words", "characters"]
    start: int
    letters: tuple[tuple[str, ...], ...]
    states: tuple[State, ...]
    transitions: tuple[Transition, ...]
    accepting: tuple[int, ...]
    min_tokens: int


class ModelCard(Strict):
    """A served model, as OpenAI clients expect it, with the most tokens it reads."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "abs-server"
    context_tokens: int | None
    vocabulary: int


class ModelList(Strict):
    """The served models: one."""

    object: Literal["list"] = "list"
    data: tuple[ModelCard, ...]


class Status(Strict):
    """The process is alive, or ready."""

    status: Literal["ok", "ready"]


class ProblemBody(BaseModel):
    """Every error, by RFC 9457. `code` is stable; further fields depend on it."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str


def generate_response(answer: GenerateAnswer, model: str, beams: int) -> GenerateResponse:
    """The service's answer in the shape that the API sends."""
    result, compiled = answer.result, answer.compiled
    choices = tuple(
        Choice(
            text=choice.text, finish_reason=choice.finish_reason, log_prob=choice.log_prob, score=choice.score,
            satisfied=choice.satisfied, trace=choice.trace, words=choice.words,
        )
        for choice in result.choices
    )
    written = sum(choice.tokens for choice in result.choices)
    return GenerateResponse(
        id=answer.id, model=model, automaton=compiled.automaton, choices=choices,
        usage=Usage(prompt_tokens=result.prompt_tokens, completion_tokens=written, beams=beams),
        timings=Timings(
            compile_ms=compiled.compile_ms, queue_ms=result.queue_ms, decode_ms=result.decode_ms,
            total_ms=answer.total_ms, cached=compiled.cached,
        ),
    )
