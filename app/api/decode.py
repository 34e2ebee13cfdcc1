"""The JSON of POST /decode: a matrix of log-probs over labels in, the best sequence that satisfies out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from app.api.schemas import Body, Constraint, Strings
from app.errors import InvalidRequest
from app.matrix import DecodeParams
from app.messages import Priority
from compiler.spec import LabelsSpec, spec_from_json

ALPHA_MIN, GAMMA = 0.5, 1.0
_ROUNDING = 1e-3  # a softmax in half precision may come out so much above 0


def _beams(value: object) -> object:
    """One message for what is neither; a union would have one for each of its members."""
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
        spec = spec_from_json({**self.constraint, **labels})
        assert isinstance(spec, LabelsSpec)
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
