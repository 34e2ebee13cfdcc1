"""Vocabularies contain the exact bytes of real tokenizers; unreadable ones are refused."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from compiler.errors import VocabularyError
from compiler.vocab import Vocabulary, byte_vocabulary, vocabulary_from_tokenizer_json
from tests.references.random_constraints import REAL, real_tokenizer

tokenizers = pytest.importorskip("tokenizers")

TEXTS = (
    "The quick brown fox jumps over the lazy dog.",
    "naïve café, “quoted” – dashes…",
    "日本語のテキスト 中文 한국어",
    "😀👩‍👩‍👧 emoji 🇩🇪",
    "tabs\tand\nnew\r\nlines",
    "    runs   of  spaces ",
    "0123456789 3.14 1e-9",
    "Ωμέγα привет שלום مرحبا",
    "x\x00y",
)


@pytest.fixture(scope="module", params=[*REAL, ("captions", 4_096, 0)], ids=lambda row: str(row[0]))
def real(request: pytest.FixtureRequest, shared: Path) -> tuple[str, str, Vocabulary]:
    """The name of a real tokenizer, its file and its vocabulary."""
    name, size, eos = request.param
    text = real_tokenizer(name)
    assert text is not None
    vocabulary = vocabulary_from_tokenizer_json(text, size, (eos,))
    assert vocabulary.size == size
    return name, text, vocabulary


@pytest.mark.sample(5)
def test_the_bytes_of_a_real_tokenizers_ids_spell_the_text(real: tuple[str, str, Vocabulary]) -> None:
    name, text, vocabulary = real
    tokenizer = tokenizers.Tokenizer.from_str(text)
    spelled = 0
    for sample in TEXTS:
        encoded = tokenizer.encode(sample, add_special_tokens=False)
        pieces = [vocabulary.tokens[token] for token in encoded.ids]
        if None in pieces:  # a piece for unknown characters, in vocabularies without bytes
            assert name in ("tinystories-656k", "stories260k")
            continue
        spelling = b"".join(piece or b"" for piece in pieces).decode()
        assert spelling in (sample, " " + sample)  # SentencePiece puts a space before a text
        spelled += 1
    assert spelled >= len(TEXTS) // 3


@pytest.mark.sample(5)
def test_special_tokens_and_unused_ids_have_no_bytes(real: tuple[str, str, Vocabulary]) -> None:
    _, text, vocabulary = real
    data = json.loads(text)
    used_ids = {*data["model"]["vocab"].values(), *(token["id"] for token in data["added_tokens"])}
    assert all(vocabulary.tokens[token["id"]] is None for token in data["added_tokens"] if token["special"])
    assert all(vocabulary.tokens[number] is None for number in range(vocabulary.size) if number not in used_ids)


def test_the_trie_spells_each_token_once() -> None:
    tokens = (b"a", b"ab", b"abc", None, b"b", b"\xa9", b"\xc3\xa9", b"a", b"\x80\x80", None)
    vocabulary = Vocabulary(tokens, (9,))
    spelled: dict[int, bytes] = {}
    for trie in (vocabulary.boundary_trie, vocabulary.midchar_trie):
        texts = [b""]
        for previous, level in pairwise(trie.levels):
            for node in range(level.start, level.stop):
                parent = previous.start + trie.parent[node]
                assert trie.first_child[parent] <= node < trie.first_child[parent + 1]
                texts.append(texts[parent] + bytes([trie.byte[node]]))
        assert len(texts) == len(trie.parent) == trie.first_child[-1]
        for level in trie.levels:
            for node in range(level.start, level.stop):
                ends = slice(trie.first_id[node], trie.first_id[node + 1])
                assert (trie.node[ends] == node - level.start).all()
                spelled.update(dict.fromkeys(trie.ids[ends].tolist(), texts[node]))
    assert spelled == {number: token for number, token in enumerate(tokens) if token}
    assert set(vocabulary.midchar_trie.ids.tolist()) == {5, 8}


def test_different_vocabularies_have_different_fingerprints() -> None:
    base = Vocabulary((b"a", b"bc", None), (2,))
    assert base.fingerprint == Vocabulary((b"a", b"bc", None), (2,)).fingerprint
    vocabularies = [
        Vocabulary((b"ab", b"c", None), (2,)),
        Vocabulary((b"a", None, None), (2,)),
        Vocabulary((b"a", None, None), (1,)),
        Vocabulary((b"a", b"bc", None, None), (2,)),
        byte_vocabulary(),
    ]
    assert len({vocabulary.fingerprint for vocabulary in [base, *vocabularies]}) == 6


@pytest.mark.parametrize("eos", [(), (3,), (-1,), (0,)])
def test_an_eos_id_must_be_a_distinct_token_without_bytes(eos: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="EOS"):
        Vocabulary((b"a", None, None), eos)


def described(**changes: Any) -> str:
    data: dict[str, Any] = {
        "model": {"type": "BPE", "vocab": {"a": 0, "Ġb": 1, "</s>": 2}},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": 2, "content": "</s>", "special": True}, {"id": 3, "content": " x", "special": False}],
    }
    return json.dumps(data | changes)


def test_added_tokens_write_their_content_unless_special() -> None:
    vocabulary = vocabulary_from_tokenizer_json(described(), 8, (2,))
    assert vocabulary.tokens == (b"a", b" b", None, b" x", None, None, None, None)


def test_a_unigram_vocabulary_is_read_by_position() -> None:
    unigram = {
        "type": "Unigram",
        "unk_id": 0,
        "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["<0x0A>", -2.0], ["</s>", -3.0]],
    }
    steps = [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    text = described(model=unigram, decoder={"type": "Sequence", "decoders": steps}, added_tokens=[])
    assert vocabulary_from_tokenizer_json(text, None, (3,)).tokens == (None, b" a", b"\n", None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "null",
        described(decoder={"type": "WordPiece"}),
        described(decoder=None),
        described(model={"vocab": 3}),
        described(decoder={"type": "Replace", "pattern": {"Regex": "x"}}),
        described(added_tokens=[{"id": "x"}]),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(VocabularyError):
        vocabulary_from_tokenizer_json(text, None, (0,))


def test_an_eos_id_outside_the_model_is_refused() -> None:
    with pytest.raises(VocabularyError, match="EOS id 9"):
        vocabulary_from_tokenizer_json(described(), 8, (9,))
