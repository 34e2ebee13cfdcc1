from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from app.automaton_cache import automaton_secret
from app.errors import JobFailed, ModelChanged
from app.messages import (
    CheckJob,
    CheckJobResult,
    CompileJob,
    CompileJobResult,
    Failure,
    TokenizeJob,
    TokenizeJobResult,
    automaton_hash,
)
from app.models import open_model_files
from app.settings import Settings
from app.worker.handlers.base import dispatcher
from app.worker.sandbox import compile_task as compile_job
from app.worker.sandbox.client import Sandbox
from compiler.codec import encode
from compiler.engines import Engines
from compiler.errors import CompileCancelled, EngineFailure, LimitExceeded
from compiler.pipeline import compile_spec
from compiler.spec import KeywordsSpec, RegexSpec, Spec, spec_to_json
from compiler.text import text_automaton
from compiler.vocab import Vocabulary, byte_vocabulary
from tests.app.worker.fake_context import FakeContext
from tests.app.worker.shared_compiler import SECRET, open_shared_compiler

SPEC = KeywordsSpec((("dog",),))
LARGE = RegexSpec("(.*(a|b)){12}")


@pytest.fixture(scope="module")
def settings() -> Settings:
    return Settings.of(secret=SECRET)


def test_a_job_of_another_model_is_refused() -> None:
    handle = dispatcher("generate", {TokenizeJob: lambda job, _: TokenizeJobResult(job.prompt, (), ())}, ("captions",))
    for model in ("", "captions"):
        handle(TokenizeJob("a", time.time(), model=model), FakeContext())
    with pytest.raises(ModelChanged, match=r"'stories'.*'captions'.*ABS_MODEL"):
        handle(TokenizeJob("a", time.time(), model="stories"), FakeContext())


def check_job(text: str, spec: Spec = SPEC) -> CheckJob:
    return CheckJob(spec_to_json(spec), text, time.time() + 60)


@pytest.mark.parametrize("kind", ["compile", "check"])
def test_a_cancelled_compilation_stops(settings: Settings, kind: str) -> None:
    job = compile_job_of(LARGE) if kind == "compile" else check_job("a", LARGE)
    with pytest.raises(CompileCancelled):
        open_shared_compiler(settings).handle(job, FakeContext(is_cancelled=True))


def test_many_checks_of_one_constraint_compile_it_once(settings: Settings, compiles: list[Spec]) -> None:
    handle, spec = open_shared_compiler(settings).handle, KeywordsSpec((("fox",),))
    for text, satisfied in (("a fox", True), ("a cat", False), ("the fox", True)):
        result = handle(check_job(text, spec), FakeContext())
        assert isinstance(result, CheckJobResult)
        assert (result.satisfied, len(result.words)) == (satisfied, 2)
    assert compiles == [spec]


def compile_job_of(spec: Spec) -> CompileJob:
    vocabulary = open_model_files(Settings().inference.model[0]).vocabulary.fingerprint
    return CompileJob(automaton_hash(spec, vocabulary), spec_to_json(spec), time.time() + 60, vocabulary=vocabulary)


def test_a_compilation_is_stored_and_not_done_twice(
    settings: Settings, context: FakeContext, compiles: list[Spec]
) -> None:
    handle = open_shared_compiler(settings).handle
    first, second = handle(compile_job_of(SPEC), context), handle(compile_job_of(SPEC), context)
    assert isinstance(first, CompileJobResult) and isinstance(second, CompileJobResult)
    assert (first.cached, second.cached) == (False, True)
    assert dataclasses.replace(first, cached=True, compile_ms=0.0) == second
    assert compiles == [SPEC]


