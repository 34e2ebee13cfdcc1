"""The texts that ids write, compared with what the tokenizer's library decodes.

What is proved rests on the bytes of each id, which are read from `tokenizer.json`. Decoders of the library treat the
beginning and the end of a text in ways of their own, so ids are decoded between two known ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import tokenizers
from tokenizers import Tokenizer

from compiler.errors import VocabularyError
from decoding.errors import ReplayRejected

_SEQUENCES, _LENGTH_MAX = 300, 12  # random sequences of ids that are compared at first
_SHOWN = 5


class TokenTexts:
    """What the ids of one vocabulary write.

    written  the bytes of each id, None where it writes none

    Raises VocabularyError where the library decodes ids to another text: each id that writes anything, or one of 300
    random sequences of them. That takes 0.6 s for 262,000 ids.
    """

    def __init__(self, tokenizer: Tokenizer, written: Sequence[bytes | None]) -> None:
        self._tokenizer, self.written = tokenizer, written
        texts = {number: text for number, piece in enumerate(self.written) if piece and (text := _text(piece))}
        # The known id has two letters, so that it is no byte of SentencePiece: the library reads all bytes in a row as
        # one text, and a byte that is no whole character would change it.
        known = max(texts, key=lambda number: (texts[number].isalpha(), min(2, len(texts[number]))), default=None)
        self._known = [] if known is None else [known]
        draw, complete = random.Random(1), list(texts)
        self._compare([[number] for number, piece in enumerate(self.written) if piece])
        if complete:
            self._compare([draw.choices(complete, k=draw.randint(2, _LENGTH_MAX)) for _ in range(_SEQUENCES)])

    def _compare(self, sequences: Sequence[Sequence[int]]) -> None:
        """Raises VocabularyError."""
        if differences := list(self._differences(sequences)):
            raise VocabularyError(
                f"the library tokenizers {tokenizers.__version__} decodes ids otherwise than by their bytes in "
                f"tokenizer.json, {len(differences)} of {len(sequences)}: {'; '.join(differences[:_SHOWN])}"
            )

    def _bytes(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.written[token] or b"" for token in tokens)

    def _differences(self, sequences: Sequence[Sequence[int]]) -> Iterator[str]:
        """Descriptions of the sequences that the library decodes otherwise."""
        around = self._bytes(self._known).decode()
        decoded = self._tokenizer.decode_batch(
            [[*self._known, *tokens, *self._known] for tokens in sequences], skip_special_tokens=False
        )
        for tokens, text in zip(sequences, decoded, strict=True):
            if text != around + (ours := self._bytes(tokens).decode(errors="replace")) + around:
                theirs = text.removeprefix(around).removesuffix(around)
                yield f"{', '.join(map(str, tokens))} as {theirs!r} in place of {ours!r}"

    def text(self, tokens: Sequence[int]) -> str:
        """The text that ids write. Raises UnicodeDecodeError inside a character."""
        return self._bytes(tokens).decode()

    def compared(self, tokens: Sequence[int]) -> str:
        """The text that ids write, compared with the library's.

        Raises ReplayRejected where the library decodes another text, which is a bug, and what `text` raises.
        """
        text = self.text(tokens)
        for difference in self._differences([[token for token in tokens if self.written[token] is not None]]):
            raise ReplayRejected(f"an answer is not the text that the library decodes: {difference}")
        return text


def _text(piece: bytes) -> str:
    """The text of a piece. It is empty where the piece begins or ends inside a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return ""
