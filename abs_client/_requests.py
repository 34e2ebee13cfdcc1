"""Each request of the API, and how its response is read."""

from __future__ import annotations

import email.utils
import math
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, Literal, TypedDict, TypeVar

import httpx2

from abs_client._json import dump, read
from abs_client.constraints import ConstraintLike, constraint_of
from abs_client.errors import (
    AbsError,
    InvalidRequestError,
    InvalidResponseError,
    UnknownAutomatonError,
    UnknownJobError,
    error_of,
)
from abs_client.policies import Policy, PolicyResult
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
Prompt = str | Sequence[Mapping[str, Any]]
"""A text to continue, or the messages of a conversation as in the chat API."""
DEADLINE_SLACK_S = 30.0  # the service enforces `timeout_s`; a connection silent for this much longer counts as dead
CANCEL_READ_S = 2.0
_HASH, _JOB, _VISIBLE = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{32}"), re.compile("[!-~]+")


class GenerateOptions(TypedDict, total=False):
    """Options of `generate`, `stream` and `submit`.

    The service sets the default of an option that is absent or None, and rejects one that the algorithm does not use.
    docs/requests.md lists the defaults.
    """

    max_tokens: int | None  # the budget, in tokens; the token that ends the text counts
    n: int | None  # number of texts; a search returns distinct ones, and maybe fewer
    algorithm: Literal["banked", "abs", "sample"] | None  # two beam searches, and sampling
    scope: Literal["answer", "full"] | None  # what satisfies the constraint: the answer, or prompt and answer together
    beams: int | None  # width of a search
    length_penalty: float | None  # banked: the ranking divides the log-prob by the length to this power
    alpha_min: float | None  # abs: the least push towards acceptance, 0 to 1
    gamma: float | None  # abs: how sharply the push grows as the budget runs out
    rank_by: Literal["log_prob", "score"] | None  # abs: rank by the model's log-prob, or with the push included
    temperature: float | None  # sample: 0 takes the most probable token
    top_p: float | None  # sample: probability mass of the nucleus
    top_k: int | None  # sample: at most this many tokens
    min_p: float | None  # sample: the least probability, as a share of the best one
    frequency_penalty: float | None  # taken off for each time that a token occurred
    presence_penalty: float | None  # taken off once for a token that occurred
    repetition_penalty: float | None  # the factor of the log-prob of tokens that occurred
    logit_bias: dict[int, float] | None  # nats by token id
    seed: int | None  # sample: the result names the seed that was used
    stop: str | Sequence[str] | None  # strings that no text contains; where the constraint permits, one may end it
    trace: bool | None  # return the tokens of each text
    top_log_probs: int | None  # with trace: alternatives to list in the place of each token
    rejected_top_k: int | None  # stream: how many of the most probable tokens to compare with the constraint
    timeout_s: float | None  # seconds from arrival after which the request fails with DeadlineExceededError
    priority: Literal["interactive", "batch"] | None  # all interactive requests precede all batch requests
    model: str | None  # UnknownModelError unless this model is served
    automaton: str | None  # the hash of a compiled constraint, instead of a constraint
    tools: Sequence[Mapping[str, Any]] | None  # with messages: the tools that may be called, as in the chat API
    tool_choice: str | Mapping[str, Any] | None  # with tools: "auto", "required", "none", one function, allowed_tools
    parallel_tool_calls: bool | None  # with tools: whether an answer may have several calls
    policy: Policy | None  # with tools: rules over the order of calls, results and replies
    idempotency_key: str | None  # equal keys of equal requests share one job


class DecodeOptions(TypedDict, total=False):
    """Options of `decode` and `submit_decode`. The service sets the default of an option that is absent or None."""

    beams: int | Literal["exact"] | None  # "exact" finds the most probable sequence; a number searches with beams
    scorer: str | None  # in place of log_probs: a scorer of the service, whose labels are the constraint's
    prefix: Sequence[str] | None  # scorer: labels that stand already, and count for the constraint
    max_tokens: int | None  # scorer: the most labels, the end counted as one
    length_penalty: float | None  # scorer: the ranking divides the log-prob by the length to this power
    alpha_min: float | None  # with beams: the least push towards acceptance, 0 to 1
    gamma: float | None  # with beams: how sharply the push grows
    timeout_s: float | None  # seconds from arrival after which the request fails with DeadlineExceededError
    priority: Literal["interactive", "batch"] | None  # all interactive requests precede all batch requests
    idempotency_key: str | None  # equal keys of equal requests share one job


