"""Label constraints over HTTP.

They compile and check. A language model does not generate under them.
"""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

CONSTRAINT = {
    "ltlf": "G(shoe -> X Bag)", "propositions": {"shoe": ["boot", "sneaker"]}, "labels": ["boot", "Bag", "sneaker"],
}


def test_a_sequence_of_labels_is_checked_step_by_step(client: TestClient) -> None:
    compiled = client.post("/compile", json={"constraint": CONSTRAINT}).json()
    assert compiled["min_tokens"] == 2
    body = {"constraint": CONSTRAINT, "labels": ["Bag", "boot", "sneaker"]}
    verdict = client.post("/check", json=body).json()
    assert (verdict["satisfied"], verdict["violated_at"]) == (False, 2)
    assert [(word["text"], word["propositions"]) for word in verdict["words"]] == [
        ("Bag", ["Bag"]), ("boot", ["shoe"]), ("sneaker", ["shoe"]),
    ]  # fmt: skip
    assert client.post("/check", json={**body, "labels": ["boot", "Bag"]}).json()["satisfied"]
    view = client.get(f"/automata/{compiled['automaton']}").json()
    assert view["kind"] == "labels" and view["letters"] == [["boot"], ["Bag"], ["sneaker"]]


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"constraint": CONSTRAINT, "text": "Bag"}, "constraint_syntax", "labels"),
        ({"constraint": {"ltlf": "F Bag"}, "labels": ["Bag"]}, "constraint_syntax", "text"),
        ({"constraint": CONSTRAINT, "labels": ["Bag", "Shirt"]}, "constraint_syntax", "labels.1"),
    ],
)
def test_a_check_with_the_wrong_input_names_the_field(
    client: TestClient, body: dict[str, Any], code: str, field: str
) -> None:
    answer = client.post("/check", json=body)
    assert answer.status_code == 422
    assert (answer.json()["code"], answer.json()["field"]) == (code, field)


def test_a_language_model_does_not_generate_labels(client: TestClient) -> None:
    automaton = client.post("/compile", json={"constraint": CONSTRAINT}).json()["automaton"]
    for fields in ({"constraint": CONSTRAINT}, {"automaton": automaton}):
        answer = client.post("/generate", json={"prompt": "sentence:", **fields})
        assert (answer.status_code, answer.json()["code"]) == (422, "unsupported")
        assert answer.json()["construct"] == "labels"
