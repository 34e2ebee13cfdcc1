"""Every limit of a request has its documented default, and its refusal names it with its value."""

from __future__ import annotations

import asyncio
import dataclasses
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app import wiring
from app.auth import add_key, new_key
from app.main import create_app
from app.messages import automaton_key
from app.settings import KEY_LIMITS, Settings
from compiler.limits import Limits
from tests.app import fake_handlers
from tests.app.conftest import TESTS, functions_of, wait_for_compiler, wait_until_ready

ROWS = tomllib.loads((TESTS / "cases" / "limits.toml").read_text(encoding="utf-8"))["limit"]
REFUSED = [row for row in ROWS if "request" in row]
UNNAMED = {  # limits that refuse no request: they delay it, evict stored values, or concern the operator
    "nice",
    "port",
    "metrics_port",
    "stall_timeout_s",
    "keep_alive_s",
    "generation_memory_bytes",
    "device_table_cache_bytes",
    "stream_grace_s",
    "shutdown_grace_s",
    "idempotency_ttl_s",
    "job_lease_s",
    "job_attempts_max",
    "redis_wait_s",
    "store_value_bytes_max",
    "store_bytes_max",
    "automaton_cache_bytes",
    "automaton_ttl_s",
    "batch_requests_max",
}
LIMITS = {field.name for field in dataclasses.fields(Limits)}


def settings_of(row: dict[str, Any], folder: Path) -> tuple[Settings, dict[str, str]]:
    """Settings under which a row's request is too much, and the headers of one who has a key."""
    own = {row["setting"]: row["cap"]}
    settings = Settings(embedded_workers=("compile",))
    if row["setting"] in LIMITS:
        return dataclasses.replace(settings, limits=dataclasses.replace(Limits(), **own)), {}
    if not row.get("keys"):
        return dataclasses.replace(settings, **own), {}
    text, key = new_key("anna", ("generate", "compile"))
    add_key(folder / "keys", key)
    settings = dataclasses.replace(settings, keys_file=str(folder / "keys"), public_paths=("/ready",))
    return dataclasses.replace(settings, **own), {"authorization": f"Bearer {text}"}


@pytest.mark.parametrize("row", REFUSED, ids=[row["setting"] for row in REFUSED])
def test_a_request_over_a_limit_gets_its_name_and_cap(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(wiring.HANDLERS, "compile", "tests.app.fake_handlers:open_compiling")
    monkeypatch.setitem(wiring.HANDLERS, "generate", "tests.app.fake_handlers:open_quick")
    settings, headers = settings_of(row, tmp_path)
    settings = dataclasses.replace(settings, embedded_workers=("compile", "generate"))
    asked = row["request"]
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        if row["status"] == 422:
            wait_until_ready(client)
        for _ in range(row.get("times", 1)):
            answer = client.request(
                "POST" if "json" in asked else "GET", asked["path"], json=asked.get("json"),
                headers={**headers, **asked.get("headers", {})},
            )
    body = answer.json()
    assert answer.status_code == row["status"], body
    assert (body.get("limit"), body.get("cap")) == (row.get("named", row["setting"]), row["cap"]), body
    assert (answer.status_code == 429) == ("retry-after" in answer.headers)


@pytest.mark.parametrize("row", ROWS, ids=[row["setting"] for row in ROWS])
def test_a_limit_has_its_documented_default_and_variable(row: dict[str, Any]) -> None:
    holder: Any = Limits() if row["setting"] in LIMITS else Settings()
    assert getattr(holder, row["setting"]) == row["default"]
    page = (TESTS.parent / "docs" / "settings.md").read_text(encoding="utf-8")
    assert f"| `ABS_{row['setting'].upper()}` |" in page


def test_every_limit_is_in_the_table() -> None:
    numbers = {
        field.name for holder in (Settings(), Limits()) for field in dataclasses.fields(holder)
        if type(getattr(holder, field.name)) in (int, float)
    }
    rows = {row["setting"] for row in ROWS}
    assert numbers == rows | UNNAMED, numbers ^ (rows | UNNAMED)
    assert not rows & UNNAMED and set(KEY_LIMITS) <= rows


@cache
def test_a_limit_without_a_request_names_its_test() -> None:
    for row in ROWS:
        assert ("shown" in row) != ("request" in row), row["setting"]
        file, _, test = row.get("shown", "").partition("::")
        assert not file or test in functions_of(file) or (not test and (TESTS / file).exists()), row["shown"]


@pytest.fixture
def keyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TestClient, dict[str, dict[str, str]]]]:
    """A service whose compilations never end, and the headers of three keys."""
    fake_handlers.reset()
    monkeypatch.setitem(wiring.HANDLERS, "compile", "tests.app.fake_handlers:open_patient")
    headers = {}
    for name in ("anna", "ben", "carl"):
        text, key = new_key(name, ("generate", "compile"))
        add_key(tmp_path / "keys", key)
        headers[name] = {"authorization": f"Bearer {text}", "prefer": "respond-async"}
    settings = Settings(
        keys_file=str(tmp_path / "keys"),
        public_paths=("/ready",),
        embedded_workers=("compile",),
        pending_compiles_max=3,
    )
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        wait_for_compiler(client)
        yield client, headers