@dataclass(frozen=True)
class HttpRequest:
    """A request. `read_s` limits the seconds without data; None takes the client's limit."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    read_s: float | None = None

    @cached_property
    def content(self) -> bytes | None:
        """The body as JSON bytes. Raises InvalidRequestError for what JSON cannot hold."""
        if self.body is None:
            return None
        try:
            return dump(self.body).encode()
        except UnicodeEncodeError:
            raise InvalidRequestError("a text holds half of a surrogate pair, which is no character") from None
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequestError(f"the request cannot be written as JSON: {error}") from None


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request and the function that reads its response.

    own_key  the client generated the Idempotency-Key, so no other caller waits for the job
    """

    request: HttpRequest
    read: Callable[[httpx2.Response], T]
    own_key: bool = False


def generate(
    prompt: Prompt, constraint: ConstraintLike | CompileResult | None, options: GenerateOptions
) -> Call[GenerateResult]:
    """POST /generate."""
    subject = {"prompt": prompt} if isinstance(prompt, str) else {"messages": list(prompt)}
    fields = _present(options)
    if "policy" in fields:
        fields["policy"] = fields["policy"].as_dict()
    return _post("/generate", {**subject, **_constraint_fields(constraint)}, fields, GenerateResult)


def compile(
    constraint: ConstraintLike, explain: bool, model: str | None, idempotency_key: str | None
) -> Call[CompileResult]:
    """POST /compile."""
    body = {**_constraint_fields(constraint), **({} if explain else {"explain": False}), **_present({"model": model})}
    headers = {} if idempotency_key is None else {"idempotency-key": header_value("idempotency_key", idempotency_key)}
    return Call(HttpRequest("POST", "/compile", body, headers), _reader(CompileResult))


def check(constraint: ConstraintLike, text: str | Sequence[str], conjuncts: bool) -> Call[CheckResult]:
    """POST /check. Raises TypeError for a text of another type."""
    if not isinstance(text, Sequence):
        raise TypeError(f"text is a str or a sequence of labels, not {type(text).__name__}")
    subject = {"text": text} if isinstance(text, str) else {"labels": list(text)}
    body = {**_constraint_fields(constraint), **subject, **({"conjuncts": True} if conjuncts else {})}
    return Call(HttpRequest("POST", "/check", body), _reader(CheckResult))


def apply_policy(
    policy: Policy, tools: Sequence[Mapping[str, Any]] | None, messages: Sequence[Mapping[str, Any]] | None
) -> Call[PolicyResult]:
    """POST /check for the messages of a conversation; without messages POST /compile."""
    body: dict[str, Any] = {"policy": policy.as_dict()}
    if tools is not None:
        body["tools"] = list(tools)
    if messages is None:
        return Call(HttpRequest("POST", "/compile", body), _reader(PolicyResult))
    return Call(HttpRequest("POST", "/check", body | {"messages": list(messages)}), _reader(PolicyResult))


def decode(
    log_probs: Any, constraint: ConstraintLike, labels: Sequence[str] | None, options: DecodeOptions
) -> Call[DecodeResult]:
    """POST /decode."""
    body: dict[str, Any] = {}
    if log_probs is not None:
        rows = log_probs.tolist() if hasattr(log_probs, "tolist") else log_probs
        # JSON has no infinity: null stands for -inf
        body["log_probs"] = [
            [None if value is None or value == -math.inf else float(value) for value in row] for row in rows
        ]
    if labels is not None:
        body["labels"] = list(labels)
    return _post("/decode", body | _constraint_fields(constraint), options, DecodeResult)


def automaton(hash_or_result: str | Result) -> Call[Automaton]:
    """GET /automata/{hash}."""
    return Call(HttpRequest("GET", f"/automata/{hash_of(hash_or_result)}"), _reader(Automaton))


def automaton_text(hash_or_result: str | Result, kind: str) -> Call[str]:
    """GET /automata/{hash}.dot or .svg."""
    request = HttpRequest("GET", f"/automata/{hash_of(hash_or_result)}.{kind}")
    return Call(request, lambda response: response.text)


def models() -> Call[tuple[ModelCard, ...]]:
    """GET /v1/models."""
    return Call(
        HttpRequest("GET", "/v1/models"),
        lambda response: read(tuple[ModelCard, ...], read(dict[str, Any], json_of(response)).get("data")),
    )


def version() -> Call[str]:
    """GET /version."""
    return Call(
        HttpRequest("GET", "/version"),
        lambda response: str(read(dict[str, Any], json_of(response)).get("version", "")),
    )


def readiness() -> Call[Readiness]:
    """GET /ready. A service that is not ready answers with an error."""
    return Call(HttpRequest("GET", "/ready"), lambda response: Readiness(True))


