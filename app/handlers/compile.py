"""Compiles constraints for the served model, and checks texts. Knows no HTTP and no broker."""

from __future__ import annotations

import time

from app.automata import Decoder, summary
from app.errors import MessageInvalid
from app.handlers.base import Context, Handler
from app.jobs import CheckJob, CheckResult, CompileJob, CompileResult, Job, Progress, Result, Word
from app.keys import automaton_key
from app.model_files import open_model_files
from app.settings import Settings
from compiler.codec import encode
from compiler.errors import ArtefactInvalid
from compiler.limits import Limits
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import spec_from_json
from compiler.text_automaton import TextCheck, check_text
from compiler.vocabulary import Vocabulary


def open_handler(settings: Settings) -> Handler:
    """Read the model's vocabulary once; the handler then serves both kinds of job."""
    vocabulary = open_model_files(settings.model).vocabulary
    compiler = _Compiler(settings, vocabulary)

    def handle(job: Job, context: Context) -> Result:
        match job:
            case CompileJob():
                return compiler.compile(job, context)
            case CheckJob():
                return _check(job, settings.limits)
            case _:
                raise MessageInvalid(f"the compile queue takes no job of kind {job.kind!r}")

    return handle


class _Compiler:
    """Compiles for one vocabulary."""

    def __init__(self, settings: Settings, vocabulary: Vocabulary) -> None:
        self._settings = settings
        self._vocabulary = vocabulary
        self._decode = Decoder(settings.secret, vocabulary.fingerprint)

    def compile(self, job: CompileJob, context: Context) -> CompileResult:
        """Compile and store, unless another worker has done so since the job was submitted."""
        stored = self._stored(job, context)
        if stored is not None:
            return stored
        context.progress(Progress("compile"))
        started = time.perf_counter()
        compiled = compile_spec(spec_from_json(job.spec), self._vocabulary, self._settings.limits)
        compile_ms = (time.perf_counter() - started) * 1000
        data = encode(compiled, self._settings.secret)
        context.save(automaton_key(job.automaton), data, self._settings.automaton_ttl_s)
        return summary(job.automaton, compiled, cached=False, compile_ms=compile_ms)

    def _stored(self, job: CompileJob, context: Context) -> CompileResult | None:
        key = automaton_key(job.automaton)
        data = context.load(key)
        if data is None:
            return None
        try:
            return summary(job.automaton, self._decode(data), cached=True, compile_ms=0.0)
        except ArtefactInvalid:
            context.discard(key, data)
            return None


def _check(job: CheckJob, limits: Limits) -> CheckResult:
    check = check_text(compile_text(spec_from_json(job.spec), limits), job.text)
    return CheckResult(satisfied=check.satisfied, words=word_trace(check), violated_at=check.violated_at)


def word_trace(check: TextCheck) -> tuple[Word, ...]:
    """The word trace of a checked text, ready to send."""
    return tuple(Word(step.text, step.letters, step.state) for step in check.words)
