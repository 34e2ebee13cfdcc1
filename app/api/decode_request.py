"""The body of POST /decode. It has a matrix, or names a scorer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from app.api.schemas import Body, Constraint, Strings
from app.errors import InvalidRequest
from app.messages import Priority, ScorerTask
from app.models import ScorerFiles
from app.requests import DecodeParams
from compiler.spec import LabelsSpec, spec_from_json

ALPHA_MIN, GAMMA = 0.5, 1.0  # of a matrix by beams
BEAMS, LENGTH_PENALTY = 16, 0.5  # of a scorer
_ROUNDING = 1e-3  # a softmax in half precision may exceed 0 by this much
_OF_A_MATRIX = ("labels", "alpha_min", "gamma")
_OF_A_SCORER = ("prefix", "max_tokens", "length_penalty")


def _beams(value: object) -> object:
    """Refuse other values with one message. A union would report one for each of its members."""
    # `type`, not isinstance: True is an int in Python, but no number in JSON.
    if value != "exact" and not (type(value) is int and value >= 1):
        raise ValueError('must be a whole number of at least 1, or "exact"')
    return value


_BEAMS_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"const": "exact", "type": "string"}]}
Beams = Annotated[int | Literal["exact"], BeforeValidator(_beams), WithJsonSchema(_BEAMS_SCHEMA)]
Row = Annotated[list[float | None], Field(fail_fast=True)]


class DecodeRequest(Body):
    """Labels to decode under a constraint over them.

    With `log_probs` the labels stand in `labels` or in the constraint, and what is decoded has exactly one label for
    each row. With `scorer`, a sequence model of the service's settings, they are the model's own, and what is written
    ends within `max_tokens`. No language model is used.
    """

    log_probs: list[Row] | None = Field(
        None, min_length=1, fail_fast=True,
        description="A row for each step, in it a log-prob for each label, at most 0; null is -infinity",
    )
    scorer: str | None = Field(None, description="In place of log_probs: the name of a scorer of the service")
    labels: Strings | None = Field(None, min_length=1, description="What the columns stand for, all different")
    prefix: Strings = Field([], description="With a scorer: labels that stand already, and count for the constraint")
    max_tokens: int | None = Field(None, ge=1, description="With a scorer: the most labels, the end counted as one")
    constraint: Constraint
    beams: Beams | None = Field(
        None, description="For a matrix exact unless given: the most probable sequence there is; a number: "
        f"automata-guided beam search. For a scorer a number, {BEAMS} unless given",
    )
    alpha_min: float | None = Field(None, ge=0, le=1, description=f"For a matrix by beams: {ALPHA_MIN} unless given")
    gamma: float | None = Field(None, gt=0, le=100, description=f"For a matrix by beams: {GAMMA} unless given")
    length_penalty: float | None = Field(
        None, ge=0, le=2, description="With a scorer: the last choice divides the log-prob by the length, its end "
        f"included, to this power; {LENGTH_PENALTY} unless given; 0 looks for the most probable sequence",
    )
    timeout_s: float | None = Field(None, gt=0)
    priority: Priority = Field("interactive", description="All that is interactive goes before what is batch")

    @model_validator(mode="after")
    def _one_of_each(self) -> DecodeRequest:
        if (self.log_probs is None) == (self.scorer is None):
            raise ValueError("give exactly one of log_probs and scorer")
        matrix = self.scorer is None
        for name in _OF_A_SCORER if matrix else _OF_A_MATRIX:
            if getattr(self, name):
                raise ValueError(f"{name} goes with {'scorer' if matrix else 'log_probs'}")
        inner = self.constraint.get("labels")
        if matrix:
            if (self.labels is None) == (inner is None):
                raise ValueError("give labels, either in the request or in the constraint")
            if self.beams in (None, "exact") and (self.alpha_min is not None or self.gamma is not None):
                raise ValueError("alpha_min and gamma belong to a search by beams")
            return self
        if inner is not None:
            raise ValueError("the labels are those of the scorer: leave them out of the constraint")
        if self.max_tokens is None:
            raise ValueError("scorer goes with max_tokens")
        if self.beams == "exact":
            raise ValueError('"exact" goes with log_probs: with a scorer, beams is a number')
        return self

    def to_params(self, scorers: Mapping[str, ScorerFiles]) -> DecodeParams:
        """The request as the service takes it. Raises SpecSyntaxError, InvalidRequest.

        scorers  those of the service, by name
        """
        labels, task = {} if self.labels is None else {"labels": self.labels}, None
        if self.scorer is not None:
            if self.scorer not in scorers:
                known = f"the scorers {', '.join(sorted(scorers))}" if scorers else "no scorer"
                raise InvalidRequest((("scorer", f"this service has {known}"),))
            labels = {"labels": list(scorers[self.scorer].labels)}
            task = self._task(self.scorer, scorers[self.scorer])
        spec = spec_from_json({**self.constraint, **labels})  # over labels: the validator requires exactly one list
        assert isinstance(spec, LabelsSpec)
        # Checked here, since the number of labels is known only once the constraint is read.
        rows = self.log_probs or ()
        for number, row in enumerate(rows):
            _require_row(number, row, len(spec.labels))
        return DecodeParams(
            spec,
            tuple(map(tuple, rows)),
            self.beams or ("exact" if task is None else BEAMS),
            ALPHA_MIN if self.alpha_min is None else self.alpha_min,
            GAMMA if self.gamma is None else self.gamma,
            self.timeout_s,
            self.priority,
            task,
        )

    def _task(self, name: str, scorer: ScorerFiles) -> ScorerTask:
        known = frozenset(scorer.labels)
        for number, label in enumerate(self.prefix):
            if label not in known:
                raise InvalidRequest(((f"prefix.{number}", "this is no label of the scorer"),))
        assert self.max_tokens is not None  # the validator requires it
        penalty = LENGTH_PENALTY if self.length_penalty is None else self.length_penalty
        return ScorerTask(name, tuple(self.prefix), self.max_tokens, penalty)


def _require_row(number: int, row: list[float | None], labels: int) -> None:
    if len(row) != labels:
        message = f"the row has {len(row)} entries for {labels} labels"
        raise InvalidRequest(((f"log_probs.{number}", message),))
    for column, value in enumerate(row):
        if value is not None and value > _ROUNDING:
            raise InvalidRequest(((f"log_probs.{number}.{column}", "a log-prob is at most 0: this is none"),))
