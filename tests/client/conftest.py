"""Fixtures of the client tests."""

from __future__ import annotations

import pytest

from tests.servers.service_process import ServiceProcess


@pytest.fixture
def waits() -> list[float]:
    """The waits between attempts, which `ask` records here."""
    return []


@pytest.fixture(scope="session")
def url(running_service: ServiceProcess) -> str:
    return running_service.url
