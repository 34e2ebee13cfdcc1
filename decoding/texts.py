"""What each id adds to a text, as 64-bit hashes: rows that say the same, split differently, are known by equal hashes.

A text's hash is polynomial over its bytes, each byte mapped to a random word: h(a + b) = h(a) * BASE**len(b) + h(b)
modulo 2**64. So a row's hash follows from its parent's in one multiplication, whatever the split. Two texts of equal
hash may differ; the search then loses a candidate, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplying by it loses nothing
_SEED = 20_240


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """The bytes of a vocabulary as hashes on the device. V ids.

    addend  int64 [V]  the hash of the id's bytes; 0 where it adds none (EOS)
    factor  int64 [V]  BASE to the power of their number
    """

    addend: Tensor
    factor: Tensor

    @classmethod
    def of(cls, tokens: Sequence[bytes | None], eos_ids: Sequence[int], device: torch.device) -> Texts:
        """From the bytes of each id, None where it has none; an EOS id says nothing, whatever it is called."""
        ends = frozenset(eos_ids)
        spoken = [b"" if token is None or id in ends else token for id, token in enumerate(tokens)]
        addend, factor = _hashes(spoken)
        return cls(torch.from_numpy(addend).to(device), torch.from_numpy(factor).to(device))

    def extend(self, text_hash: Tensor, token: Tensor) -> Tensor:
        """The hashes of texts, int64 [N], each followed by a token, int64 [N]."""
        return text_hash * self.factor[token] + self.addend[token]


def _hashes(pieces: Sequence[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """addend and factor of each piece: Horner's rule over all pieces at once, byte by byte."""
    word = np.random.default_rng(_SEED).integers(0, 2**64, 256, dtype=np.uint64)
    length = np.array([len(piece) for piece in pieces], dtype=np.int64)
    start = np.cumsum(length) - length
    content = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    addend, factor = np.zeros(len(pieces), dtype=np.uint64), np.ones(len(pieces), dtype=np.uint64)
    for place in range(int(length.max(initial=0))):
        longer = np.flatnonzero(length > place)
        addend[longer] = addend[longer] * _BASE + word[content[start[longer] + place]]
        factor[longer] *= _BASE
    return addend.view(np.int64), factor.view(np.int64)
