"""The code that both clients share: methods made from requests, and state."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from abs_client._flow import EventFollower
from abs_client._requests import HttpRequest, job_result
from abs_client._retry import Retry
from abs_client._transport import Endpoint
from abs_client.events import Done, Event

C = TypeVar("C")
R = TypeVar("R")
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def describe(
    method: Callable[..., Any], request: Callable[..., Any], result: str, name: str = "", doc: str = ""
) -> None:
    """Give a method the parameters and docstring of its request's function.

    `name` and `doc` replace that function's. `result` is the return annotation, in which {} stands for the type that
    the request returns.
    """
    signature = inspect.signature(request)  # its annotations are strings
    returned = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    parameters = [_SELF, *signature.parameters.values()]
    # Editors and help() show this signature in place of (*args, **kwargs).
    vars(method)["__signature__"] = signature.replace(
        parameters=parameters, return_annotation=result.format(returned)
    )
    method.__name__, method.__doc__ = name or request.__name__, doc or request.__doc__


class ClientBase:
    """The state of a client: the service's endpoint, and when to retry."""

    def __init__(self, base_url: str | None, api_key: str | None, timeout_s: float, retry: Retry | None) -> None:
        self._endpoint = Endpoint(base_url, api_key, timeout_s)
        self._retry = retry or Retry()

    def _result(self, data: dict[str, Any]) -> Any:
        return self._endpoint.with_picture(job_result(data))

    def _follow(self, request: HttpRequest, job_id: str | None = None) -> EventFollower[Any]:
        return EventFollower(request, job_id, self._retry, self._result)


class StreamBase(Generic[R]):
    """The state of a stream of events.

    result  that of the event Done; None before it
    """

    def __init__(self, follower: EventFollower[R]) -> None:
        self._follower = follower
        self.result: R | None = None

    @property
    def job_id(self) -> str | None:
        """The job's id, which the client's method `job` takes. None until the first response."""
        return self._follower.job_id

    def _observe(self, event: Event[R]) -> Event[R]:
        if isinstance(event, Done):
            self.result = event.result
        return event

    def _require_result(self) -> R:
        if self.result is None:
            raise RuntimeError("the stream was closed before its end")
        return self.result


class JobBase(Generic[C, R]):
    """A job of the service, bound to a client of class C."""

    def __init__(self, client: C, job_id: str) -> None:
        self._client, self.id = client, job_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"
