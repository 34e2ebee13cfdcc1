"""The JSON of POST /generate: what is asked for, the answer, and the events of a stream."""

from __future__ import annotations

import dataclasses
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from app.api.schemas import AutomatonHash, Body, Constraint, Strict, Timings, timings
from app.messages import (
    ALGORITHM_DEFAULT,
    Algorithm,
    CompileResult,
    GenerateOptions,
    GenerateResult,
    Priority,
    RejectedToken,
    StepRow,
    TokenStep,
    Word,
)
from app.requests import GenerateParams
from compiler.spec import spec_from_json

_SEARCHES: tuple[Algorithm, ...] = ("banked", "abs")
_BELONGS: dict[str, tuple[Algorithm, ...]] = {  # the algorithms that use a field; all use those not named here
    "beams": _SEARCHES,
    "alpha_min": ("abs",),
    "gamma": ("abs",),
    "rank_by": ("abs",),
    "length_penalty": ("banked",),
    "temperature": ("sample",),
    "top_p": ("sample",),
    "seed": ("sample",),
}
SEED_MAX = 2**63 - 1
REJECTED_TOP_K_MAX = 16


class GenerateRequest(Body):
    """A prompt to continue under a constraint, given whole or by the hash that POST /compile answered."""

    prompt: str
    constraint: Constraint | None = None
    automaton: AutomatonHash | None = None
    model: str | None = None
    max_tokens: int = Field(64, ge=1, description="The budget in tokens, the end of the text among them")
    n: int = Field(1, ge=1, description="How many answers: distinct ones, at most; with `sample` independent ones")
    scope: Literal["answer", "full"] = Field("answer", description="What satisfies: the answer, or prompt and answer")
    algorithm: Algorithm = Field(ALGORITHM_DEFAULT, description="Two searches with beams, and sampling")
    beams: int = Field(16, ge=1, description="Width of a search; `banked` reads three times as many rows")
    alpha_min: float = Field(0.5, ge=0, le=1, description="Of `abs`: the least push-up")
    gamma: float = Field(1.0, gt=0, le=100, description="Of `abs`: how sharply the push-up grows")
    rank_by: Literal["score", "log_prob"] = Field("log_prob", description="Of `abs`: the last choice")
    length_penalty: float = Field(
        0.5, ge=0, le=2, description="Of `banked`: the last choice divides by the length to this power"
    )
    temperature: float = Field(1.0, ge=0, le=100, description="Of `sample`; 0 takes the most probable token")
    top_p: float = Field(1.0, gt=0, le=1, description="Of `sample`: the nucleus")
    seed: int | None = Field(None, ge=0, le=SEED_MAX, description="Of `sample`: drawn, and answered, where absent")
    trace: bool = False
    stream: bool = Field(False, description="Answer by server-sent events: compiled, step, and done or error")
    rejected_top_k: int = Field(
        0, ge=0, le=REJECTED_TOP_K_MAX, description="With `stream`: how many of the most probable "
        "tokens to compare with the constraint after each of the best 16 rows; each step lists the rejected ones",
    )
    timeout_s: float | None = Field(None, gt=0)
    priority: Priority = Field("interactive", description="All that is interactive goes before what is batch")

    @field_validator(*_BELONGS)
    @classmethod
    def _of_the_algorithm(cls, value: object, info: ValidationInfo) -> object:
        """Only what the caller gives is validated, so what he leaves out may have any default."""
        assert info.field_name is not None
        algorithm, users = info.data.get("algorithm"), _BELONGS[info.field_name]
        if value is not None and algorithm is not None and algorithm not in users:
            known = " or ".join(f'"{user}"' for user in users)
            raise ValueError(f'goes with algorithm {known}, not with "{algorithm}"')
        return value

    @model_validator(mode="after")
    def _one_constraint(self) -> GenerateRequest:
        if (self.constraint is None) == (self.automaton is None):
            raise ValueError("give exactly one of constraint and automaton")
        if self.algorithm != "sample" and self.n > self.beams:
            raise ValueError("n must not exceed beams")
        if self.rejected_top_k and not self.stream:
            raise ValueError("rejected_top_k goes with stream")
        return self

    def order(self) -> GenerateParams:
        """The request as the service takes it. Raises SpecSyntaxError."""
        options = GenerateOptions(
            **{option.name: getattr(self, option.name) for option in dataclasses.fields(GenerateOptions)}
        )
        spec = None if self.constraint is None else spec_from_json(self.constraint)
        return GenerateParams(
            self.prompt, spec, self.automaton, self.model, options, self.trace, self.timeout_s, self.priority,
            self.stream, self.rejected_top_k,
        )


