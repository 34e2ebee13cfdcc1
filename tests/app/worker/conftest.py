"""Fixtures for jobs: settings, and a context that records calls."""

from __future__ import annotations

import pytest

from app.settings import Settings
from tests.app.worker.fake_context import FakeContext


@pytest.fixture
def settings() -> Settings:
    return Settings()


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()
