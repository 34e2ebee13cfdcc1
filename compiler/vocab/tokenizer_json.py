"""Reads a `tokenizer.json` of the Hugging Face format into a vocabulary. Knows no model and opens no file."""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from compiler.errors import VocabularyError
from compiler.vocab.vocabulary import Vocabulary

_DECODER_STEPS = "(?:Replace |Metaspace )*(?:ByteFallback )?(?:Fuse (?:Strip )?)?"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def _byte_of_symbol() -> dict[str, int]:
    """The bytes of byte-level BPE's symbols, as in GPT-2. Each printable byte stands for itself, the others for U+0100
    onwards.
    """
    # GPT-2's table: byte-level BPE writes bytes that are no printable Latin-1 character as U+0100 and up, in
    # ascending order.
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [value for value in range(256) if value not in printable]
    return {chr(value): value for value in printable} | {chr(256 + i): value for i, value in enumerate(others)}


def _decoder_steps(decoder: object) -> list[dict[str, object]]:
    """The decoder's steps, flattened."""
    if not isinstance(decoder, dict):
        return []
    if decoder.get("type") == "Sequence":
        return [step for part in decoder.get("decoders", []) for step in _decoder_steps(part)]
    return [decoder]


class _Spelling:
    """How the pieces of one tokenizer become bytes.

    A decoder is either ByteLevel, or steps that read one piece after the other (Replace, Metaspace, then ByteFallback),
    after which Fuse and Strip may follow. Only in this order is a piece's text the same beside all other pieces.

    Raises VocabularyError where the steps are others: they may change the bytes, and are refused rather than guessed.
    """

    def __init__(self, steps: list[dict[str, object]]) -> None:
        kinds = [str(step.get("type")) for step in steps]
        self._byte_level = _byte_of_symbol() if kinds == ["ByteLevel"] else None
        self._byte_fallback = "ByteFallback" in kinds
        readable = re.fullmatch(_DECODER_STEPS, "".join(f"{kind} " for kind in kinds))
        if self._byte_level is None and (not kinds or not readable):
            raise VocabularyError(
                f"the tokenizer's decoder has the steps {kinds}; readable are ByteLevel alone, and Replace and "
                "Metaspace, then ByteFallback, Fuse and Strip in this order"
            )
        for step in steps:
            # Only spaces at the beginning of the whole text may go: at other places, bytes would depend on neighbours.
            removed = step.get("content"), step.get("start"), step.get("stop")
            if step.get("type") == "Strip" and removed != (" ", 1, 0):
                raise VocabularyError(
                    "the tokenizer's decoder has a step Strip that removes more than one space before the text"
                )
        self._replacements = [pair for step in steps for pair in _replacement(step)]

    def __call__(self, piece: str) -> bytes:
        """The bytes that a piece writes in the middle of a text."""
        if self._byte_level is not None:
            # A piece with a character that is no symbol is written as it is.
            is_symbols = all(symbol in self._byte_level for symbol in piece)
            return bytes(self._byte_level[symbol] for symbol in piece) if is_symbols else piece.encode()
        # SentencePiece writes a space as U+2581; the decoder's steps turn it back.
        for old, new in self._replacements:
            piece = piece.replace(old, new)
        # SentencePiece writes bytes without a piece of their own as <0xNN>.
        byte = _BYTE_TOKEN.fullmatch(piece) if self._byte_fallback else None
        return bytes([int(byte[1], 16)]) if byte else piece.encode()


def _replacement(step: dict[str, object]) -> list[tuple[str, str]]:
    if step.get("type") == "Metaspace":
        return [(str(step.get("replacement", "\u2581")), " ")]
    if step.get("type") == "Replace":
        pattern = step.get("pattern")
        if not isinstance(pattern, dict) or not isinstance(pattern.get("String"), str):
            raise VocabularyError(
                "the tokenizer's decoder replaces by a regular expression, which has no bytes per token"
            )
        return [(pattern["String"], str(step.get("content", "")))]
    return []


