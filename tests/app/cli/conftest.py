"""Commands that run in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from app.cli.main import run
from app.main import create_app
from tests.servers.service_process import ServiceProcess

Command = Callable[..., tuple[int, str, str]]


def exit_status(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command in this process and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["abs", *arguments])
    try:
        return run(create_app)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0


@pytest.fixture
def command(
    running_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs a command with the running service. Returns its exit status, output and errors."""

    def run_command(*arguments: str) -> tuple[int, str, str]:
        return exit_status(monkeypatch, *arguments, "--url", running_service.url), *capsys.readouterr()

    return run_command
