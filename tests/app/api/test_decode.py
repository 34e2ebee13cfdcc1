"""POST /decode with log-probs over labels, by beams and exactly."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from app.api.decode_request import DecodeRequest
from app.errors import AutomatonMissing, InternalError
from app.messages import DecodeJob, DecodeJobResult, Job, Result, automaton_key
from app.worker.handlers.base import Context, Handler
from app.worker.handlers.decode import decode_matrix
from compiler.pipeline import compile_spec
from compiler.spec import Spec, spec_from_json
from compiler.vocab import byte_vocabulary
from decoding.label_decoding import LabelPath
from tests.app import fake_handlers
from tests.app.conftest import service_client
from tests.app.service.test_service import COMPILE, running_service

LABELS = ["boot", "Bag", "sneaker", "Coat"]
CONSTRAINT = {"ltlf": "F(shoe & X F Bag) & G(Bag -> WX !Bag)", "propositions": {"shoe": ["boot", "sneaker"]}}


def matrix(rows: int, labels: int = 4, seed: int = 0) -> list[list[float]]:
    drawn: list[list[float]] = np.log(np.random.default_rng(seed).dirichlet(np.ones(labels) / 2, rows)).tolist()
    return drawn


def decode(client: TestClient, **body: Any) -> Any:
    return client.post("/decode", json={"labels": LABELS, "constraint": CONSTRAINT, **body})


def satisfied(client: TestClient, labels: list[str]) -> bool:
    body = {"constraint": {**CONSTRAINT, "labels": LABELS}, "labels": labels}
    return bool(client.post("/check", json=body).json()["satisfied"])


def test_memory_bounds_the_beams() -> None:
    with service_client(generation_memory_bytes=2**20) as client:
        assert decode(client, log_probs=matrix(4), beams=1_000).json()["satisfied"]
        problem = decode(client, log_probs=matrix(4), beams=10_000).json()
        assert problem["code"] == "request_too_large" and problem["needed_bytes"] > problem["memory_bytes"]
        over = decode(client, log_probs=matrix(4), beams=10**12).json()
    assert (over["path"], over["limit"]) == ("beams", "matrix_states_max")


def test_the_exact_answer_is_the_best_of_all_sequences(client: TestClient) -> None:
    log_probs = matrix(4)
    body = decode(client, log_probs=log_probs).json()
    sums = {
        labels: sum(row[LABELS.index(label)] for row, label in zip(log_probs, labels, strict=True))
        for labels in itertools.product(LABELS, repeat=4)
    }
    found = iter(sorted(sums, key=lambda labels: -sums[labels]))
    best = next(labels for labels in found if satisfied(client, list(labels)))
    assert tuple(body["labels"]) == best and body["satisfied"] is True
    assert body["log_prob"] == body["score"] == pytest.approx(sums[best])


@pytest.mark.parametrize("beams", ["exact", 1, 3, 64])
def test_the_trace_lists_each_label_of_the_answer(client: TestClient, beams: int | str) -> None:
    log_probs = matrix(9, seed=3)
    body = decode(client, log_probs=log_probs, beams=beams).json()
    assert satisfied(client, body["labels"]) and len(body["labels"]) == 9
    assert [step["label"] for step in body["trace"]] == body["labels"]
    assert body["trace"][-1]["distance"] == 0
    shown = client.get(f"/automata/{body['automaton']}").json()
    for number, step in enumerate(body["trace"]):
        assert step["log_prob"] == log_probs[number][LABELS.index(step["label"])]
        assert step["propositions"] == {"Bag": ["Bag"], "Coat": []}.get(step["label"], ["shoe"])
        assert step["distance"] == shown["states"][step["state"]]["distance"] - 1
    assert body["log_prob"] == pytest.approx(sum(step["log_prob"] for step in body["trace"]))
    assert body["score"] >= body["log_prob"] and (body["score"] == body["log_prob"] or beams != "exact")
    assert set(body["timings"]) == {"compile_ms", "queue_ms", "decode_ms", "total_ms", "cached"}


def test_impossible_labels_are_chosen_only_without_an_alternative(client: TestClient) -> None:
    log_probs: list[list[float | None]] = [[None, math.log(0.5), None, math.log(0.5)]] * 3
    for beams in ("exact", 8):
        body = decode(client, log_probs=log_probs, beams=beams).json()
        assert sorted(step["log_prob"] for step in body["trace"])[0] == -10_000.0
        assert body["log_prob"] == pytest.approx(-10_000 + 2 * math.log(0.5))


def test_a_log_prob_slightly_above_zero_is_accepted(client: TestClient) -> None:
    body = decode(client, log_probs=[[0.0005, -9, -9, -9], [-9, 0.0009, -9, -9]]).json()
    assert (body["labels"], body["log_prob"]) == (["boot", "Bag"], 0.0)


def test_the_constraint_may_list_the_labels(client: TestClient) -> None:
    log_probs = matrix(5, seed=9)
    inside = {"log_probs": log_probs, "constraint": {**CONSTRAINT, "labels": LABELS}}
    answers = [client.post("/decode", json=inside).json(), decode(client, log_probs=log_probs).json()]
    assert answers[0]["labels"] == answers[1]["labels"] and answers[0]["automaton"] == answers[1]["automaton"]


def test_columns_follow_the_order_of_the_labels(client: TestClient) -> None:
    log_probs = matrix(6, seed=21)
    first = decode(client, log_probs=log_probs).json()
    turned = {"labels": LABELS[::-1], "log_probs": [row[::-1] for row in log_probs]}
    again = client.post("/decode", json={"constraint": CONSTRAINT, **turned}).json()
    assert (first["labels"], first["log_prob"]) == (again["labels"], again["log_prob"])


def test_an_impossible_length_error_names_the_nearest_lengths(client: TestClient) -> None:
    pairs = {"regex": "(a b )*a b"}
    for beams in ("exact", 2):
        body = {"constraint": pairs, "labels": ["a", "b"], "beams": beams}
        refused = client.post("/decode", json={**body, "log_probs": matrix(5, 2)})
        assert (refused.status_code, refused.json()["code"]) == (422, "constraint_unsatisfiable")
        assert (refused.json()["rows"], refused.json()["lengths"]) == (5, [4, 6])
        assert client.post("/decode", json={**body, "log_probs": matrix(4, 2)}).json()["labels"] == ["a", "b"] * 2


def test_a_matrix_has_limits_alone_and_with_its_constraint() -> None:
    limits = {"matrix_rows_max": 8, "matrix_cells_max": 19, "matrix_states_max": 9}
    with service_client(**limits) as client:
        for limit, rows, labels in zip(limits, (9, 5, 4), (2, 4, 4), strict=True):
            body = decode(client, log_probs=matrix(rows, labels), labels=LABELS[:labels]).json()
            assert (body["code"], body["limit"], body["cap"]) == ("invalid_request", limit, limits[limit])


async def test_an_automaton_evicted_before_its_use_is_recompiled(compiles: list[Spec]) -> None:
    calls: list[Job] = []

    def handle(job: Job, context: Context) -> Result:
        assert isinstance(job, DecodeJob)
        calls.append(job)
        data = context.load(automaton_key(job.automaton))
        assert data is not None
        if len(calls) == 1:
            context.discard(automaton_key(job.automaton), data)
            raise AutomatonMissing("gone")
        return DecodeJobResult(("boot",), -1.0, -1.0, True, (), job.automaton, fake_handlers.NO_TIME)

    body = {"log_probs": [[-1.0] * 4], "labels": LABELS, "constraint": CONSTRAINT}
    params = DecodeRequest.model_validate(body).to_params({})
    async with running_service(COMPILE | {"generate": lambda settings: Handler(handle)}) as (service, _):
        result = await service.answer(await service.begin(params))
        assert isinstance(result, DecodeJobResult) and result.labels == ("boot",)
    assert len(compiles) == 2


def test_beam_defaults_are_the_documented_ones() -> None:
    fields = {"log_probs": [[0.0]], "labels": ["a"], "constraint": {"regex": "a"}, "beams": 4}
    params = DecodeRequest.model_validate(fields).to_params({})
    assert (params.alpha_min, params.gamma) == (0.5, 1.0)
    given = DecodeRequest.model_validate({**fields, "alpha_min": 0.25, "gamma": 2.0}).to_params({})
    assert (given.alpha_min, given.gamma) == (0.25, 2.0)


@pytest.mark.parametrize(
    "path", [LabelPath((3, 3), (-1.0, -1.0), -2.0, -2.0), LabelPath((0, 1), (-1.0, -1.0), -3.0, -3.0)], ids=str
)
def test_an_answer_that_fails_its_check_is_withheld(path: LabelPath) -> None:
    compiled = compile_spec(spec_from_json({**CONSTRAINT, "labels": LABELS}), byte_vocabulary())
    job = DecodeJob("", ((0.0,) * 4,) * 2, "exact", 0.5, 1.0, 0.0)
    with pytest.raises(InternalError):
        decode_matrix(job, compiled, lambda log_probs, automaton: path, fake_handlers.sizes("a"), 0.0)
