"""Compiles, explains and checks in the sandbox. Requests and answers are bytes.

setup    JSON: the settings of compilations, and the vocabularies
request  JSON: `automaton`, a hash, `over`, what it is compiled for, and either `spec`, the constraint, or `stored`, the
         codec's bytes in base 64, which are to be explained; or `text` and `schema`, a json_schema form; or `policy`,
         a PolicyJob
answer   a line: a SandboxResult; then the codec's bytes, or the log's text about a bug

This module does not depend on processes.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from app.automaton_cache import automaton_secret, open_automaton, summary
from app.errors import without_message
from app.messages import (
    CheckJobResult,
    CompileJobResult,
    ExplainJobResult,
    Failure,
    PolicyJob,
    PolicyJobResult,
    ViolationBody,
    dump,
    failure_of,
    is_expected_error,
    load,
)
from app.settings import Settings
from app.worker.sandbox.policies import apply_policy
from compiler.codec import encode
from compiler.diagnostics import explain
from compiler.engines import Engines, open_engines
from compiler.errors import CompileError
from compiler.exact_json import dump_json, load_json
from compiler.forms import value_violation
from compiler.json_schema import FORMATS
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.spec import JsonSchemaSpec, spec_from_json
from compiler.vocab import Vocabulary, byte_vocabulary

TARGET = "app.worker.sandbox.compile_task:open_job"
SandboxResult = CompileJobResult | ExplainJobResult | CheckJobResult | PolicyJobResult | Failure
OVER_BYTES = "bytes"  # in the place of a vocabulary's fingerprint: single bytes
_RECURSION_MAX = 200_000  # calls, for values nested as deep as a text may be; a job's process ends with it
_TOKEN_CODING = "latin-1"  # any bytes as a text, which JSON can hold
_NUMBERS: tuple[dict[str, object], ...] = (  # 91 % of the numbers in a quarter of MaskBench
    {"type": "integer"}, {"type": "integer", "minimum": 0}, {"type": "integer", "minimum": 1},
    {"type": "number"}, {"type": "number", "minimum": 0}, {"type": "number", "minimum": 0, "maximum": 1},
)  # fmt: skip
WARM_UP: tuple[dict[str, object], ...] = (  # together they fill every cache that lives as long as the process
    {"regex": r"(?i)[^\wk]*\d\s\D\S\W[[:é]?.|" + "x{1,3}"},
    {"ltlf": "F dog & G(cat -> X ball)", "propositions": {"cat": {"regex": r"(?i)c\w+"}, "dog": ["dog", "a dog"]}},
    {"keywords": [["dog"], ["ball"]], "ordered": True, "case_sensitive": True},
    {"keywords": ["dog"], "inflect": True},
    {"grammar": 'start: "[" start* "]" | /[a-z]+/ | "é"\n%ignore " "', "syntax": "lark"},
    {"json_schema": {"type": "object", "properties": {
        **{name: {"type": "string", "format": name, "maxLength": 9} for name in sorted(FORMATS)},
        **{f"n{number}": schema for number, schema in enumerate(_NUMBERS)}, "open": {},
        "short": {"type": "string", "maxLength": 2},
    }}},
)
_REHEARSAL: dict[str, object] = {"regex": "ab"}


def compile_request(automaton: str, spec: dict[str, object], over: str) -> bytes:
    """The request for a compilation. `over` is the fingerprint of a vocabulary of the setup, or OVER_BYTES."""
    return dump_json({"automaton": automaton, "spec": spec, "over": over}).encode()


def explain_request(automaton: str, stored: bytes, over: str) -> bytes:
    """The request for an explanation. `stored` is the constraint as the codec's bytes."""
    fields = {"automaton": automaton, "stored": base64.b64encode(stored).decode(), "over": over}
    return json.dumps(fields).encode()


def value_request(schema: dict[str, object], text: str) -> bytes:
    """The request to check the value of a JSON text. `schema` is a constraint of the form json_schema."""
    return dump_json({"schema": schema, "text": text}).encode()


def policy_request(job: PolicyJob) -> bytes:
    """The request to apply a policy."""
    return b'{"policy": ' + dump(job) + b"}"


def pack_setup(settings: Settings, *vocabularies: Vocabulary) -> bytes:
    """The setup for `open_job`."""
    fields = {
        "limits": dataclasses.asdict(settings.limits),
        "secret": settings.auth.secret.hex(),
        "vocabularies": [
            {
                "tokens": [None if token is None else token.decode(_TOKEN_CODING) for token in vocabulary.tokens],
                "eos_ids": vocabulary.eos_ids, "names": dict(vocabulary.names),
            }
            for vocabulary in vocabularies
        ],
        "engines": (settings.engines.ltlf_engine, settings.engines.regex_engine),
    }  # fmt: skip
    return json.dumps(fields).encode()


