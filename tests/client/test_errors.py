"""Every error code has a class with the fields of its body."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest

from abs_client import Client, errors
from abs_client.errors import (
    CODES,
    AbsError,
    BusyError,
    ConstraintSyntaxError,
    InvalidRequestError,
    RequestError,
    ServerError,
    error_of,
    pointed_at,
)
from compiler.errors import ErrorFacts
from docs.tools.reference import ERRORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"
ROWS = [row for row in ERRORS.values() if row.code != "client_gone"]


def test_every_error_code_of_the_service_has_a_class() -> None:
    assert {row.code for row in ROWS} == set(CODES)


def test_every_code_of_the_page_is_known() -> None:
    codes = re.findall(r"^\| [0-9, ]+ \| \[`([a-z_]+)`\]", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(codes) == sorted(CODES)


@pytest.mark.parametrize("row", ROWS, ids=[f"{name}" for name in ERRORS if name != "ClientGone"])
def test_fields_of_an_error_body_are_attributes(row: ErrorFacts) -> None:
    body = {"code": row.code, "detail": "why", "request_id": "r", **{name: f"<{name}>" for name in row.fields}}
    error = error_of(row.status, body)
    assert type(error) is CODES[row.code] and (error.status, error.code, error.detail) == (row.status, row.code, "why")
    assert all(getattr(error, name) == f"<{name}>" for name in row.fields)
    assert str(error).startswith(f"{row.code}: why") and error.request_id == "r"
    minimal_error = error_of(row.status, {"code": row.code})
    assert all(getattr(minimal_error, name) is None for name in row.fields)
    assert row.retry_after_s is None or isinstance(error, BusyError)


@pytest.mark.parametrize(
    ("status", "error_class"),
    [(418, RequestError), (404, RequestError), (429, BusyError), (503, BusyError), (500, ServerError)],
)
def test_an_unknown_error_code_is_classified_by_status(status: int, error_class: type[AbsError]) -> None:
    error = error_of(status, {"code": "newer", "detail": "d", "more": [1]})
    assert isinstance(error, error_class) and error.problem["more"] == [1]
    assert str(error_of(status, {})) == f"the service answered with status {status}"


def test_the_docstring_tree_lists_every_error_class() -> None:
    classes = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, AbsError)}
    assert classes == set(re.findall(r"^(?:[| `]*-- )?([A-Z]\w+)", errors.__doc__ or "", re.MULTILINE)) - {"Everything"}


def test_errors_survive_being_copied() -> None:
    error = error_of(422, {"code": "budget_too_small", "detail": "d", "min_tokens": 7})
    duplicate = copy.copy(error)
    assert (type(duplicate), str(duplicate), duplicate.min_tokens) == (type(error), str(error), 7)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("source", "position", "lines"),
    [
        ("F(dog", 5, ["  F(dog", "       ^"]),
        ("F(dog) &\n& F(cat)", 9, ["  & F(cat)", "  ^"]),
        ("", 0, []), ("F(dog", None, []), ("F(dog", 99, []),
        ("a\tb &", 5, ["  a b &", "       ^"]),
    ],
)  # fmt: skip
def test_a_caret_marks_the_position_of_an_error(source: str, position: int | None, lines: list[str]) -> None:
    assert pointed_at(source, position).splitlines()[1:] == lines


def test_a_long_line_is_shortened_around_the_error() -> None:
    _, line, caret = pointed_at("a & " * 300 + "!! " + "b & " * 100, 1200).split("\n")
    assert len(line) <= errors.LINE_CHARS_MAX + 2 and line[caret.index("^")] == "!"


@pytest.mark.parametrize(
    ("field", "source"),
    [("all.1.ltlf", "G("), ("all.0.propositions.p.regex", "(?=a)"), ("all.7.ltlf", ""), ("all", ""), ("x.y", "")],
)
def test_the_source_of_an_error_is_found_in_the_request(field: str, source: str) -> None:
    request = {"constraint": {"all": [{"ltlf": "p", "propositions": {"p": {"regex": "(?=a)"}}}, {"ltlf": "G("}]}}
    error = error_of(422, {"code": "constraint_syntax", "field": field, "position": 0}, sent=request)
    assert isinstance(error, ConstraintSyntaxError) and error.source == source
    assert ("^" in str(error)) == bool(source)


@pytest.mark.parametrize("text", ["a \ud800", "\udfff"])
def test_an_invalid_text_is_refused_before_it_is_sent(text: str) -> None:
    with Client("http://127.0.0.1:9") as client:  # no server listens here
        for call in (lambda: client.generate(text, {"regex": "a"}), lambda: client.check({"regex": text}, "a")):
            with pytest.raises(InvalidRequestError, match="surrogate"):
                call()
        with pytest.raises(InvalidRequestError, match="JSON"):
            client.generate("a", {"regex": "a"}, temperature=float("nan"))
        with pytest.raises(TypeError, match="labels, not int"):
            client.check({"regex": "a"}, 5)  # type: ignore[arg-type]