def test_pending_compilations_are_limited(
    keyed: tuple[TestClient, dict[str, dict[str, str]]]
) -> None:
    client, headers = keyed

    def ask(owner: str, pattern: str) -> Any:
        return client.post("/compile", json={"constraint": {"regex": pattern}}, headers=headers[owner])

    assert [ask("anna", pattern).status_code for pattern in ("a+", "b+", "a+", "b+")] == [202] * 4
    for answer, limit, cap in ((ask("anna", "c+"), "key_pending_compiles_max", 2), (None, "pending_compiles_max", 3)):
        if answer is None:
            assert ask("ben", "c+").status_code == 202
            answer = ask("carl", "d+")
        body = answer.json()
        assert (answer.status_code, body["code"], body["limit"], body["cap"]) == (429, "queue_full", limit, cap), body
        assert int(answer.headers["retry-after"]) >= 1 and limit in body["detail"]
    assert ask("carl", "a+").status_code == 202, "what is being compiled already is no more work"


def test_a_key_displaces_only_its_stored_automata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wiring.HANDLERS, "compile", "tests.app.fake_handlers:open_compiling")
    headers = {}
    for name in ("anna", "ben"):
        text, key = new_key(name, ("compile",))
        add_key(tmp_path / "keys", key)
        headers[name] = {"authorization": f"Bearer {text}"}
    settings = Settings(
        keys_file=str(tmp_path / "keys"), public_paths=("/ready",), embedded_workers=("compile",),
        key_store_bytes_max=20_000,
    )
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        wait_for_compiler(client)

        def ask(owner: str, pattern: str) -> str:
            body = {"constraint": {"regex": pattern}, "explain": False}
            answer = client.post("/compile", json=body, headers=headers[owner])
            assert answer.status_code == 200, answer.text
            return str(answer.json()["automaton"])

        def stored(automaton: str) -> bool:
            store = client.app.state.components.probe._store  # type: ignore[attr-defined]
            return asyncio.run(store.get(automaton_key(automaton))) is not None

        bens, first = ask("ben", "b{3}"), ask("anna", "a{3}")
        assert stored(first)
        last = [ask("anna", f"a{{{number}}}") for number in range(4, 40)][-1]
        assert [stored(one) for one in (bens, first, last)] == [True, False, True]
        assert ask("anna", "a{3}") == first, "it is compiled again"


def test_an_answer_over_answer_bytes_max_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(wiring.HANDLERS, "compile", "tests.app.fake_handlers:open_compiling")
    monkeypatch.setitem(wiring.HANDLERS, "generate", "tests.app.fake_handlers:open_quick")
    body = {"prompt": "a", "constraint": {"regex": "a"}, "max_tokens": 4}
    for cap, status in ((100, 422), (100_000, 200)):
        with TestClient(create_app(Settings(answer_bytes_max=cap)), raise_server_exceptions=False) as client:
            wait_until_ready(client)
            answer = client.post("/compile", json={"constraint": {"regex": "a"}, "explain": False})
            assert answer.status_code == status
            answer = client.post("/generate", json=body)
            assert answer.status_code == status, answer.text
            if status == 422:
                said = answer.json()
                assert (said["code"], said["limit"], said["cap"]) == ("answer_too_large", "answer_bytes_max", cap)