def _pieces(model: dict[str, object]) -> list[tuple[str, int]]:
    vocabulary = model.get("vocab")
    if isinstance(vocabulary, dict):
        return [(piece, int(number)) for piece, number in vocabulary.items()]
    if isinstance(vocabulary, list):  # Unigram: [piece, log-prob] pairs
        return [(str(entry[0]), number) for number, entry in enumerate(vocabulary)]
    raise VocabularyError("the tokenizer's model has no vocab")


def _normalized(content: str, normalizer: object) -> str:
    """What a normalizer makes of an added token. The library `tokenizers` decodes it so from version 0.23.1 on."""
    match normalizer:
        case None:
            return content
        case {"type": "Sequence", "normalizers": [*steps]}:
            return functools.reduce(_normalized, steps, content)
        case {"type": "Prepend", "prepend": str(start)}:
            return start + content
        case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
            return content.replace(old, new)
        case {"type": "NFC" | "NFD" | "NFKC" | "NFKD" as form}:
            return unicodedata.normalize(form, content)
        case _:
            raise VocabularyError(
                f"the added token {content!r} is normalized by steps that are not known here, so its bytes are not "
                'either; in tokenizer.json, set "normalized" to false for it'
            )


def _check_ids(pieces: Mapping[str, int], added: Sequence[Mapping[str, Any]]) -> None:
    """Compares the ids of added tokens with the library's.

    In the file's order, it gives a token that is no piece the id after all others. Raises VocabularyError.
    """
    following, given = len(pieces), dict[str, int]()
    for token in added:
        content, number = str(token["content"]), int(token["id"])
        expected = pieces.get(content, given.get(content, following))
        if not content:  # the library leaves it out
            continue
        if number != expected:
            raise VocabularyError(
                f"the added token {content!r} has the id {number}, but the library `tokenizers` gives it {expected}: "
                "in tokenizer.json, ids of added tokens follow those of the vocabulary without gaps, in ascending order"
            )
        given[content], following = expected, max(following, expected + 1)


def vocabulary_from_tokenizer_json(text: str, size: int | None, eos_ids: tuple[int, ...]) -> Vocabulary:
    """The vocabulary of a tokenizer.

    text     the contents of tokenizer.json
    size     the width of the model's output, which may exceed the tokenizer's; None takes the tokenizer's own.
             Ids above the tokenizer's, and gaps in it, never occur.
    eos_ids  the model's EOS ids
    Raises VocabularyError where the file is of a kind whose tokens have no bytes of their own (WordPiece, say).
    """
    try:
        data = json.loads(text)
        model = data["model"]
        added = [token for token in data.get("added_tokens") or [] if size is None or int(token["id"]) < size]
        spell, pieces = _Spelling(_decoder_steps(data.get("decoder"))), _pieces(model)
        _check_ids(dict(pieces), added)
        written: dict[int, bytes | None] = {number: spell(piece) for piece, number in pieces}
        for token in added:
            content, normalizer = str(token["content"]), data.get("normalizer") if token.get("normalized") else None
            is_text = not token.get("special")
            written[int(token["id"])] = spell(_normalized(content, normalizer)) if is_text else None
        # The unknown token stands for any text, so it has no bytes.
        unknown = model.get("unk_token")
        if isinstance(unknown, str) and isinstance(model.get("vocab"), dict) and unknown in model["vocab"]:
            written[int(model["vocab"][unknown])] = None
        if isinstance(model.get("unk_id"), int):
            written[model["unk_id"]] = None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise VocabularyError(f"not a tokenizer.json that we can read: {error!r}") from error
    width = max(written, default=-1) + 1 if size is None else size
    # Empty pieces would be steps that write nothing: they never occur.
    tokens = [written.get(number) or None for number in range(width)]
    for eos in eos_ids:
        if not 0 <= eos < width:
            raise VocabularyError(f"EOS id {eos} is outside the model's {width} ids")
        tokens[eos] = None
    names = {str(token["content"]): int(token["id"]) for token in added if int(token["id"]) < width}
    return Vocabulary(tuple(tokens), tuple(eos_ids), names)
