"""Runs a compilation or an explanation in the sandbox. Requests and answers are bytes.

setup    the settings of compilations, and the vocabulary
request  JSON: `automaton`, a hash, and either `spec`, the constraint, and `over`, what it is compiled for, or
         `stored`, the codec's bytes in base 64, which are to be explained
answer   a CompileJobResult and the codec's bytes, an ExplainJobResult, or a Failure and the log's text about a bug

This module does not depend on processes.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from app.automaton_cache import automaton_secret, summary
from app.errors import without_message
from app.messages import CompileJobResult, ExplainJobResult, Failure, dump, failure_of, is_expected_error, load
from app.settings import Settings
from compiler.codec import decode, encode
from compiler.diagnostics import explain
from compiler.engines import Engines, open_engines
from compiler.errors import CompileError
from compiler.json_schema import FORMATS
from compiler.limits import Limits, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.vocab import Vocabulary, byte_vocabulary

TARGET = "app.worker.sandbox.compile_task:open_job"
Over = Literal["tokens", "bytes"]  # the model's vocabulary, or single bytes
_WRITES_NOTHING = -1  # instead of the byte length of an id
_WARM_UP: tuple[dict[str, object], ...] = (  # together they fill every cache that lives as long as the process
    {"regex": r"(?i)[^\wk]*\d\s\D\S\W[[:é]?.|" + "x{1,3}"},
    {"ltlf": "F dog & G(cat -> X ball)", "propositions": {"cat": {"regex": r"(?i)c\w+"}, "dog": ["dog", "a dog"]}},
    {"keywords": [["dog"], ["ball"]], "ordered": True, "case_sensitive": True},
    {"keywords": ["dog"], "inflect": True},
    {"json_schema": {"type": "object", "properties": {
        **{name: {"type": "string", "format": name} for name in sorted(FORMATS)}, "n": {"type": "number", "minimum": 0},
    }}},
)
_REHEARSAL: dict[str, object] = {"regex": "ab"}


@dataclass(frozen=True, slots=True)
class Request:
    """One compilation."""

    automaton: str
    spec: dict[str, object]
    over: Over

    def pack(self) -> bytes:
        return json.dumps({"automaton": self.automaton, "spec": self.spec, "over": self.over}).encode()


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """One explanation of a constraint, which is given as the codec's bytes."""

    automaton: str
    stored: bytes

    def pack(self) -> bytes:
        return json.dumps({"automaton": self.automaton, "stored": base64.b64encode(self.stored).decode()}).encode()


def pack_setup(settings: Settings, vocabulary: Vocabulary) -> bytes:
    """The setup for `open_job`."""
    head = {
        "limits": dataclasses.asdict(settings.limits),
        "secret": settings.auth.secret.hex(),
        "eos_ids": vocabulary.eos_ids,
        "engines": (settings.engines.ltlf_engine, settings.engines.regex_engine),
    }
    lengths = [_WRITES_NOTHING if token is None else len(token) for token in vocabulary.tokens]
    tokens = b"".join(token or b"" for token in vocabulary.tokens)
    return _join(json.dumps(head).encode(), np.array(lengths, dtype=np.int32).tobytes(), tokens)


def open_job(setup: bytes) -> tuple[Callable[[bytes], bytes], bytes]:
    """The function from requests to answers, with a request to rehearse it. Its caches are warm."""
    head_bytes, lengths, joined = _split(setup)
    head = json.loads(head_bytes)
    vocabulary = Vocabulary(_tokens(np.frombuffer(lengths, dtype=np.int32), joined), tuple(head["eos_ids"]))
    engines = open_engines(*head["engines"])
    compiler = _Compiler(vocabulary, Limits(**head["limits"]), engines, bytes.fromhex(head["secret"]))
    for spec in _WARM_UP:
        compiler.warm(spec, "tokens")
    compiler.warm(_WARM_UP[0], "bytes")  # the tables of the other forms are shared
    return compiler.answer, Request("", _REHEARSAL, "tokens").pack()


def read_answer(answer: bytes) -> tuple[CompileJobResult | ExplainJobResult | Failure, bytes]:
    """The two parts of an answer. Raises MessageInvalid."""
    message, data = _split(answer)
    result = load(message)
    assert isinstance(result, CompileJobResult | ExplainJobResult | Failure)
    return result, data


class _Compiler:
    """Compiles for one vocabulary, and for single bytes."""

    def __init__(self, vocabulary: Vocabulary, limits: Limits, engines: Engines, secret: bytes) -> None:
        self._vocabularies: dict[str, Vocabulary] = {"tokens": vocabulary, "bytes": byte_vocabulary()}
        self._limits = limits
        self._engines = engines
        self._secret = secret

    def warm(self, spec: dict[str, object], over: Over) -> None:
        """Compile, encode and explain a constraint for the caches that this fills."""
        with contextlib.suppress(CompileError):  # over a limit of the operator, or without an optional engine
            _, stored = self._compile(Request("", spec, over))
            if over == "tokens":
                self._explain("", stored)

    def answer(self, request: bytes) -> bytes:
        """Compile or explain. Every error is an answer, except MemoryError, which the exit status reports."""
        try:
            fields = json.loads(request)
            if "stored" in fields:
                return _join(self._explain(fields["automaton"], base64.b64decode(fields["stored"])), b"")
            return _join(*self._compile(Request(**fields)))
        except MemoryError:
            raise
        except Exception as error:
            # Expected errors are for the caller; only bugs need a text for the log.
            evidence = "" if is_expected_error(error) else without_message(error)
            return _join(dump(failure_of(error)), evidence.encode())

    def _compile(self, request: Request) -> tuple[bytes, bytes]:
        started = time.perf_counter()
        spec, vocabulary = spec_from_json(request.spec), self._vocabularies[request.over]
        constraint = compile_spec(spec, vocabulary, self._limits, engines=self._engines)
        compile_ms = (time.perf_counter() - started) * 1000
        sizes = summary(request.automaton, constraint, cached=False, compile_ms=compile_ms)
        return dump(sizes), encode(constraint, automaton_secret(self._secret, request.automaton))

    def _explain(self, automaton: str, stored: bytes) -> bytes:
        secret = automaton_secret(self._secret, automaton)
        constraint = decode(stored, secret, self._vocabularies["tokens"].fingerprint)
        text = dataclasses.replace(constraint.text, limits=self._limits)  # stored with earlier settings
        explanation = explain(dataclasses.replace(constraint, text=text), guard=ResourceGuard(self._limits))
        return dump(ExplainJobResult(automaton, explanation))


def _tokens(lengths: np.ndarray, joined: bytes) -> tuple[bytes | None, ...]:
    """The tokens of a packed vocabulary. lengths: int32 [V]."""
    ends = np.cumsum(np.maximum(lengths, 0)).tolist()
    return tuple(
        None if length == _WRITES_NOTHING else joined[end - length : end]
        for length, end in zip(lengths.tolist(), ends, strict=True)
    )


def _join(*parts: bytes) -> bytes:
    """Several byte strings as one."""
    return b"".join([struct.pack("<I", len(parts)), *(struct.pack("<Q", len(part)) for part in parts), *parts])


def _split(data: bytes) -> list[bytes]:
    """The byte strings that `_join` joined."""
    (count,) = struct.unpack_from("<I", data)
    at, parts = 4 + 8 * count, []
    for length in struct.unpack_from(f"<{count}Q", data, 4):
        parts.append(data[at : at + length])
        at += length
    return parts
