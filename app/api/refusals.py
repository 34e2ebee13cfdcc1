"""Whatever went wrong, as the answer that leaves: the framework's errors and bugs in our words, the rest in the log."""

from __future__ import annotations

import itertools
import logging
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.api.errors import FAULTS_MAX, Problem, problem, shown_path
from app.errors import InternalError, InvalidRequest, JobFailed, ModelChanged, NotReady, RouteNotFound, without_message
from app.messages import DRAINING, LOADING, STUCK, is_expected_error

log = logging.getLogger(__name__)


def refusal(error: Exception, request_id: str) -> Problem:
    """The answer to an error. Details that the caller must not see are logged."""
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    own = _own_error(error)
    if isinstance(own, InternalError):
        log.error("request %s failed: %s", request_id, without_message(error))
    elif isinstance(own, JobFailed) and own.facts.private:
        log.error("request %s failed: %s: %s", request_id, own.error, own)
    return problem(own, request_id, headers)


def _own_error(error: Exception) -> Exception:
    """The framework's errors, and bugs, as errors of ours. Nothing of the input goes along but paths."""
    match error:
        case RequestValidationError():
            faults = itertools.islice(error.errors(), FAULTS_MAX)
            return InvalidRequest(tuple((_path(fault["loc"]), _message(fault)) for fault in faults))
        case HTTPException(status_code=404):
            return RouteNotFound("there is no such path")
        case NotReady():  # what a worker says is for the operator
            return NotReady(tuple(_public(reason) for reason in error.reasons))
        case _:
            return error if is_expected_error(error) else InternalError("an internal error")


def _path(location: tuple[Any, ...]) -> str:
    """`("body", "beams")` as "beams"."""
    return shown_path(".".join(str(part) for part in location[1:]) or str(location[0]))


def _message(fault: dict[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return "unknown field"
    message = str(fault["msg"]).removeprefix("Value error, ")
    return message[0].lower() + message[1:]


def _public(reason: str) -> str:
    """Why the service is not ready, without a worker's own words, which may name the operator's files."""
    worker, colon, words = reason.partition(": ")
    told = not colon or words in (LOADING, DRAINING) or words.startswith((STUCK, ModelChanged.CHANGED))
    return reason if told else f"{worker}: the model cannot be loaded; see the log"
