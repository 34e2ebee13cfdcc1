"""Fixtures for jobs: settings, and a context that records calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.settings import Settings
from tests.app.worker.fake_context import FakeContext
from tests.app.worker.generators import shared_generators


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings()


@pytest.fixture(scope="module", autouse=True)
def closed_generators() -> Iterator[None]:
    """No generator is left for the next module."""
    yield
    shared_generators.close()


@pytest.fixture
def context() -> FakeContext:
    return FakeContext()
