"""What /compile and /automata tell of a constraint, what it costs, and why one cannot be met."""

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
    {"json_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
    {"min_words": 2, "max_chars": 30},
    {"all": [{"keywords": ["dog"]}, {"not": {"keywords": ["cat"]}}]},
]


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was done in the sandbox: "explain" or "compile" for each job, and "generate" for nothing."""
    seen: list[str] = []
    whole = Sandbox.run

    def counted(sandbox: Sandbox, request: bytes, cancelled: Callable[[], bool]) -> bytes:
        seen.append("explain" if "stored" in json.loads(request) else "compile")
        return whole(sandbox, request, cancelled)

    monkeypatch.setattr(Sandbox, "run", counted)
    return seen


def fresh() -> dict[str, Any]:
    """A constraint that is not compiled yet."""
    return {"regex": f"[a-z]{{3}} {secrets.token_hex(8)}"}


def compiled(client: TestClient, constraint: object, **options: Any) -> dict[str, Any]:
    response = client.post("/compile", json={"constraint": constraint, **options})
    assert response.status_code == 200, response.text
    return cast(dict[str, Any], response.json())


def service_of(client: TestClient) -> Service:
    return cast(Service, client.app.state.components.service)  # type: ignore[attr-defined]


def store_of(client: TestClient) -> MemoryStore:
    return cast(MemoryStore, service_of(client).constraints._constraint_store._store)


def stored(client: TestClient, key: str) -> bytes | None:
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
    constraint = fresh()
    first, again = compiled(client, constraint), compiled(client, constraint)
    assert jobs == ["compile", "explain"]
    assert again["cached"] and again["explanation"] == first["explanation"]


def test_a_compile_without_explanation_starts_no_explain_job(client: TestClient, jobs: list[str]) -> None:
    assert compiled(client, fresh(), explain=False)["explanation"] is None
    assert jobs == ["compile"]


def test_generate_makes_no_explanation(client: TestClient, jobs: list[str]) -> None:
    body = {"prompt": "sentence:", "constraint": {"regex": "[a-z]{2,4} dogs"}, "max_tokens": 12, "beams": 2}
    answer = client.post("/generate", json=body).json()
    assert stored(client, explanation_key(answer["automaton"])) is None
    assert "explain" not in jobs


def test_an_automaton_compiled_by_generate_is_explained_on_demand(client: TestClient) -> None:
    constraint = {"regex": "[a-z]{2,5} cats"}
    body = {"prompt": "sentence:", "constraint": constraint, "max_tokens": 12, "beams": 2}
    automaton = client.post("/generate", json=body).json()["automaton"]
    shown = client.get(f"/automata/{automaton}").json()["explanation"]
    assert shown["shortest"].endswith(" cats")
    assert shown == compiled(client, constraint)["explanation"]


def test_explanations_use_the_callers_names(client: TestClient) -> None:
    theirs = {"ltlf": "F(beast)", "propositions": {"beast": ["wolf", "bear"]}}
    ours = {"ltlf": "F(animal)", "propositions": {"animal": ["bear", "wolf"]}}
    first, second = compiled(client, theirs), compiled(client, ours)
    assert first["automaton"] == second["automaton"]
    assert [letter["name"] for letter in second["explanation"]["letters"]] == ["other", "animal"]
    assert "F(animal)" in second["explanation"]["sentences"][0]
    looked_at = client.get(f"/automata/{first['automaton']}").json()
    assert [letter["name"] for letter in looked_at["explanation"]["letters"]] == ["other", "beast"]


def test_an_invalid_stored_explanation_is_replaced(client: TestClient, jobs: list[str]) -> None:
    constraint = fresh()
    first = compiled(client, constraint)
    key = explanation_key(first["automaton"])
    for faulty in (b"{}", b"\xff", dump(ExplainJob("0" * 64, 1.0))):
        asyncio.run(store_of(client).put(key, faulty, 60))
        assert compiled(client, constraint)["explanation"] == first["explanation"]
        assert stored(client, key) != faulty
    assert jobs == ["compile", *["explain"] * 4]


def test_an_evicted_automaton_has_no_explanation(client: TestClient) -> None:
    service = service_of(client)
    answer = compiled(client, fresh(), explain=False)
    data = stored(client, automaton_key(answer["automaton"]))
    assert data is not None
    asyncio.run(store_of(client).delete(automaton_key(answer["automaton"]), data))
    portal = client.portal
    assert portal is not None
    spec = spec_from_json({"regex": "a"})
    assert portal.call(service.constraints.explanation, answer["automaton"], spec) is None


def fail_to_explain(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    whole = Sandbox.run

    def failing(sandbox: Sandbox, request: bytes, cancelled: Callable[[], bool]) -> bytes:
        if "stored" in json.loads(request):
            raise error
        return whole(sandbox, request, cancelled)

    monkeypatch.setattr(Sandbox, "run", failing)


def test_an_explanation_over_a_limit_still_returns_the_automaton(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraint = fresh()
    with monkeypatch.context() as while_it_fails:
        fail_to_explain(while_it_fails, LimitExceeded("compile_memory_bytes_max", 1, 2))
        answer = compiled(client, constraint)
        looked_at = client.get(f"/automata/{answer['automaton']}")
    assert answer["explanation"] is looked_at.json()["explanation"] is None
    assert "immutable" not in looked_at.headers.get("cache-control", "")
    again = client.get(f"/automata/{answer['automaton']}")
    assert again.json()["explanation"] == compiled(client, constraint)["explanation"] is not None
    assert "immutable" in again.headers["cache-control"]


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
    key, secret = explanation_key(answer["automaton"]), service_of(client).settings.secret
    sealed = stored(client, key)
    assert sealed is not None
    data = verify(secret, key, sealed)
    assert data is not None
    result = load(data)
    assert isinstance(result, ExplainJobResult) and dump(result) == data
    with pytest.raises(MessageInvalid):
        load(data.replace(b'"sentences"', b'"sentence"'))


def test_a_bug_in_an_explanation_is_an_internal_error(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_explain(monkeypatch, RuntimeError("MARKER"))
    response = client.post("/compile", json={"constraint": fresh()})
    assert response.status_code == 500
    assert "MARKER" not in response.text
