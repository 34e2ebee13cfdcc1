"""The tensors of a search: the rows of a beam, and an automaton's tables laid out for the device.

Owns shapes and layouts. Knows nothing of scores, of models or of the loop.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.token_automaton import UNREACHABLE, TokenAutomaton

DEAD_SCORE = float("-inf")  # the score of a row that only fills a place: no candidate was left for it

_WIDE, _NARROW = 64, 4  # ids in a chunk of a large class, and of a small one
_LAID_MAX = 2**19  # log-probs laid out at once: what stays in the processor's cache, and is no burden on the memory


@dataclass(frozen=True, slots=True)
class Beams:
    """The rows of a beam, best first. R rows.

    token      int64   [R]  the last token; a finished row's last token is EOS
    parent     int64   [R]  the row this one extends, in the beam before
    state      int64   [R]  automaton state after the token
    score      float64 [R]  what rows are ranked by, DEAD_SCORE where the row only fills a place
    log_prob   float64 [R]  the model's own sum
    text_hash  int64   [R]  of the text so far (`texts`)
    """

    token: Tensor
    parent: Tensor
    state: Tensor
    score: Tensor
    log_prob: Tensor
    text_hash: Tensor

    @classmethod
    def start(cls, state: int, device: torch.device) -> Beams:
        """ONE row: k equal rows would only find every candidate k times. Its token is the prompt's, not named here."""
        whole = torch.zeros(1, dtype=torch.int64, device=device)
        real = torch.zeros(1, dtype=torch.float64, device=device)
        return cls(whole, whole, whole + state, real, real, whole)

    def select(self, rows: Tensor) -> Beams:
        """The rows with these numbers, int64 [N], in that order."""
        return Beams(*(getattr(self, field.name).index_select(0, rows) for field in fields(self)))

    def followed_by(self, others: Beams) -> Beams:
        """These rows and then the others."""
        names = [field.name for field in fields(self)]
        return Beams(*(torch.cat([getattr(self, name), getattr(others, name)]) for name in names))

    def where(self, condition: Tensor, others: Beams) -> Beams:
        """These rows where the condition, bool [R], holds, and those of the others elsewhere."""
        names = [field.name for field in fields(self)]
        return Beams(*(torch.where(condition, getattr(self, name), getattr(others, name)) for name in names))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """A TokenAutomaton on the device. V ids, C classes, M chunks of at most W ids; the rest as in `TokenAutomaton`.

    edge_outer     int   [B, C0]
    edge_inner     int   [L-B+1, C1]
    edge_target    int64 [P]        labeller state an edge leads to, times Q
    edge_function  int64 [P]        row of `function` an edge applies, times Q
    function       int64 [F * Q]    letter state after it
    distance       int32 [S]        fewest tokens to acceptance, UNREACHABLE when dead
    letter_states  Q
    distance_max   the largest of the distances that is not UNREACHABLE

    The ids are laid out by class, ascending within it, each class cut into chunks. All tokens of a chunk take a row
    to the same state, so that what may be taken, and what it is worth, is decided once a chunk. Chunks are numbered by
    class, and within a class by their ids.

    chunk_id       int64 [M, W]     the ids of each chunk; spare places repeat its last id
    spare          bool  [M, W]     the repeats, which are no candidates of their own
    chunk_class    int64 [M]        the class of each chunk
    token_chunk    int64 [V]        the chunk of each id
    token_class    int64 [V]        the class of each id
    eos            bool  [V]        the ids that end a text
    eos_ids        int64 [E]        the same, ascending
    eos_class      their class

    The best of each chunk is asked of all rows at every step. So the ids lie once more, wide chunks before narrow ones:

    slot_id        int32 [64 * wide + 4 * narrow]
    wide           how many chunks are wide
    chunk_slot     int64 [M]        place of each chunk among the wide ones and then the narrow ones
    """

    edge_outer: Tensor
    edge_inner: Tensor
    edge_target: Tensor
    edge_function: Tensor
    function: Tensor
    distance: Tensor
    letter_states: int
    distance_max: int
    chunk_id: Tensor
    spare: Tensor
    chunk_class: Tensor
    token_chunk: Tensor
    token_class: Tensor
    eos: Tensor
    eos_ids: Tensor
    eos_class: int
    slot_id: Tensor
    wide: int
    chunk_slot: Tensor

    @classmethod
    def from_automaton(cls, automaton: TokenAutomaton, device: torch.device) -> Tables:
        """Copies an automaton's arrays to the device; a few milliseconds for 50,000 ids."""
        letter_states, token_class = automaton.letter_states, automaton.token_class
        layout = _lay_out(token_class, automaton.classes)
        eos = np.zeros(len(token_class), dtype=bool)
        eos[list(automaton.eos_ids)] = True
        finite = automaton.distance[automaton.distance != UNREACHABLE]

        def put(array: np.ndarray, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.tensor(array, dtype=dtype, device=device)

        return cls(
            edge_outer=put(automaton.edge_outer, torch.int32),
            edge_inner=put(automaton.edge_inner, torch.int32),
            edge_target=put(automaton.edge_target.astype(np.int64) * letter_states),
            edge_function=put(automaton.edge_function.astype(np.int64) * letter_states),
            function=put(automaton.function.reshape(-1)),
            distance=put(automaton.distance, torch.int32),
            letter_states=letter_states,
            distance_max=int(finite.max(initial=0)),
            chunk_id=put(layout.chunk_id),
            spare=put(layout.spare, torch.bool),
            chunk_class=put(layout.chunk_class),
            token_chunk=put(layout.token_chunk),
            token_class=put(token_class),
            eos=put(eos, torch.bool),
            eos_ids=put(np.flatnonzero(eos)),
            eos_class=int(token_class[automaton.eos_ids[0]]),
            slot_id=put(layout.slot_id, torch.int32),
            wide=layout.wide,
            chunk_slot=put(layout.chunk_slot),
        )

    def successors(self, state: Tensor) -> Tensor:
        """The state after one token of each class, from each of the states int64 [R]: int64 [R, C]."""
        labeller, letter = state // self.letter_states, state % self.letter_states
        between = self.edge_outer.shape[0]
        outer = torch.where(labeller < between, labeller, 0)
        inner = torch.where(labeller >= between, labeller - between + 1, 0)
        edge = torch.cat([self.edge_outer.index_select(0, outer), self.edge_inner.index_select(0, inner)], dim=1)
        read = self.edge_function.index_select(0, edge.view(-1)).view(edge.shape) + letter[:, None]  # [R, C]
        after = self.function.index_select(0, read.view(-1)) + self.edge_target.index_select(0, edge.view(-1))
        return after.view(edge.shape)

    def distance_of(self, state: Tensor) -> Tensor:
        """The distances of states, int64 of any shape: int32 of that shape."""
        return self.distance.index_select(0, state.reshape(-1)).view(state.shape)

    def best_of_chunks(self, log_probs: Tensor) -> Tensor:
        """The best log-prob of each chunk, for each row of [R, V]: [R, M]. NaN anywhere in a chunk is NaN here."""
        rows = max(1, _LAID_MAX // len(self.slot_id))
        laid = [self._best_of_laid(block.index_select(1, self.slot_id)) for block in log_probs.split(rows)]
        return torch.cat(laid).index_select(1, self.chunk_slot)

    def _best_of_laid(self, laid: Tensor) -> Tensor:
        """The same for log-probs in the order of `slot_id`, [R, slots], and chunks in the order of `chunk_slot`."""
        split = self.wide * _WIDE
        wide = laid[:, :split].view(len(laid), self.wide, _WIDE).amax(dim=2)
        narrow = laid[:, split:].reshape(len(laid), -1, _NARROW).amax(dim=2)
        return torch.cat([wide, narrow], dim=1)


class _Layout(NamedTuple):
    """The fields of these names in `Tables`, as numpy arrays."""

    chunk_id: NDArray[np.int64]
    spare: NDArray[np.bool_]
    chunk_class: NDArray[np.int64]
    token_chunk: NDArray[np.int64]
    slot_id: NDArray[np.int64]
    wide: int
    chunk_slot: NDArray[np.int64]


def _lay_out(token_class: NDArray[np.int32], classes: int) -> _Layout:
    """Classes of more than half a wide chunk are cut into wide ones, the others into narrow ones."""
    small = token_class.astype(np.uint16) if classes <= 2**16 else token_class  # numpy sorts 16 bits by radix
    order = np.argsort(small, kind="stable")
    size = np.bincount(token_class, minlength=classes)
    width = np.where(size > _WIDE // 2, _WIDE, _NARROW)  # [C]
    chunks = -(-size // width)  # [C]
    chunk_class = np.repeat(np.arange(classes), chunks)  # [M]
    first_chunk, first_token = np.cumsum(chunks) - chunks, np.cumsum(size) - size
    offset = (np.arange(len(chunk_class)) - first_chunk[chunk_class]) * width[chunk_class]  # [M], within the class
    place = offset[:, None] + np.arange(int(width.max()))  # [M, W]
    last = np.minimum(offset + width[chunk_class], size[chunk_class])[:, None] - 1  # [M, 1]
    chunk_id = order[first_token[chunk_class, None] + np.minimum(place, last)]
    spare = place > last
    token_chunk = np.empty(len(token_class), dtype=np.int64)
    token_chunk[chunk_id] = np.arange(len(chunk_class))[:, None]
    wide = width[chunk_class] == _WIDE  # [M]
    slot_id = np.concatenate([chunk_id[wide].reshape(-1), chunk_id[~wide, :_NARROW].reshape(-1)])
    chunk_slot = np.where(wide, np.cumsum(wide), wide.sum() + np.cumsum(~wide)) - 1
    return _Layout(chunk_id, spare, chunk_class, token_chunk, slot_id, int(wide.sum()), chunk_slot)
