"""Keeps what was read of prompts, for prompts that begin alike.

The unit is a chunk of a prompt: its keys and values, and the log-probs after it. A chunk is found by the hash of all
tokens up to its end, as in vLLM's automatic prefix caching. A prompt's chunks are read in passes of their own, which
see the same arrays whether earlier chunks were read or found, so the results are the same to the last bit.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from decoding.model.prefix_tree import PrefixTree

CountChunk = Callable[[bool], None]
"""Receives, for each chunk of a prompt, whether it was found."""
ChunkKey = bytes


class _Chunk(NamedTuple):
    """What was read of n tokens.

    keys_and_values  by layer, [n, H, width] each
    log_probs        float32 [V], after the last token
    """

    keys_and_values: dict[int, tuple[Tensor, Tensor]]
    log_probs: Tensor

    @property
    def nbytes(self) -> int:
        return self.log_probs.nbytes + sum(k.nbytes + v.nbytes for k, v in self.keys_and_values.values())


class PromptCache:
    """Chunks of prompts, the least recently used evicted first. Not thread-safe.

    bytes_max  of all chunks; 0 keeps none
    count      receives every look-up

    >>> chunk_keys([7, 8, 9, 9, 5], 2)[0] == chunk_keys([7, 8, 6, 6, 6], 2)[0]
    True
    """

    def __init__(self, bytes_max: int = 0, count: CountChunk | None = None) -> None:
        self._bytes_max, self._count = bytes_max, count
        self._chunks: OrderedDict[ChunkKey, _Chunk] = OrderedDict()
        self.nbytes = 0

    def load(self, tree: PrefixTree, key: ChunkKey, begin: int) -> Tensor | None:
        """Copies a chunk to its place in a tree. Returns the log-probs after it, None where it is not kept."""
        chunk = self._chunks.get(key)
        if self._count is not None:
            self._count(chunk is not None)
        if chunk is None:
            return None
        for layer, (keys, values) in chunk.keys_and_values.items():
            tree.store_prompt(layer, begin, keys, values)
        return chunk.log_probs.clone()

    def keep(
        self, tree: PrefixTree, path: Sequence[ChunkKey], *, begin: int, end: int, log_probs: Tensor
    ) -> None:
        """Keep the tokens from `begin` to `end` of a tree's prompt. `path`: its chunks up to this one.

        A prompt that is larger than the cache is kept up to the last chunk that fits.
        """
        size = tree.prompt_bytes * (end - begin) // tree.prompt + log_probs.nbytes
        if size * len(path) > self._bytes_max:  # a last chunk is no larger than those before it
            return
        self.touch(path)  # so that no chunk before this one is evicted
        while self._chunks and self.nbytes + size > self._bytes_max:
            self.nbytes -= self._chunks.popitem(last=False)[1].nbytes
        self._chunks[path[-1]] = _Chunk(tree.prompt_chunk(begin, end), log_probs.clone())
        self.nbytes += size

    def touch(self, path: Sequence[ChunkKey]) -> None:
        """Marks chunks as used. The first one is evicted last, since the others are found only behind it."""
        for key in reversed(path):
            if key in self._chunks:
                self._chunks.move_to_end(key)


def chunk_keys(ids: Sequence[int], chunk_tokens: int, adapter: str = "") -> list[ChunkKey]:
    """A key for each chunk of a prompt. It depends on all tokens up to the chunk's end, and on the adapter."""
    keys = [hashlib.blake2b(adapter.encode(), digest_size=16).digest()]
    for begin in range(0, len(ids), chunk_tokens):
        tokens = array("q", ids[begin : begin + chunk_tokens]).tobytes()
        keys.append(hashlib.blake2b(keys[-1] + tokens, digest_size=16).digest())
    return keys[1:]
