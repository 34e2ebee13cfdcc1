"""A token automaton laid out for the model's device.

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

from compiler.lifting import UNREACHABLE, TokenAutomaton
from decoding.tensors.backend import Array, arange, library, like, take

WIDE, NARROW = 64, 4  # ids in a chunk of a large class, and of a small one
_CHUNK_CELLS_MAX = 2**19  # log-probs laid out at once: they stay in the processor's cache

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
class Tables:
    """A TokenAutomaton on the device. V ids, C classes, M chunks of at most W ids; the rest as in `TokenAutomaton`.

    edge_boundary  int   [D, C0]
    dense_row      int   [B]
    sparse_class   int   [B, W]
    sparse_edge    int   [B, W]
    edge_midchar   int   [L-B+1, C1]
    edge_target    int64 [P]        transducer state an edge leads to, times Q
    edge_function  int64 [P]        row of `function` an edge applies, times Q
    function       int64 [F * Q]    letter state after it
    distance       int32 [S]        fewest tokens to acceptance, UNREACHABLE when dead
    letter_states  Q
    distance_max   the largest of the distances that is not UNREACHABLE

    The ids lie in chunks of one class each, as in `ChunkLayout`: all tokens of a chunk take a row to the same state.

    chunk_id       int64 [M, W]
    spare          bool  [M, W]
    chunk_class    int64 [M]
    token_chunk    int64 [V]
    token_class    int64 [V]        the class of each id
    eos            bool  [V]        the ids that end a text
    eos_ids        int64 [E]        the same, ascending
    eos_class      their class
    slot_id        int32 [64 * wide + 4 * narrow], always a tensor
    """

    edge_boundary: Array
    dense_row: Array
    sparse_class: Array
    sparse_edge: Array
    edge_midchar: Array
    edge_target: Array
    edge_function: Array
    function: Array
    distance: Array
    letter_states: int
    distance_max: int
    chunk_id: Array
    spare: Array
    chunk_class: Array
    token_chunk: Array
    token_class: Array
    eos: Array
    eos_ids: Array
    eos_class: int
    wide: int
    slot_id: Tensor

    @classmethod
    def from_automaton(cls, automaton: TokenAutomaton, device: torch.device) -> Tables:
        """Copy an automaton's arrays to the device. It takes a few milliseconds for 50,000 ids."""
        letter_states, token_class = automaton.letter_states, automaton.token_class
        layout = ChunkLayout.of(token_class, automaton.classes)
        eos = np.zeros(len(token_class), dtype=bool)
        eos[list(automaton.eos_ids)] = True
        finite = automaton.distance[automaton.distance != UNREACHABLE]

        def to_device(array: np.ndarray, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.tensor(array, dtype=dtype, device=device)

        return cls(
            edge_boundary=to_device(automaton.edge_boundary, torch.int32),
            dense_row=to_device(automaton.dense_row, torch.int32),
            sparse_class=to_device(automaton.sparse_class),
            sparse_edge=to_device(automaton.sparse_edge, torch.int32),
            edge_midchar=to_device(automaton.edge_midchar, torch.int32),
            edge_target=to_device(automaton.edge_target.astype(np.int64) * letter_states),
            edge_function=to_device(automaton.edge_function.astype(np.int64) * letter_states),
            function=to_device(automaton.function.reshape(-1)),
            distance=to_device(automaton.distance, torch.int32),
            letter_states=letter_states,
            distance_max=int(finite.max(initial=0)),
            chunk_id=to_device(layout.chunk_id),
            spare=to_device(layout.spare, torch.bool),
            chunk_class=to_device(layout.chunk_class),
            token_chunk=to_device(layout.token_chunk),
            token_class=to_device(token_class),
            eos=to_device(eos, torch.bool),
            eos_ids=to_device(np.flatnonzero(eos)),
            eos_class=int(token_class[automaton.eos_ids[0]]),
            wide=layout.wide,
            slot_id=to_device(layout.slot_id, torch.int32),
        )

    def for_search(self) -> Tables:
        """The same tables for `search`. On the CPU they are numpy's arrays, in the same memory."""
        if self.slot_id.device.type != "cpu" or isinstance(self.distance, np.ndarray):
            return self
        views: dict[str, Any] = {name: getattr(self, name).numpy() for name in _ARRAYS}
        return replace(self, **views)

    def successors(self, state: Array) -> Array:
        """The state after one token of each class: int64 [R, C]. `state` is int64 [R]."""
        # A state is transducer state * Q + letter state. A transducer state lies between characters or inside one; of
        # the other table it reads row 0, whose edges all lead to the dead state.
        xp = library(state)
        transducer_state, letter = state // self.letter_states, state % self.letter_states
        boundary_states = len(self.dense_row)
        boundary = xp.where(transducer_state < boundary_states, transducer_state, 0)
        midchar = xp.where(transducer_state >= boundary_states, transducer_state - boundary_states + 1, 0)
        edge = xp.concatenate([self.edge_boundary[self.dense_row[boundary]], self.edge_midchar[midchar]], axis=1)
        if self.sparse_class.shape[1]:
            edge[arange(state, len(state))[:, None], self.sparse_class[boundary]] = self.sparse_edge[boundary]
        # An edge moves the transducer to its target and maps the letter state by its function.
        read = take(self.edge_function, edge) + letter[:, None]  # [R, C]
        return take(self.function, read) + take(self.edge_target, edge)

    def after(self, state: Array, token: Array) -> Array:
        """The state after one token from each of the states: int64 [N]. `state` and `token` are int64 [N]."""
        successor = self.successors(state)
        return take(successor, arange(state, len(state)) * successor.shape[1] + take(self.token_class, token))

    def best_of_chunks(self, log_probs: Tensor) -> Array:
        """The best log-prob of each chunk of each row: [R, M].

        `log_probs` is [R, V]. A NaN makes its chunk's value NaN.
        """
        rows = max(1, _CHUNK_CELLS_MAX // len(self.slot_id))  # laid out together; each copy is reduced at once
        maxima = [self._chunk_maxima(block.index_select(1, self.slot_id)) for block in log_probs.split(rows)]
        return like(self.distance, maxima[0] if len(maxima) == 1 else torch.cat(maxima))

    def _chunk_maxima(self, slots: Tensor) -> Tensor:
        """The same for log-probs in the order of `slot_id`, [R, slots]."""
        split = self.wide * WIDE  # the wide chunks come first
        wide = slots[:, :split].view(len(slots), self.wide, WIDE).amax(dim=2)
        narrow = slots[:, split:].reshape(len(slots), (slots.shape[1] - split) // NARROW, NARROW).amax(dim=2)
        return torch.cat([wide, narrow], dim=1)


_ARRAYS = tuple(field.name for field in fields(Tables) if field.type == "Array")  # `slot_id` stays a tensor