def test_a_check_does_not_lift_outside_the_sandbox(
    settings: Settings, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("the worker lifts a constraint outside the sandbox")

    handle = open_shared_compiler(settings).handle
    monkeypatch.setattr(text_automaton, "lift", fail)
    handle(compile_job_of(SPEC), context)  # the rule holds for a stored constraint, too
    result = handle(check_job("a cat"), context)
    assert isinstance(result, CheckJobResult)
    assert (result.satisfied, result.violated_at) == (False, 5)


@pytest.mark.parametrize("kind", ["compile", "check"])
def test_an_error_in_the_sandbox_keeps_its_name_and_field(settings: Settings, kind: str) -> None:
    constraint = {"regex": "a|(b"}
    vocabulary = open_model_files(Settings().inference.model[0]).vocabulary.fingerprint
    job = CompileJob("0" * 64, dict(constraint), time.time() + 60, vocabulary=vocabulary)
    with pytest.raises(JobFailed) as caught:
        handle = open_shared_compiler(settings).handle
        handle(job if kind == "compile" else CheckJob(dict(constraint), "a", time.time() + 60), FakeContext())
    assert (caught.value.error, caught.value.fields["field"]) == ("SpecSyntaxError", "regex")


def test_a_sandbox_bug_is_logged_without_caller_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    original_run = Sandbox.run
    invalid_request = b'{"over": "MARKER"}'
    monkeypatch.setattr(
        Sandbox, "run", lambda sandbox, request, is_cancelled: original_run(sandbox, invalid_request, is_cancelled)
    )
    with pytest.raises(JobFailed) as caught:
        open_shared_compiler(settings).handle(check_job("a", KeywordsSpec((("bug",),))), FakeContext())
    assert caught.value.error == "InternalError"
    assert "TypeError" in caplog.text and "MARKER" not in caplog.text + str(caught.value)


@pytest.mark.parametrize(
    ("exception", "error"),
    [(LimitExceeded("bdd_nodes_max", 1, 2), "LimitExceeded"), (RecursionError("MARKER"), "InternalError")],
)
def test_every_error_of_a_compilation_is_an_answer(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, exception: Exception, error: str
) -> None:
    work, rehearsal = open_work(settings)
    monkeypatch.setattr(compile_job, "compile_spec", function_that_raises(exception))
    result, evidence = compile_job.read_answer(work(rehearsal))
    assert isinstance(result, Failure) and result.error == error
    assert bool(evidence) == (error == "InternalError") and b"MARKER" not in evidence


def test_a_memory_error_propagates_to_the_process(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    work, rehearsal = open_work(settings)
    monkeypatch.setattr(compile_job, "compile_spec", function_that_raises(MemoryError()))
    with pytest.raises(MemoryError):
        work(rehearsal)


def test_the_sandbox_compiles_with_the_engines_of_the_settings(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def engines(*names: str) -> Engines:
        assert names == ("mona", "fado")
        return Engines(
            function_that_raises(EngineFailure("no MONA here")), function_that_raises(EngineFailure("no FAdo here"))
        )

    monkeypatch.setattr(compile_job, "open_engines", engines)
    engine_settings = settings.changed(ltlf_engine="mona", regex_engine="fado")
    work, _ = compile_job.open_job(compile_job.pack_setup(engine_settings, byte_vocabulary()))
    for constraint, program in (({"ltlf": "F dog"}, "MONA"), ({"regex": "a+"}, "FAdo")):
        request = compile_job.compile_request("", dict(constraint), byte_vocabulary().fingerprint)
        result, _ = compile_job.read_answer(work(request))
        assert isinstance(result, Failure)
        assert (result.error, program in result.detail) == ("EngineFailure", True)


def test_the_sandbox_opens_under_tight_limits(settings: Settings) -> None:
    small_settings = settings.changed(dfa_states_max=1)
    work, rehearsal = compile_job.open_job(compile_job.pack_setup(small_settings, Vocabulary((b"?", None), (1,))))
    result, _ = compile_job.read_answer(work(rehearsal))
    assert isinstance(result, Failure) and result.fields["limit"] == "dfa_states_max"


@cache
def open_work(settings: Settings) -> tuple[Callable[[bytes], bytes], bytes]:
    """The job function of the sandbox, in this process."""
    return compile_job.open_job(compile_job.pack_setup(settings, byte_vocabulary()))


def function_that_raises(error: BaseException) -> Callable[..., Any]:
    def function(*arguments: object, **options: object) -> Any:
        raise error

    return function


def test_the_sandbox_compiles_as_this_process_does(settings: Settings) -> None:
    vocabulary = Vocabulary((b"a dog", None, b"", b"dog", b" ", b"a", None), (6,))
    work, _ = compile_job.open_job(compile_job.pack_setup(settings, vocabulary))
    over_bytes = byte_vocabulary(checks_texts=True)
    for over, expected_vocabulary in ((vocabulary.fingerprint, vocabulary), (compile_job.OVER_BYTES, over_bytes)):
        request = compile_job.compile_request("0" * 64, dict(spec_to_json(SPEC)), over)
        result, data = compile_job.read_answer(work(request))
        assert isinstance(result, CompileJobResult)
        secret = automaton_secret(settings.auth.secret, "0" * 64)
        assert data == encode(compile_spec(SPEC, expected_vocabulary, settings.limits), secret)
