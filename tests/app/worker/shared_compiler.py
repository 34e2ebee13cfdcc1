"""One compile handler for tests of the code around it. To start a sandbox takes a second of processor time."""

from __future__ import annotations

import dataclasses
import functools

import app.worker.handlers.compile as compile_handler
from app.settings import Settings
from app.worker.handlers.base import Handler

SECRET = b"s" * 32


@functools.cache
def _handler() -> Handler:
    return compile_handler.open_handler(Settings.of(secret=SECRET))


def open_shared_compiler(settings: Settings) -> Handler:
    """The handler of this process, which no test closes."""
    assert settings.auth.secret == SECRET
    return dataclasses.replace(_handler(), close=lambda: None)
