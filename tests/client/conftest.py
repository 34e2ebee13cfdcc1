"""The service as the tests of this folder ask it: a process of its own, with the built-in model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.app.service_process import serving


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("service"), log_level="warning") as service:
        service.wait_until_ready()
        yield service.url
