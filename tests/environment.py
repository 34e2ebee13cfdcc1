"""Settings of an environment that a test gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from unittest import mock

from app.settings import Settings, read_settings


def settings_in(environment: Mapping[str, str]) -> Settings:
    """The settings that a process with this environment reads."""
    with mock.patch.dict(os.environ, environment, clear=True):
        return read_settings()
