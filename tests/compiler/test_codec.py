"""The bytes of a compiled constraint. `decode` inverts `encode` and rejects all other bytes."""

from __future__ import annotations

import json
import pickle
import random
import struct
from typing import Any

import numpy as np
import pytest
import zstandard
from safetensors.numpy import load, save

from compiler import codec
from compiler.artifact import CompiledConstraint
from compiler.codec import decode, encode
from compiler.errors import ArtefactInvalid
from compiler.lifting import TokenAutomaton
from compiler.pipeline import compile_spec
from compiler.pushdown import PushdownAutomaton
from compiler.spec import GrammarSpec, KeywordsSpec, LtlfSpec, RegexSpec, Spec
from compiler.text import check_text
from compiler.vocab import byte_vocabulary

SECRET = b"a secret of this deployment"
BYTES = byte_vocabulary()
SPECS: tuple[Spec, ...] = (
    LtlfSpec("F dog & G !cat & F eos"),
    RegexSpec("(?:é|日)+"),
    KeywordsSpec((("a",), ("b", "c")), ordered=True),
    RegexSpec(".*"),
    GrammarSpec('root ::= "(" root* ")" | a\na ::= "a"\nb ::= "b"', "gbnf"),
)


@pytest.fixture(scope="module", params=SPECS, ids=str)
def compiled(request: pytest.FixtureRequest) -> CompiledConstraint:
    return compile_spec(request.param, BYTES)


def test_decode_undoes_encode(compiled: CompiledConstraint) -> None:
    copy = decode(encode(compiled, SECRET), SECRET, BYTES.fingerprint)
    for name in ("spec", "vocabulary", "state_distances"):
        assert getattr(copy, name) == getattr(compiled, name), name
    if isinstance(compiled.tokens, TokenAutomaton):
        for name in TokenAutomaton.__slots__:
            assert np.array_equal(getattr(copy.tokens, name), getattr(compiled.tokens, name)), name
    else:
        assert isinstance(copy.tokens, PushdownAutomaton) and copy.tokens.numbers() == compiled.tokens.numbers()
        for name, array in compiled.tokens.arrays().items():
            assert np.array_equal(copy.tokens.arrays()[name], array), name
        assert copy.warnings == compiled.warnings and len(copy.warnings) == 1
    assert copy.text.strips_space == compiled.text.strips_space
    assert copy.text.letter_names == compiled.text.letter_names
    for text in ("dog", "a cat", "é日", "a b", "", "(aa(", "((a))"):
        assert check_text(copy.text, text) == check_text(compiled.text, text)


def test_decode_makes_no_use_of_pickle(compiled: CompiledConstraint, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was unpickled")

    data = encode(compiled, SECRET)
    monkeypatch.setattr(pickle, "loads", refuse)
    monkeypatch.setattr(pickle, "load", refuse)
    decode(data, SECRET, BYTES.fingerprint)


def test_bytes_that_were_changed_anywhere_do_not_decode(compiled: CompiledConstraint) -> None:
    data, draw = encode(compiled, SECRET), random.Random(1)
    for _ in range(400):
        mutant = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            mutant[draw.randrange(len(mutant))] ^= 1 << draw.randrange(8)
        if draw.random() < 0.3:
            del mutant[draw.randrange(len(mutant)) :]
        if bytes(mutant) != data:
            with pytest.raises(ArtefactInvalid):
                decode(bytes(mutant), SECRET, BYTES.fingerprint)


@pytest.mark.parametrize("data", [b"", b"x", codec.MAGIC, bytes(48), bytes(500), codec.MAGIC + bytes(200)])
def test_foreign_bytes_do_not_decode(data: bytes) -> None:
    with pytest.raises(ArtefactInvalid):
        decode(data, SECRET, BYTES.fingerprint)


def test_another_secret_and_another_vocabulary_are_refused(compiled: CompiledConstraint) -> None:
    data = encode(compiled, SECRET)
    with pytest.raises(ArtefactInvalid, match="signed"):
        decode(data, b"another", BYTES.fingerprint)
    with pytest.raises(ArtefactInvalid, match="vocabulary"):
        decode(data, SECRET, "0" * 64)


def forge(raw: bytes, declarations: int | None = None, magic: bytes = codec.MAGIC) -> bytes:
    """A forged body, signed with the right secret."""
    body = zstandard.ZstdCompressor().compress(raw)
    head = struct.pack("<8sII", magic, len(raw) if declarations is None else declarations, len(body))
    return head + codec._sign(head, body, SECRET) + body


def test_a_frame_larger_than_its_declared_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtefactInvalid, match="another length"):
        decode(forge(bytes(5_000_000), 16), SECRET, BYTES.fingerprint)
    monkeypatch.setattr(codec, "RAW_BYTES_MAX", 1_000)
    with pytest.raises(ArtefactInvalid, match="another format"):
        decode(forge(bytes(5_000)), SECRET, BYTES.fingerprint)


