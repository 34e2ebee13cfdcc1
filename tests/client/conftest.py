"""The service as the tests of this folder ask it: a process of its own, with the built-in model."""

from __future__ import annotations

import pytest

from tests.servers.service_process import ServiceProcess


@pytest.fixture(scope="session")
def url(running_service: ServiceProcess) -> str:
    return running_service.url
