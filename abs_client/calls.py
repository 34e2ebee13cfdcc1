"""The requests of the API: what is sent, and how the answer is read. One place for both kinds of client."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypedDict, TypeVar

from abs_client.constraints import ConstraintLike, constraint_of
from abs_client.errors import AbsError, AnswerInvalid, InvalidRequest, UnknownAutomaton, UnknownJob, error_of
from abs_client.pieces import read
from abs_client.results import (
    Automaton,
    CheckResult,
    CompileResult,
    DecodeResult,
    GenerateResult,
    JobState,
    ModelCard,
    Readiness,
    Result,
)

T = TypeVar("T")
R = TypeVar("R", bound=Result)
DEADLINE_SLACK_S = 30.0  # the service keeps deadlines itself; after so much more the line is taken for dead
_HASH, _JOB, _VISIBLE = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{32}"), re.compile("[!-~]+")


class GenerateOptions(TypedDict, total=False):
    """What `generate` takes beside prompt and constraint; docs/requests.md says what each means. None is not sent."""

    max_tokens: int | None
    n: int | None
    algorithm: Literal["banked", "abs", "sample"] | None
    scope: Literal["answer", "full"] | None
    beams: int | None
    length_penalty: float | None
    alpha_min: float | None
    gamma: float | None
    rank_by: Literal["log_prob", "score"] | None
    temperature: float | None
    top_p: float | None
    seed: int | None
    trace: bool | None
    rejected_top_k: int | None
    timeout_s: float | None
    priority: Literal["interactive", "batch"] | None
    model: str | None
    automaton: str | None
    idempotency_key: str | None


class DecodeOptions(TypedDict, total=False):
    """What `decode` takes beside matrix and constraint. `beams`: a number, or "exact"."""

    beams: int | Literal["exact"] | None
    alpha_min: float | None
    gamma: float | None
    timeout_s: float | None
    priority: Literal["interactive", "batch"] | None
    idempotency_key: str | None


@dataclass(frozen=True)
class Reply:
    """What came back. `headers` by their names in small letters."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """Raises AnswerInvalid where the body is not JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            raise AnswerInvalid(f"not JSON (status {self.status})", status=self.status) from None

    def error(self, sent: Mapping[str, Any] | None) -> AbsError:
        """What it says went wrong. `sent` is the body of the request."""
        try:
            problem = self.json()
        except AnswerInvalid:  # of a proxy, perhaps
            problem = {}
        found = problem if isinstance(problem, Mapping) else {}
        return error_of(self.status, found, sent=sent, retry_after_s=_retry_after_s(self.headers))


@dataclass(frozen=True)
class Request:
    """A request as it is sent. `read_s`: for how long nothing may come; None: as the client has it."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    read_s: float | None = None

    @cached_property
    def content(self) -> bytes | None:
        """The body as it is sent. Raises InvalidRequest where it cannot be: the service would refuse it, too."""
        if self.body is None:
            return None
        try:
            return json.dumps(self.body, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            raise InvalidRequest("a text holds half of a surrogate pair, which is no character") from None
        except (TypeError, ValueError) as error:
            raise InvalidRequest(f"the request cannot be written as JSON: {error}") from None

    @property
    def all_headers(self) -> dict[str, str]:
        """Those given, and what the body is."""
        return {**({} if self.body is None else {"content-type": "application/json"}), **self.headers}


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request and the function that reads its answer.

    own_key  the client generated the Idempotency-Key, so only this call knows it
    """

    request: Request
    read: Callable[[Reply], T]
    own_key: bool = False