EXPLICIT_CHANGES: tuple[dict[str, Any], ...] = (
    {"starts": {}}, {"eos_ids": [9_999]}, {"symbol_names": ["x"] * 999}, {"boundary_states": -1},
)
PUSHDOWN_CHANGES: tuple[dict[str, Any], ...] = (
    {"machine": {}}, {"tokens": {}}, {"text_start": -1}, {"text_start": "0"}, {"warnings": [["a message", 1, 1, 1]]},
)


def test_a_signed_but_inconsistent_body_is_refused(compiled: CompiledConstraint) -> None:
    data = encode(compiled, SECRET)
    magic, raw = data[:8], zstandard.ZstdDecompressor().decompress(data[codec._HEADER.size :])
    fields = load(raw)
    assert decode(forge(save(fields), magic=magic), SECRET, BYTES.fingerprint).spec == compiled.spec
    document = json.loads(fields["document"].tobytes())
    pushdown = magic == codec.PUSHDOWN_MAGIC
    first, last = ("machine.action", "tokens.within") if pushdown else ("transducer.next_state", "tokens.distance")
    broken: list[dict[str, np.ndarray]] = [
        {**fields, "tokens.token_class": fields["tokens.token_class"] - 10_000},
        {**fields, first: fields[first] - 99_999},
        {**fields, last: fields[last][:-1]},
        {name: array for name, array in fields.items() if name != last},
        {**fields, "document": np.frombuffer(b"{not json", dtype=np.uint8)},
    ]
    for change in ({"spec": {"regex": 3}}, *(PUSHDOWN_CHANGES if pushdown else EXPLICIT_CHANGES)):
        text = json.dumps({**document, **change}).encode()
        broken.append({**fields, "document": np.frombuffer(text, dtype=np.uint8)})
    for arrays in broken:
        body = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        with pytest.raises(ArtefactInvalid):
            decode(forge(body, magic=magic), SECRET, BYTES.fingerprint)
    with pytest.raises(ArtefactInvalid):
        decode(forge(b"not a safetensors file", magic=magic), SECRET, BYTES.fingerprint)
    with pytest.raises(ArtefactInvalid):  # of the other kind
        decode(forge(raw, magic=codec.MAGIC if pushdown else codec.PUSHDOWN_MAGIC), SECRET, BYTES.fingerprint)


def test_machines_and_tokens_of_two_grammars_are_refused() -> None:
    parts = []
    for spec in (GrammarSpec('root ::= "(" root* ")"', "gbnf"), GrammarSpec('root ::= "[" root? "]" | "a"', "gbnf")):
        data = encode(compile_spec(spec, BYTES), SECRET)
        parts.append(load(zstandard.ZstdDecompressor().decompress(data[codec._HEADER.size :])))
    documents = [json.loads(part["document"].tobytes()) for part in parts]
    mixed = {name: array for name, array in parts[0].items() if name.startswith("machine")}
    mixed |= {name: array for name, array in parts[1].items() if name.startswith("tokens")}
    text = json.dumps({**documents[0], "tokens": documents[1]["tokens"]}).encode()
    body = save({**mixed, "document": np.frombuffer(text, dtype=np.uint8)})
    with pytest.raises(ArtefactInvalid, match="lacks distances"):
        decode(forge(body, magic=codec.PUSHDOWN_MAGIC), SECRET, BYTES.fingerprint)
