"""Conflict reports name conjuncts that contradict each other. Each of them is needed."""

from __future__ import annotations

import itertools
import json
import random
from types import SimpleNamespace
from typing import Any

import pytest

from compiler.diagnostics import conflict, conjuncts
from compiler.diagnostics.conflict import minimal_conflict
from compiler.engines import NATIVE
from compiler.errors import CompileCancelled, EngineFailure, LimitExceeded, SpecUnsatisfiable
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import AllSpec, LabelsSpec, spec_from_json
from compiler.vocab import byte_vocabulary
from tests.references.random_constraints import random_spec
from tests.references.text import satisfies
from tests.tables import table

CASES = table("conflicts")["case"]
POOL: list[dict[str, Any]] = [
    {"keywords": ["a"]}, {"keywords": ["b"]}, {"not": {"keywords": ["a"]}}, {"regex": "[ab ]*"}, {"regex": "(ab?)+"},
    {"max_chars": 2}, {"min_words": 2}, {"max_words": 1}, {"ltlf": "G(a -> X(b))"}, {"choice": ["a b", "b", "ab"]},
    {"not": {"choice": ["b", "ab"]}}, {"ltlf": "F(b)"}, {"any": [{"keywords": ["a"]}, {"max_words": 2}]},
]  # fmt: skip


PATIENT = Limits(compile_s_max=100)


def refused(constraint: object) -> SpecUnsatisfiable:
    with pytest.raises(SpecUnsatisfiable) as excinfo:
        compile_text(spec_from_json(constraint), PATIENT)
    return excinfo.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["conflict"][-1])
def test_the_conjuncts_that_contradict_each_other_are_named(case: dict[str, Any]) -> None:
    assert sorted(refused(json.loads(case["constraint"])).conflict) == sorted(case["conflict"])


CONSTRAINTS = [json.loads(case["constraint"]) for case in CASES]


@pytest.mark.parametrize("constraint", [name for name in CONSTRAINTS if "all" in name and "labels" not in name])
def test_every_named_conjunct_is_necessary(constraint: dict[str, Any]) -> None:
    parts = {
        int(name.split(".")[1].rstrip("'")[0]) for name in (text.split(" ")[0] for text in refused(constraint).conflict)
    }
    for omitted in parts:
        remainder = [part for number, part in enumerate(constraint["all"]) if number in parts - {omitted}]
        compile_text(spec_from_json({"all": remainder}))


def test_the_message_names_the_contradicting_conjuncts() -> None:
    error = refused({"all": [{"keywords": ["dog"]}, {"keywords": ["cat"]}, {"not": {"keywords": ["dog"]}}]})
    assert str(error) == (
        "no text satisfies the constraint: 'all.0' (keywords dog) and 'all.2' (not keywords dog) contradict each other"
    )
    assert "alone rules out every one" in str(refused({"ltlf": "F(cat) & G(dog & !dog)"}))
    assert str(refused({"labels": ["a"], "ltlf": "F(b)"})).startswith("no sequence of the labels")


def test_a_compilation_for_a_vocabulary_names_the_conflict() -> None:
    spec = spec_from_json({"all": [{"regex": "a+"}, {"regex": "b+"}]})
    with pytest.raises(SpecUnsatisfiable) as excinfo:
        compile_spec(spec, byte_vocabulary(), PATIENT)
    assert excinfo.value.conflict == ("'all.0' (regex a+)", "'all.1' (regex b+)")


def test_a_smaller_conflict_is_preferred_where_the_conjuncts_are_few() -> None:
    constraint = {"all": [{"regex": "[^\\s\\S]"}, {"regex": "a"}, {"regex": "b"}]}
    assert refused(constraint).conflict == ("'all.0' (regex [^\\s\\S])",)


def test_a_conflict_of_two_is_found_among_many_conjuncts() -> None:
    parts: list[object] = [{"regex": f"(?s:.*)x{number}(?s:.*)"} for number in range(12)]
    constraint = {"all": [*parts, {"not": {"regex": "(?s:.*)x7(?s:.*)"}}]}
    assert [text.split(" ")[0] for text in refused(constraint).conflict] == ["'all.7'", "'all.12'"]


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.sample(6)
def test_a_reported_conflict_is_minimal_and_unsatisfiable(seed: int) -> None:
    draw = random.Random(seed)
    parts = [draw.choice(POOL) for _ in range(draw.randint(3, 7))]
    try:
        compile_text(spec_from_json({"all": parts}), PATIENT)
    except SpecUnsatisfiable as error:
        numbers = {int(text.split("'")[1].split(".")[1]) for text in error.conflict}
        conflict = [part for number, part in enumerate(parts) if number in numbers]
        assert len(conflict) == len(error.conflict)
        refused({"all": conflict})
        for omitted in range(len(conflict) if len(conflict) > 1 else 0):
            compile_text(spec_from_json({"all": [part for number, part in enumerate(conflict) if number != omitted]}))


