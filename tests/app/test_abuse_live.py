"""A real process under attack, in short; `python -m tests.abuse` is the long form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.abuse import attack_all, attacked_service, schemathesis
from tests.app.service_process import ServiceProcess


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[ServiceProcess, str]]:
    with attacked_service() as attacked:
        yield attacked


def test_no_attack_holds_up_an_honest_request_or_leaves_anything_behind(service: tuple[ServiceProcess, str]) -> None:
    attack_all(*service, size=1)


def test_the_service_does_what_its_document_says(service: tuple[ServiceProcess, str], tmp_path: Path) -> None:
    said = schemathesis(*service, tmp_path, "--max-examples", "6", "--phases", "examples,fuzzing,stateful")
    assert "15 selected" in said or "Selected:" in said
    assert service[0].log.count("route=/generate status=200") + service[0].log.count("route=/generate status=202")
