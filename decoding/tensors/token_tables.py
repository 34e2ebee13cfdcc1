"""The token ids laid out for the model's device.

The step needs the best log-prob of each token class of each row. A reduction over classes of uneven sizes is slow on
any device, so the ids of a class are cut into chunks of equal width, and a reshaped maximum reduces all chunks at once.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from decoding.tensors.backend import Array, like

WIDE, NARROW = 64, 4  # ids in a chunk of a large class, and of a small one
_CHUNK_CELLS_MAX = 2**21  # log-probs laid out at once: more leave the processor's cache

IntArray = NDArray[np.int64]


class ChunkLayout(NamedTuple):
    """The token ids in chunks of one token class each. V ids are ordered by class, ascending within it. Each class is
    cut into M chunks of at most W ids; the wide chunks come first.

    chunk_id     int64 [M, W]  the ids of each chunk; spare slots repeat its last id
    spare        bool  [M, W]  the repeats, which are no candidates of their own
    chunk_class  int64 [M]     the class of each chunk
    token_chunk  int64 [V]     the chunk of each id
    wide         how many chunks are wide
    slot_id      int64 [64 * wide + 4 * narrow]  the ids chunk after chunk
    """

    chunk_id: IntArray
    spare: NDArray[np.bool_]
    chunk_class: IntArray
    token_chunk: IntArray
    wide: int
    slot_id: IntArray

    @classmethod
    def of(cls, token_class: NDArray[np.int32], classes: int) -> ChunkLayout:
        """From the class of each id. More than half a wide chunk of them is cut into wide ones, fewer into narrow."""
        sort_key = token_class.astype(np.uint16) if classes <= 2**16 else token_class  # numpy sorts 16 bits by radix
        order = np.argsort(sort_key, kind="stable")  # [V]: the ids by class
        size = np.bincount(token_class, minlength=classes)  # [C]
        width = np.where(size > WIDE // 2, WIDE, NARROW)  # [C]
        chunks = -(-size // width)  # [C]: chunks of each class, the last one partly filled
        by_width = np.argsort(-width, kind="stable")  # [C]: wide classes first
        chunk_class = np.repeat(by_width, chunks[by_width])  # [M]
        first_chunk, first_id = np.empty_like(chunks), np.cumsum(size) - size  # [C], [C]: in `order`
        first_chunk[by_width] = np.cumsum(chunks[by_width]) - chunks[by_width]
        offset = (np.arange(len(chunk_class)) - first_chunk[chunk_class]) * width[chunk_class]  # [M], within the class
        position = offset[:, None] + np.arange(int(width.max()))  # [M, W], within the class
        last = np.minimum(offset + width[chunk_class], size[chunk_class])[:, None] - 1  # [M, 1]
        # A maximum is unchanged by a repeated id, so spare slots need no value that a mask would have to write.
        chunk_id = order[first_id[chunk_class, None] + np.minimum(position, last)]
        token_chunk = np.empty(len(token_class), dtype=np.int64)
        token_chunk[chunk_id] = np.arange(len(chunk_class))[:, None]
        wide = int(np.count_nonzero(width[chunk_class] == WIDE))
        slot_id = np.concatenate([chunk_id[:wide].reshape(-1), chunk_id[wide:, :NARROW].reshape(-1)])
        return cls(chunk_id, position > last, chunk_class, token_chunk, wide, slot_id)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenTables:
    """The ids of an automaton on the device, whatever its states are. V ids, C classes, M chunks of at most W ids.

    The ids lie in chunks of one class each, as in `ChunkLayout`: all tokens of a chunk take a row to the same state.

    chunk_id       int64 [M, W]
    spare          bool  [M, W]
    chunk_class    int64 [M]
    token_chunk    int64 [V]
    token_class    int64 [V]        the class of each id
    eos            bool  [V]        the ids that end a text
    eos_ids        int64 [E]        the same, ascending
    classes        C
    eos_class      their class
    midchar_class  from this class on, ids begin inside a UTF-8 character; C where classes are not ordered so
    slot_id        int32 [64 * wide + 4 * narrow], always a tensor
    """

    chunk_id: Array
    spare: Array
    chunk_class: Array
    token_chunk: Array
    token_class: Array
    eos: Array
    eos_ids: Array
    classes: int
    eos_class: int
    midchar_class: int
    wide: int
    slot_id: Tensor

    @classmethod
    def of(
        cls, token_class: NDArray[np.int32], classes: int, eos_ids: tuple[int, ...], device: torch.device, *,
        midchar_class: int | None = None,
    ) -> TokenTables:
        """From the class of each id. It takes a few milliseconds for 50,000 ids."""
        layout = ChunkLayout.of(token_class, classes)
        eos = np.zeros(len(token_class), dtype=bool)
        eos[list(eos_ids)] = True

        def to_device(array: np.ndarray, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.tensor(array, dtype=dtype, device=device)

        return cls(
            chunk_id=to_device(layout.chunk_id),
            spare=to_device(layout.spare, torch.bool),
            chunk_class=to_device(layout.chunk_class),
            token_chunk=to_device(layout.token_chunk),
            token_class=to_device(token_class),
            eos=to_device(eos, torch.bool),
            eos_ids=to_device(np.flatnonzero(eos)),
            classes=classes,
            eos_class=int(token_class[eos_ids[0]]),
            midchar_class=classes if midchar_class is None else midchar_class,
            wide=layout.wide,
            slot_id=to_device(layout.slot_id, torch.int32),
        )

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(int(getattr(getattr(self, field.name), "nbytes", 0)) for field in fields(self))

    @property
    def device(self) -> torch.device:
        return self.slot_id.device

    def for_search(self) -> TokenTables:
        """The same tables for `search`. On the CPU they are numpy's arrays, in the same memory."""
        return in_numpy(self) if self.device.type == "cpu" else self

    def best_of_chunks(self, log_probs: Tensor) -> Array:
        """The best log-prob of each chunk of each row: [R, M].

        `log_probs` is [R, V]. A NaN makes its chunk's value NaN.
        """
        rows = max(1, _CHUNK_CELLS_MAX // len(self.slot_id))  # laid out together; each copy is reduced at once
        maxima = [self._chunk_maxima(block.index_select(1, self.slot_id)) for block in log_probs.split(rows)]
        return like(self.token_class, maxima[0] if len(maxima) == 1 else torch.cat(maxima))

    def _chunk_maxima(self, slots: Tensor) -> Tensor:
        """The same for log-probs in the order of `slot_id`, [R, slots]."""
        split = self.wide * WIDE  # the wide chunks come first
        wide = slots[:, :split].view(len(slots), self.wide, WIDE).amax(dim=2)
        narrow = slots[:, split:].reshape(len(slots), (slots.shape[1] - split) // NARROW, NARROW).amax(dim=2)
        return torch.cat([wide, narrow], dim=1)


def in_numpy(tables: Any) -> Any:
    """A dataclass of tensors on the CPU with numpy's arrays.

    Only fields of the type `Array` change.
    """
    views = {
        field.name: value.numpy() for field in fields(tables)
        if field.type == "Array" and isinstance(value := getattr(tables, field.name), Tensor)
    }  # fmt: skip
    return replace(tables, **views)
