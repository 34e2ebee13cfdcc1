"""Wrong, expired and foreign keys at a process of the service.

Generations are scripted (tests/servers/fake_worker.py). The table of all faults is test_table.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from app.auth import add_key, new_key
from tests.app.faults.test_workers import BODY
from tests.servers.cluster import API, ASK_S_MAX, Cluster
from tests.servers.processes import until

FOREIGN_JOB = "0" * 32  # an unknown job


class Caller:
    """Asks the process whose keys these are, over one connection."""

    def __init__(self, port: int, keys: dict[str, str]) -> None:
        self._connection, self._keys = HTTPConnection("127.0.0.1", port, timeout=ASK_S_MAX), keys

    def ask(self, who: str, method: str, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, Any]]:
        all_headers = {"authorization": f"Bearer {self._keys[who]}", "content-type": "application/json", **headers}
        self._connection.request(method, path, None if body is None else json.dumps(body), all_headers)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def caller(scripted: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """An API with keys, for tests and probes of other files."""
    file = tmp_path_factory.mktemp("keys") / "keys"
    keys = {}
    for name, expires in (("anna", None), ("ben", None), ("late", time.time() - 1)):
        keys[name], key = new_key(name, ("generate", "compile"), expires, requests_per_minute=0)
        add_key(file, key)
    keys["wrong"] = keys["anna"][:-1] + ("0" if keys["anna"][-1] != "0" else "1")
    keys["strange"] = new_key("strange", ("generate",))[0]
    part = scripted.add("keyed", API, ABS_KEYS_FILE=str(file), ABS_PUBLIC_PATHS="/ready,/metrics")
    try:
        scripted.restore()
        caller = Caller(part.port, keys)
        yield caller
        caller.close()
    finally:
        part.end()
        del scripted.parts["keyed"]


def test_key_errors_do_not_reveal_jobs_of_other_owners(caller: Caller) -> None:
    status, submission = caller.ask("anna", "POST", "/generate", BODY | {"prompt": "steps 1 0"}, prefer="respond-async")
    assert status == 202, submission
    job = f"/jobs/{submission['id']}"
    for who, why in (("wrong", "unknown"), ("strange", "unknown"), ("late", "expired")):
        for method, path in (("GET", job), ("DELETE", job), ("GET", f"{job}/events"), ("GET", f"/jobs/{FOREIGN_JOB}")):
            status, reply = caller.ask(who, method, path)
            assert (status, reply["code"]) == (401, "unauthorized") and why in reply["detail"], (who, path)
    for method, rest in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        status, reply = caller.ask("ben", method, job + rest)
        unknown = caller.ask("ben", method, f"/jobs/{FOREIGN_JOB}{rest}")
        assert (status, reply["code"]) == (404, "unknown_job")
        assert unknown == (404, reply | {"request_id": unknown[1]["request_id"]}), "no telling whether there is one"
    until(lambda: caller.ask("anna", "GET", job)[1]["state"] == "done", "the owner sees his job done")
