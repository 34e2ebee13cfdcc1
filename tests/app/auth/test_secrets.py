"""Logs, errors and reprs contain no secrets and no caller text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.auth import KeyRing
from app.main import create_app
from app.settings import Settings
from tests.app.access_keys import bearer, stored_key
from tests.servers.forkserver import run_process
from tests.servers.processes import START_S_MAX
from tests.servers.service_process import ServiceProcess, serving
from tests.servers.small_model import small_model

MARK = "MARKER"  # part of every text of a caller
PASSWORD, SIGNING, KEY = "PASSWORDS3CRET", "SIGNINGS3CRETSIGNING", "abs_0123456789ab_KEYS3CRET"
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/generate", {"prompt": MARK, "constraint": {"regex": f"{MARK}[a-z]+"}, "max_tokens": 16}),
    ("POST", "/generate", {"prompt": MARK, "constraint": {"keywords": [MARK]}, "max_tokens": 16, "stream": True}),
    ("POST", "/generate", {"prompt": MARK, "constraint": {"ltlf": f"{MARK} &"}}),
    ("POST", "/generate", {"prompt": MARK, "automaton": MARK}),
    ("POST", "/compile", {"constraint": {"regex": f"{MARK}("}}),
    ("POST", "/compile", {"constraint": {"ltlf": f"F({MARK}) & G(!{MARK})"}}),
    ("POST", "/compile", {"constraint": {"regex": MARK}, "model": MARK, f"{MARK} {MARK}": MARK}),
    ("POST", "/check", {"constraint": {"regex": "a+"}, "text": MARK}),
    ("POST", "/decode", {"constraint": {"ltlf": "F(a)", "labels": ["a", MARK]}, "log_probs": [[-1.0]]}),
    ("GET", f"/automata/{MARK}?{MARK}={MARK}", {}), ("GET", f"/jobs/{MARK}", {}), ("GET", f"/{MARK}/{MARK}", {}),
    (MARK, "/generate", {}), ("DELETE", f"/jobs/{MARK}/events", {}),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, ...]]:
    """A process with the most verbose log, and its key."""
    folder: Path = tmp_path_factory.mktemp("secrets")
    text = stored_key(folder / "keys", "anna", "generate", "compile", requests_per_minute=0)
    settings = {"keys_file": folder / "keys", "secret": SIGNING, "log_level": "debug", "log_format": "json"}
    with serving(folder, **settings, model=small_model(), api_key=KEY, OMP_NUM_THREADS=1) as process:
        process.wait_until_ready(text)
        yield process, text


def test_logs_and_errors_contain_no_secret_or_caller_text(service: tuple[ServiceProcess, str]) -> None:
    process, key = service
    wrong_key = key[:-8] + MARK + "00"
    successes = 0
    with httpx2.Client(base_url=process.url, timeout=START_S_MAX, verify=False) as http:
        for field, value in (
            ("authorization", f"Bearer {key}"), ("authorization", f"Bearer {wrong_key}"),
            ("authorization", f"Basic {MARK}"), ("authorization", ""), ("x-api-key", key), ("x-api-key", wrong_key),
        ):
            headers = {field: value, "x-request-id": "a b", "cookie": MARK, "user-agent": MARK}
            for method, path, body in REQUESTS:
                answer = http.request(method, path, json=body or None, headers=headers)
                successes += answer.is_success
                assert not any(secret in answer.text for secret in (key, wrong_key, SIGNING, KEY)), (path, answer.text)
                # constraint_unsatisfiable names the contradiction, so it may quote the caller.
                if answer.is_error and "constraint_unsatisfiable" not in answer.text:
                    assert MARK not in answer.text, (method, path, answer.text)
        truncated_body = f'{{"prompt": "{MARK}'.encode()
        assert http.post("/generate", content=truncated_body, headers=bearer(key)).status_code == 415
    assert successes >= 3, "some requests succeed"
    log = process.log
    assert "anna" in log and "request" in log, "the log names the owner of the key"
    for secret in (MARK, key, key.rpartition("_")[2], wrong_key, SIGNING, KEY):
        assert secret not in log, next(line for line in log.splitlines() if secret in line)
    assert all(json.loads(line) for line in log.splitlines())


@pytest.mark.parametrize(
    "settings",
    [
        {"ABS_BROKER": f"redis://user:{PASSWORD}@127.0.0.1:port/x"},
        {"ABS_SECRET": "S3CRET"},
        {"ABS_KEYS_FILE": "/nowhere/keys", "ABS_API_KEY": KEY},
        {"ABS_HOST": "0.0.0.0", "ABS_SECRET": SIGNING},
    ],
)
def test_an_invalid_secret_setting_is_not_printed(settings: dict[str, str]) -> None:
    environment = {**os.environ, "ABS_EMBEDDED_WORKERS": "", "ABS_SECRET": SIGNING, **settings}
    process = run_process(["app.main", "serve", "--port", "0"], environment, START_S_MAX)
    output = process.stdout + process.stderr
    assert process.returncode == 4 and process.stderr.startswith("abs: "), output
    assert not any(secret in output for secret in (PASSWORD, SIGNING, "S3CRET")), output


def test_an_unreachable_servers_password_is_not_shown(tmp_path: Path) -> None:
    url = f"redis://user:{PASSWORD}@127.0.0.1:1/0"
    settings = {"broker": url, "store": url, "secret": SIGNING, "redis_wait_s": 1, "log_level": "debug"}
    with serving(tmp_path, **settings, embedded_workers="", OMP_NUM_THREADS=1) as process:
        with httpx2.Client(base_url=process.url, timeout=START_S_MAX, verify=False) as http:
            assert http.get("/health").status_code == 200
            compilation = http.post("/compile", json={"constraint": {"regex": "a"}})
            answers = [http.get("/ready"), compilation, http.get("/metrics")]
        assert [answer.status_code for answer in answers] == [503, 503, 200]
    for text in (process.log, *(answer.text for answer in answers)):
        assert not any(secret in text for secret in (PASSWORD, SIGNING)), text


def test_settings_and_keys_hide_their_secrets(tmp_path: Path) -> None:
    text = stored_key(tmp_path / "keys", "anna", "generate")
    settings = Settings.of(secret=SIGNING.encode(), api_key=KEY, keys_file=str(tmp_path / "keys"), embedded_workers=())
    app = create_app(settings)
    key = KeyRing(tmp_path / "keys").find(text)
    for output in (repr(settings), repr(key), repr(app.state._state), json.dumps(app.openapi())):
        assert not any(secret in output for secret in (SIGNING, KEY, text, text.rpartition("_")[2]))
