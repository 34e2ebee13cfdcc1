"""How a layer weighs the tokens that a row sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

_POSITIONS_MIN = 1024  # of a table of biases


class PositionBias:
    """Linear biases (ALiBi): what heads add to scores by a token's position.

    The softmax does not change where all scores of a row move, so only differences of positions matter (Press et al.
    2022). One object serves all layers of a model.
    """

    def __init__(self, build: Callable[[int], Tensor]) -> None:
        """`build` gives the biases of the first n positions, float32 [heads, n]. They may all have moved."""
        self._build = build
        self._table = build(_POSITIONS_MIN)

    def between(self, rows: Tensor, tokens: Tensor, *, heads: int, length: int) -> Tensor:
        """The biases of tokens, less those of the rows.

        They are float32 [H, group * n, K]. Near tokens, which weigh most, are then exact in half precision, too.

        rows    int64 [n]  positions
        tokens  int64 [K]  positions
        heads   H, of the keys; those of the queries are H * group
        length  greater than all positions
        """
        table = self._table
        if table.shape[1] < length:
            table = self._table = self._build(2 * length)
        biases = table[:, None, tokens] - table[:, rows, None]
        return biases.view(heads, -1, len(tokens))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Weighing:
    """How a layer weighs the tokens that a row sees.

    scaling  factor of the scores, the products of queries and keys; None: 1 / sqrt(width)
    window   a row sees the last `window` tokens, itself among them; None: all
    cap      a score s becomes cap * tanh(s / cap); None: it stays
    sinks    float [heads]  the score of a further key of each head, whose value is zero; None: there is none
    position_bias  added to the scaled scores; None: nothing is
    """

    scaling: float | None = None
    window: int | None = None
    cap: float | None = None
    sinks: Tensor | None = None
    position_bias: PositionBias | None = None

    @property
    def writes_scores(self) -> bool:
        """Whether the scores of all pairs are written out. Without cap and sinks torch fuses them with the rest."""
        return self.cap is not None or self.sinks is not None

    @property
    def fills_heads(self) -> bool:
        """Whether heads have their own numbers for pairs: scores, or a bias."""
        return self.writes_scores or self.position_bias is not None

    def sees_all(self, tokens: int) -> bool:
        """Whether rows see all before them in texts of this length."""
        return self.window is None or self.window >= tokens

    def attend(self, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """The attention output, [H, group * n, width].

        query         [H, group * n, width]  the heads of a group in turn
        keys, values  [H, K, width]
        bias          [group * n, K], or [H, group * n, K]; added to the scores
        """
        if not self.writes_scores:
            return scaled_dot_product_attention(
                query[None], keys[None], values[None], attn_mask=bias, scale=self.scaling
            )[0]
        scores = (query @ keys.transpose(1, 2)).float()
        scores *= query.shape[2] ** -0.5 if self.scaling is None else self.scaling
        if self.cap is not None:
            scores.div_(self.cap).tanh_().mul_(self.cap)
        scores += bias
        if self.sinks is not None:
            heads, rows, _ = scores.shape
            group = len(self.sinks) // heads
            sinks = self.sinks.float().view(heads, group, 1).expand(-1, -1, rows // group).reshape(heads, rows, 1)
            scores = torch.cat([scores, sinks], dim=2)
        return scores.softmax(dim=2)[:, :, : keys.shape[1]].to(values.dtype) @ values
