from __future__ import annotations

from collections.abc import Iterator

import pytest
from openai import OpenAI

from tests.app.openai.client_requests import S_MAX
from tests.servers.service_process import ServiceProcess


@pytest.fixture(scope="module")
def url(running_service: ServiceProcess) -> str:
    return f"{running_service.url}/v1"


@pytest.fixture(scope="module")
def ai(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=url, api_key="none", max_retries=0, timeout=S_MAX) as client:
        yield client
