"""A short run of the attacks on a real process. `python -m tests.long.abuse` is the long form."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.long.abuse import attack_all, attacked_proxy, attacked_service, schemathesis
from tests.servers.forkserver import run_process
from tests.servers.nginx import require_nginx
from tests.servers.processes import START_S_MAX
from tests.servers.service_process import ServiceProcess


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[ServiceProcess, str]]:
    with attacked_service() as attacked:
        yield attacked


@pytest.mark.long  # the test below asks the same through the proxy
def test_attacks_delay_no_honest_request_and_leak_no_resource(service: tuple[ServiceProcess, str]) -> None:
    attack_all(*service, size=1)


def test_behind_the_proxy_every_attacker_is_let_go(service: tuple[ServiceProcess, str]) -> None:
    require_nginx()
    with attacked_proxy(service[0]) as port:
        attack_all(*service, size=1, proxy=port)


def test_the_service_conforms_to_its_openapi_document(service: tuple[ServiceProcess, str], tmp_path: Path) -> None:
    output = schemathesis(*service, tmp_path, "--max-examples", "2", "--phases", "fuzzing")
    assert "No issues found" in output or "passed" in output
    assert service[0].log.count("route=/generate status=20"), "some requests were more than refused"


def test_the_command_line_sends_its_key(service: tuple[ServiceProcess, str]) -> None:
    running, key = service
    command = ["app.main", "compile", "--regex", "a+", "--json", "--url", running.url]
    for given, status, word in ((key, 0, "automaton"), ("", 2, "unauthorized")):
        done = run_process(command, os.environ | {"ABS_API_KEY": given}, START_S_MAX)
        assert (done.returncode, word in done.stdout) == (status, True), done
