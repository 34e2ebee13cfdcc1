"""The bytes of a compiled constraint: what a store keeps. Nothing is unpickled, nothing is used before it is checked.

    magic 8 | raw length u32 | body length u32 | HMAC-SHA256 32 | body = zstd(safetensors)

The HMAC covers everything before and after it. The safetensors file holds the arrays, and one JSON document as bytes.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import astuple
from typing import Any, TypeAlias

import numpy as np
import zstandard
from safetensors import SafetensorError
from safetensors.numpy import load, save

from compiler.artifact import CompiledConstraint
from compiler.automata import ByteTransducer, Dfa
from compiler.errors import ArtefactInvalid, CompileError, LimitExceeded, OtherVocabulary
from compiler.exact_json import dump_json, load_json
from compiler.grammars import GrammarWarning
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.products import DistinctAutomaton, LazyProduct, Part, PartStart, ProductStart, to_json
from compiler.products import from_json as formula_from_json
from compiler.pushdown import PushdownAutomaton, counting_states, from_arrays, machine_from_arrays
from compiler.spec import SequenceSpec, captures_of, spec_from_json, spec_to_json
from compiler.text import (
    AnyText,
    CaptureReader,
    DistinctText,
    LabelAutomaton,
    PartText,
    PerCharacterAutomaton,
    ProductText,
    PushdownText,
    TextAutomaton,
    WholeTextAutomaton,
    WordTraceAutomaton,
)

MAGIC = b"ABSDFA07"  # an explicit automaton
PUSHDOWN_MAGIC = b"ABSPDA04"
PRODUCT_MAGIC = b"ABSLZY04"
BLOB_BYTES_MAX = 64 * 2**20
RAW_BYTES_MAX = 256 * 2**20
_HEADER = struct.Struct("<8sII32s")
_PIECE = 2**20  # bytes that are compressed at once
_TRANSDUCER = ("byte_class", "next_state", "final_output")
_DFA = ("symbol_class", "next_state", "accepting")
_LETTER_AUTOMATA: dict[str, type[TextAutomaton]] = {  # by kind, of those that display their letter DFA
    automaton.kind: automaton for automaton in (WordTraceAutomaton, PerCharacterAutomaton, LabelAutomaton)
}
_TOKENS = (
    "token_class", "edge_boundary", "dense_row", "sparse_first", "sparse_class", "sparse_edge", "edge_midchar",
    "edge_target", "edge_function", "function", "distance",
)  # fmt: skip

_DISTINCT = ("prices", "least", "reachable", "avoidable", "following", "height", "through")

_Stored: TypeAlias = tuple[dict[str, np.ndarray], dict[str, Any]]


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
    magic, arrays, document = _parts(compiled)
    # safetensors holds plain arrays and no code: reading it cannot run anything.
    raw = save({**arrays, "document": np.frombuffer(dump_json(document).encode(), dtype=np.uint8)})
    # In pieces: for all at once, zstd takes as much memory again as it is given.
    stream = zstandard.ZstdCompressor(level=3).compressobj(size=len(raw))
    pieces = [stream.compress(memoryview(raw)[begin : begin + _PIECE]) for begin in range(0, len(raw), _PIECE)]
    body = b"".join([*pieces, stream.flush()])
    # What `decode` would refuse is not written.
    if len(raw) > RAW_BYTES_MAX or len(body) + _HEADER.size > BLOB_BYTES_MAX:
        raise LimitExceeded("blob_bytes_max", BLOB_BYTES_MAX, len(body))
    # The signature covers the header up to where it stands itself.
    head = _HEADER.pack(magic, len(raw), len(body), bytes(32))
    return _HEADER.pack(magic, len(raw), len(body), _sign(head, body, secret)) + body


def _sign(head: bytes, body: bytes, secret: bytes) -> bytes:
    # The first 16 bytes are the magic and the lengths.
    return hmac.new(secret, head[:16] + body, hashlib.sha256).digest()


def _parts(compiled: CompiledConstraint) -> tuple[bytes, dict[str, np.ndarray], dict[str, Any]]:
    """The magic, the arrays and the document. With a change of their keys the magic changes."""
    magic, arrays, document = _automaton_parts(compiled)
    machines, numbers = _capture_parts(compiled.captures)
    return magic, {**arrays, **machines}, {**document, "captures": numbers}


def _capture_parts(readers: tuple[CaptureReader, ...]) -> tuple[dict[str, np.ndarray], list[list[object]]]:
    """The arrays of the machines of captures, and their numbers.

    The numbers are listed by sequence; None stands for no machine.
    """
    arrays, numbers = dict[str, np.ndarray](), list[list[object]]()
    for number, reader in enumerate(readers):
        numbers.append([None if machine is None else machine.numbers() for machine in reader.machines])
        for place, machine in enumerate(reader.machines):
            if machine is not None:
                arrays |= {f"capture.{number}.{place}.{name}": array for name, array in machine.arrays().items()}
    return arrays, numbers


def _automaton_parts(compiled: CompiledConstraint) -> tuple[bytes, dict[str, np.ndarray], dict[str, Any]]:
    """The same of everything but captures."""
    magic = _magic_of(compiled.text)
    if isinstance(compiled.text, ProductText):
        return magic, *_product_parts(compiled, compiled.text)
    text_arrays, text_document = _text_parts(compiled.text)
    assert not isinstance(compiled.tokens, LazyProduct)
    arrays, document = _token_parts(compiled.tokens)
    document = {**_common(compiled), **_joined(text_document, document)}
    if isinstance(compiled.text, TextAutomaton):
        document["state_distances"] = compiled.state_distances
    return magic, {**text_arrays, **arrays}, document


def _magic_of(text: AnyText) -> bytes:
    if isinstance(text, ProductText):
        return PRODUCT_MAGIC
    return MAGIC if isinstance(text, TextAutomaton) else PUSHDOWN_MAGIC


def _text_parts(text: PartText) -> _Stored:
    """The arrays and the document of an automaton over texts."""
    if isinstance(text, PushdownText):
        machine = {f"machine.{name}": array for name, array in text.machine.arrays().items()}
        return machine, {"machine": text.machine.numbers(), "text_start": text.text_start}
    transducer = {
        **_arrays("transducer", text.transducer, _TRANSDUCER),
        # Without letters each output is the empty one, number 0.
        **(_arrays("transducer", text.transducer, ("output",)) if len(text.transducer.outputs) > 1 else {}),
    }
    common = {"outputs": text.transducer.outputs, "boundary_states": text.transducer.boundary_states}
    starts = {"transducer": text.transducer.start, "text": text.text_start}
    if isinstance(text, DistinctText):
        return transducer, {**common, "starts": starts, "distinct": text.letters}
    arrays = {
        **transducer,
        **_arrays("letters", text.letters, _DFA),
        **(_arrays("dfa", text.whole_dfa, _DFA) if isinstance(text, WholeTextAutomaton) else {}),
        "dfa_state": text.whole_state if isinstance(text, WholeTextAutomaton) else np.zeros(0, dtype=np.int32),
    }
    return arrays, {
        **common,
        "kind": text.kind,
        "starts": {**starts, "letters": text.letters.start, "dfa": text.display_dfa.start},
        "symbol_names": text.symbol_names,
        "letter_names": text.letter_names,
    }


def _token_parts(tokens: Part) -> _Stored:
    """The arrays and the document of an automaton over tokens."""
    if isinstance(tokens, PushdownAutomaton):
        return {f"tokens.{name}": array for name, array in tokens.arrays().items()}, {"tokens": tokens.numbers()}
    if isinstance(tokens, DistinctAutomaton):
        arrays, document = _token_parts(tokens.tokens)
        return {**arrays, **_arrays("distinct", tokens, _DISTINCT)}, document
    return _arrays("tokens", tokens, _TOKENS), {"starts": {"tokens": tokens.start}, "eos_ids": tokens.eos_ids}


def _joined(text: dict[str, Any], tokens: dict[str, Any]) -> dict[str, Any]:
    """The documents of both automata, with the starts of both."""
    return {**text, **tokens, "starts": {**text.get("starts", {}), **tokens.get("starts", {})}}


def _product_parts(
    compiled: CompiledConstraint, text: ProductText
) -> _Stored:
    """The same of a product: those of each part, behind its number."""
    assert isinstance(compiled.tokens, LazyProduct)
    arrays, parts, start = dict[str, np.ndarray](), list[dict[str, Any]](), compiled.tokens.start
    for number, tokens in enumerate(compiled.tokens.parts):
        of_tokens, document = _token_parts(tokens)
        of_text, more = _text_parts(text.parts[number]) if number < len(text.parts) else ({}, {})
        arrays |= {f"{number}.{name}": array for name, array in {**of_tokens, **of_text}.items()}
        strips_space = number < len(text.parts) and text.parts[number].strips_space
        parts.append({**_joined(more, document), "strips_space": strips_space})
    return arrays, {
        **_common(compiled),
        "parts": parts,
        "text_parts": len(text.parts),
        "formulas": [to_json(text.formula), to_json(compiled.tokens.formula)],
        "start": {"parts": start.parts, "at_least": start.at_least, "witness": start.witness},
    }


def _common(compiled: CompiledConstraint) -> dict[str, object]:
    return {
        "spec": spec_to_json(compiled.spec),
        "vocabulary": compiled.vocabulary,
        "not_enforced": compiled.not_enforced,
        "approximate": compiled.approximate,
        "warnings": [astuple(warning) for warning in compiled.warnings],
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
        document = load_json(arrays.pop("document").tobytes())
        # The constructors check every index and shape, so that a damaged table is an error here and not later.
        compiled = (_rebuild_product if magic == PRODUCT_MAGIC else _rebuild)(arrays, document)
    except (SafetensorError, CompileError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ArtefactInvalid(f"the stored automaton does not hold together: {error!r}") from error
    # The constructors have checked each part; this checks that the parts fit together.
    if _magic_of(compiled.text) != magic or compiled.tokens.min_tokens == UNREACHABLE or not _fits(compiled):
        raise ArtefactInvalid("the stored automaton cannot be satisfied, or lacks distances")
    if compiled.vocabulary != vocabulary:
        # Token ids mean nothing in another vocabulary, even if all tables fit.
        raise OtherVocabulary("the stored automaton is for another vocabulary")
    return compiled


def _fits(compiled: CompiledConstraint) -> bool:
    """Whether the two automata may be those of one constraint."""
    text, tokens = compiled.text, compiled.tokens
    if isinstance(text, TextAutomaton):
        return len(compiled.state_distances) == text.display_dfa.states
    if isinstance(text, ProductText):
        assert isinstance(tokens, LazyProduct)
        return all(_part_fits(*pair) for pair in zip(text.parts, tokens.parts, strict=False))
    return _part_fits(text, tokens)


def _part_fits(text: PartText, tokens: Part | LazyProduct) -> bool:
    if isinstance(text, TextAutomaton):
        return isinstance(tokens, TokenAutomaton)
    if isinstance(text, DistinctText):
        # Behind the end of a text there is one state more.
        sizes = text.letters, text.transducer.states + 1
        return isinstance(tokens, DistinctAutomaton) and sizes == (tokens.letters, tokens.states)
    if not isinstance(tokens, PushdownAutomaton):
        return False
    machine, tables = text.machine, tokens.tables
    states = machine.states, machine.states + int(counting_states(machine).sum())
    sizes = len(machine.resume), machine.start
    return tables.states in states and sizes == (tables.symbols, tables.start)


def _open(data: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """Return the magic and the decompressed body of a verified artefact.

    The checks come in this order: size, magic, lengths, signature.
    """
    if not _HEADER.size <= len(data) <= BLOB_BYTES_MAX:
        raise ArtefactInvalid(f"the stored automaton has {len(data)} bytes")
    magic, raw_length, body_length, signature = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    # The cheap checks come first; nothing is decompressed before the signature is checked.
    if magic not in (MAGIC, PUSHDOWN_MAGIC, PRODUCT_MAGIC) or body_length != len(body) or raw_length > RAW_BYTES_MAX:
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
    text, tokens = _rebuild_text(arrays, document), _rebuild_tokens(arrays, document)
    if isinstance(text, DistinctText) or isinstance(tokens, DistinctAutomaton):
        raise ValueError("distinct letters are those of a part")
    return CompiledConstraint(
        text=text, tokens=tokens, state_distances=tuple(document.get("state_distances", ())),
        **_rebuild_common(arrays, document),
    )  # fmt: skip


def _rebuild_common(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> dict[str, Any]:
    spec = spec_from_json(document["spec"])
    return {
        "spec": spec,
        "captures": _rebuild_captures(captures_of(spec), arrays, document["captures"]),
        "vocabulary": document["vocabulary"],
        "not_enforced": tuple(document["not_enforced"]),
        "approximate": tuple(document["approximate"]),
        "warnings": tuple(GrammarWarning(*warning) for warning in document["warnings"]),
    }


def _rebuild_captures(
    sequences: tuple[SequenceSpec, ...], arrays: dict[str, np.ndarray], numbers: list[list[dict[str, Any] | None]]
) -> tuple[CaptureReader, ...]:
    """The readers that `_capture_parts` stored."""
    readers = list[CaptureReader]()
    for number, (sequence, machines) in enumerate(zip(sequences, numbers, strict=True)):
        rebuilt = [
            None if each is None else machine_from_arrays(_taken(arrays, f"capture.{number}.{place}"), each)
            for place, each in enumerate(machines)
        ]
        readers.append(CaptureReader(sequence, tuple(rebuilt)))
    return tuple(readers)


def _taken(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays behind a prefix, by their names."""
    start = f"{prefix}."
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def _rebuild_text(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> PartText:
    strips_space = bool(document["strips_space"])
    if "machine" in document:
        machine = machine_from_arrays(_taken(arrays, "machine"), document["machine"])
        return PushdownText(machine=machine, text_start=document["text_start"], strips_space=strips_space)
    starts = document["starts"]

    def take(prefix: str, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: arrays[f"{prefix}.{name}"] for name in names}

    next_state = arrays["transducer.next_state"]
    transducer = ByteTransducer(
        **take("transducer", _TRANSDUCER),
        output=arrays["transducer.output"] if len(document["outputs"]) > 1 else np.zeros_like(next_state),
        boundary_states=document["boundary_states"],
        outputs=tuple(tuple(string) for string in document["outputs"]),
        start=starts["transducer"],
    )
    if "distinct" in document:
        return DistinctText(
            transducer=transducer, letters=document["distinct"], text_start=starts["text"], strips_space=strips_space
        )
    common: dict[str, Any] = {
        "transducer": transducer,
        "letters": Dfa(**take("letters", _DFA), start=starts["letters"]),
        "symbol_names": tuple(document["symbol_names"]),
        "letter_names": tuple(None if names is None else tuple(names) for names in document["letter_names"]),
        "text_start": starts["text"],
        "strips_space": strips_space,
    }
    # Only a whole-text automaton displays another DFA than its letters.
    if "dfa.next_state" in arrays:
        whole_dfa = Dfa(**take("dfa", _DFA), start=starts["dfa"])
        return WholeTextAutomaton(**common, whole_dfa=whole_dfa, whole_state=arrays["dfa_state"])
    return _LETTER_AUTOMATA[document["kind"]](**common)


def _rebuild_tokens(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> Part:
    if "tokens" in document:
        return from_arrays(_taken(arrays, "tokens"), document["tokens"])
    values: dict[str, Any] = {name: arrays[f"tokens.{name}"] for name in _TOKENS}
    tokens = TokenAutomaton(**values, start=document["starts"]["tokens"], eos_ids=tuple(document["eos_ids"]))
    distinct = _taken(arrays, "distinct")
    return DistinctAutomaton(tokens=tokens, **distinct) if distinct else tokens


def _rebuild_product(arrays: dict[str, np.ndarray], document: dict[str, Any]) -> CompiledConstraint:
    parts = [(_taken(arrays, str(number)), part) for number, part in enumerate(document["parts"])]
    text_formula, formula = map(formula_from_json, document["formulas"])
    start = document["start"]
    text = ProductText(
        parts=tuple(_rebuild_text(*part) for part in parts[: document["text_parts"]]), formula=text_formula,
        strips_space=bool(document["strips_space"]),
    )
    tokens = LazyProduct(
        tuple(_rebuild_tokens(*part) for part in parts), formula,
        ProductStart(tuple(map(_part_start, start["parts"])), int(start["at_least"]), tuple(start["witness"])),
    )
    return CompiledConstraint(text=text, tokens=tokens, state_distances=(), **_rebuild_common(arrays, document))


def _part_start(value: Any) -> PartStart:
    """A state of a part, as JSON holds it."""
    return value if isinstance(value, int) else tuple((int(control), tuple(stack)) for control, stack in value)
