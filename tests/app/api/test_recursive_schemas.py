"""JSON of any depth, from request to answer. `jsonschema` judges the texts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from jsonschema import Draft202012Validator

from tests.compiler.json_schema.test_rules import EXPRESSION, LINKED_LIST, SCHEMAS, TREE


def post(client: TestClient, path: str, status: int = 200, **body: Any) -> dict[str, Any]:
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
@pytest.mark.sample(3)
def test_answers_within_every_budget_are_valid(client: TestClient, schema: object) -> None:
    constraint = {"json_schema": schema}
    compiled = post(client, "/compile", constraint=constraint)
    least = compiled["min_tokens"]
    for extra, options in ((0, {}), (25, {"algorithm": "sample", "seed": 1, "n": 2}), (40, {"beams": 4})):
        body = {"prompt": "a", "constraint": constraint, "max_tokens": least + extra, **options}
        for choice in post(client, "/generate", **body)["choices"]:
            assert Draft202012Validator(schema).is_valid(json.loads(choice["text"]))
            verdict = post(client, "/check", constraint=constraint, text=choice["text"])
            assert (verdict["satisfied"], verdict["canonical"]) == (True, True)
    refused = post(client, "/generate", 422, prompt="a", constraint=constraint, max_tokens=least - 1)
    assert (refused["code"], refused["min_tokens"]) == ("budget_too_small", least)


@pytest.mark.parametrize("schema", [TREE, LINKED_LIST, EXPRESSION], ids=range(3))
def test_recursive_constraints_are_explained(client: TestClient, schema: object) -> None:
    explanation = post(client, "/compile", constraint={"json_schema": schema})["explanation"]
    for text in (explanation["shortest"], *explanation["samples"]):
        assert Draft202012Validator(schema).is_valid(json.loads(text))
