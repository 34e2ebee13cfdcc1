"""Reads a `tokenizer.json` of the Hugging Face format into a vocabulary. Knows no model and opens no file."""

from __future__ import annotations

import json
import re

from compiler.errors import VocabularyError
from compiler.vocab.vocabulary import Vocabulary

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
    """How the pieces of one tokenizer become bytes."""

    def __init__(self, steps: list[dict[str, object]]) -> None:
        kinds = {str(step.get("type")) for step in steps}
        supported = {"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
        # An unknown step may change the bytes: it is refused rather than guessed.
        if not kinds or kinds - supported:
            raise VocabularyError(
                f"the tokenizer's decoder has the steps {sorted(kinds)}; readable are byte-level BPE and SentencePiece"
            )
        self._byte_level = _byte_of_symbol() if "ByteLevel" in kinds else None
        self._byte_fallback = "ByteFallback" in kinds
        self._replacements = [pair for step in steps for pair in _replacement(step)]

    def __call__(self, piece: str) -> bytes | None:
        """The bytes that a piece writes in the middle of a text. None for a piece that writes none that we know."""
        if self._byte_level is not None:
            try:
                return bytes(self._byte_level[symbol] for symbol in piece)
            except KeyError:
                return None
        # SentencePiece writes bytes without a piece of their own as <0xNN>.
        byte = _BYTE_TOKEN.fullmatch(piece) if self._byte_fallback else None
        if byte:
            return bytes([int(byte[1], 16)])
        # SentencePiece writes a space as U+2581; the decoder's steps turn it back.
        for old, new in self._replacements:
            piece = piece.replace(old, new)
        return piece.encode()


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
        model, added = data["model"], data.get("added_tokens") or []
        spell = _Spelling(_decoder_steps(data.get("decoder")))
        written = {number: spell(piece) for piece, number in _pieces(model)}
        for token in added:
            # Special tokens are no text; other added tokens are written as they are, not in the model's alphabet.
            written[int(token["id"])] = None if token.get("special") else str(token["content"]).encode()
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
