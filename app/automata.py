"""Stored bytes to compiled constraints: checked in full before use, kept decoded while they are in demand."""

from __future__ import annotations

import threading
from collections import OrderedDict

from app.jobs import CompileResult
from compiler.codec import decode
from compiler.compiled import Compiled

DECODED_MAX = 64


class Decoder:
    """Decodes automata for one vocabulary, and remembers the last few. May be used from several threads."""

    def __init__(self, secret: bytes, fingerprint: str, decoded_max: int = DECODED_MAX) -> None:
        self._secret = secret
        self._fingerprint = fingerprint
        self._decoded_max = decoded_max
        self._decoded: OrderedDict[bytes, Compiled] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, data: bytes) -> Compiled:
        """The constraint in some bytes. Raises ArtefactInvalid where they are not one of ours."""
        with self._lock:
            compiled = self._decoded.get(data)
            if compiled is None:
                compiled = self._decoded[data] = decode(data, self._secret, self._fingerprint)
            self._decoded.move_to_end(data)
            if len(self._decoded) > self._decoded_max:
                self._decoded.popitem(last=False)
            return compiled


def summary(automaton: str, compiled: Compiled, cached: bool, compile_ms: float) -> CompileResult:
    """The sizes of a compiled constraint."""
    dfa, tokens = compiled.text.dfa, compiled.tokens
    return CompileResult(
        automaton=automaton, states=dfa.states, letters=dfa.symbols, token_states=tokens.states,
        token_classes=tokens.classes, min_tokens=tokens.min_tokens, cached=cached, compile_ms=compile_ms,
    )
