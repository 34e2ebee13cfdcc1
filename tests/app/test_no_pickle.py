"""No process of the service unpickles anything.

The test of `abs up` with Redis is in local/test_up.py, whose processes have the guard.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.servers.service_process import serving
from tests.servers.small_model import small_model

HOOK = Path(__file__).parents[1] / "servers" / "no_pickle"
ROOT = Path(__file__).parents[2]
S_MAX = 120.0
KEYWORDS = {"keywords": ["dog", ["catch", "catches"]], "ordered": True}
CONSTRAINTS: list[dict[str, Any]] = [
    {"keywords": ["dog", "catch"], "inflect": True}, {"json_schema": {"type": "boolean"}},
    {"all": [{"regex": "[a-z ]+"}, {"ltlf": "F(dog)"}, {"max_chars": 20}]}, {"ltlf": "F(dog) & G(!dog)"},
]
MATRIX = {"constraint": {"ltlf": "F(a)", "labels": ["a", "b"]}, "log_probs": [[-1.0, -2.0], [-0.5, -1.5]]}


def test_unpickling_a_class_fails_in_the_test_process() -> None:
    functions = [value for name, value in vars(pickle).items() if name.removeprefix("_") == "loads"]
    assert len(functions) == 2, "one in C, one in Python"
    for unpickle in functions:
        with pytest.raises(RuntimeError, match="nothing is unpickled here"):
            unpickle(pickle.dumps(Path("a")))


def pickle_guard(log: Path) -> dict[str, str]:
    """Variables of processes that log each unpickling."""
    return {"PYTHONPATH": os.pathsep.join((str(HOOK), str(ROOT))), "NO_PICKLE_LOG": str(log), "OMP_NUM_THREADS": "1"}


def ask_all(url: str) -> None:
    """Send requests of every kind to a service."""
    with httpx2.Client(base_url=url, timeout=S_MAX) as http:

        def post(path: str, body: dict[str, Any], status: int = 200, **headers: str) -> httpx2.Response:
            answer = http.post(path, json=body, headers=headers)
            assert answer.status_code == status, (path, body, answer.text)
            return answer

        for constraint in CONSTRAINTS:
            unmeetable = constraint == CONSTRAINTS[-1]
            post("/compile", {"constraint": constraint}, 422 if unmeetable else 200)
        automaton = post("/compile", {"constraint": KEYWORDS, "explain": True}).json()["automaton"]
        for ending in ("", ".dot", ".svg"):
            assert http.get(f"/automata/{automaton}{ending}").status_code == 200
        post("/check", {"constraint": KEYWORDS, "text": "a dog catches"})
        post("/decode", MATRIX)
        for options in ({}, {"algorithm": "abs", "beams": 4}, {"algorithm": "sample", "n": 2}):
            post("/generate", {"prompt": "a", "constraint": KEYWORDS, "max_tokens": 16, **options})
        body = {"prompt": "a", "automaton": automaton, "max_tokens": 16, "trace": True}
        assert "event: done" in post("/generate", {**body, "stream": True}).text
        job = post("/generate", body, 202, prefer="respond-async", **{"idempotency-key": "a"}).headers["location"]
        assert "event: done" in http.get(f"{job}/events").text
        assert http.get(job).json()["state"] == "done"
        assert http.delete(job).status_code == 200
        for path in ("/health", "/ready", "/metrics", "/version", "/v1/models", "/openapi.json"):
            assert http.get(path).status_code == 200, path


def guarded_processes(log: Path) -> str:
    """The processes with the pickle guard; fails if one unpickled."""
    lines = log.read_text(encoding="utf-8").splitlines()
    violations = [line for line in lines if line.startswith("UNPICKLED")]
    assert not violations, "\n".join(violations)
    return "\n".join(lines)


def test_the_pickle_guard_reaches_child_processes(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = "import pickle; pickle.loads(pickle.dumps(1))"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {child!r}], env={{}})"
    subprocess.run([sys.executable, "-c", code], env=os.environ | pickle_guard(log), check=True, timeout=S_MAX)
    lines = log.read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in lines] == ["STARTED", "STARTED", "UNPICKLED"]
    with pytest.raises(AssertionError, match="UNPICKLED"):
        guarded_processes(log)


@pytest.mark.long  # local/test_up.py asks the same of the processes of `abs up`
def test_nothing_is_unpickled_by_a_service_in_one_process(tmp_path: Path) -> None:
    log = tmp_path / "pickles"
    with serving(tmp_path, model=small_model(), **pickle_guard(log)) as service:
        service.wait_until_ready()
        ask_all(service.url)
    processes = guarded_processes(log)
    assert "app.main serve" in processes and processes.count("STARTED") >= 2, "the API and its sandbox"
