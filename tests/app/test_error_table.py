from __future__ import annotations

import json
from types import ModuleType

import pytest

import app.errors
import compiler.errors
import decoding.errors
from app.api.errors import DETAIL_CHARS_MAX, ERRORS, problem
from app.errors import InternalError, NotReady
from compiler.errors import LimitExceeded, SpecSyntaxError


def leaves(module: ModuleType) -> list[str]:
    """The names of the error classes of a module that no other one there refines."""
    classes = [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, Exception)]
    own = [item for item in classes if item.__module__ == module.__name__]
    return [item.__name__ for item in own if not any(other is not item and issubclass(other, item) for other in own)]


@pytest.mark.parametrize("module", [app.errors, compiler.errors, decoding.errors], ids=lambda module: module.__name__)
def test_every_error_has_its_row(module: ModuleType) -> None:
    assert leaves(module)
    assert set(leaves(module)) <= set(ERRORS)


def test_every_row_is_an_error_that_exists() -> None:
    assert set(ERRORS) <= {name for module in (app.errors, compiler.errors, decoding.errors) for name in vars(module)}


def test_a_code_has_one_status() -> None:
    status: dict[str, int] = {}
    for row in ERRORS.values():
        assert status.setdefault(row.code, row.status) == row.status


def test_the_body_carries_the_fields_of_the_row() -> None:
    answer = problem(SpecSyntaxError("bad", source="a\nb(", position=4, expected="')'", field="ltlf"), "id-1")
    body = json.loads(answer.body)
    assert (answer.status, body["status"], body["code"], body["request_id"]) == (422, 422, "constraint_syntax", "id-1")
    assert (body["position"], body["line"], body["column"], body["expected"]) == (4, 2, 3, "')'")
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(problem(LimitExceeded("dfa_states_max", 20, 21), "").body)["limit"] == "dfa_states_max"


def test_busy_says_when_to_try_again() -> None:
    assert problem(NotReady(("loading",)), "").headers["retry-after"] == "1"


def test_a_bug_tells_nothing_of_itself() -> None:
    for error in (ZeroDivisionError("MARKER"), InternalError("MARKER")):
        answer = problem(error, "id")
        assert answer.status == 500
        assert b"MARKER" not in answer.body


def test_long_texts_are_cut() -> None:
    body = json.loads(problem(SpecSyntaxError("x" * 10_000, field="y" * 10_000), "").body)
    assert len(body["detail"]) == DETAIL_CHARS_MAX
    assert len(body["field"]) < 200
