"""Checks texts and sequences of labels.

The automaton of the constraint accepts every text that generation writes. A JSON text that it does not accept may be
another spelling of a valid value: then the parts of the constraint are decided one by one, its schemas by the value.
Under a negation a schema stands for the texts that generation writes for it, because these are what is negated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from app.automaton_cache import Decoder, open_automaton
from app.errors import JobFailed
from app.messages import (
    CheckJob,
    CheckJobResult,
    ConjunctBody,
    automaton_hash,
    constraint_warnings,
    failure_key,
    grammar_warnings,
)
from app.settings import Settings
from app.worker.handlers.base import Context, captured, word_trace
from app.worker.sandbox.compile_task import OVER_BYTES, SandboxResult, compile_request, value_request
from compiler.artifact import CompiledConstraint
from compiler.diagnostics import conjuncts
from compiler.errors import LimitExceeded, SpecUnsatisfiable, SpecUnsupported
from compiler.limits import ResourceGuard
from compiler.spec import AllSpec, AnySpec, JsonSchemaSpec, NotSpec, Spec, leaves, spec_from_json, spec_to_json
from compiler.text import TextAutomaton, WrittenText, check_labels, check_text
from compiler.vocab import byte_vocabulary

PARTS_CHECKED_MAX = 32  # conjuncts of a constraint that a check reports
_DECIDED_BY_VALUE = (LimitExceeded.facts, SpecUnsupported.facts, SpecUnsatisfiable.facts)
Subject = str | tuple[str, ...]  # a text or labels


class TextChecker:
    """Checks by automata over bytes, which stay cached, and by values.

    run       runs a request in the sandbox
    compile_  does so with a request to compile, whose failures are stored under a key
    """

    def __init__(
        self, settings: Settings, decode: Decoder, run: Callable[[bytes, Context], tuple[SandboxResult, bytes]],
        compile_: Callable[[bytes, str, Context], tuple[SandboxResult, bytes]],
    ) -> None:
        self._settings, self._decode, self._run, self._compile = settings, decode, run, compile_
        # Over bytes the check depends on no tokenizer, and any text has exactly one tokenization.
        self._vocabulary = byte_vocabulary(checks_texts=True).fingerprint

    def check(self, job: CheckJob, context: Context) -> CheckJobResult:
        """Check a text or labels. On request each conjunct is checked too."""
        spec = spec_from_json(job.spec)
        check = self._check(spec, job.text, context)
        parts = tuple(self._parts(spec, job.text, context)) if job.conjuncts else None
        return dataclasses.replace(check, conjuncts=parts, warnings=(*check.warnings, *constraint_warnings(spec)))

    def _parts(self, spec: Spec, text: Subject, context: Context) -> Iterator[ConjunctBody]:
        """The checks of the first conjuncts. A conjunct that alone exceeds a limit is left out."""
        for part in conjuncts(spec, ResourceGuard(self._settings.limits))[:PARTS_CHECKED_MAX]:
            try:
                check = self._check(part.spec, text, context)
            except JobFailed as failed:
                if failed.facts != LimitExceeded.facts:
                    raise
                continue
            yield ConjunctBody(part.path, part.title, spec_to_json(part.spec), check.satisfied, check.violated_at)

    def _check(self, spec: Spec, text: Subject, context: Context) -> CheckJobResult:
        """Check by the automaton, and where that rejects by value."""
        by_value = isinstance(text, str) and any(isinstance(leaf, JsonSchemaSpec) for leaf in leaves(spec))
        try:
            check = self._by_automaton(spec, text, context)
        except JobFailed as failed:
            # A schema that is too large to compile may still be decided, and so may one without values.
            if not by_value or failed.facts not in _DECIDED_BY_VALUE:
                raise
            check = None
        if check is not None and (check.satisfied or not by_value):
            return check
        assert isinstance(text, str)
        found = self._by_value(spec, text, context)
        if check is None:
            return dataclasses.replace(found, words=(), canonical=None)
        return dataclasses.replace(found, words=check.words, canonical=False, warnings=check.warnings)

    def _by_automaton(self, spec: Spec, text: Subject, context: Context) -> CheckJobResult:
        constraint = self._constraint(spec, context)
        captures = None
        if isinstance(text, str):
            check = check_text(constraint.text, text)
            if check.satisfied:
                captures = captured(constraint, text, WrittenText(text.encode()))
        else:
            assert isinstance(constraint.text, TextAutomaton)  # of labels
            check = check_labels(constraint.text, text)
        return CheckJobResult(
            check.satisfied, word_trace(check), check.violated_at, canonical=check.satisfied, captures=captures,
            warnings=grammar_warnings(constraint.warnings),
        )

    def _constraint(self, spec: Spec, context: Context) -> CompiledConstraint:
        automaton = automaton_hash(spec, self._vocabulary, self._settings.limits)
        cached = self._decode.over_bytes(automaton)
        if cached is None:
            key = failure_key(automaton, spec_to_json(spec), self._settings.limits)
            _, data = self._compile(compile_request(automaton, spec_to_json(spec), OVER_BYTES), key, context)
            secret, limits = self._settings.auth.secret, self._settings.limits
            constraint = open_automaton(data, secret, automaton, self._vocabulary, limits)
            cached = dataclasses.replace(constraint, text=constraint.text_over_bytes())
            self._decode.keep(automaton, cached)
        return cached

    def _by_value(self, spec: Spec, text: str, context: Context, negated: bool = False) -> CheckJobResult:
        """Check part by part. Under an odd number of negations only automata decide."""
        match spec:
            case JsonSchemaSpec() if not negated:
                result, _ = self._run(value_request(spec_to_json(spec), text), context)
                assert isinstance(result, CheckJobResult)
                return result
            case AllSpec() | AnySpec():
                parts = [
                    _inside(self._by_value(part, text, context, negated), f"{spec.form}.{number}")
                    for number, part in enumerate(spec.parts)
                ]
                failed = [part for part in parts if not part.satisfied]
                if not failed or (isinstance(spec, AnySpec) and len(failed) < len(parts)):
                    return CheckJobResult(True, (), None)
                # All parts are violated where the first is, any of them where the last is.
                choose = min if isinstance(spec, AllSpec) else max
                return choose(failed, key=lambda part: part.violated_at or 0)
            case NotSpec():
                part = self._by_value(spec.part, text, context, not negated)
                return CheckJobResult(not part.satisfied, (), len(text) if part.satisfied else None)
            case _:
                return self._by_automaton(spec, text, context)


def _inside(check: CheckJobResult, step: str) -> CheckJobResult:
    """The check of a part of a combination, which stands under `step`."""
    if check.violation is None:
        return check
    return dataclasses.replace(
        check, violation=dataclasses.replace(check.violation, field=f"{step}.{check.violation.field}")
    )
