"""The hashes by which rows that say the same are known."""

from __future__ import annotations

import numpy as np
import torch

from decoding.texts import Texts

CPU = torch.device("cpu")


def _hash(texts: Texts, ids: list[int]) -> int:
    found = torch.zeros(1, dtype=torch.int64)
    for token in ids:
        found = texts.extend(found, torch.tensor([token]))
    return int(found)


def test_a_text_has_one_hash_however_it_is_split() -> None:
    pieces = [b"a", b"b", b"ab", b"ba", b"aba", b"", None, "é".encode(), b"\xc3", b"\xa9"]
    texts = Texts.of([*pieces, b"</s>"], (10,), CPU)
    assert _hash(texts, [0, 1, 0]) == _hash(texts, [2, 0]) == _hash(texts, [0, 3]) == _hash(texts, [4])
    assert _hash(texts, [4, 5, 6, 10]) == _hash(texts, [4])
    assert _hash(texts, [7]) == _hash(texts, [8, 9])


def test_texts_that_differ_have_hashes_that_differ() -> None:
    random = np.random.default_rng(5)
    lengths = random.integers(1, 12, 5000).tolist()
    pieces = sorted({random.integers(0, 3, length).astype(np.uint8).tobytes() for length in lengths})
    texts = Texts.of(pieces, (), CPU)
    found = texts.extend(torch.zeros(len(pieces), dtype=torch.int64), torch.arange(len(pieces)))
    assert len(set(found.tolist())) == len(pieces)
    assert 0 not in found.tolist()
