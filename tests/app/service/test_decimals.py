"""Numbers of schemas keep their decimals, whichever way a request takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from abs_client import Client, JsonSchema, apply_suggestion
from compiler.exact_json import dump_json, load_json
from tests.app.cli.conftest import exit_status
from tests.servers.service_process import ServiceProcess
from tests.tables import table

CASES = {case["name"]: case for case in table("decimals")["case"]}
NUMBER = "0.12345678901234567891"
NEAR = "0.12345678901234567892"  # the same double
OBJECT = (
    f'{{"type": "object", "properties": {{"price": {{"enum": [{NUMBER}]}}}}, '
    '"required": ["price"], "additionalProperties": false}'
)
ANSWER = f'{{"price": {NUMBER}}}'
USER = '"messages": [{"role": "user", "content": "a"}], "max_tokens": 200'
TOOL = f'{{"type": "function", "function": {{"name": "pay", "parameters": {OBJECT}}}}}'
QUOTED = json.dumps(OBJECT)
BODIES = {  # by path: bodies whose answer is ANSWER
    "/generate": [
        *(
            f'{{"prompt": "a", "max_tokens": 200, "constraint": {{{constraint}}}}}'
            for constraint in (
                f'"json_schema": {OBJECT}',
                f'"json_schema": {{"$ref": "urn:a"}}, "schemas": {{"urn:a": {OBJECT}}}',
                f'"all": [{{"max_chars": 90}}, {{"json_schema": {OBJECT}}}]',
                f'"sequence": [{{"json_schema": {OBJECT}}}]',
            )
        ),
        f'{{{USER}, "tool_choice": "required", "tools": [{TOOL}]}}',
    ],
    "/v1/completions": [
        f'{{"prompt": "a", "max_tokens": 200, "{field}": {value}}}'
        for field, value in (
            ("response_format", f'{{"type": "json_schema", "json_schema": {{"name": "a", "schema": {OBJECT}}}}}'),
            ("response_format", f'{{"type": "json_object", "schema": {OBJECT}}}'),
            ("guided_json", OBJECT), ("guided_json", QUOTED), ("structured_outputs", f'{{"json": {QUOTED}}}'),
            ("json_schema", QUOTED), ("grammar", f'{{"type": "json", "value": {OBJECT}}}'),
        )
    ],
    "/v1/chat/completions": [
        f'{{{USER}, "tool_choice": "required", "tools": [{TOOL}]}}',
        f'{{{USER}, "tool_choice": "required", "policy": {{"rules": []}}, "tools": [{TOOL}]}}',
    ],
    "/v1/responses": [
        f'{{"input": "a", "text": {{"format": {{"type": "json_schema", "name": "a", "schema": {OBJECT}}}}}}}',
        '{"input": "a", "tool_choice": "required", "tools": '
        f'[{{"type": "function", "name": "pay", "parameters": {OBJECT}}}]}}',
    ],
    "/v1/messages": [
        f'{{{USER}, "tool_choice": {{"type": "any"}}, "tools": [{{"name": "pay", "input_schema": {OBJECT}}}]}}'
    ],
}  # fmt: skip


def send(client: TestClient, path: str, body: str, **headers: str) -> Any:
    """The response to a body as it stands.

    A client would write its own spelling of the numbers.
    """
    return client.post(path, content=body, headers={"content-type": "application/json", **headers})


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_check_decides_by_the_decimals_of_the_schema(client: TestClient, case: dict[str, Any]) -> None:
    body = f'{{"constraint": {{"json_schema": {case["schema"]}}}, "text": {json.dumps(case["text"])}}}'
    answer = send(client, "/check", body).json()
    assert answer["satisfied"] == case["satisfied"]
    assert answer["canonical"] == case.get("canonical", answer["canonical"])


@pytest.mark.parametrize(
    ("path", "body"), [pytest.param(path, body, id=path) for path, bodies in BODIES.items() for body in bodies]
)
def test_an_answer_has_the_number_that_the_schema_lists(client: TestClient, path: str, body: str) -> None:
    response = send(client, path, body)
    assert response.status_code == 200, response.text
    found = response.text.replace('\\"', '"').replace(" ", "")
    assert ANSWER.replace(" ", "") in found
    assert "0.12345678901234568" not in found


def test_streams_have_the_number_that_the_schema_lists(client: TestClient) -> None:
    for path in ("/v1/responses", "/v1/messages"):
        for body in BODIES[path]:
            text = send(client, path, body[:-1] + ', "stream": true}').text
            assert "0.12345678901234568" not in text


def test_a_compilation_shows_the_decimals(client: TestClient) -> None:
    body = f'{{"constraint": {{"json_schema": {{"enum": [1.50, 1E2, {NUMBER}]}}}}}}'
    compiled = send(client, "/compile", body).json()
    assert set(compiled["explanation"]["samples"]) == {"1.50", "100", NUMBER}
    shown = client.get(f"/automata/{compiled['automaton']}").text
    assert f'{{"enum":[1.50,1E+2,{NUMBER}]}}' in shown
    again = dump_json({"constraint": load_json(shown)["constraint"]})
    assert send(client, "/compile", again).json()["automaton"] == compiled["automaton"]
    other = send(client, "/compile", body.replace(NUMBER, NEAR)).json()
    assert other["automaton"] != compiled["automaton"]


def test_a_conjunct_is_shown_as_the_request_has_it(client: TestClient) -> None:
    constraint = f'{{"all": [{{"json_schema": {{"enum": [{NUMBER}]}}}}, {{"max_chars": 50}}]}}'
    response = send(client, "/check", f'{{"constraint": {constraint}, "text": "1", "conjuncts": true}}')
    assert f'"json_schema":{{"enum":[{NUMBER}]}}' in response.text


def test_a_key_tells_numbers_apart_and_not_spellings_of_options(client: TestClient) -> None:
    constraint = f'{{"json_schema": {{"const": {NUMBER}}}}}'
    body = f'{{"prompt": "a", "max_tokens": 60, "timeout_s": 50, "constraint": {constraint}}}'
    key = {"idempotency-key": "decimals"}
    first = send(client, "/generate", body, **key)
    for same in (body.replace("50,", "50.0,"), body.replace("50,", "5E1,")):
        assert send(client, "/generate", same, **key).json()["id"] == first.json()["id"]
    refused = send(client, "/generate", body.replace(NUMBER, NEAR), **key)
    assert refused.json()["code"] == "idempotency_mismatch"


@pytest.mark.parametrize(("bound", "broken"), [(NUMBER, True), (NEAR, False)])
def test_a_policy_compares_decimals(client: TestClient, bound: str, broken: bool) -> None:
    arguments = json.dumps(f'{{"amount": {NUMBER}}}')
    function = f'{{"name": "pay", "arguments": {arguments}}}'
    call = f'{{"role": "assistant", "tool_calls": [{{"id": "a", "function": {function}}}]}}'
    parameters = '{"type": "object", "properties": {"amount": {"type": "number", "maximum": 9.50}}}'
    tool = f'{{"type": "function", "function": {{"name": "pay", "parameters": {parameters}}}}}'
    rules = json.dumps([f"G !call(pay, amount >= {bound})"])
    response = send(client, "/check", f'{{"policy": {{"rules": {rules}}}, "messages": [{call}], "tools": [{tool}]}}')
    assert bool(response.json()["broken"]) == broken
    if not broken:
        assert '"maximum":9.50' in response.text and bound in response.text


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", "1.50"), ("temperature", "15E-1"), ("timeout_s", "5E1"), ("logit_bias", '{"5": 1.50}'),
     ("top_p", "0.900000000000000000001"), ("length_penalty", "1e-399")],
)  # fmt: skip
def test_options_take_any_spelling_of_a_number(client: TestClient, field: str, value: str) -> None:
    algorithm = "sample" if field in ("temperature", "top_p") else "banked"
    fields = f'"prompt": "a", "max_tokens": 9, "algorithm": "{algorithm}", "constraint": {{"regex": "a"}}'
    response = send(client, "/generate", f'{{{fields}, "{field}": {value}}}')
    assert response.status_code == 200, response.text


@pytest.mark.parametrize("value", ["5.0", "5.00", "5E0", "5.5"])
def test_integers_with_a_fraction_are_refused_as_before(client: TestClient, value: str) -> None:
    response = send(client, "/generate", f'{{"prompt": "a", "max_tokens": {value}, "constraint": {{"regex": "a"}}}}')
    assert response.status_code == 422
    assert response.json()["errors"] == [{"path": "max_tokens", "message": "must be a whole number"}]


def test_labels_are_decoded_whatever_the_spelling(client: TestClient) -> None:
    body = '{"constraint": {"ltlf": "F(a)"}, "labels": ["a", "b"], "log_probs": [[-1.50, -0.10], [-15E-1, %s]]}'
    one, other = (send(client, "/decode", body % number).json() for number in ("-0.1", "-0.100"))
    assert (one["labels"], one["log_prob"]) == (other["labels"], other["log_prob"])


@pytest.fixture
def by_command(running_service: ServiceProcess, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    return lambda *words: exit_status(monkeypatch, *words, "--url", running_service.url)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.sample(3)
def test_the_command_line_keeps_decimals(by_command: Callable[..., int], case: dict[str, Any]) -> None:
    status = by_command("check", case["text"], "--constraint", f'{{"json_schema": {case["schema"]}}}')
    assert status == (0 if case["satisfied"] else 3)


def test_requests_of_a_file_keep_decimals(by_command: Callable[..., int], tmp_path: Path) -> None:
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    schema = f'{{"enum": [{NUMBER}]}}'
    fields = '"prompt": "a", "max_tokens": 60, "timeout_s": 5E1'
    requests.write_text(f'{{{fields}, "constraint": {{"json_schema": {schema}}}}}')
    assert by_command("generate", "--jsonl", str(requests), "--output", str(answers)) == 0
    assert json.loads(answers.read_text())["answer"]["choices"][0]["text"] == NUMBER


def test_the_client_sends_decimals(running_service: ServiceProcess) -> None:
    with Client(running_service.url) as client:
        schema = {"enum": [Decimal(NUMBER), Decimal("1.50")]}
        verdicts = {text: client.check(JsonSchema(schema), text).canonical for text in (NUMBER, NEAR, "1.50", "1.5")}
        assert verdicts == {NUMBER: True, NEAR: False, "1.50": True, "1.5": False}
        text = dump_json({"json_schema": {"enum": [Decimal(NUMBER)]}})
        edited = apply_suggestion({"constraint": text}, [{"op": "parse", "path": "/constraint"}])
        assert client.check(edited["constraint"], NUMBER).satisfied
        assert not client.check(edited["constraint"], NEAR).satisfied
