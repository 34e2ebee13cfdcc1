"""Random constraints over HTTP, each answer checked at the client."""

from __future__ import annotations

import random
import unicodedata
import warnings
from typing import Any

import pytest
from starlette.testclient import TestClient

from compiler.spec import Spec, spec_to_json
from tests.references.random_constraints import random_spec
from tests.references.text import satisfies

PROMPTS = ("sentence:", "concepts: dog, ball\nsentence:", "", "日本 😀", "A man ")
REFUSAL_CODES = {"constraint_unsatisfiable", "constraint_syntax"}  # error codes that a random constraint may get
BOUNDS = {"integer_digits_max", "number_digits"}  # of numbers in JSON, where nothing else satisfies the constraint


@pytest.mark.parametrize("block", range(4))
@pytest.mark.sample(1)
def test_every_answer_satisfies_and_every_refusal_is_a_good_one(client: TestClient, block: int) -> None:
    draw = random.Random(1_000 + block)
    answers = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # `re` warns of possible set operations
        for _ in range(24):
            answers += _request(client, draw)
    assert answers >= 5


def test_answers_of_properties_have_their_categories(client: TestClient) -> None:
    constraint = {"regex": r"\p{Lu}[\p{Ll} ]{8,60}[^\P{P}!]"}
    body = {"prompt": "sentence:", "constraint": constraint, "max_tokens": 24, "n": 2}
    choices = client.post("/generate", json=body).json()["choices"]
    texts = [choice["text"] for choice in choices]
    assert len(texts) == 2 and all(choice["satisfied"] for choice in choices)
    for text in texts:
        first, *middle, last = map(unicodedata.category, text)
        assert first == "Lu" and last.startswith("P") and set(middle) <= {"Ll", "Zs"}
    verdicts = {texts[0]: True, texts[0].swapcase(): False, "Éin ætherß.": True, "A ball run!": False}
    for text, satisfied in verdicts.items():
        verdict = client.post("/check", json={"constraint": constraint, "text": text}).json()
        assert verdict["satisfied"] is satisfied, text


def _request(client: TestClient, draw: random.Random) -> bool:
    """Generate for one random constraint; True if it has answers.

    The minimal budget gives an answer, one token less is refused.
    """
    spec = random_spec(draw)
    compiled = client.post("/compile", json={"constraint": spec_to_json(spec)})
    if compiled.status_code != 200:
        problem = compiled.json()
        assert compiled.status_code == 422, (spec, problem)
        assert problem["code"] in REFUSAL_CODES or problem.get("limit") in BOUNDS, (spec, problem)
        return False
    min_tokens = compiled.json()["min_tokens"]
    budget = min_tokens + draw.choice((0, 0, 1, 4, 12))
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
    if min_tokens > 1:
        refusal = client.post("/generate", json={**body, "max_tokens": min_tokens - 1})
        assert (refusal.status_code, refusal.json()["code"]) == (422, "budget_too_small")
        assert refusal.json()["min_tokens"] == min_tokens
    verdict = client.post("/check", json={"constraint": spec_to_json(spec), "text": texts[0]})
    assert verdict.json()["satisfied"]
    _continue(client, spec, body, texts[0][: draw.randint(0, len(texts[0]))], len(texts[0].encode()) + 1)
    return True


def _algorithm(draw: random.Random) -> dict[str, Any]:
    """One of the algorithms with random options."""
    beams = draw.choice((1, 2, 8))
    search = {"beams": beams, "n": draw.randint(1, beams)}
    return draw.choice((
        {"algorithm": "abs", **search, "rank_by": draw.choice(("score", "log_prob"))},
        {"algorithm": "banked", **search, "length_penalty": draw.choice((0.0, 0.5, 1.0))},
        {"algorithm": "sample", "n": draw.randint(1, 3), "temperature": draw.choice((0.0, 0.7, 1.0)),
         "top_p": draw.choice((0.5, 1.0)), "top_k": draw.choice((-1, 1, 3)), "min_p": draw.choice((0.0, 0.5)),
         "frequency_penalty": draw.choice((0.0, 2.0)), "repetition_penalty": draw.choice((0.5, 1.0, 3.0)),
         "logit_bias": {str(draw.randrange(300)): draw.choice((-100, 5, 100)) for _ in range(draw.choice((0, 40)))}},
    ))


def _continue(client: TestClient, spec: Spec, body: dict[str, Any], prefix: str, budget: int) -> None:
    """A prefix of a satisfying text can be continued.

    The budget suffices for a continuation in single bytes.
    """
    response = client.post("/generate", json={**body, "prompt": prefix, "scope": "full", "max_tokens": budget})
    assert response.status_code == 200, response.text
    for choice in response.json()["choices"]:
        assert satisfies(spec, prefix + choice["text"]), (spec, prefix, choice["text"])
