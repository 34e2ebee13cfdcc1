"""Every limit has its documented default and names itself in refusals."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.messages import automaton_key
from app.settings import Settings
from tests.app import fake_handlers
from tests.app.access_keys import bearer, stored_key
from tests.app.conftest import TESTS, functions_of, service_client, wait_for_compiler, wait_until_ready

TABLE = tomllib.loads((TESTS / "cases" / "limits.toml").read_text(encoding="utf-8"))
ROWS = TABLE["limit"]
REQUEST_ROWS = [row for row in ROWS if "request" in row]
UNNAMED = set(TABLE["unnamed"])
DEFAULTS = Settings().values()


def settings_of(row: dict[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Settings that refuse the request of a row, and its headers."""
    overrides = {row["setting"]: row["cap"]}
    if not row.get("keys"):
        return overrides, {}
    headers = bearer(stored_key(folder / "keys", "anna", "generate", "compile"))
    return {"keys_file": str(folder / "keys"), "public_paths": ("/ready",), **overrides}, headers


@pytest.mark.parametrize("row", REQUEST_ROWS, ids=[row["setting"] for row in REQUEST_ROWS])
def test_a_request_over_a_limit_gets_its_name_and_cap(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_handlers.install(monkeypatch, compile="open_compiling", generate="open_quick")
    settings, headers = settings_of(row, tmp_path)
    request = row["request"]
    with service_client(wait_until_ready if row["status"] == 422 else None, **settings) as client:
        for _ in range(row.get("times", 1)):
            answer = client.request(
                "POST" if "json" in request else "GET", request["path"], json=request.get("json"),
                headers={**headers, **request.get("headers", {})},
            )
    body = answer.json()
    assert answer.status_code == row["status"], body
    assert (body.get("limit"), body.get("cap")) == (row.get("named", row["setting"]), row["cap"]), body
    assert (answer.status_code == 429) == ("retry-after" in answer.headers)


@pytest.mark.parametrize("row", ROWS, ids=[row["setting"] for row in ROWS])
def test_a_limit_has_its_documented_default_and_variable(row: dict[str, Any]) -> None:
    assert DEFAULTS[row["setting"]] == row["default"]
    page = (TESTS.parent / "docs" / "settings.md").read_text(encoding="utf-8")
    assert f"| `ABS_{row['setting'].upper()}` |" in page


def test_every_limit_is_in_the_table() -> None:
    numbers = {name for name, value in DEFAULTS.items() if type(value) in (int, float)}
    rows = {row["setting"] for row in ROWS}
    assert numbers == rows | UNNAMED, numbers ^ (rows | UNNAMED)
    assert not rows & UNNAMED and all(name in rows for name in numbers if name.startswith("key_"))


def test_a_limit_without_a_request_names_its_test() -> None:
    for row in ROWS:
        assert ("shown" in row) != ("request" in row), row["setting"]
        file, _, test = row.get("shown", "").partition("::")
        assert not file or test in functions_of(file) or (not test and (TESTS / file).exists()), row["shown"]


@contextmanager
def compile_service(
    names: tuple[str, ...], keys: Path, **settings: Any
) -> Iterator[tuple[TestClient, dict[str, dict[str, str]]]]:
    """A compile-only service, and the headers of keys with these names."""
    headers = {name: bearer(stored_key(keys, name, "compile")) for name in names}
    settings |= {"keys_file": str(keys), "public_paths": ("/ready",), "embedded_workers": ("compile",)}
    with service_client(wait_for_compiler, **settings) as client:
        yield client, headers


def test_pending_compilations_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_handlers.install(monkeypatch, compile="open_blocking")
    service = compile_service(("anna", "ben", "carl"), tmp_path / "keys", pending_compiles_max=3)
    with service as (client, headers):

        def ask(owner: str, pattern: str) -> Any:
            asynchronous = headers[owner] | {"prefer": "respond-async"}
            return client.post("/compile", json={"constraint": {"regex": pattern}}, headers=asynchronous)

        assert [ask("anna", pattern).status_code for pattern in ("a+", "b+", "a+", "b+")] == [202] * 4
        answers = [(ask("anna", "c+"), "key_pending_compiles_max", 2)]
        assert ask("ben", "c+").status_code == 202
        answers.append((ask("carl", "d+"), "pending_compiles_max", 3))
        for answer, limit, cap in answers:
            body = answer.json()
            facts = (answer.status_code, body["code"], body["limit"], body["cap"])
            assert facts == (429, "queue_full", limit, cap), body
            assert int(answer.headers["retry-after"]) >= 1 and limit in body["detail"]
        assert ask("carl", "a+").status_code == 202, "a request for a running compilation adds no work"


def test_a_key_displaces_only_its_stored_automata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_handlers.install(monkeypatch, compile="open_compiling")
    service = compile_service(("anna", "ben"), tmp_path / "keys", key_store_bytes_max=20_000)
    with service as (client, headers):

        def ask(owner: str, pattern: str) -> str:
            body = {"constraint": {"regex": pattern}, "explain": False}
            answer = client.post("/compile", json=body, headers=headers[owner])
            assert answer.status_code == 200, answer.text
            return str(answer.json()["automaton"])

        def is_stored(automaton: str) -> bool:
            store = client.app.state.components.probe._store  # type: ignore[attr-defined]
            return asyncio.run(store.get(automaton_key(automaton))) is not None

        bens, oldest = ask("ben", "b{3}"), ask("anna", "a{3}")
        assert is_stored(oldest)
        newest = [ask("anna", f"a{{{number}}}") for number in range(4, 40)][-1]
        assert [is_stored(automaton) for automaton in (bens, oldest, newest)] == [True, False, True]
        assert ask("anna", "a{3}") == oldest, "the automaton is compiled again"


def test_an_answer_over_answer_bytes_max_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_handlers.install(monkeypatch, compile="open_compiling", generate="open_quick")
    body = {"prompt": "a", "constraint": {"regex": "a"}, "max_tokens": 4}
    for cap, status in ((100, 422), (100_000, 200)):
        with service_client(answer_bytes_max=cap) as client:
            answer = client.post("/compile", json={"constraint": {"regex": "a"}, "explain": False})
            assert answer.status_code == status
            answer = client.post("/generate", json=body)
            assert answer.status_code == status, answer.text
            if status == 422:
                problem = answer.json()
                assert problem["code"] == "answer_too_large"
                assert (problem["limit"], problem["cap"]) == ("answer_bytes_max", cap)
