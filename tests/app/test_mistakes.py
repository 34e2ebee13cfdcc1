"""Messages for mistakes say what is wrong, where and what to do."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.testclient import TestClient

import abs_client
from abs_client import AbsError, apply_suggestion
from app.cli.main import run
from app.errors import SettingsInvalid
from app.http_server import require_guarded
from app.main import create_app
from app.models import open_model_files
from app.settings import Settings, read_settings
from app.wiring import open_broker
from tests.app.access_keys import bearer, stored_key
from tests.servers.service_process import ServiceProcess
from tests.tables import table

MISTAKES: list[dict[str, Any]] = table("mistakes")["mistake"]
MISTAKES_MIN = 80
SUGGESTION_BYTES_MAX = 500
# Fields of errors that say where, and that say what to do.
PLACES = ("field", "path", "position", "errors", "limit", "param", "max_tokens", "scope", "construct", "served")
REMEDIES = ("suggestion", "expected", "min_tokens", "served", "conflict", "scope")
ADVICE = re.compile(
    r"did you mean|\b(?:write|send|give|leave|put|join|close|choose|spell|set|unset|rename|combine|run|start|check|try|"
    r"use|correct|raise|make)\b|must be|must not|\bis one of\b|at least|at most|not more than|exactly one|goes with"
    r"|requires|it takes|missing|such as|does not exist|Possible options|is written|stands? in|beside|without quotes"
    r"|greater than",
    re.IGNORECASE,
)
VALUE_CHARS_MAX = 4  # of a caller's value in a suggestion
WORDS_MIN = 4  # of a message that says what is wrong


@dataclass(frozen=True)
class Fault:
    """What a caller reads. `fields` are those of the service's error."""

    code: object
    message: str
    fields: dict[str, Any] = field(default_factory=dict)


def rating(fault: Fault, mistake: dict[str, Any]) -> dict[str, bool]:
    """Whether a message says what is wrong, where, and what to do."""
    message = " ".join(fault.message.split())
    what = len(message.split()) >= WORDS_MIN and all(
        word in fault.message or word in message for word in mistake["words"]
    )
    place = mistake.get("place") or mistake["words"][0]
    where = any(fault.fields.get(name) not in (None, "", []) for name in PLACES) or place in message
    how = any(fault.fields.get(name) not in (None, "", []) for name in REMEDIES) or bool(ADVICE.search(message))
    return {"what": what, "where": where, "how": how}


def require_all(fault: Fault, mistake: dict[str, Any]) -> None:
    assert fault.code == mistake.get("code", fault.code), fault
    assert rating(fault, mistake) == {"what": True, "where": True, "how": True}, fault


def mistakes(kind: str) -> list[Any]:
    """The mistakes of a kind. Requests have no field of their own."""
    kinds = ("cli", "client", "settings")
    chosen = [
        mistake for mistake in MISTAKES if (kind in mistake if kind in kinds else not set(kinds) & mistake.keys())
    ]
    return [pytest.param(mistake, id=mistake["name"]) for mistake in chosen]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, str]]:
    """A service with keys, and a key for compilations alone."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    key = stored_key(path, "anna", "compile")
    yield TestClient(create_app(Settings.of(keys_file=str(path))), raise_server_exceptions=False), key


def strings_in(value: object) -> list[str]:
    """The strings in a JSON value, without names of fields."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in strings_in(item)]
    if isinstance(value, list):
        return [text for item in value for text in strings_in(item)]
    return [value] if isinstance(value, str) else []


def problem_of(body: dict[str, Any]) -> Fault:
    error = body.get("error", body)  # below /v1 in OpenAI's format
    return Fault(error["code"], error.get("detail") or error["message"], error)


@pytest.mark.parametrize("mistake", mistakes("request"))
def test_a_wrong_request_gets_what_where_and_how(
    mistake: dict[str, Any], client: TestClient, keys: tuple[TestClient, str]
) -> None:
    headers = {"content-type": mistake.get("content_type", "application/json")}
    if "key" in mistake:
        client, key = keys
        headers |= {"missing": {}, "wrong": bearer("abs_wrong"), "compile": bearer(key)}[mistake["key"]]
    content = mistake.get("json", mistake.get("body", ""))
    response = client.request(
        mistake.get("method", "POST"), mistake.get("path", "/generate"), content=content, headers=headers
    )
    fault = problem_of(response.json())
    require_all(fault, mistake)
    suggestion = fault.fields.get("suggestion")
    assert ("corrected" in mistake) <= (suggestion is not None), fault
    if suggestion is not None:
        assert len(json.dumps(suggestion)) <= SUGGESTION_BYTES_MAX
        values = [value for value in strings_in(json.loads(content)) if len(value) > VALUE_CHARS_MAX]
        assert not any(value in json.dumps(suggestion) for value in values)
    if "corrected" in mistake:
        corrected = apply_suggestion(json.loads(content), suggestion)
        assert corrected == json.loads(mistake["corrected"])
        accepted = client.post("/compile", json={"constraint": corrected["constraint"], "explain": False})
        assert accepted.status_code == 200, accepted.text


@pytest.mark.parametrize("mistake", mistakes("cli"))
def test_a_wrong_command_gets_what_where_and_how(
    mistake: dict[str, Any], running_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [argument.replace("$URL", running_service.url) for argument in mistake["cli"]]
    monkeypatch.setattr(sys, "argv", ["abs", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    try:
        status: object = run(create_app)
    except SystemExit as error:
        status = error.code
    captured = capsys.readouterr()
    printed = captured.err or captured.out  # a warning stands in an answer
    require_all(Fault(status, printed.replace("│", " ")), mistake)


@pytest.mark.parametrize("mistake", mistakes("client"))
def test_a_wrong_use_of_the_client_gets_them(mistake: dict[str, Any], running_service: ServiceProcess) -> None:
    with abs_client.Client(running_service.url) as client, pytest.raises((AbsError, TypeError, ValueError)) as raised:
        eval(mistake["client"], {**vars(abs_client), "client": client})
    error = raised.value
    fields = error.problem if isinstance(error, AbsError) else {}
    code = error.code if isinstance(error, AbsError) else type(error).__name__
    require_all(Fault(code, str(error), dict(fields)), mistake)


@pytest.mark.parametrize("mistake", mistakes("settings"))
def test_a_wrong_setting_gets_what_where_and_how(mistake: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in mistake["settings"].items():
        monkeypatch.setenv(name, value)
    with pytest.raises((SettingsInvalid, OSError)) as raised:  # in the order of `abs serve`
        settings = read_settings()
        require_guarded(settings)
        open_broker(settings), open_model_files(settings.inference.model[0])
        create_app(settings)
    require_all(Fault(None, str(raised.value)), mistake)


@pytest.mark.parametrize(
    ("message", "fields", "lacks"),
    [
        ("max_token: unknown field of this request", {"errors": [{"path": "max_token"}]}, ["how"]),
        ("constraint: input should be a valid dictionary", {"errors": [{"path": "constraint"}]}, ["how"]),
        ("there is no such path", {}, ["where", "how"]),
        ("the key is unknown", {}, ["how"]),
        ("invalid request", {}, ["what", "where", "how"]),
    ],
)
def test_poor_messages_are_rated_so(message: str, fields: dict[str, Any], lacks: list[str]) -> None:
    rated = rating(Fault("", message, fields), {"words": [], "place": "key"})
    assert [name for name, met in rated.items() if not met] == lacks


def test_there_are_mistakes_of_all_kinds() -> None:
    assert len(MISTAKES) >= MISTAKES_MIN
    assert all(mistakes(kind) for kind in ("request", "cli", "client", "settings"))
