"""The bytes of each token id.

A `Vocabulary` maps token ids to bytes and knows the ids that end a text. It is read from a `tokenizer.json` of the byte
level or of SentencePiece's kind, with its added tokens.
"""

from __future__ import annotations

from compiler.vocab.tokenizer_json import vocabulary_from_tokenizer_json
from compiler.vocab.vocabulary import PLAIN_CHARACTERS, Trie, Vocabulary, byte_vocabulary

__all__ = ["PLAIN_CHARACTERS", "Trie", "Vocabulary", "byte_vocabulary", "vocabulary_from_tokenizer_json"]
