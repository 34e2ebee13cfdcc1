"""The headers by which a caller makes a job his own: `Idempotency-Key` and `Prefer`, and his name."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

from fastapi import Header, Request
from pydantic import BaseModel

from app.errors import InvalidRequest
from app.service import SubmissionContext

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


def read_asking(request: Request, body: BaseModel, key: str | None, prefer: str | None) -> SubmissionContext:
    """How the request wants to be handled. Raises InvalidRequest."""
    if key is not None and not _VISIBLE.fullmatch(key):
        raise InvalidRequest((("Idempotency-Key", "must be 1 to 255 visible ASCII characters"),))
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest() if key is not None else ""
    preferences = {part.partition(";")[0].strip().lower() for part in (prefer or "").split(",")}
    return SubmissionContext(owner_of(request), request.url.path, key, digest, RESPOND_ASYNC in preferences)


def owner_of(request: Request) -> str:
    """Whose jobs the caller may see: the name of his key, empty where no keys are set."""
    return str(getattr(request.state, "owner", ""))
