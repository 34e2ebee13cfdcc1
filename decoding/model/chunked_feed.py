"""Chunked prefill of a feed. Rows that grow by many tokens read a few of them in each pass.

The log-probs of a pass are [rows, tokens, V]. In chunks a forced stretch of 30 tokens over 64 rows holds megabytes of
them, not gigabytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from decoding.model.protocol import Scores

PIECE_BYTES_MAX = 2**25  # log-probs of one piece, unless one token a row is more
PIECE_ROWS_MAX = 2**7  # tokens of one piece, all rows together: to a pass each is a row


class ChunkedFeed:
    """N rows fed m tokens each, in chunks of W tokens. The model has V ids.

    parents    int64 [N]; tokens int64 [N, m], as in `StepInput`
    width_max    W is never more
    keeps_inner  whether the scores have the log-probs after all tokens
    """

    def __init__(
        self, parents: Tensor, tokens: Tensor, vocab_size: int, width_max: int = PIECE_ROWS_MAX, *,
        keeps_inner: bool = False,
    ) -> None:
        self._parents = parents
        self._tokens = tokens
        self._width = max(1, min(PIECE_BYTES_MAX // (4 * vocab_size), PIECE_ROWS_MAX) // len(tokens))
        self._width = min(self._width, width_max)
        self._begin = 0
        self._log_probs = torch.empty(0)  # [N, V] after the last token that was read
        # By piece, [N, W] each: the numbers of `Scores` for the tokens within the feed.
        self._token_log_probs: list[Tensor] = [tokens.new_empty(len(tokens), 0, dtype=torch.float32)]
        self._max_log_probs = list(self._token_log_probs)
        self._inner: list[Tensor] | None = [] if keeps_inner else None  # [N, W, V] each

    @property
    def done(self) -> bool:
        """Whether all tokens are read."""
        return self._begin >= self._tokens.shape[1]

    def piece(self) -> tuple[Tensor, Tensor]:
        """The next chunk. It has the row that each row extends, int64 [N], and its tokens, int64 [N, W]."""
        # Only the first piece branches and reorders rows; later ones extend each row by itself.
        rows = len(self._tokens)
        parents = self._parents if self._begin == 0 else torch.arange(rows, device=self._parents.device)
        return parents, self._tokens[:, self._begin : self._begin + self._width]

    def take(self, log_probs: Tensor) -> None:
        """Add the log-probs after each token of the chunk. They are float32 [N, W, V]."""
        count = log_probs.shape[1]
        following = self._tokens[:, self._begin + 1 : self._begin + 1 + count]
        if following.shape[1]:
            followed_log_probs = log_probs[:, : following.shape[1]]  # no token follows the last one of the feed
            self._token_log_probs.append(followed_log_probs.gather(2, following[:, :, None])[:, :, 0])
            self._max_log_probs.append(followed_log_probs.amax(dim=2))
        if self._inner is not None:
            self._inner.append(log_probs[:, : following.shape[1]])
        self._log_probs = log_probs[:, -1]
        self._begin += count

    def scores(self) -> Scores:
        """The scores of the whole feed."""
        return Scores(
            self._log_probs, torch.cat(self._token_log_probs, dim=1), torch.cat(self._max_log_probs, dim=1),
            None if self._inner is None else torch.cat(self._inner, dim=1),
        )


def piece_bytes(rows: int, tokens: int, vocab_size: int) -> int:
    """The most bytes of log-probs in one chunk. It has `rows` rows with `tokens` tokens each."""
    return max(4 * rows * vocab_size, min(PIECE_BYTES_MAX, 4 * piece_rows(rows, tokens) * vocab_size))


def piece_rows(rows: int, tokens: int) -> int:
    """The most tokens, over all rows, in one chunk. It has `rows` rows with `tokens` tokens each."""
    return max(rows, min(PIECE_ROWS_MAX, rows * tokens))
