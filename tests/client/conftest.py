"""The service of the client's tests: a separate process with the built-in model."""

from __future__ import annotations

import pytest

from tests.servers.service_process import ServiceProcess


@pytest.fixture
def waits() -> list[float]:
    """The waits of a client between its tries, which `ask` records here."""
    return []


@pytest.fixture(scope="session")
def url(running_service: ServiceProcess) -> str:
    return running_service.url
