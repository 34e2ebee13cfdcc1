"""A walk over all routes: none but /health answers without a key, none is left out of the table of scopes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from starlette.testclient import TestClient

from app.auth import ROUTE_SCOPES, metrics_guard
from app.auth.route_scopes import PAGE, PAGE_FILES
from app.main import create_app
from app.observability import metrics
from app.settings import MAY_BE_PUBLIC, Settings
from tests.app.access_keys import bearer, stored_key
from tests.app.conftest import service_client
from tests.servers.processes import free_port, until

CONSTRAINT = {"regex": "a{2,3}"}
HASH, JOB = "0" * 64, "0" * 32


def routes(app: FastAPI) -> set[tuple[str, str]]:
    """Method and path of every route, whatever kind of route it is."""
    found = set()
    for route in iter_route_contexts(app.routes):
        assert route.path and route.methods, f"a route of a kind that this walk does not know: {route}"
        found |= {(method, route.path) for method in route.methods}
    return found


def filled(path: str) -> str:
    return re.sub(r"\{automaton\}", HASH, re.sub(r"\{job_id\}", JOB, path))


class Keys:
    """A file with keys of two owners, one that has expired, and the texts of all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.anna = self.add("anna", "generate", "compile")
        self.ben = self.add("ben", "generate", "compile")
        self.reader = self.add("reader", "compile")
        self.admin = self.add("root", "admin")
        self.small = self.add("small", "generate", beam_tokens_per_minute=100)
        self.expired = self.add("anna", "generate", "compile", "admin", expires=time.time() - 1)

    def add(self, name: str, *scopes: str, expires: float | None = None, **limits: int) -> str:
        return stored_key(self.path, name, *scopes, expires=expires, requests_per_minute=0, **limits)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys") / "keys")


@pytest.fixture(scope="module")
def locked(keys: Keys) -> Iterator[TestClient]:
    """The whole service, with keys."""
    with service_client(None, keys_file=str(keys.path)) as client:
        until(lambda: client.get("/ready", headers=bearer(keys.anna)).is_success)
        yield client


def test_routes_and_the_scope_table_agree() -> None:
    found = routes(create_app(Settings(embedded_workers=())))
    rows = {(door.method, door.path) for door in ROUTE_SCOPES}
    assert rows <= found, rows - found
    assert found - rows <= {("HEAD", "/openapi.json")}, "HEAD is answered by 405 where there are keys"


