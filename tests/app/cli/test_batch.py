"""Requests from a file, answered, interrupted and resumed."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from abs_client import AsyncClient
from app.cli.batch import run_batch
from app.errors import AppError
from tests.app.cli.conftest import Command, exit_status
from tests.app.cli.test_commands import abs_command
from tests.client.scripted_server import answer, scripted_server
from tests.servers.service_process import ServiceProcess

DOG = {"prompt": "sentence:", "constraint": {"keywords": ["dog"]}, "max_tokens": 12}
CALL = {"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "notify"}}],
        "policy": {"rules": ["init(notify)"], "max_calls": 1}, "max_tokens": 32}  # fmt: skip


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines), "utf-8")
    return path


def batch(requests: Path, answers: Path) -> tuple[str, ...]:
    return ("generate", "--jsonl", str(requests), "--output", str(answers))


def test_each_request_has_an_answer_or_an_error(tmp_path: Path, command: Command) -> None:
    requests = write(tmp_path / "requests", DOG, "", DOG | {"max_tokens": 1}, CALL, DOG | {"max_tokens": -1})
    arguments = batch(requests, tmp_path / "answers")
    status, _, errors = command(*arguments)
    assert status == 4 and "2 answered, 1 cannot be satisfied, 1 failed" in errors
    answers = {line["line"]: line for line in lines_of(tmp_path / "answers")}
    assert sorted(answers) == [1, 3, 4, 5]
    choices = {line: answers[line]["answer"]["choices"][0] for line in (1, 4)}
    assert choices[1]["satisfied"] and choices[4]["message"]["tool_calls"]
    assert [answers[line]["error"]["code"] for line in (3, 5)] == ["budget_too_small", "invalid_request"]
    write(requests, DOG, "", DOG | {"max_tokens": 1}, CALL)
    assert command(*arguments)[0] == 3


def test_a_further_run_sends_what_has_no_answer(tmp_path: Path, running_service: ServiceProcess) -> None:
    requests, answers = write(tmp_path / "requests", DOG, DOG, DOG), tmp_path / "answers"
    answers.write_text('{"line": 2, "answer": {}}\n{"line": 1, "error": {}}\n{"line": 3, "answ', encoding="utf-8")

    def connect() -> AsyncClient:
        return AsyncClient(running_service.url, "")

    assert run_batch(requests, answers, connect, 2) == [None, None]
    written = lines_of(answers)
    assert [line["line"] for line in written[:2]] == [2, 1] and {line["line"] for line in written[2:]} == {1, 3}
    assert run_batch(requests, answers, connect, 2) == []


def test_each_request_may_name_a_built_in_model(tmp_path: Path) -> None:
    requests = write(tmp_path / "requests", DOG, DOG | {"model": "stories"})
    result = abs_command(*batch(requests, tmp_path / "answers"))
    assert result.returncode == 0, result.stderr
    answers = {line["line"]: line["answer"]["model"] for line in lines_of(tmp_path / "answers")}
    assert answers == {1: "captions", 2: "stories"}


def test_requests_without_a_model_take_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = write(tmp_path / "requests", DOG, DOG | {"model": None}, DOG | {"model": "stories"})
    with scripted_server(answer(), answer(), answer()) as server:
        options = ("--model", "captions", "--url", server.url, "--concurrency", "1")
        assert exit_status(monkeypatch, *batch(requests, tmp_path / "answers"), *options) == 0
    assert [request.body["model"] for request in server.requests] == ["captions", "captions", "stories"]


def test_options_are_for_lines_that_leave_them_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = write(tmp_path / "requests", {"prompt": "a"}, {"prompt": "b", "automaton": "f" * 64, "max_tokens": 3})
    with scripted_server(answer(), answer()) as server:
        options = ("--regex", "a+", "--max-tokens", "5", "--trace", "--url", server.url, "--concurrency", "1")
        assert exit_status(monkeypatch, *batch(requests, tmp_path / "answers"), *options) == 0
    first, second = (request.body for request in server.requests)
    assert (first["constraint"], first["max_tokens"], first["trace"]) == ({"regex": "a+"}, 5, True)
    assert second["max_tokens"] == 3 and second["automaton"] == "f" * 64 and "constraint" not in second


@pytest.mark.parametrize(
    "options", [("a", "--jsonl", "FILE", "--output", "o"), ("--jsonl", "FILE"), ("--regex", "a"),
                ("a", "--regex", "a", "--output", "o"), ("--jsonl", "FILE", "--output", "o", "--stream")],
)  # fmt: skip
def test_options_that_exclude_each_other_are_refused(
    tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests = write(tmp_path / "requests", DOG)
    arguments = (str(requests) if option == "FILE" else option for option in options)
    assert exit_status(monkeypatch, "generate", *arguments) == 2
    assert "--jsonl" in capsys.readouterr().err


def test_a_field_of_a_wrong_type_fails_alone(tmp_path: Path) -> None:
    fields = ({"constraint": 5}, {"idempotency_key": 3}, {"policy": {"rules": 5}}, {})
    requests = write(tmp_path / "requests", *(DOG | each for each in fields))
    with scripted_server(answer()) as server:
        codes = run_batch(requests, tmp_path / "answers", lambda: AsyncClient(server.url, ""), 1)
    assert codes == ["", "", "", None]
    details = [line["error"]["detail"] for line in lines_of(tmp_path / "answers") if "error" in line]
    assert len(details) == 3 and "a constraint is a Constraint or a dict" in details[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "JSON"), ("[]", "must be a JSON object"), ({"prompt": 1}, "a prompt"), ({}, "or messages"),
        (DOG | CALL, "a prompt"), (DOG | {"policy": {"rule": []}}, "policy is an object with"),
        (DOG | {"policy": []}, "policy is an object"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_request_is_named(tmp_path: Path, line: object, message: str) -> None:
    requests = write(tmp_path / "requests", DOG, line)
    with pytest.raises(AppError, match=f"line 2: .*{message}"):
        run_batch(requests, tmp_path / "answers", contextlib.nullcontext, 1)  # type: ignore[arg-type]
    assert not (tmp_path / "answers").exists()
