"""The JSON of POST /generate: the request and the answer. The bodies of its events stand in `app.messages`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic.dataclasses import dataclass

from app.api.schemas import AutomatonHash, Body, Constraint
from app.messages import CONFIG, USED_BY, GeneratedBody, GenerateJobResult, GenerationOptions, Priority
from app.requests import GenerateParams
from compiler.spec import spec_from_json


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
    """The answers, best first: fewer than `n` where there are fewer distinct ones among the beams.

    `id` is the job's, by which GET /jobs/{id} answers the same for a while. `seed` is that of a sample, null for a
    search.
    """

    id: str
    model: str


def generate_response(job_id: str, result: GenerateJobResult, model: str) -> GenerateResponse:
    """The result of a job with what its caller knows it by."""
    return GenerateResponse(
        result.automaton, result.choices, result.seed, result.usage, result.timings, id=job_id, model=model
    )
