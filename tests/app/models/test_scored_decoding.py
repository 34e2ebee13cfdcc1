"""POST /decode with a scorer. The scorer is a small transformer in the worker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.messages import DecodeJob, ScorerTask, automaton_key
from app.models import open_scorers
from app.settings import Settings
from app.worker.handlers.decode import LabelDecoder
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.vocab import byte_vocabulary
from decoding.errors import ModelUnavailable
from decoding.scorer_models import LabelIds, open_scorer
from tests.app.conftest import service_client
from tests.app.worker.fake_context import FakeContext
from tests.label_scorers import BEGIN, END, LABELS, SPECIAL, write_llama

RULES = {"ltlf": "G(submit -> X F check) & F(pay | reject) & G(pay -> !F reject)"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scorer")
    write_llama(path)
    return path


@pytest.fixture(scope="module")
def claims(folder: Path) -> Iterator[TestClient]:
    """A service with one scorer."""
    with service_client(scorers=(f"claims={folder}",)) as client:
        yield client


def decode(client: TestClient, **body: Any) -> Any:
    return client.post("/decode", json={"scorer": "claims", "constraint": RULES, "max_tokens": 5, **body})


def satisfied(client: TestClient, *labels: str) -> bool:
    body = {"constraint": {**RULES, "labels": list(LABELS)}, "labels": list(labels)}
    return bool(client.post("/check", json=body).json()["satisfied"])


def test_the_answer_is_the_best_of_all_sequences(claims: TestClient, folder: Path) -> None:
    first = len(SPECIAL)
    scorer = open_scorer(folder, LabelIds(tuple(range(first, first + len(LABELS))), BEGIN, END), device="cpu")
    values = {}
    for length in range(4):
        for numbers in itertools.product(range(len(LABELS)), repeat=length):
            names = tuple(LABELS[number] for number in numbers)
            if satisfied(claims, "submit", *names):
                written = (0, *numbers, len(LABELS))
                rows = scorer([list(written[:place]) for place in range(1, len(written))])
                values[names] = sum(float(row[label]) for row, label in zip(rows, written[1:], strict=True))
    body = decode(claims, prefix=["submit"], max_tokens=4, beams=128, length_penalty=0).json()
    assert len(values) > 10 and tuple(body["labels"]) == max(values, key=values.__getitem__)
    assert body["log_prob"] == body["score"] == pytest.approx(max(values.values()), abs=1e-3)


@pytest.mark.parametrize("beams", [1, 4])
def test_written_labels_satisfy_within_the_budget(claims: TestClient, beams: int) -> None:
    for budget in (3, 5, 9):
        body = decode(claims, beams=beams, max_tokens=budget, prefix=["submit"]).json()
        assert satisfied(claims, "submit", *body["labels"]) and len(body["labels"]) < budget
        assert [step["label"] for step in body["trace"]] == body["labels"] and body["trace"][-1]["distance"] == 0
        assert sum(step["log_prob"] for step in body["trace"]) >= body["log_prob"]


def test_memory_bounds_the_beams(folder: Path) -> None:
    with service_client(scorers=(f"claims={folder}",), generation_memory_bytes=2**23) as client:
        assert decode(client, beams=300).status_code == 200
        problem = decode(client, beams=20_000).json()
    assert problem["code"] == "request_too_large" and problem["needed_bytes"] > problem["memory_bytes"] == 7 * 2**20


def test_equal_requests_get_equal_answers(claims: TestClient) -> None:
    first, second = (decode(claims, max_tokens=8).json() for _ in range(2))
    assert (first["labels"], first["log_prob"]) == (second["labels"], second["log_prob"])


@pytest.mark.parametrize(
    ("body", "code", "fields"),
    [
        ({"max_tokens": 1}, "budget_too_small", {"min_tokens": 2, "max_tokens": 1}),
        ({"max_tokens": 2, "prefix": ["submit"]}, "budget_too_small", {"min_tokens": 3, "max_tokens": 2}),
        ({"prefix": ["pay", "check", "reject"]}, "prompt_violates", {"position": 2}),
        (
            {"prefix": ["check"] * 12}, "context_length_exceeded",
            {"prompt_tokens": 13, "max_tokens": 5, "context_length": 16},
        ),
        (
            {"prefix": ["check", "MARKER"]}, "invalid_request",
            {"errors": [{"path": "prefix.1", "message": "this is no label of the scorer"}]},
        ),
        (
            {"scorer": "/etc"}, "invalid_request",
            {"errors": [{"path": "scorer", "message": "this service has the scorers claims"}]},
        ),
        ({"constraint": {"ltlf": "F pay & G check"}}, "constraint_unsatisfiable", {}),
        ({"max_tokens": 5_000}, "invalid_request", {"path": "max_tokens", "limit": "matrix_rows_max", "cap": 4_096}),
    ],
    ids=str,
)  # fmt: skip
def test_faulty_requests_are_named(claims: TestClient, body: dict[str, Any], code: str, fields: dict[str, Any]) -> None:
    refused = decode(claims, **body)
    assert refused.status_code in (400, 422) and refused.json()["code"] == code
    assert {name: refused.json()[name] for name in fields} == fields


@pytest.mark.parametrize("fault", ["unnamed", "relabelled"])
def test_a_worker_whose_scorers_differ_from_the_services_refuses(folder: Path, fault: str) -> None:
    settings = Settings.of(scorers=(f"claims={folder}",))
    files = dict(open_scorers(settings))
    if fault == "unnamed":
        del files["claims"]
    else:
        files["claims"] = replace(files["claims"], labels=(*LABELS[:3], "MARKER"))
    compiled = compile_spec(spec_from_json({**RULES, "labels": list(LABELS)}), byte_vocabulary())
    context, key = FakeContext(), "ab" * 32
    context.save(automaton_key(key), b"stored", 60)
    task = ScorerTask("claims", (), 5, 0.0)
    job = DecodeJob(key, (), 4, 0.5, 1.0, 0.0, scorer=task)
    with pytest.raises(ModelUnavailable, match="has no 'claims'" if fault == "unnamed" else "have changed"):
        LabelDecoder(settings, lambda automaton, data: compiled, files).run(job, context)