def test_a_wrong_method_gets_405_with_the_allowed_ones() -> None:
    with TestClient(create_app(Settings(embedded_workers=()))) as client:
        for path, methods in {"/jobs/x": "GET, DELETE", "/generate": "POST", "/automata/x.svg": "GET"}.items():
            answer = client.put(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_the_document_lists_the_scopes_of_every_path() -> None:
    paths = create_app(Settings(embedded_workers=())).openapi()["paths"]
    for door in ROUTE_SCOPES:
        if door.path not in ("/health", "/openapi.json", PAGE) and not door.path.startswith(PAGE_FILES):
            operation = paths[door.path][door.method.lower()]
            assert operation["x-scopes"] == list(door.scopes) and operation["security"] == [{"key": []}]
    assert "security" not in paths["/health"]["get"]


@pytest.mark.parametrize("key", ["", "wrong", "expired"])
def test_every_route_but_health_requires_a_valid_key(key: str, locked: TestClient, keys: Keys) -> None:
    given = {"": {}, "wrong": bearer(keys.anna[:-1] + "x"), "expired": bearer(keys.expired)}[key]
    for method, path in sorted(routes(locked.app)):  # type: ignore[arg-type]
        response = locked.request(method, filled(path), headers=given)
        if path == "/health":
            assert response.status_code == 200
            continue
        assert response.status_code == 401, (method, path)
        assert response.headers["www-authenticate"] == 'Bearer realm="abs"'
        if method != "HEAD":
            body = response.json()
            assert (body["error"] if path.startswith("/v1/") else body)["code"] == "unauthorized"
    for path in ("/docs", "/redoc", "/nowhere", "/health/", "//health", "/HEALTH", "/openapi.json/"):
        assert locked.get(path, headers=given).status_code == 401, path


def test_a_worker_port_answers_only_probes_without_a_key(keys: Keys) -> None:
    port = free_port()
    settings = Settings(keys_file=str(keys.path), metrics_port=port)
    served = metrics.listening(settings, metrics_guard(settings))
    with served, httpx2.Client(base_url=f"http://127.0.0.1:{port}") as http:
        def status(path: str, key: str = "") -> int:
            return http.get(path, headers=bearer(key) if key else {}).status_code

        assert {path: status(path) for path in ("/metrics", "/metrics?x", "/health", "/live", "/docs", "/x")} == {
            "/metrics": 401, "/metrics?x": 401, "/health": 200, "/live": 200, "/docs": 404, "/x": 404,
        }
        for key in (keys.anna, keys.expired, keys.admin[:-1] + "x"):
            assert status("/metrics", key) == 401
        assert status("/metrics", keys.admin) == 200


def test_a_key_grants_no_route_beyond_its_scopes(locked: TestClient, keys: Keys) -> None:
    owned = {keys.reader: ("compile",), keys.admin: ("admin",)}
    for method, path in sorted(routes(locked.app)):  # type: ignore[arg-type]
        door = next((door for door in ROUTE_SCOPES if (door.method, door.path) == (method, path)), None)
        for key, scopes in owned.items():
            status = locked.request(method, filled(path), headers=bearer(key)).status_code
            refused = door is not None and path != "/health" and not set(scopes) & set(door.scopes)
            assert (status == 403) == refused, (method, path, scopes, status)
            assert status != 401


def test_only_configured_paths_are_public(keys: Keys) -> None:
    settings = {"keys_file": str(keys.path), "embedded_workers": (), "public_paths": MAY_BE_PUBLIC}
    with service_client(None, **settings) as client:
        answered = {path for method, path in routes(client.app)  # type: ignore[arg-type]
                    if client.request(method, filled(path)).status_code != 401}
    assert answered == {"/health", *MAY_BE_PUBLIC, PAGE_FILES + "{file}", PAGE_FILES + "{folder}/{file}"}


def test_a_job_is_visible_to_its_owner_only(locked: TestClient, keys: Keys) -> None:
    body = {"prompt": "a", "constraint": CONSTRAINT, "max_tokens": 8, "beams": 2}
    made = locked.post("/generate", json=body, headers={**bearer(keys.anna), "prefer": "respond-async"})
    assert made.status_code == 202, made.text
    job = made.headers["location"]
    for method, path in (("GET", job), ("GET", f"{job}/events"), ("DELETE", job)):
        response = locked.request(method, path, headers=bearer(keys.ben))
        assert (response.status_code, response.json()["code"]) == (404, "unknown_job"), (method, path)
        unknown = locked.request(method, path.replace(job, f"/jobs/{JOB}"), headers=bearer(keys.ben))
        assert unknown.json() | {"request_id": ""} == response.json() | {"request_id": ""}, "no telling whose it is"
    until(lambda: locked.get(job, headers=bearer(keys.anna)).json()["state"] == "done")


def test_idempotency_keys_are_separate_per_owner(locked: TestClient, keys: Keys) -> None:
    body = {"constraint": CONSTRAINT, "prompt": "b", "max_tokens": 8, "beams": 2}
    ids = [
        locked.post("/generate", json=body, headers={**bearer(key), "idempotency-key": "same"}).json()["id"]
        for key in (keys.anna, keys.ben, keys.anna)
    ]
    assert ids[0] == ids[2] != ids[1]


def test_a_key_over_its_token_budget_is_rate_limited(locked: TestClient, keys: Keys) -> None:
    body, given = {"prompt": "a", "constraint": CONSTRAINT, "max_tokens": 8, "beams": 8}, bearer(keys.small)
    assert locked.post("/generate", json=body, headers=given).status_code == 200
    again = locked.post("/generate", json=body, headers=given)
    assert (again.status_code, again.json()["code"]) == (429, "rate_limited")
    assert (again.json()["limit"], again.json()["cap"]) == ("beam_tokens_per_minute", 100)
    assert int(again.headers["retry-after"]) >= 1
    never = locked.post("/generate", json={**body, "max_tokens": 64}, headers=given)
    assert (never.status_code, never.json()["limit"]) == (422, "beam_tokens_per_minute")
