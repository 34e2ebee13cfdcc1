"""Runs every command of the pages that installs, starts or keeps running.

Each runs once, in a clone of this repository. What imports PyTorch runs only in the long form.

A service that keeps running gets one request and is then interrupted. The other blocks run in test_blocks.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator

import httpx2
import pytest

from app.cli.demo import QUESTIONS
from tests.docs.checkout import CLONE, OF_A_FOLDER, OF_THE_HUB, ROOT, Checkout, commands, started
from tests.servers.abs_up import short_folder
from tests.servers.cluster import FULL
from tests.servers.processes import until

COMMANDS = commands()
STAYS = re.compile(r"\b(make|abs) (serve|up)\b")
UP = re.compile(r"\b(make|abs) up\b")
ROLES = ["app.main serve", "app.main worker compile", "app.main worker generate"]  # what `up` runs, each a process
STAYING = [line for line in COMMANDS if STAYS.search(line)]
CONTAINERS = "docker compose up --build --wait"
BUILD_S_MAX = 3_600.0
NOT_RUN = {  # lines, and why they are not run where that is so
    CONTAINERS: "builds images for minutes, so only with ABS_TESTS_FULL=1, a Docker engine and port 8000 free; "
    "make compose-test runs the same file",
}
REQUEST = {"prompt": "sentence:", "constraint": {"keywords": ["dog"]}, "max_tokens": 12}


@pytest.fixture(scope="module")
def checkout() -> Iterator[Checkout]:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("there is nothing to clone: this is no git repository, or there is no git")
    with short_folder() as home:
        yield Checkout(home)


def demo(checkout: Checkout) -> None:
    output = checkout.run("make demo")
    for number, (title, _) in enumerate(QUESTIONS, 1):
        assert f"{number} of {len(QUESTIONS)}: {title}" in output, output
    assert output.count("✓") == 6 and output.count("✗") == 8, output
    assert "stopped" in output.splitlines()[-1]
    # A clone comes without bytecode: this was written when the command ran.
    assert list((checkout.path / "app" / "cli" / "__pycache__").glob("demo.*.pyc")), "it was not the clone's demo"


def doctor(checkout: Checkout) -> None:
    findings = json.loads(checkout.run(".venv/bin/abs doctor --json"))
    details = {finding["check"]: finding["detail"] for finding in findings}
    assert not [finding for finding in findings if finding["state"] == "failed"]
    assert "captions" in details["model"] and {"weights", "memory"} <= details.keys()


def make_secrets(checkout: Checkout) -> None:
    key = checkout.run("python3 deploy/make_secrets.py").strip()
    secrets = checkout.path / "deploy" / "secrets"
    assert key and {"signing", "users", "keyring"} <= {path.name for path in secrets.iterdir()}


def containers(checkout: Checkout) -> None:
    """Needs the secrets, which the line above it on its page makes."""
    if not FULL or not engine_there(checkout):
        pytest.skip(NOT_RUN[CONTAINERS])
    try:
        checkout.run(CONTAINERS, BUILD_S_MAX)
        assert httpx2.get("http://127.0.0.1:8000/health", timeout=30, trust_env=False).is_success
    finally:
        checkout.run("docker compose down --volumes")


def engine_there(checkout: Checkout) -> bool:
    """Whether containers can be started: the client alone does not say so."""
    command = checkout.typed("docker version && docker compose version")
    if subprocess.run(command, env=checkout.environment(), capture_output=True, timeout=60).returncode:
        return False
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", 8000)) != 0


STARTING: dict[str, Callable[[Checkout], None]] = {"make demo": demo, ".venv/bin/abs doctor --json": doctor}
ENDING: dict[str, Callable[[Checkout], None]] = {"python3 deploy/make_secrets.py": make_secrets, CONTAINERS: containers}


@pytest.mark.parametrize("line", [*(pytest.param(line, marks=pytest.mark.long) for line in STARTING), *ENDING])
def test_a_command_has_the_documented_effect(checkout: Checkout, line: str) -> None:
    (STARTING | ENDING)[line](checkout)


@pytest.mark.long
@pytest.mark.parametrize("line", STAYING)
def test_a_command_that_stays_running_answers_until_it_is_interrupted(checkout: Checkout, line: str) -> None:
    with started(checkout, line) as running:
        answer = httpx2.post(f"{running.url}/generate", json=REQUEST, timeout=60, trust_env=False).json()
        assert "dog" in answer["choices"][0]["text"], answer
        assert answer["model"] == model_of(line)
        assert f"listening on {running.url}" in running.log()
        lines = running.command_lines()
        apart = [role for role in ROLES if any(role in words for words in lines)]
        assert apart == (ROLES if UP.search(line) else []), lines
        # The signal reaches make too, which ends by it once the service has ended; alone the service ends well.
        assert running.interrupt() in (0, -signal.SIGINT), running.log()
        until(lambda: not running.processes(), f"nothing is left of {line}: {running.command_lines()}")


def model_of(line: str) -> str:
    """The API's name of the model that a line loads. It is a folder's last name, or the name on the hub."""
    variables = dict(word.split("=") for word in line.split() if "=" in word)
    return {OF_A_FOLDER: "my-model", OF_THE_HUB: OF_THE_HUB}.get(variables.get("ABS_MODEL", ""), "captions")


def test_every_command_of_the_pages_is_run_here() -> None:
    assert sorted(COMMANDS) == sorted([CLONE, *STARTING, *ENDING, *STAYING]), COMMANDS
    assert NOT_RUN.keys() <= COMMANDS.keys()