class Choice(Strict):
    """One answer. `trace` is null unless asked for.

    `score` is the pushed sum of `abs`; of a sample the log-prob under the distribution that it was drawn from, to
    which the scores in its trace, the model's own log-probs, do not add up.

    `proven_gap` bounds how much better the best satisfying text can be than this one, in `log_prob` divided by tokens
    to the power `length_penalty`: 0 where this answer is proven the best. Of text that the constraint dictates, only
    the tokenizer's own spelling counts. Null for `abs` and `sample`, which keep no bound.
    """

    text: str
    finish_reason: str
    log_prob: float
    score: float
    satisfied: bool
    proven_gap: float | None
    trace: tuple[TokenStep, ...] | None
    words: tuple[Word, ...]


class Usage(Strict):
    """Tokens read, tokens written over all choices (each with its end), and the texts written side by side."""

    prompt_tokens: int
    completion_tokens: int
    sequences: int


class GenerateResponse(Strict):
    """The answers, best first: fewer than `n` where there are fewer distinct ones among the beams.

    `id` is the job's, by which GET /jobs/{id} answers the same for a while.

    `seed` is the one that sampled them, null where a search found them.
    """

    id: str
    model: str
    automaton: str
    choices: tuple[Choice, ...]
    seed: int | None
    usage: Usage
    timings: Timings


class CompiledEvent(Strict):
    """The event `compiled` of a stream: the constraint is ready, and the generation has begun."""

    automaton: str
    states: int
    letters: int
    token_states: int
    token_classes: int
    min_tokens: int
    cached: bool
    compile_ms: float


class StepEvent(Strict):
    """The event `step` of a stream: the texts after a token more, in the order in which they are kept.

    A reader who lags misses some. `rejected_tokens` is empty unless the request sets `rejected_top_k`.
    """

    step: int
    budget_after: int
    rows: tuple[StepRow, ...]
    rejected_tokens: tuple[RejectedToken, ...]


class RestartEvent(Strict):
    """The event `restarted` of a stream: another worker restarts the job, and all earlier events are void."""

    attempt: int


def compiled_event(compiled: CompileResult) -> CompiledEvent:
    """The sizes of a compiled constraint as a stream tells them."""
    return CompiledEvent(**{name: getattr(compiled, name) for name in CompiledEvent.model_fields})


def generate_response(job_id: str, result: GenerateResult, model: str) -> GenerateResponse:
    """The result of a job in the shape that the API sends."""
    compiled = result.compiled
    choices = tuple(
        Choice(
            text=choice.text,
            finish_reason=choice.finish_reason,
            log_prob=choice.log_prob,
            score=choice.score,
            satisfied=choice.satisfied,
            proven_gap=choice.proven_gap,
            trace=choice.trace,
            words=choice.words,
        )
        for choice in result.choices
    )
    written = sum(choice.tokens for choice in result.choices)
    return GenerateResponse(
        id=job_id,
        model=model,
        automaton=compiled.automaton,
        choices=choices,
        seed=result.seed,
        usage=Usage(prompt_tokens=result.prompt_tokens, completion_tokens=written, sequences=result.rows),
        timings=timings(compiled, result.queue_ms, result.decode_ms, result.total_ms),
    )
