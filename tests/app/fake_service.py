"""A service in this process, on a real socket, with a fake handler for generation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app import wiring
from app.settings import Settings
from tests.app import fake_handlers
from tests.app.test_processes import listening, wait_until_ready


@contextmanager
def fake_service(monkeypatch: pytest.MonkeyPatch, handler: str, **settings: Any) -> Iterator[str]:
    """Yields its URL. `handler` names a function of `fake_handlers`; waiting handlers may go on at the end."""
    monkeypatch.setitem(wiring.HANDLERS, "generate", f"tests.app.fake_handlers:{handler}")
    monkeypatch.setitem(wiring.HANDLERS, "compile", "tests.app.fake_handlers:open_compiling")
    fake_handlers.reset()
    with listening(Settings(**settings)) as port:
        wait_until_ready(port)
        yield f"http://127.0.0.1:{port}"
        fake_handlers.go_on.set()