def test_a_slow_machine_finds_the_same_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0.0, 0.02)  # each look at the clock takes as long as 80 steps of an idle machine
    monkeypatch.setattr("compiler.limits.time", SimpleNamespace(monotonic=lambda: next(ticks)))
    error = refused({"all": [{"keywords": ["cat", "moon"]}, {"max_words": 12}, {"regex": "[^oO]*"}]})
    assert [text.split(" ")[0] for text in error.conflict] == ["'all.0.keywords.1'", "'all.2'"]


@pytest.mark.parametrize("steps", [0, 1_500])
def test_a_conflict_stays_unsatisfiable_when_the_search_stops(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    monkeypatch.setattr(conflict, "WORK_MAX", steps)
    error = refused({"all": [{"regex": "a"}, {"regex": "b"}, {"regex": "[ab]"}]})
    assert [text.split(" ")[0] for text in error.conflict] == ["'all.0'", "'all.1'", "'all.2'"]


@pytest.mark.parametrize("error", [EngineFailure("MONA is missing"), MemoryError()])
def test_a_conflict_stays_unsatisfiable_when_a_trial_fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def failing(*_: object) -> object:
        raise error

    spec = spec_from_json({"all": [{"regex": "a"}, {"regex": "b"}, {"regex": "[ab]"}]})
    monkeypatch.setattr(conflict, "combine", failing)
    assert len(minimal_conflict(spec, NATIVE, ResourceGuard(DEFAULT_LIMITS))) == 3


def test_a_conflict_is_reported_when_compile_time_runs_out() -> None:
    guard = ResourceGuard(Limits(compile_s_max=1e-9))
    spec = spec_from_json({"all": [{"regex": "a"}, {"regex": "b"}, {"regex": "[ab]"}]})
    assert len(minimal_conflict(spec, NATIVE, guard)) == 3


def test_a_cancelled_compilation_stops_the_conflict_search() -> None:
    guard = ResourceGuard(DEFAULT_LIMITS, cancelled=lambda: True)
    spec = spec_from_json({"all": [{"keywords": ["dog"]}, {"not": {"keywords": ["dog"]}}, {"regex": "a"}]})
    with pytest.raises(CompileCancelled):
        minimal_conflict(spec, NATIVE, guard)


def test_a_conjunct_over_a_limit_stays_in_the_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be tried is not known to be needless."""
    limits = Limits(dfa_states_max=60)
    spec = spec_from_json({"all": [{"regex": "(a|b)*a(a|b){8}"}, {"regex": "c"}, {"regex": "d"}]})
    conflict = minimal_conflict(spec, NATIVE, ResourceGuard(limits))
    assert conflict[-2:] == ("'all.1' (regex c)", "'all.2' (regex d)")


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.sample(30)
def test_a_text_satisfies_a_constraint_iff_it_satisfies_every_conjunct(seed: int) -> None:
    draw = random.Random(seed)
    spec = AllSpec((random_spec(draw), random_spec(draw))) if seed % 2 else random_spec(draw)
    try:
        result = conjuncts(spec, ResourceGuard(Limits()))
    except LimitExceeded:
        return
    units = ["a", "b", "ab", " ", "1", ".", "é", "A", "", '"', "{", "}"]
    for _ in range(40):
        text = "".join(draw.choice(units) for _ in range(draw.randrange(7)))
        assert satisfies(spec, text) == all(satisfies(part.spec, text) for part in result), (text, result)


def test_conjuncts_of_a_label_constraint_keep_its_labels() -> None:
    spec = spec_from_json({"ltlf": "F(a) & G(!b)", "labels": ["a", "b", "c"]})
    assert isinstance(spec, LabelsSpec)
    assert [part.spec for part in conjuncts(spec, ResourceGuard(Limits()))] == [
        spec_from_json({"ltlf": f"({part})", "labels": ["a", "b", "c"]}) for part in ("F a", "G !b")
    ]
