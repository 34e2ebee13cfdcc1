"""The JSON of POST /generate and POST /decode. Bodies that jobs share stand in `app.messages`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator
from pydantic.dataclasses import dataclass

from app.api.schemas import AutomatonHash, Body, Constraint, Strings
from app.errors import InvalidRequest
from app.messages import CONFIG, USED_BY, GeneratedBody, GenerateJobResult, GenerationOptions, Priority
from app.requests import DecodeParams, GenerateParams
from compiler.spec import LabelsSpec, spec_from_json

ALPHA_MIN, GAMMA = 0.5, 1.0  # of a decoding by beams
_ROUNDING = 1e-3  # a softmax in half precision may exceed 0 by this much


class GenerateRequest(Body, GenerationOptions):
    """A prompt to continue under a constraint, given whole or by the hash that POST /compile answered."""

    prompt: str
    constraint: Constraint | None = None
    automaton: AutomatonHash | None = None
    model: str | None = None
    stream: bool = Field(False, description="Answer by server-sent events: compiled, step, and done or error")
    timeout_s: float | None = Field(None, gt=0)
    priority: Priority = Field("interactive", description="All that is interactive goes before what is batch")

    @field_validator(*USED_BY)
    @classmethod
    def _of_the_algorithm(cls, value: object, info: ValidationInfo) -> object:
        """Only the fields of the request are validated, so defaults of other algorithms' options pass."""
        assert info.field_name is not None
        algorithm, users = info.data.get("algorithm"), USED_BY[info.field_name]
        if value is not None and algorithm is not None and algorithm not in users:
            names = " or ".join(f'"{user}"' for user in users)
            raise ValueError(f'goes with algorithm {names}, not with "{algorithm}"')
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

    def to_params(self) -> GenerateParams:
        """The request as the service takes it. Raises SpecSyntaxError."""
        options: dict[str, Any] = {name: getattr(self, name) for name in GenerationOptions.model_fields}
        return GenerateParams(
            prompt=self.prompt,
            spec=None if self.constraint is None else spec_from_json(self.constraint),
            automaton=self.automaton,
            model=self.model,
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


def generate_response(job_id: str, result: GenerateJobResult, model: str) -> GenerateResponse:
    """The result of a job with what its caller knows it by."""
    return GenerateResponse(
        result.automaton, result.choices, result.seed, result.usage, result.timings, id=job_id, model=model
    )


def _beams(value: object) -> object:
    """Refuses other values with one message; a union would report one for each of its members."""
    # `type`, not isinstance: True is an int in Python, but no number in JSON.
    if value != "exact" and not (type(value) is int and value >= 1):
        raise ValueError('must be a whole number of at least 1, or "exact"')
    return value


_BEAMS_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "exact", "type": "string"}]}
Beams = Annotated[int | Literal["exact"], BeforeValidator(_beams), WithJsonSchema(_BEAMS_SCHEMA)]
Row = Annotated[list[float | None], Field(fail_fast=True)]


class DecodeRequest(Body):
    """A matrix to decode under a constraint over labels; no model takes part.

    The labels stand in `labels` or in the constraint. What is decoded has exactly one label for each row.
    """

    log_probs: list[Row] = Field(
        min_length=1, fail_fast=True,
        description="A row for each step, in it a log-prob for each label, at most 0; null is -infinity",
    )
    labels: Strings | None = Field(None, min_length=1, description="What the columns stand for, all different")
    constraint: Constraint
    beams: Beams = Field(
        "exact", description="exact: the most probable sequence there is; a number: automata-guided beam search"
    )
    alpha_min: float | None = Field(None, ge=0, le=1, description=f"With beams alone: {ALPHA_MIN} unless given")
    gamma: float | None = Field(None, gt=0, le=100, description=f"With beams alone: {GAMMA} unless given")
    timeout_s: float | None = Field(None, gt=0)
    priority: Priority = Field("interactive", description="All that is interactive goes before what is batch")

    @model_validator(mode="after")
    def _one_of_each(self) -> DecodeRequest:
        inner = self.constraint.get("labels")
        if (self.labels is None) == (inner is None):
            raise ValueError("give labels, either in the request or in the constraint")
        if self.beams == "exact" and (self.alpha_min is not None or self.gamma is not None):
            raise ValueError("alpha_min and gamma belong to a search by beams")
        return self

    def to_params(self) -> DecodeParams:
        """The request as the service takes it. Raises SpecSyntaxError, InvalidRequest."""
        labels = {} if self.labels is None else {"labels": self.labels}
        spec = spec_from_json({**self.constraint, **labels})  # over labels: the validator requires exactly one list
        assert isinstance(spec, LabelsSpec)
        # Checked here, since the number of labels is known only once the constraint is read.
        for number, row in enumerate(self.log_probs):
            _require_row(number, row, len(spec.labels))
        return DecodeParams(
            spec,
            tuple(map(tuple, self.log_probs)),
            self.beams,
            ALPHA_MIN if self.alpha_min is None else self.alpha_min,
            GAMMA if self.gamma is None else self.gamma,
            self.timeout_s,
            self.priority,
        )


def _require_row(number: int, row: list[float | None], labels: int) -> None:
    if len(row) != labels:
        message = f"the row has {len(row)} entries for {labels} labels"
        raise InvalidRequest(((f"log_probs.{number}", message),))
    for column, value in enumerate(row):
        if value is not None and value > _ROUNDING:
            raise InvalidRequest(((f"log_probs.{number}.{column}", "a log-prob is at most 0: this is none"),))