def open_job(setup: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """The function from requests to answers, with a request to rehearse it. Its caches are warm."""
    fields = json.loads(setup)
    vocabularies = tuple(map(_vocabulary, fields["vocabularies"]))
    engines = open_engines(*fields["engines"])
    compiler = _Compiler(vocabularies, Limits(**fields["limits"]), engines, bytes.fromhex(fields["secret"]))
    first, *others = (vocabulary.fingerprint for vocabulary in vocabularies)
    for spec in WARM_UP:
        compiler.warm(spec, first)
    for over in (*others, OVER_BYTES):
        compiler.warm(WARM_UP[0], over)  # the tables of the other forms are shared
    return compiler.answer, compile_request("", _REHEARSAL, first)


def _vocabulary(fields: Mapping[str, Any]) -> Vocabulary:
    tokens = (None if token is None else token.encode(_TOKEN_CODING) for token in fields["tokens"])
    return Vocabulary(tuple(tokens), tuple(fields["eos_ids"]), fields["names"])


def read_answer(answer: bytes) -> tuple[SandboxResult, bytes]:
    """The two parts of an answer. Raises MessageInvalid."""
    message, _, data = answer.partition(b"\n")
    result = load(message)
    assert isinstance(result, SandboxResult)
    return result, data


class _Compiler:
    """Compiles for vocabularies, and for single bytes."""

    def __init__(
        self, vocabularies: tuple[Vocabulary, ...], limits: Limits, engines: Engines, secret: bytes
    ) -> None:
        self._vocabularies = {vocabulary.fingerprint: vocabulary for vocabulary in vocabularies}
        self._vocabularies[OVER_BYTES] = byte_vocabulary(checks_texts=True)
        self._limits = limits
        self._engines = engines
        self._secret = secret

    def warm(self, spec: dict[str, object], over: str) -> None:
        """Compile, encode and explain a constraint for the caches that this fills."""
        with contextlib.suppress(CompileError):  # over a limit of the operator, or without an optional engine
            _, stored = self._compile("", spec, over)
            if over != OVER_BYTES:
                self._explain("", stored, over)

    def answer(self, request: bytes) -> bytes:
        """Compile or explain. Every error is an answer, except MemoryError, which the exit status reports."""
        try:
            fields = load_json(request)
            if "stored" in fields:
                stored = base64.b64decode(fields["stored"])
                return _join(self._explain(fields["automaton"], stored, fields["over"]), b"")
            if "schema" in fields:
                return _join(self._check(fields["schema"], fields["text"]), b"")
            if "policy" in fields:
                job = load(json.dumps(fields["policy"]).encode())
                assert isinstance(job, PolicyJob)
                return _join(apply_policy(job, ResourceGuard(self._limits)), b"")
            return _join(*self._compile(**fields))
        except MemoryError:
            raise
        except Exception as error:
            # Expected errors are for the caller; only bugs need a text for the log.
            evidence = "" if is_expected_error(error) else without_message(error)
            return _join(failure_of(error), evidence.encode())

    def _compile(self, automaton: str, spec: dict[str, object], over: str) -> tuple[CompileJobResult, bytes]:
        started = time.perf_counter()
        read, vocabulary = spec_from_json(spec), self._vocabularies[over]
        constraint = compile_spec(read, vocabulary, self._limits, engines=self._engines)
        compile_ms = (time.perf_counter() - started) * 1000
        sizes = summary(automaton, constraint, cached=False, compile_ms=compile_ms)
        return sizes, encode(constraint, automaton_secret(self._secret, automaton))

    def _explain(self, automaton: str, stored: bytes, fingerprint: str) -> ExplainJobResult:
        constraint = open_automaton(stored, self._secret, automaton, fingerprint, self._limits)
        explanation = explain(constraint, guard=ResourceGuard(self._limits))
        return ExplainJobResult(automaton, explanation)

    def _check(self, schema: dict[str, object], text: str) -> CheckJobResult:
        read = spec_from_json(schema)
        assert isinstance(read, JsonSchemaSpec)
        sys.setrecursionlimit(_RECURSION_MAX)
        found = value_violation(read, text, self._engines, ResourceGuard(self._limits))
        if found is None:
            return CheckJobResult(True, (), None)
        violation = ViolationBody(found.path, found.keyword, found.field, found.message)
        return CheckJobResult(False, (), found.offset, violation=violation)


def _join(message: SandboxResult, data: bytes) -> bytes:
    """The bytes of an answer."""
    return dump(message) + b"\n" + data
