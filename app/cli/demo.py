"""Runs the demo. It starts the service on a free port and answers three questions by requests over HTTP."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import IO

from rich.console import Console

from abs_client import Client, ConnectionFailedError, Readiness
from app.cli.demo_questions import REQUEST_S_MAX, compare_with_and_without, hold_an_agent, refuse_the_impossible
from app.cli.in_process import ONCE
from app.environment import environment_with
from app.settings import BUILT_IN, PREFIX

LISTENING = "listening on "  # precedes the URL in the output of `abs serve` and `abs up`
START_S_MAX = 600.0  # on a busy machine; a service that ends is not waited for
QUESTIONS = (
    ("the same model, prompt and budget, without and with a constraint", compare_with_and_without),
    ("what no text can satisfy is refused before the first token", refuse_the_impossible),
    ("an agent keeps its policy, whatever it is asked", hold_an_agent),
)


class ServerFailed(Exception):
    """The service did not start, or it stopped. The message ends with its log."""


def run_demo(console: Console) -> None:
    """Runs the demo. Raises ServerFailed, or AbsError if a request fails."""
    began = time.perf_counter()
    with contextlib.ExitStack() as stack:
        with console.status("loading the built-in models"):
            url = stack.enter_context(_server())
            client = stack.enter_context(Client(url, "", timeout_s=REQUEST_S_MAX, retry=ONCE))
        console.print(f"[dim]the service is ready at {url} after {time.perf_counter() - began:.1f} s[/]")
        for number, (title, answer) in enumerate(QUESTIONS, 1):
            started = time.perf_counter()
            console.rule(f"{number} of {len(QUESTIONS)}: {title}", align="left")
            for line in answer(client, url):
                console.print(line)
            console.print(f"[dim]{time.perf_counter() - started:.1f} s[/]")
    console.print(f"[dim]stopped; the demo took {time.perf_counter() - began:.1f} s[/]")


@contextlib.contextmanager
def _server() -> Iterator[str]:
    """The URL of a ready service. The service is stopped at the end."""
    options = ["--host", "127.0.0.1", "--port", "0", "--model", ",".join(BUILT_IN), "--log-level", "warning"]
    # A process of its own, so that the demo takes the same path as a deployed service.
    command = [sys.executable, "-m", "app.main", "serve", *options]
    environment = environment_with({}, without=(f"{PREFIX}KEYS_FILE",))  # the demo's requests carry no key
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            yield _ready_url(process, log)  # the port is free, so only the process itself knows it
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _ready_url(process: subprocess.Popen[str], log: IO[bytes]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()  # empty if the process ends before it listens
    if LISTENING not in line:
        raise ServerFailed(f"the service did not start: {_log_tail(process, log)}")
    # It listens before its workers are ready, so that the port is bound at once.
    url, ends = line.partition(LISTENING)[2].strip(), time.monotonic() + START_S_MAX
    readiness = Readiness(False)
    with Client(url, "") as client, contextlib.suppress(ConnectionFailedError):
        while time.monotonic() < ends and process.poll() is None:
            readiness = client.ready()
            if readiness:
                return url
            time.sleep(0.05)
    raise ServerFailed(f"the service is not ready: {'; '.join(readiness.reasons)}\n{_log_tail(process, log)}")


def _log_tail(process: subprocess.Popen[str], log: IO[bytes]) -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)  # an ending process still writes
    log.seek(0)
    return log.read().decode(errors="replace")[-2_000:].strip()
