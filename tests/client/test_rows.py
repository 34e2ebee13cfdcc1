"""`generate_rows`: a row for each text, and for each error."""

from __future__ import annotations

from typing import Any

import pytest

from abs_client import Choice, F, GenerateRow, Keywords, Regex
from tests.client.both_clients import KINDS, ask
from tests.client.scripted_server import answer, scripted_server

PROMPTS = ["sentence:", "A dog", "sentence:"]


def rows(kind: str, url: str, *arguments: Any, **options: Any) -> list[GenerateRow]:
    made: list[GenerateRow] = ask(kind, url, lambda client: client.generate_rows(*arguments, **options))
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_each_text_is_a_row_in_order_of_prompts(kind: str, url: str) -> None:
    made = rows(kind, url, PROMPTS, F("dog"), max_tokens=12, n=2, concurrency=2)
    assert [(row["request"], row["prompt"], row["rank"]) for row in made] == [
        (number, prompt, rank) for number, prompt in enumerate(PROMPTS) for rank in (0, 1)
    ]
    assert all("dog" in (row["text"] or "") and row["satisfied"] and row["error"] is None for row in made)
    assert [row["text"] for row in made[:2]] == [row["text"] for row in made[4:]]
    columns = {name: [row[name] for row in made] for name in GenerateRow.__annotations__}  # type: ignore[literal-required]
    assert {len(column) for column in columns.values()} == {6}  # what pandas makes of them
    assert all(row.keys() == columns.keys() for row in made)


@pytest.mark.parametrize("kind", KINDS)
def test_each_prompt_may_have_its_constraint_and_errors_are_rows(kind: str, url: str) -> None:
    constraints = [Choice("yes", "no"), Regex("(a"), {"keywords": ["dog"]}]
    first, failed, last = rows(kind, url, PROMPTS, constraints, max_tokens=12)
    assert (first["text"], last["error"]) in [("yes", None), ("no", None)]
    assert failed["error"] == "constraint_syntax" and failed["text"] is None and "pattern" in (failed["detail"] or "")
    assert failed.keys() == first.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_constraints_must_fit(kind: str, url: str) -> None:
    with pytest.raises(ValueError, match="3 prompts and 2 constraints"):
        rows(kind, url, PROMPTS, [F("dog"), F("cat")])
    with pytest.raises(TypeError, match="a list of prompts"):
        rows(kind, url, "sentence:", F("dog"))
    assert rows(kind, url, [], F("dog")) == []


@pytest.mark.parametrize("kind", KINDS)
def test_faulty_arguments_raise_the_same_error(kind: str) -> None:
    with scripted_server() as server:
        for concurrency in (0, -1):
            with pytest.raises(ValueError, match=f"concurrency is at least 1, not {concurrency}"):
                rows(kind, server.url, PROMPTS, F("dog"), concurrency=concurrency)
        with pytest.raises(TypeError, match="constraint"):
            rows(kind, server.url, PROMPTS, 5)
    assert server.requests == []


@pytest.mark.parametrize("kind", KINDS)
def test_no_more_requests_run_at_a_time_than_wanted(kind: str) -> None:
    with scripted_server(*[answer() for _ in range(5)], hold_s=0.1) as server:
        made = rows(kind, server.url, ["p"] * 5, Keywords("dog"), concurrency=2)
    assert len(made) == len(server.requests) == 5 and server.in_flight_max == 2
