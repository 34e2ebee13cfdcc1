"""Combinations that are too large for one automaton, from request to answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from compiler.spec import spec_from_json
from tests.app.api.test_recursive_schemas import post
from tests.app.conftest import service_client, wait_until_ready
from tests.app.event_stream import events
from tests.references.text import satisfies
from tests.tables import table

WORDS = ["dog", "cat", "boat", "man", "tree", "red", "umbrella", "piano"]
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "keywords": {"keywords": WORDS},
    "responses": {"ltlf": " & ".join(f"G({WORDS[number - 1]} -> F {word})" for number, word in enumerate(WORDS))},
    "keywords in JSON": {"all": [{"json_schema": {"type": "array"}}, {"keywords": WORDS[:4]}]},
    "any": {"all": [{"any": [{"keywords": WORDS[:5]}, {"keywords": WORDS[3:]}]}, {"regex": "(?s)[A-Z].*\\."}]},
}  # fmt: skip


@pytest.fixture(scope="module")
def small_client() -> Iterator[TestClient]:
    """A service whose automata are so small that these constraints have none."""
    limits = {"dfa_states_max": 150, "exit_distances_max": 2_000}
    with service_client(wait_until_ready, budget_expansions_max=60, compile_s_max=60.0, **limits) as client:
        yield client


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.sample(2)
def test_answers_satisfy_all_parts_within_every_budget(name: str, small_client: TestClient) -> None:
    constraint = CONSTRAINTS[name]
    compiled = post(small_client, "/compile", constraint=constraint)
    enough, least = compiled["min_tokens"], compiled.get("min_tokens_at_least") or compiled["min_tokens"]
    for extra, options in (
        (0, {"beams": 3, "n": 2, "trace": True}), (0, {"beams": 2, "algorithm": "abs"}),
        (4, {"algorithm": "sample", "seed": 1, "n": 2}),
    ):  # fmt: skip
        body = {"prompt": "a", "constraint": constraint, "max_tokens": enough + extra, **options}
        answer = post(small_client, "/generate", **body)
        assert max(len(choice["trace"] or ()) for choice in answer["choices"]) <= enough
        for choice in answer["choices"]:
            is_default = options.get("algorithm", "banked") == "banked"
            assert (choice["proven_gap"] is not None) is is_default
            assert post(small_client, "/check", constraint=constraint, text=choice["text"])["satisfied"], choice["text"]
    body = {"prompt": "a", "constraint": constraint}
    refused = post(small_client, "/generate", 422, **body, max_tokens=least - 1)
    assert (refused["code"], refused["min_tokens"]) == ("budget_too_small", enough)
    for budget in range(least, enough):
        undecided = post(small_client, "/generate", 422, **body, max_tokens=budget)
        fields = {name: undecided[name] for name in ("code", "min_tokens", "min_tokens_at_least", "max_tokens")}
        assert fields == {"code": "undecided", "min_tokens": enough, "min_tokens_at_least": least, "max_tokens": budget}


def test_a_prompt_may_satisfy_some_parts(small_client: TestClient) -> None:
    body = {"constraint": CONSTRAINTS["keywords"], "scope": "full", "prompt": "A man and a dog in a red boat"}
    answer = post(small_client, "/generate", **body, max_tokens=24, beams=2)
    whole = body["prompt"] + answer["choices"][0]["text"]
    assert post(small_client, "/check", constraint=body["constraint"], text=whole)["satisfied"]
    refused = post(small_client, "/generate", 422, **body, max_tokens=2)
    assert refused["code"] == "budget_too_small" and refused["min_tokens"] < 14


def test_the_steps_of_large_combinations_are_streamed(small_client: TestClient) -> None:
    body = {"prompt": "a", "constraint": CONSTRAINTS["keywords"], "max_tokens": 12, "beams": 2, "rejected_top_k": 3}
    with small_client.stream("POST", "/generate", json={**body, "stream": True}) as response:
        received = list(events(response.iter_lines()))
    assert received[-1].name == "done"
    assert any(event.name == "step" for event in received)


def test_a_prompt_may_violate_the_part_that_is_shown(small_client: TestClient) -> None:
    constraint = {"any": [CONSTRAINTS["keywords in JSON"], CONSTRAINTS["keywords"]]}
    body = {"prompt": "A dog", "scope": "full", "constraint": constraint, "max_tokens": 30, "beams": 2}
    with small_client.stream("POST", "/generate", json={**body, "stream": True}) as response:
        received = list(events(response.iter_lines()))
    assert received[-1].name == "done", received[-1]


def test_large_combinations_are_explained(small_client: TestClient) -> None:
    for constraint in CONSTRAINTS.values():
        compiled = post(small_client, "/compile", constraint=constraint)
        explanation = compiled["explanation"]
        assert explanation is not None and "side by side" in " ".join(explanation["sentences"])
        for text in filter(None, (explanation["shortest"], *explanation["samples"])):
            assert post(small_client, "/check", constraint=constraint, text=text)["satisfied"]
        picture = small_client.get(f"/automata/{compiled['automaton']}")
        assert (picture.status_code, picture.json()["code"]) == (422, "unsupported")
        assert "side by side" in picture.json()["detail"]


CASES = {case["name"]: case for case in table("large_combinations")["cases"]}


@pytest.fixture(scope="module")
def patient_client() -> Iterator[TestClient]:
    """A service with the limits of size that are set by default."""
    with service_client(wait_until_ready, compile_s_max=60.0) as client:
        yield client


def check_texts(client: TestClient, name: str, *accepted: str) -> None:
    """Texts of a case have the right verdicts."""
    case = CASES[name]
    constraint = json.loads(case["constraint"])
    verdicts = dict.fromkeys(case["rejected"], False) | dict.fromkeys((*case["accepted"], *accepted), True)
    for text, satisfied in verdicts.items():
        assert satisfies(spec_from_json(constraint), text) is satisfied, text
        assert post(client, "/check", constraint=constraint, text=text)["satisfied"] is satisfied, text


def test_texts_of_a_large_combination_are_decided(client: TestClient) -> None:
    check_texts(client, "8 overlapping patterns")


@pytest.mark.long  # each takes up to a minute; with smaller limits the tests above show the same
@pytest.mark.parametrize("name", CASES)
def test_large_combinations_are_answered_or_refused_rightly(name: str, patient_client: TestClient) -> None:
    client, constraint = patient_client, json.loads(CASES[name]["constraint"])
    body = {"prompt": "a", "constraint": constraint}
    refused = post(client, "/generate", 422, **body, max_tokens=1)
    enough, least = refused["min_tokens"], refused["min_tokens_at_least"]
    answer = post(client, "/generate", **body, max_tokens=enough, beams=2)
    check_texts(client, name, answer["choices"][0]["text"])
    for budget, code in ((least - 1, "budget_too_small"), (least, "undecided"), (enough - 1, "undecided")):
        refused = post(client, "/generate", 422, **body, max_tokens=budget)
        assert (refused["code"], refused["min_tokens"], refused["min_tokens_at_least"]) == (code, enough, least)
