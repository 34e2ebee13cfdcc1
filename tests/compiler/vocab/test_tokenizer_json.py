"""A `tokenizer.json` is read as its library decodes, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from compiler.errors import VocabularyError
from compiler.vocab import vocabulary_from_tokenizer_json
from tests.tables import rows

STEPS: dict[str, dict[str, Any]] = {
    "R": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    "M": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": False},
    "S": {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    "L": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "B": {"type": "ByteFallback"},
    "F": {"type": "Fuse"},
    "W": {"type": "WordPiece", "prefix": "##", "cleanup": True},
}
LLAMA = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ],
}
VOCABULARY = {"a": 0, "▁b": 1, "</s>": 2}
EOS = 2


def steps(letters: str) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": [STEPS[letter] for letter in letters]}


def tokenizer_json(decoder: object, *added: dict[str, Any], normalizer: object = None) -> str:
    """A file with all fields that the library asks for."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    model = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": True, "vocab": VOCABULARY, "merges": [],
    }  # fmt: skip
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "pre_tokenizer": None, "post_processor": None,
        "added_tokens": [{**flags, **token} for token in added], "normalizer": normalizer, "decoder": decoder,
        "model": model,
    })  # fmt: skip


def refused(text: str) -> bool:
    try:
        vocabulary_from_tokenizer_json(text, None, (EOS,))
    except VocabularyError:
        return True
    return False


@pytest.mark.parametrize(("letters", "readable"), rows("compiler", "a_decoder_is_read_as_it_writes_or_refused"))
def test_a_decoder_is_read_as_it_writes_or_refused(letters: str, readable: bool) -> None:
    assert refused(tokenizer_json(steps(letters))) is not readable


@pytest.mark.parametrize(
    ("content", "start", "stop", "readable"),
    rows("compiler", "a_strip_step_removes_one_space_or_is_refused"),
)
def test_a_strip_step_removes_one_space_or_is_refused(
    content: str, start: int, stop: int, readable: bool
) -> None:
    strip = {"type": "Strip", "content": content, "start": start, "stop": stop}
    decoder = {"type": "Sequence", "decoders": [*steps("RBF")["decoders"], strip]}
    assert refused(tokenizer_json(decoder)) is not readable


@pytest.mark.parametrize(
    ("letters", "content", "normalized", "written"),
    rows("compiler", "an_added_token_writes_what_the_decoder_makes_of_it"),
)
def test_an_added_token_writes_what_the_decoder_makes_of_it(
    letters: str, content: str, normalized: bool, written: str
) -> None:
    added = {"id": 3, "content": content, "normalized": normalized}
    text = tokenizer_json(steps(letters), added, normalizer=LLAMA)
    assert vocabulary_from_tokenizer_json(text, None, (EOS,)).tokens[3] == written.encode()


def test_a_token_of_an_unknown_normalizer_is_refused_by_name() -> None:
    added = {"id": 3, "content": "<tool>", "normalized": True}
    text = tokenizer_json(steps("L"), added, normalizer={"type": "Lowercase"})
    with pytest.raises(VocabularyError, match=r"<tool>.*normalized"):
        vocabulary_from_tokenizer_json(text, None, (EOS,))
    assert not refused(tokenizer_json(steps("L"), {**added, "special": True}, normalizer={"type": "Lowercase"}))


@pytest.mark.parametrize(("added", "right"), rows("compiler", "added_ids_are_those_that_the_library_gives"))
def test_added_ids_are_those_that_the_library_gives(added: list[tuple[str, int]], right: bool) -> None:
    text = tokenizer_json(steps("L"), *({"id": number, "content": content} for content, number in added))
    assert refused(text) is not right
    tokenizers = pytest.importorskip("tokenizers")
    given = tokenizers.Tokenizer.from_str(text).get_added_tokens_decoder()
    contents = {(content, number) for content, number in added if content}
    assert ({(token.content, number) for number, token in given.items()} == contents) is right
