"""Every route requires a key and is in the scope table.

Only /health answers without a key.
"""

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
DOCUMENTED_KEYS: list[dict[str, list[str]]] = [{"key": []}, {"key_field": []}]


def routes(app: FastAPI) -> set[tuple[str, str]]:
    """Method and path of every route of any class."""
    pairs = set()
    for route in iter_route_contexts(app.routes):
        assert route.path and route.methods, f"this test cannot read the route {route}"
        pairs |= {(method, route.path) for method in route.methods}
    return pairs


def with_ids(path: str) -> str:
    return re.sub(r"\{automaton\}", HASH, re.sub(r"\{job_id\}", JOB, path))


class Keys:
    """A key file with several owners, and the texts of its keys."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.anna = self.add("anna", "generate", "compile")
        self.ben = self.add("ben", "generate", "compile")
        self.reader = self.add("reader", "compile")
        self.admin = self.add("root", "admin")
        self.limited = self.add("small", "generate", beam_tokens_per_minute=100)
        self.expired = self.add("anna", "generate", "compile", "admin", expires=time.time() - 1)

    def add(self, name: str, *scopes: str, expires: float | None = None, **limits: int) -> str:
        return stored_key(self.path, name, *scopes, expires=expires, requests_per_minute=0, **limits)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys") / "keys")


@pytest.fixture(scope="module")
def keyed_client(keys: Keys) -> Iterator[TestClient]:
    """The whole service, with keys."""
    with service_client(None, keys_file=str(keys.path)) as client:
        until(lambda: client.get("/ready", headers=bearer(keys.anna)).is_success)
        yield client


def test_routes_and_the_scope_table_agree() -> None:
    paths = routes(create_app(Settings.of(embedded_workers=())))
    rows = {(route.method, route.path) for route in ROUTE_SCOPES}
    assert rows <= paths, rows - paths
    assert paths - rows <= {("HEAD", "/openapi.json")}, "HEAD is answered by 405 where there are keys"


def test_a_wrong_method_gets_405_with_the_allowed_ones() -> None:
    with TestClient(create_app(Settings.of(embedded_workers=()))) as client:
        for path, methods in {"/jobs/x": "GET, DELETE", "/generate": "POST", "/automata/x.svg": "GET"}.items():
            answer = client.put(path)
            assert (answer.status_code, answer.headers["allow"]) == (405, methods)


def test_the_document_lists_the_scopes_of_every_path() -> None:
    paths = create_app(Settings.of(embedded_workers=())).openapi()["paths"]
    for route in ROUTE_SCOPES:
        if route.path not in ("/health", "/openapi.json", PAGE) and not route.path.startswith(PAGE_FILES):
            operation = paths[route.path][route.method.lower()]
            assert operation["x-scopes"] == list(route.scopes) and operation["security"] == DOCUMENTED_KEYS
    assert "security" not in paths["/health"]["get"]


@pytest.mark.parametrize("key", ["", "wrong", "expired"])
def test_every_route_but_health_requires_a_valid_key(key: str, keyed_client: TestClient, keys: Keys) -> None:
    headers = {"": {}, "wrong": bearer(keys.anna[:-1] + "x"), "expired": bearer(keys.expired)}[key]
    for method, path in sorted(routes(keyed_client.app)):  # type: ignore[arg-type]
        response = keyed_client.request(method, with_ids(path), headers=headers)
        if path == "/health":
            assert response.status_code == 200
            continue
        assert response.status_code == 401, (method, path)
        assert response.headers["www-authenticate"] == 'Bearer realm="abs"'
        if method != "HEAD":
            body = response.json()
            assert (body["error"] if path.startswith("/v1/") else body)["code"] == "unauthorized"
    for path in ("/docs", "/redoc", "/nowhere", "/health/", "//health", "/HEALTH", "/openapi.json/"):
        assert keyed_client.get(path, headers=headers).status_code == 401, path


def test_a_worker_port_answers_only_probes_without_a_key(keys: Keys) -> None:
    port = free_port()
    settings = Settings.of(keys_file=str(keys.path), metrics_port=port)
    metrics_server = metrics.listening(settings, metrics_guard(settings))
    with metrics_server, httpx2.Client(base_url=f"http://127.0.0.1:{port}") as http:
        def status(path: str, key: str = "") -> int:
            return http.get(path, headers=bearer(key) if key else {}).status_code

        assert {path: status(path) for path in ("/metrics", "/metrics?x", "/health", "/live", "/docs", "/x")} == {
            "/metrics": 401, "/metrics?x": 401, "/health": 200, "/live": 200, "/docs": 404, "/x": 404,
        }
        for key in (keys.anna, keys.expired, keys.admin[:-1] + "x"):
            assert status("/metrics", key) == 401
        assert status("/metrics", keys.admin) == 200


def test_a_key_grants_no_route_beyond_its_scopes(keyed_client: TestClient, keys: Keys) -> None:
    scopes_of_key = {keys.reader: ("compile",), keys.admin: ("admin",)}
    for method, path in sorted(routes(keyed_client.app)):  # type: ignore[arg-type]
        route = next((route for route in ROUTE_SCOPES if (route.method, route.path) == (method, path)), None)
        for key, scopes in scopes_of_key.items():
            status = keyed_client.request(method, with_ids(path), headers=bearer(key)).status_code
            is_forbidden = route is not None and path != "/health" and not set(scopes) & set(route.scopes)
            assert (status == 403) == is_forbidden, (method, path, scopes, status)
            assert status != 401


def test_only_configured_paths_are_public(keys: Keys) -> None:
    settings = {"keys_file": str(keys.path), "embedded_workers": (), "public_paths": MAY_BE_PUBLIC}
    with service_client(None, **settings) as client:
        public_paths = {path for method, path in routes(client.app)  # type: ignore[arg-type]
                    if client.request(method, with_ids(path)).status_code != 401}
    assert public_paths == {"/health", *MAY_BE_PUBLIC, PAGE_FILES + "{file}", PAGE_FILES + "{folder}/{file}"}


def test_a_job_is_visible_to_its_owner_only(keyed_client: TestClient, keys: Keys) -> None:
    body = {"prompt": "a", "constraint": CONSTRAINT, "max_tokens": 8, "beams": 2}
    submission = keyed_client.post("/generate", json=body, headers={**bearer(keys.anna), "prefer": "respond-async"})
    assert submission.status_code == 202, submission.text
    job = submission.headers["location"]
    for method, path in (("GET", job), ("GET", f"{job}/events"), ("DELETE", job)):
        response = keyed_client.request(method, path, headers=bearer(keys.ben))
        assert (response.status_code, response.json()["code"]) == (404, "unknown_job"), (method, path)
        unknown = keyed_client.request(method, path.replace(job, f"/jobs/{JOB}"), headers=bearer(keys.ben))
        assert unknown.json() | {"request_id": ""} == response.json() | {"request_id": ""}, path
    until(lambda: keyed_client.get(job, headers=bearer(keys.anna)).json()["state"] == "done")


def test_idempotency_keys_are_separate_per_owner(keyed_client: TestClient, keys: Keys) -> None:
    body = {"constraint": CONSTRAINT, "prompt": "b", "max_tokens": 8, "beams": 2}
    ids = [
        keyed_client.post("/generate", json=body, headers={**bearer(key), "idempotency-key": "same"}).json()["id"]
        for key in (keys.anna, keys.ben, keys.anna)
    ]
    assert ids[0] == ids[2] != ids[1]


def test_a_key_over_its_token_budget_is_rate_limited(keyed_client: TestClient, keys: Keys) -> None:
    body, headers = {"prompt": "a", "constraint": CONSTRAINT, "max_tokens": 8, "beams": 8}, bearer(keys.limited)
    assert keyed_client.post("/generate", json=body, headers=headers).status_code == 200
    refusal = keyed_client.post("/generate", json=body, headers=headers)
    assert (refusal.status_code, refusal.json()["code"]) == (429, "rate_limited")
    assert (refusal.json()["limit"], refusal.json()["cap"]) == ("beam_tokens_per_minute", 100)
    assert int(refusal.headers["retry-after"]) >= 1
    permanent_refusal = keyed_client.post("/generate", json={**body, "max_tokens": 64}, headers=headers)
    assert (permanent_refusal.status_code, permanent_refusal.json()["limit"]) == (422, "beam_tokens_per_minute")
