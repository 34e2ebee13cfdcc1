"""The parts of a request besides its body. These are the services, the caller, `Idempotency-Key` and `Prefer`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

from fastapi import Depends, Header, Request
from pydantic import BaseModel

from app.auth import KeyPolicy
from app.errors import ClientGone, InvalidRequest, NotReady
from app.service import ServedModels, Service, SubmissionContext
from compiler.exact_json import dump_json

if TYPE_CHECKING:
    from app.api.operations import StorageProbe

T = TypeVar("T")
_VISIBLE = re.compile(r"[!-~]{1,255}")
RESPOND_ASYNC = "respond-async"
IdempotencyKey = Annotated[
    str | None,
    Header(
        description="1 to 255 visible ASCII characters. The same key leads to the same job and to its stored answer; "
        "with another request it is refused"
    ),
]
Prefer = Annotated[str | None, Header(description="`respond-async`: answer at once, by 202 and the job's Location")]


@dataclass(frozen=True, slots=True)
class ContextFactory:
    """Makes the context of a submission from the body of its request. Raises InvalidRequest."""

    request: Request
    idempotency_key: str | None = None
    prefer: str | None = None

    def __call__(self, body: BaseModel) -> SubmissionContext:
        request, key = self.request, self.idempotency_key
        if key is not None and not _VISIBLE.fullmatch(key):
            raise InvalidRequest((("Idempotency-Key", "must be 1 to 255 visible ASCII characters"),))
        # The parsed body is hashed, not its bytes: a retry may format the same JSON differently.
        # The policy of the API key is part of the request: another one leads to another answer.
        digest = ""
        if key is not None:
            content = f"{dump_json(body.model_dump())}{key_policy_of(request) or ''}"
            digest = hashlib.sha256(content.encode()).hexdigest()
        # RFC 7240: preferences are separated by commas, parameters by semicolons.
        respond_async = self.prefer is not None and RESPOND_ASYNC in {
            part.partition(";")[0].strip().lower() for part in self.prefer.split(",")
        }
        charges = getattr(request.state, "charges", None)
        return SubmissionContext(owner_of(request), request.url.path, key, digest, respond_async, charges)


def owner_of(request: Request) -> str:
    """The name of the caller's API key. It owns the jobs that the caller may see, and is empty without keys."""
    return str(getattr(request.state, "owner", ""))


def key_policy_of(request: Request) -> KeyPolicy | None:
    """The policy of the caller's API key. None if it has none."""
    policy = getattr(request.state, "policy", None)
    assert policy is None or isinstance(policy, KeyPolicy)
    return policy


def require_no_key_policy(request: Request, instead: str) -> None:
    """Raise InvalidRequest for a prompt under an API key with a policy. A prompt has no events to judge."""
    if key_policy_of(request) is not None:
        message = f"the policy of the API key speaks of conversations, and a prompt is none: {instead}"
        raise InvalidRequest((("prompt", message),))


@dataclass
class Components:
    """The open services and probe. Both are None before the application starts and after it stops."""

    models: ServedModels | None = None
    probe: StorageProbe | None = None


def components_of(app: Any) -> Components:
    """The components of an application that `create_app` has made."""
    return cast(Components, app.state.components)


async def _models(request: Request) -> ServedModels:
    models = components_of(request.app).models
    if models is None:
        raise NotReady(("the service is starting",))
    return models


async def _service(request: Request) -> Service:
    return (await _models(request)).default


async def _components(request: Request) -> Components:
    return components_of(request.app)


# Not the class itself: FastAPI calls a class in a thread, which takes as long as the rest of a small request.
async def _context_factory(
    request: Request, idempotency_key: IdempotencyKey = None, prefer: Prefer = None
) -> ContextFactory:
    return ContextFactory(request, idempotency_key, prefer)


ModelsDependency = Annotated[ServedModels, Depends(_models)]
"""The services of all models. Requests before the start of the application get NotReady."""
ServiceDependency = Annotated[Service, Depends(_service)]
"""The service of the default model, for requests in which no model takes part."""
ContextDependency = Annotated[ContextFactory, Depends(_context_factory)]
ComponentsDependency = Annotated[Components, Depends(_components)]


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. When the client closes the connection, `work` is cancelled. Raises ClientGone then."""
    # Starlette reports a closed connection only to those who wait for the next message.
    task = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({task, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():  # if both are done, the result wins
            raise ClientGone("the client closed the connection")
        return task.result()
    finally:
        # Awaited after the cancellation, so that shares are given back before the request ends.
        for pending in (task, disconnect):
            if not pending.done():
                pending.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await pending


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
