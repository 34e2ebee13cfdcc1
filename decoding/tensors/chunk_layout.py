"""How the ids of a vocabulary lie in chunks of one class each, so that the best of each chunk is quickly known.

Knows classes of ids, nothing of automata, devices or scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WIDE, NARROW = 64, 4  # ids in a chunk of a large class, and of a small one

Wholes = NDArray[np.int64]


class ChunkLayout(NamedTuple):
    """V ids by class, ascending within it, each class cut into M chunks of at most W ids; the wide chunks come first.

    chunk_id     int64 [M, W]  the ids of each chunk; spare places repeat its last id
    spare        bool  [M, W]  the repeats, which are no candidates of their own
    chunk_class  int64 [M]     the class of each chunk
    token_chunk  int64 [V]     the chunk of each id
    wide         how many chunks are wide
    slot_id      int64 [64 * wide + 4 * narrow]  the ids chunk after chunk
    """

    chunk_id: Wholes
    spare: NDArray[np.bool_]
    chunk_class: Wholes
    token_chunk: Wholes
    wide: int
    slot_id: Wholes

    @classmethod
    def of(cls, token_class: NDArray[np.int32], classes: int) -> ChunkLayout:
        """From the class of each id. More than half a wide chunk of them is cut into wide ones, fewer into narrow."""
        small = token_class.astype(np.uint16) if classes <= 2**16 else token_class  # numpy sorts 16 bits by radix
        order = np.argsort(small, kind="stable")
        size = np.bincount(token_class, minlength=classes)
        width = np.where(size > WIDE // 2, WIDE, NARROW)  # [C]
        chunks = -(-size // width)  # [C]
        by_width = np.argsort(-width, kind="stable")  # [C]
        chunk_class = np.repeat(by_width, chunks[by_width])  # [M]
        first_chunk, first_id = np.empty_like(chunks), np.cumsum(size) - size
        first_chunk[by_width] = np.cumsum(chunks[by_width]) - chunks[by_width]
        offset = (np.arange(len(chunk_class)) - first_chunk[chunk_class]) * width[chunk_class]  # [M], within the class
        place = offset[:, None] + np.arange(int(width.max()))  # [M, W]
        last = np.minimum(offset + width[chunk_class], size[chunk_class])[:, None] - 1  # [M, 1]
        chunk_id = order[first_id[chunk_class, None] + np.minimum(place, last)]
        token_chunk = np.empty(len(token_class), dtype=np.int64)
        token_chunk[chunk_id] = np.arange(len(chunk_class))[:, None]
        wide = int(np.count_nonzero(width[chunk_class] == WIDE))
        slot_id = np.concatenate([chunk_id[:wide].reshape(-1), chunk_id[wide:, :NARROW].reshape(-1)])
        return cls(chunk_id, place > last, chunk_class, token_chunk, wide, slot_id)
