"""Explanations of constraints in /compile and /automata, and of conflicts."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from app.errors import MessageInvalid
from app.messages import ExplainJob, ExplainJobResult, automaton_key, dump, explanation_key, load
from app.messages.signing import verify
from app.service import Service
from app.store.memory import MemoryStore
from app.worker.sandbox.client import Sandbox
from compiler.errors import LimitExceeded
from compiler.spec import spec_from_json
from tests.references.text import satisfies

ORDERED = {"ltlf": "(!cat & !toy) U (coffee & X(!toy U (cat & X(F(toy)))))"}
FORMS: list[dict[str, Any]] = [
    ORDERED,
    {"regex": r"[A-Z][a-z]+ at [1-9]:[0-5][0-9] [ap]m\."},
    {"keywords": ["dog", ["catch", "catches"]], "ordered": True},
    {"infill": "My day on <|infill_word|> went well."},
    {"choice": ["a red house", "a green tree"]},
    {"json_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
                     "additionalProperties": False}},
    {"min_words": 2, "max_chars": 30},
    {"all": [{"keywords": ["dog"]}, {"not": {"keywords": ["cat"]}}]},
]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs of the sandbox, each "explain" or "compile"."""
    kinds: list[str] = []
    original_run = Sandbox.run

    def recording_run(sandbox: Sandbox, request: bytes, is_cancelled: Callable[[], bool]) -> bytes:
        kinds.append("explain" if "stored" in json.loads(request) else "compile")
        return original_run(sandbox, request, is_cancelled)

    monkeypatch.setattr(Sandbox, "run", recording_run)
    return kinds


def new_constraint() -> dict[str, Any]:
    """A random constraint that no test has compiled."""
    return {"regex": f"[a-z]{{3}} {secrets.token_hex(8)}"}


def compiled(client: TestClient, constraint: object, **options: Any) -> dict[str, Any]:
    response = client.post("/compile", json={"constraint": constraint, **options})
    assert response.status_code == 200, response.text
    return cast(dict[str, Any], response.json())


def service_of(client: TestClient) -> Service:
    return cast(Service, client.app.state.components.models.default)  # type: ignore[attr-defined]


def store_of(client: TestClient) -> MemoryStore:
    return cast(MemoryStore, service_of(client).constraints._constraint_store._store)


def stored_bytes(client: TestClient, key: str) -> bytes | None:
    return asyncio.run(store_of(client).get(key))


@pytest.mark.parametrize("constraint", FORMS, ids=[next(iter(form)) for form in FORMS])
def test_a_compiled_constraint_is_explained_by_texts_that_satisfy_it(client: TestClient, constraint: object) -> None:
    answer = compiled(client, constraint)
    explanation = answer["explanation"]
    texts = [explanation["shortest"], *explanation["samples"]]
    assert all(satisfies(spec_from_json(constraint), text) for text in texts)
    assert explanation["sentences"][0].startswith("An answer is accepted when ")
    assert len(explanation["states"]) + explanation["states_more"] == answer["states"]
    assert len(explanation["letters"]) + explanation["letters_more"] == answer["letters"]
    assert any(f"takes {answer['min_tokens']} tokens" in sentence for sentence in explanation["sentences"])


def test_a_label_constraint_is_explained(client: TestClient) -> None:
    explanation = compiled(client, {"labels": ["walk", "run"], "ltlf": "F(run)"})["explanation"]
    assert explanation["shortest"] == "run"
    assert [letter["name"] for letter in explanation["letters"]] == ["walk", "run"]


def test_an_explanation_is_cached(client: TestClient, jobs: list[str]) -> None:
    constraint = new_constraint()
    first, second = compiled(client, constraint), compiled(client, constraint)
    assert jobs == ["compile", "explain"]
    assert second["cached"] and second["explanation"] == first["explanation"]


def test_a_compile_without_explanation_starts_no_explain_job(client: TestClient, jobs: list[str]) -> None:
    assert compiled(client, new_constraint(), explain=False)["explanation"] is None
    assert jobs == ["compile"]


def test_generate_makes_no_explanation(client: TestClient, jobs: list[str]) -> None:
    body = {"prompt": "sentence:", "constraint": {"regex": "[a-z]{2,4} dogs"}, "max_tokens": 12, "beams": 2}
    answer = client.post("/generate", json=body).json()
    assert stored_bytes(client, explanation_key(answer["automaton"])) is None
    assert "explain" not in jobs


