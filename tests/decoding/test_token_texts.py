"""Ids write what the library decodes, or the tokenizer and the answer are refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tokenizers import Tokenizer

from compiler.errors import VocabularyError
from compiler.vocab import Vocabulary, vocabulary_from_tokenizer_json
from decoding.errors import ReplayRejected
from decoding.token_texts import TokenTexts
from tests.compiler.vocab.test_tokenizer_json import LLAMA, steps, tokenizer_json
from tests.references.random_constraints import REAL, real_tokenizer

ADDED = (
    {"id": 3, "content": "▁▁"}, {"id": 4, "content": "café"}, {"id": 5, "content": "<tool>", "normalized": True},
    {"id": 6, "content": "<0xC3>"}, {"id": 7, "content": "日Ġ"}, {"id": 8, "content": "<end>", "special": True},
)  # fmt: skip


def opened(letters: str, normalizer: object = LLAMA) -> tuple[Tokenizer, Vocabulary]:
    text = tokenizer_json(steps(letters), *ADDED, normalizer=normalizer)
    return Tokenizer.from_str(text), vocabulary_from_tokenizer_json(text, None, (2,))


@pytest.mark.parametrize("letters", ["L", "R", "RB", "RBF", "RBFS", "M", "MB", "BF", "F"])
@pytest.mark.parametrize("normalizer", [None, LLAMA, {"type": "NFKD"}], ids=["none", "llama", "nfkd"])
def test_readable_decoders_write_what_the_library_decodes(letters: str, normalizer: object) -> None:
    tokenizer, vocabulary = opened(letters, normalizer)
    texts = TokenTexts(tokenizer, vocabulary)
    tokens = [number for number in (0, 1, 3, 7, 0) if vocabulary.tokens[number]]
    assert f"a{tokenizer.decode([0, *tokens, 0])[1:-1]}a" == f"a{texts.text(tokens)}a"


@pytest.mark.parametrize(("name", "size", "eos"), REAL)
def test_all_ids_of_real_tokenizers_write_what_the_library_decodes(name: str, size: int, eos: int) -> None:
    text = real_tokenizer(name)
    if text is None:
        pytest.skip("the real tokenizers are not here")
    TokenTexts(Tokenizer.from_str(text), vocabulary_from_tokenizer_json(text, size, (eos,)))


def test_a_tokenizer_that_decodes_ids_otherwise_is_refused_with_them() -> None:
    tokenizer, vocabulary = opened("RBF")
    wrong = replace(vocabulary, tokens=(*vocabulary.tokens[:3], "▁▁".encode(), *vocabulary.tokens[4:]))
    with pytest.raises(VocabularyError, match=r", 1 of 8: 3 as '  ' in place of '▁▁'$"):
        TokenTexts(tokenizer, wrong)


def test_an_answer_that_the_library_decodes_otherwise_is_an_error() -> None:
    tokenizer, vocabulary = opened("RBF")
    texts = TokenTexts(tokenizer, vocabulary)
    data = json.loads(tokenizer.to_str())
    data["decoder"] = steps("BF")  # in which U+2581 is no space
    texts._tokenizer = Tokenizer.from_str(json.dumps(data))
    assert texts.text([0, 4, 0]) == "acaféa"
    with pytest.raises(ReplayRejected, match="0, 1 as 'a▁b' in place of 'a b'"):
        texts.text([0, 1])


def test_a_text_that_ends_inside_a_character_is_none() -> None:
    tokenizer, vocabulary = opened("RBF")
    with pytest.raises(UnicodeDecodeError):
        TokenTexts(tokenizer, vocabulary).text([0, 6])
