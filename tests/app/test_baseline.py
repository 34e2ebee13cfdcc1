"""The service answers a sample of requests as recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from app.settings import BUILT_IN_MODEL
from tests.app.baseline import RECORDING, Call, answer, differences, read_recording, sample
from tests.app.conftest import service_client

TOLERANCE = 1e-3  # nats; log-probs differ between machines
RECORDED = read_recording(RECORDING)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A separate service for this module.

    Answers contain the proposition names of the first caller of a constraint.
    """
    with service_client(model=BUILT_IN_MODEL) as client:
        yield client


def test_the_recording_holds_the_sample() -> None:
    assert list(RECORDED) == [call.name for call in sample()]


@pytest.mark.parametrize("call", sample(), ids=lambda call: call.name)
def test_answers_are_those_that_were_recorded(client: TestClient, call: Call) -> None:
    assert list(differences(RECORDED[call.name], answer(client, call), TOLERANCE)) == []
