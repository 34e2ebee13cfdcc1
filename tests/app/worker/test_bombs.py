"""Small constraints that need enormous work are refused by a limit.

Each refusal names the limit, and no memory or process leaks.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import random
import time
from collections.abc import Iterator

import pytest

from app.errors import JobFailed
from app.messages import CheckJob, CompileJob, CompileJobResult
from app.models import open_model_files
from app.settings import Settings
from app.worker.handlers.compile import CompileHandler
from compiler.errors import LimitExceeded
from tests.app.conftest import service_client, wait_for_compiler
from tests.app.worker.fake_context import FakeContext
from tests.servers.cluster import FULL
from tests.servers.forkserver import PREFORKED
from tests.servers.processes import children, resident_bytes

LIMITS = {"compile_s_max": 1.0}
MIB = 2**20
WORDS = [f"{number:x}" for number in range(100_000)]
COSTS = ("compile_s_max", "dfa_states_max", "table_bytes_max")  # the machine decides which is exceeded first
COMPILES = ""  # in place of a limit: a fast machine compiles it in time
SMALL_CONSTRAINT: dict[str, object] = {"keywords": ["dog", "ball"]}

BOMBS: list[tuple[str, dict[str, object], tuple[str, ...]]] = [  # name, constraint, the limits that may be exceeded
    ("a regex whose automaton is exponential", {"regex": "(a|b)*a(a|b){24}"}, ("dfa_states_max", "compile_s_max")),
    ("a formula whose automaton is exponential", {"ltlf": f"F(a & {'X ' * 24}b)"}, ("bdd_nodes_max", *COSTS)),
    ("ten thousand brackets in a regex", {"regex": "(" * 10_000 + "a" + ")" * 10_000}, ("nesting_depth_max",)),
    ("twenty thousand brackets in a regex", {"regex": "(" * 20_000 + "a" + ")" * 20_000}, ("pattern_chars_max",)),
    ("ten thousand brackets in a formula", {"ltlf": "(" * 10_000 + "a" + ")" * 10_000}, ("formula_chars_max",)),
    ("as many brackets in a regex as are read", {"regex": "(" * 900 + "a" + ")" * 900}, ("nesting_depth_max",)),
    ("as many brackets in a formula as are read", {"ltlf": "(" * 900 + "a" + ")" * 900}, ("nesting_depth_max",)),
    ("a thousand conjuncts", {"ltlf": " & ".join(f"F w{n}" for n in range(1000))}, ("formula_chars_max",)),
    ("conjuncts far apart", {"ltlf": " & ".join(f"F(a & {'X' * n} b)" for n in range(60))}, ("bdd_nodes_max", *COSTS)),
    ("a hundred thousand words as a regex", {"regex": "|".join(WORDS)}, ("pattern_chars_max",)),
    ("a hundred thousand words as a concept", {"keywords": [WORDS]}, ("keyword_chars_max",)),
    ("a hundred thousand choices", {"choice": WORDS}, (COMPILES, *COSTS)),
    ("a thousand word characters", {"regex": r"\w{1,1000}"}, (*COSTS, COMPILES)),
    ("word characters, nested", {"regex": r"(\w{1,50}){1,50}"}, (*COSTS, COMPILES)),
    ("all of Unicode, in two runs", {"regex": r"(?i)(\w|\d|[^a]){1,1000}x{1,1000}"}, (*COSTS, COMPILES)),
    ("repeats of repeats", {"regex": "(((a{1,99}){1,99}){1,99}){1,99}"}, ("nfa_positions_max",)),
    ("very many keywords", {"all": [{"keywords": [f"w{n}" for n in range(32)]}, {"regex": "(a|b|c|d|w[0-9]*| )*"}]},
     ("bdd_nodes_max", *COSTS)),
    ("a product of exponential parts", {"all": [{"regex": "(a|b)*a(a|b){16}"}, {"not": {"regex": "(a|b)*b(a|b){16}"}}]},
     ("dfa_states_max", "compile_s_max")),
    ("a schema that refers to itself very deeply", {"json_schema": {"$ref": "#"}, "max_depth": 100_000},
     ("nesting_depth_max",)),
    ("a schema whose every field is itself",
     {"json_schema": {"type": "object", "properties": {name: {"$ref": "#"} for name in "abcdefgh"}}, "max_depth": 20},
     ("dfa_states_max", "compile_s_max", COMPILES)),
    ("very many words", {"min_words": 99_999, "max_words": 100_000}, COSTS),
]  # fmt: skip
NAMES = [name for name, *_ in BOMBS]
SLOW = [row for row in BOMBS if "compile_s_max" in row[2]]
QUICK = [row for row in BOMBS if row not in SLOW]


@pytest.fixture(scope="module")
def compiler() -> Iterator[CompileHandler]:
    settings = Settings.of(**LIMITS)
    compiler = CompileHandler(settings, open_model_files(settings.inference.model[0]).vocabulary)
    yield compiler
    compiler.sandbox.close()


def compiled(compiler: CompileHandler, constraint: dict[str, object]) -> CompileJobResult:
    try:
        (vocabulary,) = compiler.vocabularies
        job = CompileJob("0" * 64, constraint, time.time() + 60, vocabulary=vocabulary)  # type: ignore[arg-type]
        return compiler.compile(job, FakeContext())
    except LimitExceeded as error:  # raised by the watchdog of the sandbox, not by the job
        raise JobFailed("LimitExceeded", str(error), vars(error), error.facts) from error


def compiled_small(compiler: CompileHandler) -> CompileJobResult:
    """The small constraint. On a busy machine one attempt may exceed the limit of time."""
    try:
        return compiled(compiler, SMALL_CONSTRAINT)
    except JobFailed:
        return compiled(compiler, SMALL_CONSTRAINT)


def memory_bytes(compiler: CompileHandler) -> tuple[int, int]:
    """The resident bytes of this worker and of its fork server."""
    gc.collect()
    return resident_bytes(os.getpid()), resident_bytes(compiler.sandbox.pid)


@pytest.mark.parametrize(("constraint", "limits"), [row[1:] for row in BOMBS], ids=NAMES)
@pytest.mark.sample(4)
def test_a_bomb_meets_its_limit_and_leaks_no_resource(
    compiler: CompileHandler, constraint: dict[str, object], limits: tuple[str, ...]
) -> None:
    first, server = compiled_small(compiler), compiler.sandbox.pid
    bytes_before = memory_bytes(compiler)
    try:
        compiled(compiler, constraint)
        limit = COMPILES
    except JobFailed as error:
        assert error.error == "LimitExceeded", error
        limit = str(error.fields["limit"])
    assert limit in limits
    second = compiled_small(compiler)
    assert dataclasses.replace(second, compile_ms=first.compile_ms) == first
    assert compiler.sandbox.pid == server
    assert all(after - before < 16 * MIB for before, after in zip(bytes_before, memory_bytes(compiler), strict=True))


def test_a_check_of_a_bomb_is_bounded_as_well(compiler: CompileHandler) -> None:
    with pytest.raises(JobFailed) as caught:
        compiler.check(CheckJob({"regex": "(a|b)*a(a|b){24}"}, "ab", time.time() + 60), FakeContext())
    assert caught.value.fields["limit"] in ("dfa_states_max", "compile_s_max")  # a busy machine meets the second first


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}, "required": ["a", "b"]},
        {"not": {"$ref": "#"}},
        {"type": "array", "items": {"$ref": "#"}},
    ],
)
def test_a_recursive_schema_is_compiled_to_a_depth_or_refused(
    compiler: CompileHandler, schema: dict[str, object]
) -> None:
    try:
        assert compiled(compiler, {"json_schema": schema}).states
    except JobFailed as error:
        assert error.error in ("SpecSyntaxError", "SpecUnsupported", "SpecUnsatisfiable", "LimitExceeded")


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sample(2)
def test_garbage_is_refused_or_compiled_but_never_breaks_anything(compiler: CompileHandler, seed: int) -> None:
    rng = random.Random(seed)
    ranges = ((32, 127), (0, 0x250), (0x2000, 0x2C00), (0x1F300, 0x1F700))
    start, end = ranges[seed % len(ranges)]
    garbage = "".join(chr(rng.randrange(start, end)) for _ in range(2000))
    syntax = "".join(rng.choice(r"ab()[]{}|*+?\^$.,19-wdsFGXUWR!&<>= ") for _ in range(rng.randrange(1, 60)))
    for text in (garbage, syntax):
        for constraint in ({"regex": text}, {"ltlf": text}, {"keywords": [text]}, {"infill": text}):
            try:
                compiled(compiler, dict(constraint))
            except JobFailed as error:
                assert error.error in ("SpecSyntaxError", "SpecUnsupported", "SpecUnsatisfiable", "LimitExceeded")


def test_bombs_over_http_are_refused_and_the_service_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PREFORKED, raising=False)  # so that its processes are our children
    processes_before = set(children(os.getpid()))
    with service_client(wait_for_compiler, embedded_workers=("compile",), **LIMITS) as client:
        assert set(children(os.getpid())) - processes_before
        automaton = client.post("/compile", json={"constraint": SMALL_CONSTRAINT}).json()["automaton"]
        for name, constraint, limits in BOMBS if FULL else (*QUICK, *SLOW[::3]):
            answer = client.post("/compile", json={"constraint": constraint}).json()
            if "automaton" in answer:
                assert COMPILES in limits, name
                continue
            assert (answer["status"], answer["code"]) == (422, "constraint_too_large"), (name, answer)
            assert answer["limit"] in limits, (name, answer)
        assert client.get("/health").status_code == 200
        assert client.post("/compile", json={"constraint": SMALL_CONSTRAINT}).json()["automaton"] == automaton
        response = client.post("/compile", json={"constraint": {"keywords": ["cat"]}})
        assert response.status_code == 200 and not response.json()["cached"]
    gc.collect()
    assert set(children(os.getpid())) <= processes_before