def generate_call(
    prompt: str, constraint: ConstraintLike | CompileResult | None, options: GenerateOptions
) -> Call[GenerateResult]:
    """POST /generate, safe to be sent again."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    key, timeout_s = given.pop("idempotency_key", None), given.get("timeout_s")
    body = {"prompt": prompt, **_constraint(constraint), **given}
    return _keyed("/generate", body, GenerateResult, key, timeout_s)


def streamed(call: Call[GenerateResult]) -> Call[GenerateResult]:
    """The same request, answered by events. Without a key of our own, so that the service sees a reader go away."""
    headers = {} if call.own_key else call.request.headers
    body = {**(call.request.body or {}), "stream": True}
    return replace(call, request=replace(call.request, body=body, headers=headers), own_key=False)


def compile_call(
    constraint: ConstraintLike, explain: bool, model: str | None, key: str | None
) -> Call[CompileResult]:
    """POST /compile. An idempotency key is optional, because equal constraints share one compilation."""
    body = {**_constraint(constraint), **({} if explain else {"explain": False}), **_given(model=model)}
    headers = {} if key is None else {"idempotency-key": header_value("idempotency_key", key)}
    return Call(Request("POST", "/compile", body, headers), _reading(CompileResult))


def check_call(constraint: ConstraintLike, text: str | Sequence[str], conjuncts: bool) -> Call[CheckResult]:
    """POST /check of a text, or of a sequence of labels. It changes nothing, so it may be sent again."""
    if not isinstance(text, Sequence):
        raise TypeError(f"what is checked is a str, or a sequence of labels, not {type(text).__name__}")
    subject = {"text": text} if isinstance(text, str) else {"labels": list(text)}
    body = {**_constraint(constraint), **subject, **({"conjuncts": True} if conjuncts else {})}
    return Call(Request("POST", "/check", body), _reading(CheckResult))


def decode_call(
    log_probs: Any, constraint: ConstraintLike, labels: Sequence[str] | None, options: DecodeOptions
) -> Call[DecodeResult]:
    """POST /decode of a matrix: lists of numbers, or an array. Minus infinity is sent as null."""
    rows = log_probs.tolist() if hasattr(log_probs, "tolist") else log_probs
    matrix = [[None if value is None or value == -math.inf else float(value) for value in row] for row in rows]
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    key, timeout_s = given.pop("idempotency_key", None), given.get("timeout_s")
    named = {} if labels is None else {"labels": list(labels)}
    body = {"log_probs": matrix, **named, **_constraint(constraint), **given}
    return _keyed("/decode", body, DecodeResult, key, timeout_s)


def automaton_call(automaton: str | Any) -> Call[Automaton]:
    """GET /automata/{hash}, of a hash or of a result that names one."""
    return Call(Request("GET", f"/automata/{hash_of(automaton)}"), _reading(Automaton))


def picture_call(automaton: str | Any, kind: Literal["dot", "svg"]) -> Call[str]:
    """GET /automata/{hash}.dot or .svg."""
    return Call(Request("GET", f"/automata/{hash_of(automaton)}.{kind}"), lambda reply: reply.body.decode())


def models_call() -> Call[tuple[ModelCard, ...]]:
    """GET /v1/models."""

    def cards(reply: Reply) -> tuple[ModelCard, ...]:
        listed = read(dict[str, Any], reply.json())
        return read(tuple[ModelCard, ...], listed.get("data"))

    return Call(Request("GET", "/v1/models"), cards)


def version_call() -> Call[str]:
    """GET /version."""
    return Call(Request("GET", "/version"), lambda reply: str(read(dict[str, Any], reply.json()).get("version", "")))


def ready_call() -> Call[Readiness]:
    """GET /ready."""
    return Call(Request("GET", "/ready"), lambda reply: Readiness(True))


def job_call(job_id: str) -> Call[JobState]:
    """GET /jobs/{id}."""
    return Call(Request("GET", f"/jobs/{_job(job_id)}"), lambda reply: read(JobState, reply.json()))


def cancel_call(job_id: str) -> Call[JobState]:
    """DELETE /jobs/{id}."""
    return Call(Request("DELETE", f"/jobs/{_job(job_id)}"), lambda reply: read(JobState, reply.json()))


def submitted(call: Call[Any]) -> Call[JobState]:
    """The same request, answered at once by where its job is."""
    headers = {"idempotency-key": str(uuid.uuid4()), **call.request.headers, "prefer": "respond-async"}
    return Call(replace(call.request, headers=headers), lambda reply: read(JobState, reply.json()))


def result_of_job(data: dict[str, Any]) -> Any:
    """The result of a job, of whichever kind it was."""
    kinds: tuple[tuple[str, type[Result]], ...] = (("choices", GenerateResult), ("token_states", CompileResult))
    return read(next((kind for name, kind in kinds if name in data), DecodeResult), data)


def events_request(job_id: str, last_id: str) -> Request:
    """GET /jobs/{id}/events, from behind the event of this id."""
    return Request("GET", f"/jobs/{_job(job_id)}/events", headers={"last-event-id": last_id} if last_id else {})


def hash_of(automaton: str | Any) -> str:
    """The hash itself, or that of a result."""
    found = str(getattr(automaton, "automaton", automaton))
    if not _HASH.fullmatch(found):
        raise UnknownAutomaton("a hash is 64 hexadecimal digits, as compile answers it")
    return found


def _job(job_id: str) -> str:
    if not _JOB.fullmatch(job_id):
        raise UnknownJob("the id of a job is 32 hexadecimal digits")
    return job_id


def _constraint(given: ConstraintLike | CompileResult | None) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Result):
        return {"automaton": given.automaton}
    return {"constraint": constraint_of(given).as_dict()}


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _keyed(
    path: str, body: dict[str, Any], kind: type[R], key: str | None, timeout_s: float | None
) -> Call[R]:
    headers = {"idempotency-key": str(uuid.uuid4()) if key is None else header_value("idempotency_key", key)}
    read_s = None if timeout_s is None else timeout_s + DEADLINE_SLACK_S
    return Call(Request("POST", path, body, headers, read_s), _reading(kind), own_key=key is None)


def header_value(name: str, value: str) -> str:
    """What is sent as a header. Raises InvalidRequest, which does not repeat it, for what no header can hold."""
    if not _VISIBLE.fullmatch(value):
        raise InvalidRequest(f"{name} must be visible ASCII characters")
    return value


def _reading(kind: type[T]) -> Callable[[Reply], T]:
    return lambda reply: read(kind, reply.json())


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The header Retry-After, in seconds or as a date."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, at.timestamp() - time.time())
