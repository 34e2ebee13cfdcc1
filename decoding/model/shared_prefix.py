"""Reads all generations in one pass, with prefix sharing. A prompt's keys and values are stored once for all its rows.

It serves models whose layers are softmax attention over all earlier tokens, or over the last of them in a window;
`compatibility` decides which those are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from decoding.model.adapters import apply_adapters
from decoding.model.chunked_feed import ChunkedFeed, piece_bytes, piece_rows
from decoding.model.cpu_layers import OneDnnLinear, activation_bytes, layer_widths, rows_computed
from decoding.model.own_attention import attend_through, has_own_attention
from decoding.model.prefix_tree import PrefixTree, slots_at_most
from decoding.model.prompt_cache import PromptCache, chunk_keys
from decoding.model.protocol import Scores, StepInput
from decoding.model.tree_attention import Nodes, Pass, Prompt

_CHUNK_TOKENS = {"cpu": 64, "cuda": 512}  # of a prompt, read in one pass; prompts share whole chunks
_ROWS_TRIED = {"cpu": 96, "cuda": 768}  # the largest pass of the trial
_SCORE_BYTES = 16  # of a score that is written out, with its cap and its softmax, at most
_MULTIPLES = (1, 2, 4, 8, 16, 32, 64)
_HEAD_ROWS_TRIED = 24
_HEAD_ROWS_MIN = 2  # a product of a single row is another kernel of oneDNN, with other bits
_VECTOR = 32  # elements that the CPU's elementwise loops take at once; they may round the remainder differently


class SharedReader:
    """Reads generations as prefix trees.

    The model's attention must be a `tree_attention.shared_prefix`, or replaced by `own_attention.replace_attention`.

    rows_multiple     each pass has a multiple of this many rows, padded where necessary
    rows_independent  whether a row's log-probs are then the same, to the last bit, whatever other rows the pass has.
                      Matrix products choose their order of summation by the number of rows; on the CPU there is a
                      multiple for which it never changes.
    scores_padding    whether the language-model head computes padding rows, too. Over a large vocabulary it is most of
                      a pass of few rows, so it leaves them out where its rows do not depend on their number
    chunk_tokens      tokens of a prompt that are read in one pass
    prompt_cache      the first chunks of recent prompts
    """

    def __init__(self, model: PreTrainedModel, *, batch_invariant: bool = True) -> None:
        """`batch_invariant`: whether `rows_independent` is to hold where it can.

        Without it, passes of a few rows are faster.
        """
        self._model, self._batch_invariant = model, batch_invariant
        config = model.config.get_text_config()
        self._vocab_size = int(config.vocab_size)
        self._window = getattr(config, "sliding_window", None)
        self._has_own_attention = has_own_attention(model)
        self._heads, self._group, self._fills_heads = 1, 1, False  # as in `Pass`; set by the first one
        self.rows_multiple = 1
        self.rows_independent = False
        self.scores_padding = True
        self._threads = 0  # for which `rows_multiple` was found
        self._widest_layer = max(layer_widths(model))
        self.chunk_tokens = _CHUNK_TOKENS.get(model.device.type, _CHUNK_TOKENS["cpu"])
        self.prompt_cache = PromptCache()

    def prefill(self, ids: Sequence[int], adapter: str = "") -> tuple[PrefixTree, Tensor]:
        """Read a prompt into a tree. The log-probs after it are float32 [V]."""
        return next(filter(None, self.prefill_chunks(ids, adapter)))

    @torch.inference_mode()
    def prefill_chunks(self, ids: Sequence[int], adapter: str = "") -> Iterator[tuple[PrefixTree, Tensor] | None]:
        """The same in steps. Each reads one chunk; None for all but the last."""
        tree, path = PrefixTree(self._model.device, adapter), chunk_keys(ids, self.chunk_tokens, adapter)
        tree.begin(len(ids))
        log_probs = torch.empty(0)  # float32 [V] after the chunk
        for number, key in enumerate(path):
            begin, end = number * self.chunk_tokens, min((number + 1) * self.chunk_tokens, len(ids))
            found = self.prompt_cache.load(tree, key, begin)
            if found is not None:
                log_probs = found
            else:
                # Each chunk has its pass to itself, so that its bits do not depend on what was found.
                read = torch.tensor([list(ids[begin:end])], device=self._model.device)
                log_probs = self._forward([Prompt(tree, begin, end)], read, fill=0, keep=1)[0]
                self.prompt_cache.keep(tree, path[: number + 1], begin=begin, end=end, log_probs=log_probs)
                if end < len(ids):
                    yield None
        self.prompt_cache.touch(path)
        yield tree, log_probs

    @torch.inference_mode()
    def step(self, feeds: Sequence[StepInput[PrefixTree]]) -> list[Scores]:
        """Read all feeds in one pass. More passes serve only the rest of feeds of many tokens a row."""
        if self._threads != torch.get_num_threads():  # matrix products are split by threads
            self.find_multiple()
        # A step is atomic: where it raises, all trees are as before, and the engine may repeat it in smaller passes.
        checkpoints = [feed.session.checkpoint() for feed in feeds]
        try:
            chunked = list[tuple[PrefixTree, ChunkedFeed]]()
            for feed in feeds:
                if feed.undo:
                    feed.session.undo(feed.undo)
                keeps_inner = feed.undo is not None
                chunked.append((
                    feed.session, ChunkedFeed(feed.parents, feed.tokens, self._vocab_size, keeps_inner=keeps_inner)
                ))
            pending = chunked
            while pending:
                self._read(pending)
                pending = [(tree, feed) for tree, feed in pending if not feed.done]
            return [feed.scores() for _, feed in chunked]
        except BaseException:
            for feed, checkpoint in zip(feeds, checkpoints, strict=True):
                feed.session.rollback(checkpoint)
            raise

    def bytes_for(self, prompt_tokens: int, rows: int, max_tokens: int, scratch_bytes: int) -> int:
        """The memory of the prompt, all slots and the largest pass.

        The prompt is counted once, with a slot for every token of every row.
        """
        # Rows share nodes, so the tree mostly holds far fewer; the bound holds where no two rows share any.
        layers, token = self._layers_and_token_bytes
        number = self._model.dtype.itemsize
        slots, fed = slots_at_most(rows, rows * max_tokens), piece_rows(rows, max_tokens)
        tree_bytes = (prompt_tokens + slots) * token + 2 * (rows + 8) * slots  # masks, positions: now, and before
        growing = tree_bytes // layers  # one layer is in memory twice while it grows
        chunk = min(prompt_tokens, self.chunk_tokens)
        activations = activation_bytes(self._model, max(chunk, fed), self._widest_layer)
        # The bias, and what it is made of; within a window once more.
        is_cut = self._window is not None and self._window < prompt_tokens + max_tokens
        sees = fed * (prompt_tokens + slots) * ((1 + self._group) * number + 2) * (1 + is_cut)
        scored = self._heads * _SCORE_BYTES if self._fills_heads else 0  # for each pair
        sees += fed * (prompt_tokens + slots) * scored
        if chunk < prompt_tokens or is_cut or self._fills_heads:  # the library may write the scores of each head, too
            sees = max(sees, chunk * prompt_tokens * (4 + (2 + self._group + self._heads) * number + scored))
        piece = piece_bytes(rows, max_tokens, self._vocab_size)
        # The log-probs of rows that fill a pass are in memory until the step ends; the logits were, too, before them.
        padding = self._fill(fed) * self._vocab_size
        passing = activations + sees + 2 * piece + padding * number
        return tree_bytes + growing + piece + 4 * padding + max(passing, scratch_bytes)

    @functools.cached_property
    def _layers_and_token_bytes(self) -> tuple[int, int]:
        tree, _ = self.prefill([0])
        return tree.layers, tree.nbytes

    @torch.inference_mode()
    def find_multiple(self) -> None:
        """Sets `rows_multiple` and `rows_independent` by trial, for the present number of threads."""
        self.rows_multiple, self.rows_independent, self._threads = 1, False, 0  # a trial that fails is repeated
        threads, self.scores_padding = torch.get_num_threads(), self._batch_invariant
        if not self._batch_invariant:
            self._threads = threads
            return

        def read(ids: Tensor, keep: int | Tensor = 0) -> Tensor:
            return self._forward([], ids, fill=ids.shape[1], keep=keep)

        multiple = _independent_multiple(self._model, read, threads)
        if multiple is not None:
            self.rows_multiple, self.rows_independent = multiple, True
            head = self._model.get_output_embeddings()
            # With a remainder in an elementwise loop over the logits, chance would decide (`_multiples`).
            even = self._vocab_size % (_VECTOR * threads) == 0
            self.scores_padding = not (
                even and type(head) is OneDnnLinear and _head_rows_independent(self._model, read)
            )
        self._threads = threads

    def _read(self, pending: Sequence[tuple[PrefixTree, ChunkedFeed]]) -> None:
        """One pass over the next chunk of each feed."""
        parts, chunks, rows = list[Nodes](), list[Tensor](), 0
        for tree, feed in pending:
            parents, tokens = feed.piece()
            parts.append(Nodes(tree, parents, tokens.shape[1], self._model.dtype))
            chunks.append(tokens)
            rows += tokens.numel()
        fill = self._fill(rows)
        ids = torch.cat([*map(torch.flatten, chunks), chunks[0].new_zeros(fill)])
        keep = 0 if self.scores_padding or not fill else torch.arange(max(rows, _HEAD_ROWS_MIN))
        log_probs = self._forward(parts, ids[None], fill, keep)  # [rows, V], and some padding
        begin = 0
        for (_, feed), tokens in zip(pending, chunks, strict=True):
            end = begin + tokens.numel()
            feed.take(log_probs[begin:end].view(*tokens.shape, -1))
            begin = end

    def _fill(self, rows: int) -> int:
        """The number of padding rows for a pass over `rows` rows.

        On the CPU the layers of oneDNN round the number up themselves, so the pass is padded to what they compute.
        """
        filled = rows + -rows % self.rows_multiple
        return (rows_computed(filled) if self._model.device.type == "cpu" else filled) - rows

    def _forward(self, parts: Sequence[Prompt | Nodes], ids: Tensor, fill: int, keep: int | Tensor = 0) -> Tensor:
        """Read ids [1, rows], and return log-probs, float32 [N, V].

        keep  after which of them: the last N, or those at positions int64 [N]; 0: all
        """
        shared_pass = Pass(parts, fill, ids.device)
        options: dict[str, Any] = {"position_ids": shared_pass.positions}
        if not self._has_own_attention:
            options |= {"attention_mask": shared_pass.no_mask, "shared_pass": shared_pass}
        adapters = [*((part.adapter, part.rows) for part in parts), ("", fill)]
        with apply_adapters(adapters), attend_through(shared_pass):
            out = self._model(input_ids=ids, use_cache=False, return_dict=True, logits_to_keep=keep, **options)
        self._heads, self._group = shared_pass.heads, shared_pass.group
        self._fills_heads = shared_pass.fills_heads
        return _log_probs(out.logits[0].float())


def _log_probs(logits: Tensor) -> Tensor:
    """The log-probs of logits: float32 [R, V]. On the CPU they replace the logits in memory.

    A second such array would be the largest of a pass. The bits are the same.
    """
    return torch.log_softmax(logits, dim=-1, out=logits if logits.device.type == "cpu" else None)


# --- batch sizes at which results do not depend on the batch --------------------------------------------------------


def _independent_multiple(model: PreTrainedModel, read: Callable[[Tensor], Tensor], threads: int) -> int | None:
    """The least multiple of rows that makes results independent of the batch. None where no such multiple was found.

    read     the log-probs float32 [rows, V] after each of int64 [1, rows] ids, each of which sees itself alone
    threads  that share a matrix product

    Matrix products choose their order of summation by the number of rows, so a row's log-probs may differ in the last
    bit from one batch to another. The multiple is found by trial with the model's own matrices, since it depends on
    their shapes, the library and the number of threads. A trial compares the bits of a row for different numbers of
    other rows.
    """
    # How many rows an expert reads depends on which expert the other rows choose: no padding can fix that. Releases of
    # the library differ in whether a layer's name says what it is, or its class alone.
    if any("expert" in f"{name} {type(layer).__name__}".lower() for name, layer in model.named_modules()):
        return None
    most = _ROWS_TRIED.get(model.device.type, 96)
    ids = _ids_tried(model, most)
    expected = read(ids)
    for multiple in _multiples(model, threads):
        # Small numbers, where libraries switch between kernels, and one large number.
        sizes = {multiple * times for times in (1, 2, 3, 5, 7)} | {most // 2 - most // 2 % multiple}
        if all(_same_bits(read, ids, expected, rows) for rows in sorted(sizes) if 0 < rows < most):
            return multiple
    return None


def _head_rows_independent(model: PreTrainedModel, read: Callable[[Tensor, int | Tensor], Tensor]) -> bool:
    """Whether rows keep their log-probs if the head leaves others out."""
    ids = _ids_tried(model, _HEAD_ROWS_TRIED)
    expected, sizes = read(ids, 0), (_HEAD_ROWS_MIN, 3, 5, 7, 12, _HEAD_ROWS_TRIED - 1)
    return all(torch.equal(read(ids, torch.arange(rows)), expected[:rows]) for rows in sizes)


def _ids_tried(model: PreTrainedModel, rows: int) -> Tensor:
    """The ids of a pass of a trial: int64 [1, rows]."""
    return torch.arange(rows, device=model.device)[None] * 7919 % int(model.config.get_text_config().vocab_size)


def _multiples(model: PreTrainedModel, threads: int) -> list[int]:
    """The multiples to be tried."""
    # If possible only those that leave no remainder in any thread's part of an elementwise loop. A remainder differs by
    # the number of rows, and whether its last bit does is chance: no trial would find it reliably.
    widths = layer_widths(model) if model.device.type == "cpu" else set()
    for unit in (_VECTOR * threads, _VECTOR):
        if even := [count for count in _MULTIPLES if all(count * width % unit == 0 for width in widths)]:
            return even
    return list(_MULTIPLES)


def _same_bits(read: Callable[[Tensor], Tensor], ids: Tensor, expected: Tensor, rows: int) -> bool:
    last = ids.shape[1] - rows - 1  # other rows than the first, at other positions
    return all(torch.equal(read(ids[:, at : at + rows]), expected[at : at + rows]) for at in (0, last))
