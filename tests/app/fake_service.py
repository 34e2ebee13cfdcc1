"""An in-process service on a real socket, with a fake generate handler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.settings import Settings
from tests.app import fake_handlers
from tests.app.real_server import listening


@contextmanager
def fake_service(monkeypatch: pytest.MonkeyPatch, handler: str, **settings: Any) -> Iterator[str]:
    """Yields the URL of the service.

    `handler` names a function of `fake_handlers`. Blocked handlers are released at the end.
    """
    fake_handlers.install(monkeypatch, generate=handler, compile="open_compiling")
    with listening(Settings.of(**settings)) as port:
        yield f"http://127.0.0.1:{port}"
        fake_handlers.go_on.set()
