"""Keys, passwords and what callers write: in no line of the log, no error and no repr, whatever happens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.auth import KeyRing
from app.main import create_app
from app.settings import Settings
from tests.app.access_keys import stored_key
from tests.servers.service_process import START_S_MAX, ServiceProcess, serving

MARK = "MARKER"  # stands in everything that a caller writes
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
    """A process that logs all it can, and its key."""
    folder: Path = tmp_path_factory.mktemp("secrets")
    text = stored_key(folder / "keys", "anna", "generate", "compile", requests_per_minute=0)
    settings = {"keys_file": folder / "keys", "secret": SIGNING, "log_level": "debug", "log_format": "json"}
    with serving(folder, **settings, api_key=KEY, OMP_NUM_THREADS=1) as running:
        running.wait_until_ready(text)
        yield running, text


def test_logs_and_errors_contain_no_secret_or_caller_text(
    service: tuple[ServiceProcess, str],
) -> None:
    running, key = service
    wrong = key[:-8] + MARK + "00"
    seen = 0
    with httpx2.Client(base_url=running.url, timeout=START_S_MAX) as http:
        for given in (f"Bearer {key}", f"Bearer {wrong}", f"Basic {MARK}", ""):
            headers = {"authorization": given, "x-request-id": "a b"} | dict.fromkeys(("cookie", "user-agent"), MARK)
            for method, path, body in REQUESTS:
                answer = http.request(method, path, json=body or None, headers=headers)
                seen += answer.is_success
                assert not any(secret in answer.text for secret in (key, wrong, SIGNING, KEY)), (path, answer.text)
                if answer.is_error and "constraint_unsatisfiable" not in answer.text:  # which names the contradiction
                    assert MARK not in answer.text, (method, path, answer.text)
        half = f'{{"prompt": "{MARK}'.encode()
        assert http.post("/generate", content=half, headers={"authorization": f"Bearer {key}"}).status_code == 415
    assert seen >= 3, "some are to succeed"
    log = running.log
    assert "anna" in log and "request" in log, "it does say who asked"
    for secret in (MARK, key, key.rpartition("_")[2], wrong, SIGNING, KEY):
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
def test_an_invalid_secret_setting_is_not_printed(
    settings: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "app.main", "serve", "--port", "0"]
    environment = {"PATH": "/usr/bin", "ABS_EMBEDDED_WORKERS": "", "ABS_SECRET": SIGNING, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment | settings, capture_output=True, text=True, timeout=START_S_MAX)
    said = done.stdout + done.stderr
    assert done.returncode == 4 and done.stderr.startswith("abs: "), said
    assert not any(secret in said for secret in (PASSWORD, SIGNING, "S3CRET")), said


def test_an_unreachable_servers_password_is_not_shown(tmp_path: Path) -> None:
    url = f"redis://user:{PASSWORD}@127.0.0.1:1/0"
    settings = {"broker": url, "store": url, "secret": SIGNING, "redis_wait_s": 1, "log_level": "debug"}
    with serving(tmp_path, **settings, embedded_workers="", OMP_NUM_THREADS=1) as running:
        with httpx2.Client(base_url=running.url, timeout=START_S_MAX) as http:
            assert http.get("/health").status_code == 200
            compiled = http.post("/compile", json={"constraint": {"regex": "a"}})
            answers = [http.get("/ready"), compiled, http.get("/metrics")]
        assert [answer.status_code for answer in answers] == [503, 503, 200]
    for said in (running.log, *(answer.text for answer in answers)):
        assert not any(secret in said for secret in (PASSWORD, SIGNING)), said


def test_settings_and_keys_hide_their_secrets(tmp_path: Path) -> None:
    text = stored_key(tmp_path / "keys", "anna", "generate")
    settings = Settings(secret=SIGNING.encode(), api_key=KEY, keys_file=str(tmp_path / "keys"), embedded_workers=())
    app = create_app(settings)
    found = KeyRing(tmp_path / "keys").find(text)
    for shown in (repr(settings), repr(found), repr(app.state._state), json.dumps(app.openapi())):
        assert not any(secret in shown for secret in (SIGNING, KEY, text, text.rpartition("_")[2]))
