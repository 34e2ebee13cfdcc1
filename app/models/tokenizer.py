"""How the model's own tokenizer spells a text that a constraint dictates."""

from __future__ import annotations

import codecs
import json
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Encoding, Tokenizer

_LINE = "\n"
_OPEN_IDS = 3


def open_tokenizer(file: Path, size: int) -> Tokenizer:
    """A model's tokenizer, which reads every text whole.

    size  the model's ids. Added tokens beyond them, as fine-tunes leave behind that never widened their model, are
          taken out: the model has no place for them, and their names are plain text like any other
    """
    tokenizer = Tokenizer.from_file(str(file))
    if any(number >= size for number in tokenizer.get_added_tokens_decoder()):
        data = json.loads(file.read_text(encoding="utf-8"))
        data["added_tokens"] = [token for token in data["added_tokens"] if token["id"] < size]
        tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.no_truncation()  # a file may ask for either, which would change the prompt unseen
    tokenizer.no_padding()
    return tokenizer


class Speller:
    """Obeys `decoding.forced_tokens.Spell`.

    tokens  the bytes of each id; ids that come out as other bytes than the text's are no spelling of it
    """

    def __init__(self, tokenizer: Tokenizer, tokens: Sequence[bytes | None]) -> None:
        self._tokenizer, self._tokens = tokenizer, tokens

    def __call__(self, text: bytes, closed: bool) -> tuple[int, ...]:
        try:
            whole = codecs.getincrementaldecoder("utf-8")().decode(text, closed)  # open: may end inside a character
        except UnicodeDecodeError:
            return ()
        for before in ("", _LINE):  # some tokenizers put a space before whatever they read first
            encoding = self._tokenizer.encode(before + whole, add_special_tokens=False)
            first = self._starting_at(encoding.ids, before.encode(), whole.encode())
            if first is not None:
                return tuple(encoding.ids[first : len(encoding.ids) if closed else _certain(encoding)])
        return ()

    def _starting_at(self, ids: Sequence[int], before: bytes, text: bytes) -> int | None:
        """The place from which on the ids spell the text, None where they do not."""
        if any(token >= len(self._tokens) for token in ids):
            return None
        pieces = [self._tokens[token] or b"" for token in ids]
        for first in range(3):
            if b"".join(pieces[first:]) == text and b"".join(pieces[:first]).strip(b" ") == before:
                return first
        return None


def _certain(encoding: Encoding) -> int:
    """How many ids what follows will hardly change: those before the tokenizer's last word, which might grow.

    Some tokenizers know no words. Then the last few ids are left open; a merge that reaches further back costs
    probability, never the constraint.
    """
    words = encoding.word_ids
    first = words.index(words[-1]) if words else 0
    return first or max(0, len(words) - _OPEN_IDS)