def test_an_automaton_compiled_by_generate_is_explained_on_demand(client: TestClient) -> None:
    constraint = {"regex": "[a-z]{2,5} cats"}
    body = {"prompt": "sentence:", "constraint": constraint, "max_tokens": 12, "beams": 2}
    automaton = client.post("/generate", json=body).json()["automaton"]
    explanation = client.get(f"/automata/{automaton}").json()["explanation"]
    assert explanation["shortest"].endswith(" cats")
    assert explanation == compiled(client, constraint)["explanation"]


def test_explanations_use_the_callers_names(client: TestClient) -> None:
    first_constraint = {"ltlf": "F(beast)", "propositions": {"beast": ["wolf", "bear"]}}
    second_constraint = {"ltlf": "F(animal)", "propositions": {"animal": ["bear", "wolf"]}}
    first, second = compiled(client, first_constraint), compiled(client, second_constraint)
    assert first["automaton"] == second["automaton"]
    assert [letter["name"] for letter in second["explanation"]["letters"]] == ["other", "animal"]
    assert "F(animal)" in second["explanation"]["sentences"][0]
    view = client.get(f"/automata/{first['automaton']}").json()
    assert [letter["name"] for letter in view["explanation"]["letters"]] == ["other", "beast"]


def test_an_invalid_stored_explanation_is_replaced(client: TestClient, jobs: list[str]) -> None:
    constraint = new_constraint()
    first = compiled(client, constraint)
    key = explanation_key(first["automaton"])
    for invalid in (b"{}", b"\xff", dump(ExplainJob("0" * 64, 1.0))):
        asyncio.run(store_of(client).put(key, invalid, 60))
        assert compiled(client, constraint)["explanation"] == first["explanation"]
        assert stored_bytes(client, key) != invalid
    assert jobs == ["compile", *["explain"] * 4]


def test_an_evicted_automaton_has_no_explanation(client: TestClient) -> None:
    service = service_of(client)
    answer = compiled(client, new_constraint(), explain=False)
    data = stored_bytes(client, automaton_key(answer["automaton"]))
    assert data is not None
    asyncio.run(store_of(client).delete(automaton_key(answer["automaton"]), data))
    portal = client.portal
    assert portal is not None
    spec = spec_from_json({"regex": "a"})
    assert portal.call(service.constraints.explanation, answer["automaton"], spec) is None


def fail_to_explain(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    original_run = Sandbox.run

    def failing(sandbox: Sandbox, request: bytes, is_cancelled: Callable[[], bool]) -> bytes:
        if "stored" in json.loads(request):
            raise error
        return original_run(sandbox, request, is_cancelled)

    monkeypatch.setattr(Sandbox, "run", failing)


def test_an_explanation_over_a_limit_still_returns_the_automaton(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraint = new_constraint()
    with monkeypatch.context() as patch:
        fail_to_explain(patch, LimitExceeded("compile_memory_bytes_max", 1, 2))
        answer = compiled(client, constraint)
        view = client.get(f"/automata/{answer['automaton']}")
    assert answer["explanation"] is view.json()["explanation"] is None
    assert "immutable" not in view.headers.get("cache-control", "")
    later_view = client.get(f"/automata/{answer['automaton']}")
    assert later_view.json()["explanation"] == compiled(client, constraint)["explanation"] is not None
    assert "immutable" in later_view.headers["cache-control"]


def test_a_contradictory_constraint_is_refused_with_its_conflict(client: TestClient) -> None:
    constraint = {"all": [{"keywords": ["dog"]}, {"keywords": ["cat"]}, {"not": {"keywords": ["dog"]}}]}
    for path, body in (("/compile", {}), ("/generate", {"prompt": "a"}), ("/check", {"text": "a"})):
        response = client.post(path, json={"constraint": constraint, **body})
        problem = response.json()
        assert (response.status_code, problem["code"]) == (422, "constraint_unsatisfiable")
        assert problem["conflict"] == ["'all.0' (keywords dog)", "'all.2' (not keywords dog)"]
        assert problem["detail"].endswith("contradict each other")


def test_an_explanation_crosses_a_process_boundary_unchanged(client: TestClient) -> None:
    answer = compiled(client, FORMS[0])
    key, secret = explanation_key(answer["automaton"]), service_of(client).settings.auth.secret
    signed_bytes = stored_bytes(client, key)
    assert signed_bytes is not None
    data = verify(secret, key, signed_bytes)
    assert data is not None
    result = load(data)
    assert isinstance(result, ExplainJobResult) and dump(result) == data
    with pytest.raises(MessageInvalid):
        load(data.replace(b'"sentences"', b'"sentence"'))


def test_a_bug_in_an_explanation_is_an_internal_error(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_explain(monkeypatch, RuntimeError("MARKER"))
    response = client.post("/compile", json={"constraint": new_constraint()})
    assert response.status_code == 500
    assert "MARKER" not in response.text
