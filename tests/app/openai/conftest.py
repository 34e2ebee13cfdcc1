from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.app.openai.client_requests import S_MAX
from tests.servers.service_process import serving
from tests.servers.small_model import small_model


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The paths of OpenAI at a running service with the small model."""
    with serving(tmp_path_factory.mktemp("service"), model=small_model(), log_level="warning") as process:
        process.wait_until_ready()
        yield f"{process.url}/v1"


@pytest.fixture(scope="module")
def ai(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=S_MAX) as client:
        yield client
