"""Tokenizes prompts with the model's tokenizer."""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

Span = tuple[int, int]


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


class PromptEncoder:
    """Encodes prompts. Of a chat template's prompt, only its markers become the tokens of markers.

    The tokenizer reads a marker wherever its name stands. Where the name stands in other text too, or a normalizer may
    put it there, a tokenizer is used in which the markers have secret names.

    names  the markers
    size   the number of ids of the model
    """

    def __init__(self, tokenizer: Tokenizer, file: Path, names: Sequence[str], size: int) -> None:
        self._tokenizer, self._file, self._names, self._size = tokenizer, file, names, size
        self._pattern = re.compile("|".join(f"(?={re.escape(name)})" for name in self._names)) if self._names else None
        self._renamed: _RenamedTokenizer | None = None
        self._lock = threading.Lock()

    def __call__(self, prompt: str, markers: Sequence[Span] | None) -> list[int]:
        """The ids of a prompt, whose markers stand at these places.

        None is for a prompt that no chat template made. Its ids begin with what the tokenizer puts first, and names of
        markers in it are markers.
        """
        if markers is None:
            return list(self._tokenizer.encode(prompt).ids)
        if self._tokenizer.normalizer is None and set(self._occurrences(prompt)) <= set(markers):
            return list(self._tokenizer.encode(prompt, add_special_tokens=False).ids)
        with self._lock:
            while self._renamed is None or self._renamed.secret in prompt:
                self._renamed = _RenamedTokenizer(self._tokenizer, self._file, self._names, self._size)
            renamed = self._renamed
        return renamed.encode(prompt, markers)

    def _occurrences(self, prompt: str) -> Iterator[Span]:
        """All places where a marker's name stands, overlapping ones too."""
        if self._pattern is not None:
            for match in self._pattern.finditer(prompt):
                at = match.start()
                yield from ((at, at + len(name)) for name in self._names if prompt.startswith(name, at))


class _RenamedTokenizer:
    """A tokenizer whose markers have names with a random secret. Otherwise it encodes the same."""

    def __init__(self, tokenizer: Tokenizer, file: Path, names: Sequence[str], size: int) -> None:
        self.secret = secrets.token_hex(8)
        # Private characters keep the names apart from words beside them.
        self._names = {name: f"\U00100000{self.secret}{number}\U00100001" for number, name in enumerate(names)}
        data = _renamed(json.loads(file.read_text(encoding="utf-8")), self._names, size)
        self._tokenizer = Tokenizer.from_str(json.dumps(data))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        encoded = self._tokenizer.token_to_id
        ids = ((encoded(self._names.get(name, name)), tokenizer.token_to_id(name)) for name in added)
        self._ids = {renamed: token for renamed, token in ids if renamed is not None and token is not None}

    def encode(self, prompt: str, markers: Sequence[Span]) -> list[int]:
        parts, before = list[str](), 0
        for start, end in markers:
            parts += prompt[before:start], self._names[prompt[start:end]]
            before = end
        parts.append(prompt[before:])
        ids = self._tokenizer.encode("".join(parts), add_special_tokens=False).ids
        return [self._ids.get(token, token) for token in ids]


def _renamed(data: dict[str, Any], names: Mapping[str, str], size: int) -> dict[str, Any]:
    """The data of a tokenizer in which pieces have other names. No text is split into such a piece."""
    model = data["model"]
    data["added_tokens"] = [
        {**token, "content": names[token["content"]], "normalized": False} if token["content"] in names else token
        for token in data["added_tokens"] if token["id"] < size
    ]  # fmt: skip
    if isinstance(model["vocab"], dict):
        model["vocab"] = {names.get(piece, piece): number for piece, number in model["vocab"].items()}
    else:
        model["vocab"] = [[names.get(piece, piece), score] for piece, score in model["vocab"]]
    if "merges" in model:
        pairs = (tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"])
        model["merges"] = [list(pair) for pair in pairs if not {*pair, "".join(pair)} & names.keys()]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
    return {**data, "post_processor": None}
