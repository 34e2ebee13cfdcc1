"""The bytes of a compiled constraint: what a store keeps. Nothing is unpickled, nothing is used before it is checked.

    magic 8 | raw length u32 | body length u32 | HMAC-SHA256 32 | body = zstd(safetensors)

The HMAC covers everything before and after it. The safetensors file holds the arrays, and one JSON document as bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from dataclasses import astuple
from typing import Any

import numpy as np
import zstandard
from safetensors import SafetensorError
from safetensors.numpy import load, save

from compiler.artifact import CompiledConstraint
from compiler.automata import ByteTransducer, Dfa
from compiler.errors import ArtefactInvalid, CompileError, LimitExceeded
from compiler.grammars import GrammarWarning
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.pushdown import PushdownAutomaton, PushdownMachine, from_arrays, machine_from_arrays
from compiler.spec import spec_from_json, spec_to_json
from compiler.text import (
    LabelAutomaton,
    PerCharacterAutomaton,
    PushdownText,
    TextAutomaton,
    WholeTextAutomaton,
    WordTraceAutomaton,
)

MAGIC = b"ABSDFA04"  # an explicit automaton
PUSHDOWN_MAGIC = b"ABSPDA02"
BLOB_BYTES_MAX = 64 * 2**20
RAW_BYTES_MAX = 256 * 2**20
_HEADER = struct.Struct("<8sII32s")
_TRANSDUCER = ("byte_class", "next_state", "output", "final_output")
_DFA = ("symbol_class", "next_state", "accepting")
_LETTER_AUTOMATA: dict[str, type[TextAutomaton]] = {  # by kind, of those that display their letter DFA
    automaton.kind: automaton for automaton in (WordTraceAutomaton, PerCharacterAutomaton, LabelAutomaton)
}
_TOKENS = (
    "token_class", "edge_boundary", "dense_row", "sparse_class", "sparse_edge", "edge_midchar", "edge_target",
    "edge_function", "function", "distance",
)  # fmt: skip


def _arrays(prefix: str, value: object, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    # safetensors writes an array's memory as it lies: views must be copied into order first.
    return {f"{prefix}.{name}": np.ascontiguousarray(getattr(value, name)) for name in names}


def encode(compiled: CompiledConstraint, secret: bytes) -> bytes:
    """The bytes of a compiled constraint, signed with `secret`. Raises LimitExceeded for more than `decode` takes.

    >>> from compiler.pipeline import compile_spec
    >>> from compiler.spec import RegexSpec
    >>> from compiler.vocab import byte_vocabulary
    >>> vocabulary = byte_vocabulary()
    >>> data = encode(compile_spec(RegexSpec("a|b"), vocabulary), secret=b"secret")
    >>> decode(data, b"secret", vocabulary.fingerprint).tokens.min_tokens
    2
    """
    pushdown = isinstance(compiled.text, PushdownText)
    arrays, document = _pushdown_parts(compiled) if pushdown else _explicit_parts(compiled)
    # safetensors holds plain arrays and no code: reading it cannot run anything.
    raw = save({**arrays, "document": np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)})
    body = zstandard.ZstdCompressor(level=3).compress(raw)
    # What `decode` would refuse is not written.
    if len(raw) > RAW_BYTES_MAX or len(body) + _HEADER.size > BLOB_BYTES_MAX:
        raise LimitExceeded("blob_bytes_max", BLOB_BYTES_MAX, len(body))
    # The signature covers the header up to where it stands itself.
    magic = PUSHDOWN_MAGIC if pushdown else MAGIC
    head = _HEADER.pack(magic, len(raw), len(body), bytes(32))
    return _HEADER.pack(magic, len(raw), len(body), _sign(head, body, secret)) + body


def _sign(head: bytes, body: bytes, secret: bytes) -> bytes:
    # The first 16 bytes are the magic and the lengths.
    return hmac.new(secret, head[:16] + body, hashlib.sha256).digest()


def _explicit_parts(compiled: CompiledConstraint) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """The arrays and the document of an explicit automaton. With a change of their keys MAGIC changes."""
    text, tokens = compiled.text, compiled.tokens
    assert isinstance(text, TextAutomaton) and isinstance(tokens, TokenAutomaton)
    arrays = {
        **_arrays("transducer", text.transducer, _TRANSDUCER),
        **_arrays("letters", text.letters, _DFA),
        **(_arrays("dfa", text.whole_dfa, _DFA) if isinstance(text, WholeTextAutomaton) else {}),
        **_arrays("tokens", tokens, _TOKENS),
        "dfa_state": text.whole_state if isinstance(text, WholeTextAutomaton) else np.zeros(0, dtype=np.int32),
    }
    return arrays, {
        **_common(compiled),
        "state_distances": compiled.state_distances,
        "kind": text.kind,
        "outputs": text.transducer.outputs,
        "boundary_states": text.transducer.boundary_states,
        "starts": {
            "transducer": text.transducer.start,
            "text": text.text_start,
            "letters": text.letters.start,
            "dfa": text.display_dfa.start,
            "tokens": tokens.start,
        },
        "symbol_names": text.symbol_names,
        "letter_names": text.letter_names,
        "eos_ids": tokens.eos_ids,
    }


def _pushdown_parts(compiled: CompiledConstraint) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """The same of a pushdown automaton. With a change of their keys PUSHDOWN_MAGIC changes."""
    text, tokens = compiled.text, compiled.tokens
    assert isinstance(text, PushdownText) and isinstance(tokens, PushdownAutomaton)
    parts: dict[str, PushdownMachine | PushdownAutomaton] = {"machine": text.machine, "tokens": tokens}
    arrays = {f"{part}.{name}": array for part, value in parts.items() for name, array in value.arrays().items()}
    return arrays, {
        **_common(compiled),
        **{part: value.numbers() for part, value in parts.items()},
        "text_start": text.text_start,
        "warnings": [astuple(warning) for warning in compiled.warnings],
    }


def _common(compiled: CompiledConstraint) -> dict[str, object]:
    return {
        "spec": spec_to_json(compiled.spec),
        "vocabulary": compiled.vocabulary,
        "not_enforced": compiled.not_enforced,
        "approximate": compiled.approximate,
        "strips_space": compiled.text.strips_space,
    }


def decode(data: bytes, secret: bytes, vocabulary: str) -> CompiledConstraint:
    """The compiled constraint in `data`.

    Raises ArtefactInvalid unless every byte is as `encode` wrote it with this secret, for the vocabulary of this
    fingerprint; no other exception, whatever the bytes.
    """
    # From here on the bytes are ours, unless the secret is known to others: errors below are old or broken artefacts.
    magic, raw = _open(data, secret)
    try:
        arrays = load(raw)
        document = json.loads(arrays.pop("document").tobytes())
        # The constructors check every index and shape, so that a damaged table is an error here and not later.
        compiled = (_rebuild if magic == MAGIC else _rebuild_pushdown)(arrays, document)
    except (SafetensorError, CompileError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ArtefactInvalid(f"the stored automaton does not hold together: {error!r}") from error
    # The constructors have checked each part; this checks that the parts fit together.
    if compiled.tokens.min_tokens == UNREACHABLE or not _fits(compiled):
        raise ArtefactInvalid("the stored automaton cannot be satisfied, or lacks distances")
    if compiled.vocabulary != vocabulary:
        # Token ids mean nothing in another vocabulary, even if all tables fit.
        raise ArtefactInvalid("the stored automaton is for another vocabulary")
    return compiled


def _fits(compiled: CompiledConstraint) -> bool:
    """Whether the two automata may be those of one constraint."""
    text, tokens = compiled.text, compiled.tokens
    if isinstance(text, TextAutomaton):
        return len(compiled.state_distances) == text.display_dfa.states
    assert isinstance(tokens, PushdownAutomaton)
    machine, tables = text.machine, tokens.tables
    sizes = machine.states, len(machine.resume), machine.start
    return sizes == (tables.states, tables.symbols, tables.start)


def _open(data: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """Return the magic and the decompressed body of a verified artefact.

    The checks come in this order: size, magic, lengths, signature.
    """
    if not _HEADER.size <= len(data) <= BLOB_BYTES_MAX:
        raise ArtefactInvalid(f"the stored automaton has {len(data)} bytes")
    magic, raw_length, body_length, signature = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    # The cheap checks come first; nothing is decompressed before the signature is checked.
    if magic not in (MAGIC, PUSHDOWN_MAGIC) or body_length != len(body) or raw_length > RAW_BYTES_MAX:
        raise ArtefactInvalid("the stored automaton is of another format")
    # In constant time, so that a signature cannot be guessed byte by byte.
    if not hmac.compare_digest(signature, _sign(data, body, secret)):
        raise ArtefactInvalid("the stored automaton was not signed by this deployment")
    try:
        if zstandard.frame_content_size(body) != raw_length:  # decompress() trusts the frame, so the frame is checked
            raise ArtefactInvalid("the stored automaton has another length than it says")
        return magic, zstandard.ZstdDecompressor().decompress(body)
    except zstandard.ZstdError as error:
        raise ArtefactInvalid("the stored automaton does not decompress") from error


def _rebuild(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> CompiledConstraint:
    starts = document["starts"]

    def take(prefix: str, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: arrays[f"{prefix}.{name}"] for name in names}

    transducer = ByteTransducer(
        **take("transducer", _TRANSDUCER),
        boundary_states=document["boundary_states"],
        outputs=tuple(tuple(string) for string in document["outputs"]),
        start=starts["transducer"],
    )
    common: dict[str, Any] = {
        "transducer": transducer,
        "letters": Dfa(**take("letters", _DFA), start=starts["letters"]),
        "symbol_names": tuple(document["symbol_names"]),
        "letter_names": tuple(None if names is None else tuple(names) for names in document["letter_names"]),
        "text_start": starts["text"],
        "strips_space": bool(document["strips_space"]),
    }
    text: TextAutomaton
    # Only a whole-text automaton displays another DFA than its letters.
    if "dfa.next_state" in arrays:
        whole_dfa = Dfa(**take("dfa", _DFA), start=starts["dfa"])
        text = WholeTextAutomaton(**common, whole_dfa=whole_dfa, whole_state=arrays["dfa_state"])
    else:
        text = _LETTER_AUTOMATA[document["kind"]](**common)
    tokens = TokenAutomaton(**take("tokens", _TOKENS), start=starts["tokens"], eos_ids=tuple(document["eos_ids"]))
    distances = tuple(document["state_distances"])
    return CompiledConstraint(
        spec=spec_from_json(document["spec"]), text=text, tokens=tokens, state_distances=distances,
        vocabulary=document["vocabulary"], not_enforced=tuple(document["not_enforced"]),
        approximate=tuple(document["approximate"]),
    )


def _rebuild_pushdown(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> CompiledConstraint:
    def take(part: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(f"{part}."): array for name, array in arrays.items() if name.startswith(f"{part}.")}

    text = PushdownText(
        machine=machine_from_arrays(take("machine"), document["machine"]), text_start=document["text_start"],
        strips_space=bool(document["strips_space"]),
    )
    return CompiledConstraint(
        spec=spec_from_json(document["spec"]), text=text, tokens=from_arrays(take("tokens"), document["tokens"]),
        state_distances=(), vocabulary=document["vocabulary"], not_enforced=tuple(document["not_enforced"]),
        approximate=tuple(document["approximate"]),
        warnings=tuple(GrammarWarning(*warning) for warning in document["warnings"]),
    )
