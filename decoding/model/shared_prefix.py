"""The shared way: one pass for all generations, each prompt's keys and values kept once, rows that move cost nothing.

Serves models whose layers are softmax attention over all that came before; `why_not_shared` tells which those are.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from decoding.model.attention import Nodes, Pass, Prompt
from decoding.model.chunked_feed import ChunkedFeed, piece_bytes, piece_rows
from decoding.model.cpu_layers import activation_bytes, layer_widths, rows_computed
from decoding.model.prefix_tree import PrefixTree, slots_at_most
from decoding.model.protocol import Scores, StepInput

_ROWS_TRIED = {"cpu": 96, "cuda": 768}  # the largest pass of the trial
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
_ROWS_AT_A_TIME = 8  # of logits
_AT_A_TIME = 32  # elements that the CPU's elementwise loops take at once; they may round the remainder differently


class SharedReader:
    """Reads generations as prefix trees. The model's attention must be `attention.SHARED_PREFIX`.

    rows_multiple     each pass has a multiple of this many rows, padded where necessary
    rows_independent  whether a row's log-probs are then the same, to the last bit, whatever other rows the pass has.
                      Matrix products choose their order of summation by the number of rows; on the CPU there is a
                      multiple for which it never changes.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        config = model.config.get_text_config()
        self._vocab_size = int(config.vocab_size)
        heads = int(getattr(config, "num_attention_heads", 1))
        self._group = heads // int(getattr(config, "num_key_value_heads", None) or heads)  # heads that share keys
        self.rows_multiple = 1
        self.rows_independent = False
        self._threads = 0

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int]) -> tuple[PrefixTree, Tensor]:
        tree = PrefixTree(self._model.device)
        read = torch.tensor([list(ids)], device=self._model.device)
        log_probs = self._forward([Prompt(tree, len(ids))], read, fill=0, keep=1)
        return tree, log_probs[0]

    @torch.inference_mode()
    def step(self, feeds: Sequence[StepInput[PrefixTree]]) -> list[Scores]:
        """One pass for all; more only for what is left of feeds of many tokens a row."""
        if self._threads != torch.get_num_threads():  # products are split by them
            self.find_multiple()
        marks = [feed.session.mark() for feed in feeds]
        try:
            return self._step(feeds)
        except BaseException:
            for feed, mark in zip(feeds, marks, strict=True):
                feed.session.restore(mark)
            raise

    def _step(self, feeds: Sequence[StepInput[PrefixTree]]) -> list[Scores]:
        stretches = [ChunkedFeed(feed.parents, feed.tokens, self._vocab_size) for feed in feeds]
        reading = list(zip([feed.session for feed in feeds], stretches, strict=True))
        while reading:
            self._read(reading)
            reading = [(tree, stretch) for tree, stretch in reading if not stretch.done]
        return [stretch.scores() for stretch in stretches]

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int) -> int:
        """The prompt once, a slot for every token of every row, and all else that the largest pass makes."""
        layers, token = self._layers_and_token_bytes
        number = self._model.dtype.itemsize
        slots, fed = slots_at_most(rows, rows * max_tokens), piece_rows(rows, max_tokens)
        held = (prompt_tokens + slots) * token + 2 * rows * slots  # who sees what: now, and before the step
        growing = held // layers  # one layer is held twice while it grows
        activations = activation_bytes(self._model, max(prompt_tokens, fed))
        sees = fed * (prompt_tokens + slots) * ((1 + self._group) * number + 2)  # the bias, and what it is made of
        piece = piece_bytes(rows, max_tokens, self._vocab_size)
        return held + growing + piece + max(activations + sees + 2 * piece, scratch_bytes)  # a pass, then the step

    @functools.cached_property
    def _layers_and_token_bytes(self) -> tuple[int, int]:
        tree, _ = self.prefill([0])
        return tree.layers, tree.nbytes

    @torch.inference_mode()
    def find_multiple(self) -> None:
        """Sets `rows_multiple` and `rows_independent` by trial, with this model's own matrices and threads."""
        self.rows_multiple, self.rows_independent, self._threads = 1, False, 0  # where it fails it is found later
        threads = torch.get_num_threads()
        multiple = self._independent_multiple(threads)
        if multiple is not None:
            self.rows_multiple, self.rows_independent = multiple, True
        self._threads = threads

    def _independent_multiple(self, threads: int) -> int | None:
        """The least multiple at which no row's bits depend on the others, None where none was found."""
        if any("expert" in name for name, _ in self._model.named_modules()):
            return None  # how many rows an expert reads depends on where the others go
        most = _ROWS_TRIED.get(self._model.device.type, 96)
        ids = torch.arange(most, device=self._model.device)[None] * 7919 % self._vocab_size
        whole = self._forward([], ids, fill=most)
        for multiple in self._multiples(threads):
            sizes = {multiple * times for times in (1, 2, 3, 5, 7)} | {most // 2 - most // 2 % multiple}
            if all(self._same_bits(ids, whole, rows) for rows in sorted(sizes) if 0 < rows < most):
                return multiple
        return None

    def _multiples(self, threads: int) -> list[int]:
        """Those to be tried: where there are such, only those that leave nothing over in any thread's share.

        What is left over differs by the number of rows, and its last bit by luck: no trial would find it for certain.
        """
        widths = layer_widths(self._model) if self._model.device.type == "cpu" else set()
        for unit in (_AT_A_TIME * threads, _AT_A_TIME):
            if even := [count for count in _MULTIPLES if all(count * width % unit == 0 for width in widths)]:
                return even
        return list(_MULTIPLES)

    def _same_bits(self, ids: Tensor, whole: Tensor, rows: int) -> bool:
        begin = ids.shape[1] - rows - 1  # other rows than the first, at other places
        return all(
            torch.equal(self._forward([], ids[:, at : at + rows], fill=rows), whole[at : at + rows])
            for at in (0, begin)
        )

    def _read(self, reading: Sequence[tuple[PrefixTree, ChunkedFeed]]) -> None:
        pieces = [(tree, *stretch.piece()) for tree, stretch in reading]
        parts = [Nodes(tree, parents, tokens.shape[1], self._model.dtype) for tree, parents, tokens in pieces]
        fill = self._fill(sum(part.rows for part in parts))
        ids = [*(tokens.reshape(-1) for _, _, tokens in pieces), pieces[0][2].new_zeros(fill)]
        log_probs = self._forward(parts, torch.cat(ids)[None], fill)
        found = log_probs.split([*(part.rows for part in parts), fill])
        for (_, stretch), (_, _, tokens), own in zip(reading, pieces, found[:-1], strict=True):
            stretch.take(own.view(*tokens.shape, -1))

    def _fill(self, rows: int) -> int:
        """The number of padding rows for a pass over `rows` rows.

        On the CPU the packed layers round the number up themselves, so the pass is padded to what they compute.
        """
        filled = rows + -rows % self.rows_multiple
        return (rows_computed(filled) if self._model.device.type == "cpu" else filled) - rows

    def _forward(self, parts: Sequence[Prompt | Nodes], ids: Tensor, fill: int, keep: int = 0) -> Tensor:
        """Reads ids [1, rows]: log-probs float32 [keep, V] after the last `keep` of them, of all where that is 0."""
        shared_pass = Pass(parts, fill, ids.device)
        out = self._model(
            input_ids=ids,
            position_ids=shared_pass.positions,
            attention_mask=shared_pass.no_mask,
            use_cache=False,
            return_dict=True,
            logits_to_keep=keep,
            shared_pass=shared_pass,
        )
        return _log_probs(out.logits[0].float())


def _log_probs(logits: Tensor) -> Tensor:
    """float32 [R, V], on the CPU in the memory of the logits, by a few rows at a time: a second such array would be
    the largest thing that a pass holds. The bits are the same."""
    if logits.device.type != "cpu":
        return logits.log_softmax(dim=-1)
    for rows in logits.split(_ROWS_AT_A_TIME):
        rows.copy_(rows.log_softmax(dim=-1))
    return logits
