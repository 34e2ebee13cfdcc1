from __future__ import annotations

import json
from types import ModuleType

import pytest

import app.errors
import compiler.errors
import decoding.errors
from abs_client.errors import ConstraintUnsatisfiableError, error_of
from app.api.errors import DETAIL_CHARS_MAX, FAULTS_MAX, UNKNOWN_FIELD, problem, shown_path
from app.errors import InternalError, JobFailed, NotReady, without_message
from app.openai.errors import error_body
from compiler.errors import ErrorFacts, LimitExceeded, PolicyUnsatisfiable, SpecSyntaxError
from decoding.errors import ModelUnavailable
from docs.tools.reference import ERRORS

CALLERS = (app.errors.CallerError, compiler.errors.SpecError, decoding.errors.GenerationInvalid)


@pytest.mark.parametrize("module", [app.errors, compiler.errors, decoding.errors], ids=lambda module: module.__name__)
def test_every_error_class_has_facts(module: ModuleType) -> None:
    classes = [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert classes
    for item in classes:
        assert isinstance(item.facts, ErrorFacts)
        if issubclass(item, CALLERS) and item not in CALLERS:
            assert item.facts.code != "internal", f"{item.__name__} is an error of the caller"


def test_a_code_has_one_status() -> None:
    status: dict[str, int] = {}
    for row in ERRORS.values():
        assert status.setdefault(row.code, row.status) == row.status


def test_the_body_carries_the_fields_of_the_row() -> None:
    answer = problem(SpecSyntaxError("bad", source="a\nb(", position=4, expected="')'", field="ltlf"), "id-1")
    body = json.loads(answer.body)
    shown = (answer.status_code, body["status"], body["code"], body["request_id"])
    assert shown == (422, 422, "constraint_syntax", "id-1")
    assert (body["position"], body["line"], body["column"], body["expected"]) == (4, 2, 3, "')'")
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(problem(LimitExceeded("dfa_states_max", 20, 21), "").body)["limit"] == "dfa_states_max"


def test_not_ready_has_a_retry_time() -> None:
    assert problem(NotReady(("loading",)), "").headers["retry-after"] == "1"


def test_only_faults_of_the_request_itself_are_permanent() -> None:
    for facts in ERRORS.values():
        if facts.status == 422:
            assert not facts.retryable, facts.code
        if facts.status >= 500 or facts.status in (404, 408, 429, 499):
            assert facts.retryable, facts.code


def test_every_503_has_a_retry_time() -> None:
    for name in [name for name, row in ERRORS.items() if row.status == 503 and name != "NotReady"]:
        answer = problem(JobFailed(name, "why", {}, ERRORS[name]), "")
        assert int(answer.headers["retry-after"]) == json.loads(answer.body)["retry_after_s"] >= 1


def test_messages_of_the_model_library_are_not_sent() -> None:
    body = json.loads(problem(ModelUnavailable("'/srv/MARKER': no such file"), "").body)
    assert (body["code"], body["detail"]) == ("model_unavailable", "The model cannot be used; the log says why")


def test_an_error_without_an_offset_has_no_position() -> None:
    body = json.loads(problem(SpecSyntaxError("bad", source="ab", field="regex"), "").body)
    assert not {"position", "line", "column"} & set(body)


@pytest.mark.parametrize(
    ("path", "safe_path"),
    [
        ("beams", "beams"), ("propositions.dog.regex", "propositions.dog.regex"), ("keywords.3", "keywords.3"),
        ("propositions.guinea pig.regex", "propositions"), ("MARKER MARKER", UNKNOWN_FIELD), ("", UNKNOWN_FIELD),
        ("M" * 40, "M" * 40), ("M" * 41, UNKNOWN_FIELD), ("propositions." + "M" * 400, "propositions"),
    ],
)
def test_a_field_path_is_cut_at_unsafe_names(path: str, safe_path: str) -> None:
    assert shown_path(path) == safe_path


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("guinea pig", "guinea pig"), ("größe.價格", "größe.價格"), (".".join("abc" * 30), ".".join("abc" * 30)),
        ("M" * 64, "M" * 64), ("M" * 65, "…"), ("a.b\nc.d", "a.….d"),
    ],
)
def test_a_place_in_a_constraint_has_its_whole_path(name: str, shown: str) -> None:
    error = SpecSyntaxError(f"propositions.{name} must be a list", field=f"propositions.{name}")
    body = json.loads(problem(error, "").body)
    assert body["field"] == f"propositions.{shown}"
    assert body["detail"] == f"propositions.{shown} must be a list"


def test_errors_are_logged_without_messages_of_their_causes() -> None:
    try:
        try:
            int("MARKER")
        except ValueError as error:
            raise RuntimeError(str(error)) from error
    except RuntimeError as error:
        log_text = without_message(error)
    assert "MARKER" not in log_text.replace('int("MARKER")', "")
    assert all(part in log_text for part in ("RuntimeError", "ValueError", "test_errors.py"))


def test_an_internal_error_reveals_no_details() -> None:
    for error in (ZeroDivisionError("MARKER"), InternalError("MARKER")):
        answer = problem(error, "id")
        assert answer.status_code == 500
        assert b"MARKER" not in answer.body


def test_long_texts_are_cut() -> None:
    body = json.loads(problem(SpecSyntaxError("x" * 10_000, field="y" * 10_000), "").body)
    assert len(body["detail"]) == DETAIL_CHARS_MAX + len(body["field"])
    assert len(body["field"]) < 200


def test_an_error_counts_what_its_lists_leave_out() -> None:
    past = tuple(f"call(tool{number})" for number in range(20))
    answer = problem(PolicyUnsatisfiable("no event is left", conflict=("existence(a)",), past=past), "id-1")
    body = json.loads(answer.body)
    assert (body["past"], body["left_out"]) == (list(past[:FAULTS_MAX]), {"past": 4})
    assert json.loads(error_body(answer.body))["error"]["left_out"] == {"past": 4}
    error = error_of(422, body)
    assert isinstance(error, ConstraintUnsatisfiableError) and error.left_out == {"past": 4}
    short = problem(PolicyUnsatisfiable("no event is left", conflict=("existence(a)",), past=past[:16]), "id-1")
    assert "left_out" not in json.loads(short.body)
