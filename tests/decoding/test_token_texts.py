"""Ids write what the library decodes; otherwise they are refused."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest
import tokenizers
from tokenizers import Tokenizer

from compiler.errors import VocabularyError
from compiler.vocab import Vocabulary, vocabulary_from_tokenizer_json
from decoding.errors import ReplayRejected
from decoding.token_texts import TokenTexts
from tests.compiler.vocab.test_tokenizer_json import LLAMA, steps, tokenizer_json
from tests.references.random_constraints import REAL, real_tokenizer

ADDED = (
    {"id": 3, "content": "▁▁"}, {"id": 4, "content": "café"}, {"id": 5, "content": "<0xC3>"},
    {"id": 6, "content": "日Ġ"}, {"id": 7, "content": "<end>", "special": True},
)  # fmt: skip
DECODES_NORMALIZED = tuple(map(int, tokenizers.__version__.split(".")[:3])) >= (0, 23, 1)


def opened(letters: str, *added: dict[str, object], normalizer: object = None) -> tuple[Tokenizer, Vocabulary]:
    text = tokenizer_json(steps(letters), *(added or ADDED), normalizer=normalizer)
    return Tokenizer.from_str(text), vocabulary_from_tokenizer_json(text, None, (2,))


@pytest.mark.parametrize("letters", ["L", "R", "RB", "RBF", "RBFS", "M", "MB", "BF", "F"])
def test_readable_decoders_write_what_the_library_decodes(letters: str) -> None:
    tokenizer, vocabulary = opened(letters)
    texts = TokenTexts(tokenizer, vocabulary.written)
    assert texts.compared([0, 1, 3, 6, 0]) == tokenizer.decode([0, 1, 3, 6, 0])


@pytest.mark.parametrize("letters", ["L", "RBF", "RBFS"])
@pytest.mark.parametrize("normalizer", [LLAMA, {"type": "NFKD"}, {"type": "NFC"}], ids=["llama", "nfkd", "nfc"])
def test_normalized_tokens_write_what_the_library_decodes(letters: str, normalizer: object) -> None:
    added = {"id": 3, "content": "caf\u00e9 e\u0301", "normalized": True}
    tokenizer, vocabulary = opened(letters, added, normalizer=normalizer)
    with nullcontext() if DECODES_NORMALIZED else pytest.raises(VocabularyError):
        TokenTexts(tokenizer, vocabulary.written)


@pytest.mark.parametrize(("name", "size", "eos"), REAL)
def test_all_ids_of_real_tokenizers_write_what_the_library_decodes(name: str, size: int, eos: int) -> None:
    text = real_tokenizer(name)
    if text is None:
        pytest.skip("the real tokenizers are not here")
    TokenTexts(Tokenizer.from_str(text), vocabulary_from_tokenizer_json(text, size, (eos,)).written)


def test_a_tokenizer_that_decodes_ids_otherwise_is_refused_with_them() -> None:
    tokenizer, vocabulary = opened("RBF")
    wrong = replace(vocabulary, tokens=(*vocabulary.tokens[:3], "▁▁".encode(), *vocabulary.tokens[4:]))
    with pytest.raises(VocabularyError, match=r", 1 of 7: 3 as '  ' in place of '▁▁'$"):
        TokenTexts(tokenizer, wrong.written)


def test_an_answer_that_the_library_decodes_otherwise_is_an_error() -> None:
    tokenizer, vocabulary = opened("RBF")
    texts = TokenTexts(tokenizer, vocabulary.written)
    data = json.loads(tokenizer.to_str())
    data["decoder"] = steps("BF")  # in which U+2581 is no space
    texts._tokenizer = Tokenizer.from_str(json.dumps(data))
    assert texts.compared([0, 4, 0]) == "acaféa"
    with pytest.raises(ReplayRejected, match="0, 1 as 'a▁b' in place of 'a b'"):
        texts.compared([0, 1])


def test_a_text_that_ends_inside_a_character_is_none() -> None:
    tokenizer, vocabulary = opened("RBF")
    with pytest.raises(UnicodeDecodeError):
        TokenTexts(tokenizer, vocabulary.written).compared([0, 5])
