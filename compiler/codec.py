"""The bytes of a compiled constraint: what a store keeps. Nothing is unpickled, nothing is used before it is checked.

    magic 8 | raw length u32 | body length u32 | HMAC-SHA256 32 | body = zstd(safetensors)

The HMAC covers everything before and after it. The safetensors file holds the arrays, and one JSON document as bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import struct
from typing import Any

import numpy as np
import zstandard
from safetensors import SafetensorError
from safetensors.numpy import load, save

from compiler.artifact import CompiledConstraint
from compiler.automata import ByteTransducer, Dfa
from compiler.errors import ArtefactInvalid, CompileError, LimitExceeded
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.spec import spec_from_json, spec_to_json
from compiler.text import LabelAutomaton, PerCharacterAutomaton, TextAutomaton, WholeTextAutomaton, WordTraceAutomaton

MAGIC = b"ABSDFA04"
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
    text = compiled.text
    # The keys are a stored format: with a change of them MAGIC changes.
    arrays = {
        **_arrays("transducer", text.transducer, _TRANSDUCER),
        **_arrays("letters", text.letters, _DFA),
        **(_arrays("dfa", text.whole_dfa, _DFA) if isinstance(text, WholeTextAutomaton) else {}),
        **_arrays("tokens", compiled.tokens, _TOKENS),
        "dfa_state": text.whole_state if isinstance(text, WholeTextAutomaton) else np.zeros(0, dtype=np.int32),
        "document": np.frombuffer(json.dumps(_document(compiled)).encode(), dtype=np.uint8),
    }
    # safetensors holds plain arrays and no code: reading it cannot run anything.
    raw = save(arrays)
    body = zstandard.ZstdCompressor(level=3).compress(raw)
    # What `decode` would refuse is not written.
    if len(raw) > RAW_BYTES_MAX or len(body) + _HEADER.size > BLOB_BYTES_MAX:
        raise LimitExceeded("blob_bytes_max", BLOB_BYTES_MAX, len(body))
    # The signature covers the header up to where it stands itself.
    head = _HEADER.pack(MAGIC, len(raw), len(body), bytes(32))
    return _HEADER.pack(MAGIC, len(raw), len(body), _sign(head, body, secret)) + body


def _sign(head: bytes, body: bytes, secret: bytes) -> bytes:
    # The first 16 bytes are the magic and the lengths.
    return hmac.new(secret, head[:16] + body, hashlib.sha256).digest()


def _document(compiled: CompiledConstraint) -> dict[str, object]:
    text = compiled.text
    return {
        "spec": spec_to_json(compiled.spec),
        "vocabulary": compiled.vocabulary,
        "not_enforced": compiled.not_enforced,
        "approximate": compiled.approximate,
        "state_distances": compiled.state_distances,
        "kind": text.kind,
        "strips_space": text.strips_space,
        "outputs": text.transducer.outputs,
        "boundary_states": text.transducer.boundary_states,
        "starts": {
            "transducer": text.transducer.start,
            "text": text.text_start,
            "letters": text.letters.start,
            "dfa": text.display_dfa.start,
            "tokens": compiled.tokens.start,
        },
        "symbol_names": text.symbol_names,
        "letter_names": text.letter_names,
        "eos_ids": compiled.tokens.eos_ids,
    }


def decode(data: bytes, secret: bytes, vocabulary: str) -> CompiledConstraint:
    """The compiled constraint in `data`.

    Raises ArtefactInvalid unless every byte is as `encode` wrote it with this secret, for the vocabulary of this
    fingerprint; no other exception, whatever the bytes.
    """
    # From here on the bytes are ours, unless the secret is known to others: errors below are old or broken artefacts.
    raw = _open(data, secret)
    try:
        arrays = load(raw)
        document = json.loads(arrays.pop("document").tobytes())
        # The constructors check every index and shape, so that a damaged table is an error here and not later.
        compiled = _rebuild(arrays, document)
    except (SafetensorError, CompileError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ArtefactInvalid(f"the stored automaton does not hold together: {error!r}") from error
    # The constructors have checked each part; this checks that the parts fit together.
    if compiled.tokens.min_tokens == UNREACHABLE or len(compiled.state_distances) != compiled.text.display_dfa.states:
        raise ArtefactInvalid("the stored automaton cannot be satisfied, or lacks distances")
    if compiled.vocabulary != vocabulary:
        # Token ids mean nothing in another vocabulary, even if all tables fit.
        raise ArtefactInvalid("the stored automaton is for another vocabulary")
    return compiled


def _open(data: bytes, secret: bytes) -> bytes:
    """Return the decompressed body of a verified artefact.

    The checks come in this order: size, magic, lengths, signature.
    """
    if not _HEADER.size <= len(data) <= BLOB_BYTES_MAX:
        raise ArtefactInvalid(f"the stored automaton has {len(data)} bytes")
    magic, raw_length, body_length, signature = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    # The cheap checks come first; nothing is decompressed before the signature is checked.
    if magic != MAGIC or body_length != len(body) or raw_length > RAW_BYTES_MAX:
        raise ArtefactInvalid("the stored automaton is of another format")
    # In constant time, so that a signature cannot be guessed byte by byte.
    if not hmac.compare_digest(signature, _sign(data, body, secret)):
        raise ArtefactInvalid("the stored automaton was not signed by this deployment")
    try:
        if zstandard.frame_content_size(body) != raw_length:  # decompress() trusts the frame, so the frame is checked
            raise ArtefactInvalid("the stored automaton has another length than it says")
        return zstandard.ZstdDecompressor().decompress(body)
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
