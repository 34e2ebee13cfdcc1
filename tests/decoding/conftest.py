"""Fixtures of the tests of `decoding`: the built-in model and its files."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer

from app.models import ModelFiles, open_model_files
from app.settings import BUILT_IN_MODEL
from decoding.forced_tokens import Speller, TokenBytes
from decoding.model import HuggingFaceModel


@pytest.fixture(scope="session")
def captions() -> HuggingFaceModel:
    """The built-in model, which tests leave as it is. Loading it takes half a second."""
    return HuggingFaceModel.load(BUILT_IN_MODEL, device="cpu")


@pytest.fixture(scope="session")
def files() -> ModelFiles:
    return open_model_files(BUILT_IN_MODEL)


@pytest.fixture(scope="session")
def tokenizer(files: ModelFiles) -> Tokenizer:
    return Tokenizer.from_file(str(files.tokenizer_file))


@pytest.fixture(scope="session")
def pieces(files: ModelFiles, tokenizer: Tokenizer) -> TokenBytes:
    """The bytes of the model's tokens, and its tokenizer's spelling of texts."""
    vocabulary = files.vocabulary
    return TokenBytes(vocabulary.tokens, vocabulary.eos_ids, Speller(tokenizer, vocabulary.tokens))
