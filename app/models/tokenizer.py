"""Tokenizes forced texts with the model's tokenizer."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Encoding, Tokenizer

_LINE = "\n"
_OPEN_IDS = 3


def open_tokenizer(file: Path, size: int) -> Tokenizer:
    """A model's tokenizer without truncation and padding.

    size  the number of ids of the model. Added tokens beyond it are removed: fine-tunes may leave them behind without
          widening the model, and their names are then ordinary text
    """
    tokenizer = Tokenizer.from_file(str(file))
    if any(number >= size for number in tokenizer.get_added_tokens_decoder()):
        data = json.loads(file.read_text(encoding="utf-8"))
        data["added_tokens"] = [token for token in data["added_tokens"] if token["id"] < size]
        tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.no_truncation()  # the file may enable both, which would change the prompt silently
    tokenizer.no_padding()
    return tokenizer


class Speller:
    """Tokenizes a forced text; obeys `decoding.forced_tokens.Retokenize`.

    tokens  the bytes of each id; a tokenization with other bytes than the text is discarded
    """

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[bytes | None]) -> None:
        self._tokenizer, self._tokens = tokenizer, tokens

    def __call__(self, text: bytes, closed: bool) -> tuple[int, ...]:
        try:
            # A text that is not closed may end inside a character.
            decoded = codecs.getincrementaldecoder("utf-8")().decode(text, closed)
        except UnicodeDecodeError:
            return ()
        for before in ("", _LINE):  # some tokenizers prepend a space to the text
            encoding = self._tokenizer.encode(before + decoded, add_special_tokens=False)
            first = self._starting_at(encoding.ids, before.encode(), decoded.encode())
            if first is not None:
                return tuple(encoding.ids[first : len(encoding.ids) if closed else _certain(encoding)])
        return ()

    def _starting_at(self, ids: Sequence[int], before: bytes, text: bytes) -> int | None:
        """The index of the first id of the text. None if the ids do not spell it."""
        if any(token >= len(self._tokens) for token in ids):
            return None
        pieces = [self._tokens[token] or b"" for token in ids]
        # The prefix takes at most two ids: a space of the tokenizer, and the line break.
        for first in range(3):
            if b"".join(pieces[first:]) == text and b"".join(pieces[:first]).strip(b" ") == before:
                return first
        return None


def _certain(encoding: Encoding) -> int:
    """The number of ids that a continuation of the text rarely changes. They are the ids before its last word.

    For a tokenizer without words the last ids are excluded instead. A merge that reaches further back costs
    probability, but never violates the constraint.
    """
    words = encoding.word_ids
    first = words.index(words[-1]) if words else 0
    return first or max(0, len(words) - _OPEN_IDS)
