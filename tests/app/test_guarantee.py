"""The guarantee over HTTP: random constraints through the whole service, each answer checked at the client."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest
from starlette.testclient import TestClient

from compiler.spec import Spec, spec_to_json
from tests.references.random_constraints import random_spec
from tests.references.text import satisfies

PROMPTS = ("sentence:", "concepts: dog, ball\nsentence:", "", "日本 😀", "A man ")
REFUSED = {"constraint_unsatisfiable", "constraint_syntax"}  # what random constraints may deserve


@pytest.mark.parametrize("block", range(4))
def test_every_answer_satisfies_and_every_refusal_is_a_good_one(client: TestClient, block: int) -> None:
    draw = random.Random(1_000 + block)
    answered = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `re` of possible set operations in random patterns
        for _ in range(20):
            answered += _request(client, draw)
    assert answered >= 5


def _request(client: TestClient, draw: random.Random) -> bool:
    """One constraint: its least budget answers, one token less is refused; True where texts came back."""
    spec = random_spec(draw)
    compiled = client.post("/compile", json={"constraint": spec_to_json(spec)})
    if compiled.status_code != 200:
        assert (compiled.status_code, compiled.json()["code"] in REFUSED) == (422, True), compiled.text
        return False
    least = compiled.json()["min_tokens"]
    budget = least + draw.choice((0, 0, 1, 4, 12))
    body = {"prompt": draw.choice(PROMPTS), "automaton": compiled.json()["automaton"], **_algorithm(draw)}
    response = client.post("/generate", json={**body, "trace": True, "max_tokens": budget})
    assert response.status_code == 200, response.text
    texts = [choice["text"] for choice in response.json()["choices"]]
    assert texts
    if body["algorithm"] != "sample":
        assert len(set(texts)) == len(texts)
    for choice in response.json()["choices"]:
        assert choice["satisfied"]
        assert satisfies(spec, choice["text"]), (spec, choice["text"])
        assert len(choice["trace"]) <= budget
    if least > 1:
        refused = client.post("/generate", json={**body, "max_tokens": least - 1})
        assert (refused.status_code, refused.json()["code"]) == (422, "budget_too_small")
        assert refused.json()["min_tokens"] == least
    checked = client.post("/check", json={"constraint": spec_to_json(spec), "text": texts[0]})
    assert checked.json()["satisfied"]
    _continue(client, spec, body, texts[0][: draw.randint(0, len(texts[0]))], len(texts[0].encode()) + 1)
    return True


def _algorithm(draw: random.Random) -> dict[str, Any]:
    """One of the algorithms with options of its own."""
    beams = draw.choice((1, 2, 8))
    search = {"beams": beams, "n": draw.randint(1, beams)}
    return draw.choice((
        {"algorithm": "abs", **search, "rank_by": draw.choice(("score", "log_prob"))},
        {"algorithm": "banked", **search, "length_penalty": draw.choice((0.0, 0.5, 1.0))},
        {"algorithm": "sample", "n": draw.randint(1, 3), "temperature": draw.choice((0.0, 0.7, 1.0)),
         "top_p": draw.choice((0.5, 1.0))},
    ))


def _continue(client: TestClient, spec: Spec, body: dict[str, Any], begun: str, budget: int) -> None:
    """The beginning of a text that satisfies can be continued, by single bytes if need be."""
    response = client.post("/generate", json={**body, "prompt": begun, "scope": "full", "max_tokens": budget})
    assert response.status_code == 200, response.text
    for choice in response.json()["choices"]:
        assert satisfies(spec, begun + choice["text"]), (spec, begun, choice["text"])
