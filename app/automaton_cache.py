"""Decodes stored automata. Each is checked in full before use, and those last used stay decoded."""

from __future__ import annotations

import dataclasses
import functools
import hmac
import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from app.messages import CompileJobResult, grammar_warnings, signing_keys
from app.settings import Settings
from compiler.artifact import CompiledConstraint
from compiler.codec import decode
from compiler.errors import ArtefactInvalid, OtherVocabulary
from compiler.limits import DEFAULT_LIMITS, Limits
from compiler.products import LazyProduct
from compiler.text import AnyText, DistinctText, PartText, ProductText, PushdownText, parts_of_text

ENTRY_BYTES = 2**14  # what an automaton takes beside its tables
K = TypeVar("K")
V = TypeVar("V")


class ByteBoundedLru(Generic[K, V]):
    """The last used values, within a number of bytes. May be used from several threads."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key not in self._entries:
                return None
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: K, value: V, size: int) -> None:
        """Stores a value in place of an earlier one. A value larger than the whole cache is not stored."""
        with self._lock:
            self._bytes -= self._entries.pop(key, (None, 0))[1]
            if size > self._bytes_max:
                return
            self._entries[key] = (value, size)
            self._bytes += size
            while self._bytes > self._bytes_max:
                self._bytes -= self._entries.popitem(last=False)[1][1]


def automaton_secret(secret: bytes, automaton: str) -> bytes:
    """The key that signs the automaton of this hash and no other.

    So a process that can write to the store cannot replace one automaton by another.
    """
    return hmac.digest(signing_keys(secret)[0], f"automaton {automaton}".encode(), "sha256")


def open_automaton(
    data: bytes, secret: bytes, automaton: str, vocabulary: str, limits: Limits
) -> CompiledConstraint:
    """The constraint of this hash, signed by a key of `secret`. Raises ArtefactInvalid for any other data.

    limits  for what is done with its text; it may have been made under others
    """
    constraint = _decoded(data, secret, automaton, vocabulary)
    return dataclasses.replace(constraint, text=_with_limits(constraint.text, limits))


def _with_limits(text: AnyText, limits: Limits) -> AnyText:
    if isinstance(text, ProductText):
        parts = tuple(dataclasses.replace(part, limits=limits) for part in text.parts)
        return dataclasses.replace(text, parts=parts, limits=limits)
    return dataclasses.replace(text, limits=limits)


def _decoded(data: bytes, secret: bytes, automaton: str, vocabulary: str) -> CompiledConstraint:
    *others, last = signing_keys(secret)
    for key in others:
        try:
            return decode(data, automaton_secret(key, automaton), vocabulary)
        except OtherVocabulary:  # its signature fits: no other key would
            raise
        except ArtefactInvalid:
            pass
    return decode(data, automaton_secret(last, automaton), vocabulary)


DecodedCache = ByteBoundedLru[tuple[str, bytes] | str, CompiledConstraint]


class Decoder:
    """Decodes automata for one vocabulary, and remembers the last few. May be used from several threads.

    Beside them it remembers constraints over bytes that were compiled for a check, in the same space.

    cache  of the decoders with the same secret and limits, one for each vocabulary
    """

    def __init__(
        self, secret: bytes, fingerprint: str, cache: DecodedCache, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        self._secret = secret
        self._fingerprint = fingerprint
        self._limits = limits
        self._cache = cache
        self._lock = threading.Lock()

    def __call__(self, automaton: str, data: bytes) -> CompiledConstraint:
        """The constraint of this hash, in the bytes stored for it. Raises ArtefactInvalid where they are not ours."""
        # The bytes are part of the key: a value that was replaced in the store is decoded and checked again.
        with self._lock:
            constraint = self._cache.get((automaton, data))
            if constraint is None:
                constraint = open_automaton(data, self._secret, automaton, self._fingerprint, self._limits)
                size = len(data) + token_bytes(constraint) + _text_bytes(constraint.text) + _capture_bytes(constraint)
                self._cache.put((automaton, data), constraint, size)
            if constraint.vocabulary != self._fingerprint:  # a decoder of another model has put it there
                raise OtherVocabulary("the stored automaton is for another vocabulary")
            return constraint

    def over_bytes(self, automaton: str) -> CompiledConstraint | None:
        """The constraint over bytes that was kept under this hash."""
        return self._cache.get(automaton)

    def keep(self, automaton: str, constraint: CompiledConstraint) -> None:
        """Keep a constraint over bytes, at the size of its texts now."""
        self._cache.put(automaton, constraint, _text_bytes(constraint.text) + _capture_bytes(constraint))


def array_bytes(value: object) -> int:
    """The bytes of the arrays, or tensors, of a dataclass instance."""
    names = [item.name for item in dataclasses.fields(value)]  # type: ignore[arg-type]
    return sum(int(getattr(getattr(value, name), "nbytes", 0)) for name in names)


def token_bytes(constraint: CompiledConstraint) -> int:
    """The bytes of the automaton over tokens."""
    return constraint.tokens.table_bytes + int(constraint.tokens.token_class.nbytes)


def _capture_bytes(constraint: CompiledConstraint) -> int:
    return sum(reader.nbytes for reader in constraint.captures)


def _text_bytes(text: AnyText | PartText) -> int:
    over_bytes = text.existing_byte_automaton
    size = ENTRY_BYTES + (over_bytes.table_bytes if over_bytes else 0)
    if isinstance(text, ProductText):
        return size + sum(map(_text_bytes, text.parts))
    if isinstance(text, PushdownText):
        return size + array_bytes(text.machine)
    if isinstance(text, DistinctText):
        return size + array_bytes(text.transducer)
    return size + sum(map(array_bytes, (text, text.transducer, text.letters, text.display_dfa)))


_opening = threading.Lock()  # two threads that ask for the first time get the same one


def open_decoder(settings: Settings, fingerprint: str) -> Decoder:
    """The decoder of this process for these settings and this vocabulary: API and workers share its space."""
    with _opening:
        decoders, cache = _decoders(settings.auth.secret, settings.retention.automaton_cache_bytes, settings.limits)
        if fingerprint not in decoders:
            decoders[fingerprint] = Decoder(settings.auth.secret, fingerprint, cache, settings.limits)
        return decoders[fingerprint]


@functools.lru_cache(maxsize=1)
def _decoders(secret: bytes, bytes_max: int, limits: Limits) -> tuple[dict[str, Decoder], DecodedCache]:
    """The decoders by vocabulary, and the space that they share."""
    return {}, DecodedCache(bytes_max)


def summary(automaton: str, constraint: CompiledConstraint, cached: bool, compile_ms: float) -> CompileJobResult:
    """The sizes of a compiled constraint. Those of a grammar are control states and classes of bytes.

    Those of a product are sums over its parts.
    """
    tokens = constraint.tokens
    states, letters = map(sum, zip(*map(_text_size, parts_of_text(constraint.text)), strict=True))
    at_least = tokens.min_tokens_at_least if isinstance(tokens, LazyProduct) else tokens.min_tokens
    return CompileJobResult(
        automaton=automaton, states=states, letters=letters, token_states=tokens.states,
        token_classes=tokens.classes, min_tokens=tokens.min_tokens, cached=cached, compile_ms=compile_ms,
        not_enforced=constraint.not_enforced, approximate=constraint.approximate,
        warnings=grammar_warnings(constraint.warnings),
        min_tokens_at_least=None if at_least == tokens.min_tokens else at_least,
    )


def _text_size(text: PartText) -> tuple[int, int]:
    """The states and the symbols of an automaton over texts."""
    if isinstance(text, PushdownText):
        states, symbols = text.machine.action.shape
        return states, symbols
    if isinstance(text, DistinctText):
        return text.transducer.states, 1 + text.letters
    return text.display_dfa.states, text.display_dfa.symbols
