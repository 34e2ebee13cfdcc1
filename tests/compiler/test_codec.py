"""The bytes of a compiled constraint. `decode` inverts `encode` and rejects all other bytes."""

from __future__ import annotations

import json
import pickle
import random
import struct

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
from compiler.spec import KeywordsSpec, LtlfSpec, RegexSpec, Spec
from compiler.text import check_text
from compiler.vocab import byte_vocabulary

SECRET = b"a secret of this deployment"
BYTES = byte_vocabulary()
SPECS: tuple[Spec, ...] = (
    LtlfSpec("F dog & G !cat & F eos"),
    RegexSpec("(?:é|日)+"),
    KeywordsSpec((("a",), ("b", "c")), ordered=True),
    RegexSpec(".*"),
)


@pytest.fixture(scope="module", params=SPECS, ids=str)
def compiled(request: pytest.FixtureRequest) -> CompiledConstraint:
    return compile_spec(request.param, BYTES)


def test_decode_undoes_encode(compiled: CompiledConstraint) -> None:
    copy = decode(encode(compiled, SECRET), SECRET, BYTES.fingerprint)
    assert (copy.spec, copy.vocabulary, copy.state_distances) == (
        compiled.spec,
        compiled.vocabulary,
        compiled.state_distances,
    )
    for name in TokenAutomaton.__slots__:
        assert np.array_equal(getattr(copy.tokens, name), getattr(compiled.tokens, name)), name
    assert copy.text.symbol_names == compiled.text.symbol_names
    assert copy.text.letter_names == compiled.text.letter_names
    for text in ("dog", "a cat", "é日", "a b", ""):
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


def forge(raw: bytes, declarations: int | None = None) -> bytes:
    """A forged body, signed with the right secret."""
    body = zstandard.ZstdCompressor().compress(raw)
    head = struct.pack("<8sII", codec.MAGIC, len(raw) if declarations is None else declarations, len(body))
    return head + codec._sign(head, body, SECRET) + body


def test_a_frame_larger_than_its_declared_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArtefactInvalid, match="another length"):
        decode(forge(bytes(5_000_000), 16), SECRET, BYTES.fingerprint)
    monkeypatch.setattr(codec, "RAW_BYTES_MAX", 1_000)
    with pytest.raises(ArtefactInvalid, match="another format"):
        decode(forge(bytes(5_000)), SECRET, BYTES.fingerprint)


def test_a_signed_but_inconsistent_body_is_refused(compiled: CompiledConstraint) -> None:
    data = encode(compiled, SECRET)
    raw = zstandard.ZstdDecompressor().decompress(data[codec._HEADER.size :])
    fields = load(raw)
    assert decode(forge(save(fields)), SECRET, BYTES.fingerprint).spec == compiled.spec
    document = json.loads(fields["document"].tobytes())
    broken: list[dict[str, np.ndarray]] = [
        {**fields, "tokens.token_class": fields["tokens.token_class"] + 10_000},
        {**fields, "transducer.next_state": fields["transducer.next_state"] - 99_999},
        {**fields, "letters.accepting": fields["letters.accepting"][:-1]},
        {name: array for name, array in fields.items() if name != "tokens.distance"},
        {**fields, "document": np.frombuffer(b"{not json", dtype=np.uint8)},
    ]
    for change in (
        {"starts": {}},
        {"eos_ids": [9_999]},
        {"spec": {"regex": 3}},
        {"symbol_names": ["x"] * 999},
        {"boundary_states": -1},
    ):
        text = json.dumps({**document, **change}).encode()
        broken.append({**fields, "document": np.frombuffer(text, dtype=np.uint8)})
    for arrays in broken:
        with pytest.raises(ArtefactInvalid):
            decode(
                forge(save({name: np.ascontiguousarray(array) for name, array in arrays.items()})),
                SECRET,
                BYTES.fingerprint,
            )
    with pytest.raises(ArtefactInvalid):
        decode(forge(b"not a safetensors file"), SECRET, BYTES.fingerprint)