def as_stream(call: Call[GenerateResult]) -> Call[GenerateResult]:
    """The same request, answered by a stream of events.

    It carries no generated key: the service cancels a job without a key when its reader disconnects.
    """
    headers = {} if call.own_key else call.request.headers
    body = {**(call.request.body or {}), "stream": True}
    return replace(call, request=replace(call.request, body=body, headers=headers), own_key=False)


def as_job(call: Call[Any]) -> Call[JobState]:
    """The same request, answered at once by the state of its job."""
    headers = {"idempotency-key": str(uuid.uuid4()), **call.request.headers, "prefer": "respond-async"}
    return Call(replace(call.request, headers=headers), _reader(JobState))


def job_state(job_id: str) -> Call[JobState]:
    """GET /jobs/{id}."""
    return Call(HttpRequest("GET", f"/jobs/{_checked_job_id(job_id)}"), _reader(JobState))


def cancellation(job_id: str) -> Call[JobState]:
    """DELETE /jobs/{id}."""
    return Call(HttpRequest("DELETE", f"/jobs/{_checked_job_id(job_id)}"), _reader(JobState))


def in_short(call: Call[T]) -> Call[T]:
    """The same request with a short limit, for an interrupted caller."""
    return replace(call, request=replace(call.request, read_s=CANCEL_READ_S))


def job_events(job_id: str, last_id: str = "") -> HttpRequest:
    """GET /jobs/{id}/events, from the event after `last_id`."""
    headers = {"last-event-id": last_id} if last_id else {}
    return HttpRequest("GET", f"/jobs/{_checked_job_id(job_id)}/events", headers=headers)


def job_result(data: dict[str, Any]) -> Any:
    """The typed result of a job, whose kind shows in its fields."""
    kinds: tuple[tuple[str, type[Result]], ...] = (("choices", GenerateResult), ("token_states", CompileResult))
    return read(next((kind for name, kind in kinds if name in data), DecodeResult), data)


def json_of(response: httpx2.Response) -> Any:
    """The body as JSON. Raises InvalidResponseError if it is not JSON."""
    try:
        return response.json()
    except ValueError:
        status = response.status_code
        raise InvalidResponseError(f"not JSON (status {status})", status=status) from None


def error_in(response: httpx2.Response, request_body: Mapping[str, Any] | None) -> AbsError:
    """The error that a response describes. `request_body` is the source of carets in messages."""
    try:
        problem = json_of(response)
    except InvalidResponseError:  # a proxy answers with HTML
        problem = {}
    problem = problem if isinstance(problem, Mapping) else {}
    return error_of(response.status_code, problem, sent=request_body, retry_after_s=_retry_after_s(response.headers))


def hash_of(hash_or_result: str | Result) -> str:
    """The hash itself, or that of a result. Raises UnknownAutomatonError for a string that is no hash."""
    name = str(getattr(hash_or_result, "automaton", hash_or_result))
    if not _HASH.fullmatch(name):  # it becomes a part of the path
        raise UnknownAutomatonError("the hash of an automaton has 64 hexadecimal digits")
    return name


def header_value(name: str, value: str) -> str:
    """The value of a header. Raises InvalidRequestError, which does not quote it, unless it is visible ASCII."""
    if not _VISIBLE.fullmatch(value):
        raise InvalidRequestError(f"{name} must be visible ASCII characters")
    return value


def _checked_job_id(job_id: str) -> str:
    if not _JOB.fullmatch(job_id):  # it becomes a part of the path
        raise UnknownJobError("the id of a job has 32 hexadecimal digits")
    return job_id


def _constraint_fields(constraint: ConstraintLike | CompileResult | None) -> dict[str, Any]:
    if constraint is None:
        return {}
    if isinstance(constraint, Result):
        return {"automaton": constraint.automaton}
    return {"constraint": constraint_of(constraint).as_dict()}


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _post(path: str, body: dict[str, Any], options: Mapping[str, Any], kind: type[R]) -> Call[R]:
    """A POST request with an idempotency key. A retry with that key does not repeat work."""
    fields = _present(options)
    key = fields.pop("idempotency_key", None)
    headers = {"idempotency-key": str(uuid.uuid4()) if key is None else header_value("idempotency_key", key)}
    read_s = fields["timeout_s"] + DEADLINE_SLACK_S if "timeout_s" in fields else None
    return Call(HttpRequest("POST", path, body | fields, headers, read_s), _reader(kind), own_key=key is None)


def _reader(kind: type[T]) -> Callable[[httpx2.Response], T]:
    return lambda response: read(kind, json_of(response))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """The header Retry-After in seconds. Its value may be a number or a date."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, at.timestamp() - time.time())
