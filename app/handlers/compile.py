"""Compiles constraints for the served model, and checks texts. Knows no HTTP and no broker."""

from __future__ import annotations

import dataclasses
import time

from app.automata import open_decoder, summary
from app.errors import MessageInvalid
from app.handlers.base import Context, Handler
from app.jobs import CheckJob, CheckResult, CompileJob, CompileResult, Job, Progress, Result, Word
from app.keys import automaton_hash, automaton_key
from app.model_files import open_model_files
from app.settings import Settings
from compiler.codec import encode
from compiler.compiled import Compiled
from compiler.errors import ArtefactInvalid
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import spec_from_json
from compiler.text_automaton import TextAutomaton, TextCheck, check_text
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
                return compiler.check(job, context)
            case _:
                raise MessageInvalid(f"the compile queue takes no job of kind {job.kind!r}")

    return handle


class _Compiler:
    """Compiles for one vocabulary."""

    def __init__(self, settings: Settings, vocabulary: Vocabulary) -> None:
        self._settings = settings
        self._vocabulary = vocabulary
        self._decode = open_decoder(settings, vocabulary.fingerprint)

    def compile(self, job: CompileJob, context: Context) -> CompileResult:
        """Compile and store, unless another worker has done so since the job was submitted."""
        stored = self._stored(job.automaton, context)
        if stored is not None:
            return summary(job.automaton, stored, cached=True, compile_ms=0.0)
        context.progress(Progress("compile"))
        started = time.perf_counter()
        spec = spec_from_json(job.spec)
        compiled = compile_spec(spec, self._vocabulary, self._settings.limits, context.cancelled)
        compile_ms = (time.perf_counter() - started) * 1000
        data = encode(compiled, self._settings.secret)
        context.save(automaton_key(job.automaton), data, self._settings.automaton_ttl_s)
        return summary(job.automaton, compiled, cached=False, compile_ms=compile_ms)

    def check(self, job: CheckJob, context: Context) -> CheckResult:
        """Check a text, with the constraint as it was kept from the last check, or stored, or compiled now."""
        spec = spec_from_json(job.spec)
        automaton = automaton_hash(spec, self._vocabulary.fingerprint)
        text = self._decode.text(automaton) or self._stored_text(automaton, context)
        if text is None:
            text = compile_text(spec, self._settings.limits, context.cancelled)
        check = check_text(text, job.text)
        self._decode.keep_text(automaton, text)  # after the check, during which it may have grown
        return CheckResult(satisfied=check.satisfied, words=word_trace(check), violated_at=check.violated_at)

    def _stored_text(self, automaton: str, context: Context) -> TextAutomaton | None:
        """A copy of a stored constraint's automaton over texts: what the copy grows by is not the decoded one's."""
        stored = self._stored(automaton, context)
        return None if stored is None else dataclasses.replace(stored.text, limits=self._settings.limits)

    def _stored(self, automaton: str, context: Context) -> Compiled | None:
        key = automaton_key(automaton)
        data = context.load(key)
        if data is None:
            return None
        try:
            return self._decode(data)
        except ArtefactInvalid:
            context.discard(key, data)
            return None


def word_trace(check: TextCheck) -> tuple[Word, ...]:
    """The word trace of a checked text, ready to send."""
    return tuple(Word(step.text, step.letters, step.state) for step in check.words)
