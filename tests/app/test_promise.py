"""The promise over HTTP: random constraints through the whole service, judged on what a client receives."""

from __future__ import annotations

import random
import warnings

import pytest
from starlette.testclient import TestClient

from compiler.spec_json import spec_to_json
from tests.fuzz_cases import random_spec
from tests.reference_text import satisfies

PROMPTS = ("sentence:", "concepts: dog, ball\nsentence:", "", "日本 😀", "A man ")
REFUSED = {"constraint_unsatisfiable", "constraint_syntax"}  # what random constraints may deserve


@pytest.mark.parametrize("block", range(6))
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
    body = {"prompt": draw.choice(PROMPTS), "automaton": compiled.json()["automaton"], "beams": draw.choice((1, 2, 8))}
    options = {"trace": True, "rank_by": draw.choice(("score", "log_prob")), "n": draw.randint(1, body["beams"])}
    response = client.post("/generate", json={**body, **options, "max_tokens": budget})
    assert response.status_code == 200, response.text
    texts = [choice["text"] for choice in response.json()["choices"]]
    assert len(set(texts)) == len(texts) > 0
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
    return True
