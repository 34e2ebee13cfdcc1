"""Prefix sharing for models that compute attention in code of their own: Bloom, MPT and Falcon.

The library offers no exchange for it, as it does for the others (`tree_attention`). So the `forward` of each such layer
is replaced. Within a pass it projects its rows as the layer does, and the pass attends. Without one it is the layer's
own. Bloom, MPT and some Falcons have linear biases (ALiBi) in place of positions in their queries and keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.models.bloom.modeling_bloom import BloomAttention, BloomModel
from transformers.models.falcon import modeling_falcon as falcon
from transformers.models.mpt.modeling_mpt import MptAttention, MptModel

from decoding.model.tree_attention import Pass, PrefixSharingUnsupported
from decoding.model.weighing import PositionBias, Weighing

_pass: ContextVar[Pass | None] = ContextVar("pass", default=None)


@contextlib.contextmanager
def attend_through(shared_pass: Pass) -> Iterator[None]:
    """Let the replaced layers attend through this pass in the body."""
    token = _pass.set(shared_pass)
    try:
        yield
    finally:
        _pass.reset(token)


def has_own_attention(model: nn.Module) -> bool:
    """Whether layers of a model can be replaced."""
    return any(type(module) in _FAMILIES for module in model.modules())


def replace_attention(model: nn.Module, implementation: str) -> None:
    """Replace the attention of all layers. A second time changes nothing.

    implementation  the library's name of the attention that the model has

    Raises PrefixSharingUnsupported for a model that the library reads in another way.
    """
    for module in model.modules():
        if type(module) in _FAMILIES:
            family = _FAMILIES[type(module)]
            weighing = family.weigh(module, implementation)
            for layer in module.modules():
                if type(layer) is family.layer and not isinstance(layer.forward, _Attention):
                    layer.forward = _Attention(layer, family.attend, weighing)


def restore_attention(model: nn.Module) -> None:
    """Give the layers their own attention again."""
    for layer in model.modules():
        if isinstance(layer.forward, _Attention):
            layer.forward = layer.forward.own


class _Attention:
    """What a layer's `forward` is replaced by."""

    def __init__(self, layer: Any, attend: Callable[..., Tensor], weighing: Weighing) -> None:
        self.own = layer.forward
        self._layer, self._attend, self._weighing = layer, attend, weighing

    def __call__(self, hidden_states: Tensor, *inputs: Any, **options: Any) -> tuple[Tensor, Any]:
        shared_pass = _pass.get()
        if shared_pass is None:
            result: tuple[Tensor, Any] = self.own(hidden_states, *inputs, **options)
            return result

        def attend(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            """As `Pass.attend`, with the output [1, rows, heads * width]."""
            number = self._layer.layer_idx
            return shared_pass.attend(number, query, keys, values, weighing=self._weighing).flatten(1)[None]

        return self._attend(self._layer, attend, hidden_states, *inputs, **options), None


class _Family(NamedTuple):
    """A family of models.

    layer   its layers of attention
    weigh   how the layers of a model with some implementation weigh tokens
    attend  the output [1, rows, hidden] of a layer, for a function that attends, and the inputs of its `forward`
    """

    layer: type[nn.Module]
    weigh: Callable[[Any, str], Weighing]
    attend: Callable[..., Tensor]


def _split(packed: Tensor, layer: Any, groups: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [heads, rows, width], keys and values [groups, rows, width].

    Packed are the queries of each group, its key and its value: [1, rows, (heads + 2 * groups) * width].
    """
    parts = packed.view(packed.shape[1], groups, -1, layer.head_dim)
    query, keys, values = parts[:, :, :-2].flatten(1, 2), parts[:, :, -2], parts[:, :, -1]
    return query.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1)


def _attend_bloom(layer: Any, attend: Callable[..., Tensor], rows: Tensor, residual: Tensor, **_: Any) -> Tensor:
    out: Tensor = layer.dense(attend(*_split(layer.query_key_value(rows), layer, layer.num_heads)))
    return residual + out


def _weigh_bloom(model: Any, _: str) -> Weighing:
    # The library adds bfloat16 biases that grow with the position: past some hundred tokens, steps of whole nats. It
    # checks answers, and would reject those of exact biases.
    if model.dtype == torch.bfloat16:
        raise PrefixSharingUnsupported("its own attention loses linear biases in bfloat16")

    def biases(count: int) -> Tensor:
        mask = torch.ones(1, count, dtype=torch.int64, device=model.device)
        table: Tensor = model.build_alibi_tensor(mask, model.num_heads, torch.float32)
        return table[:, 0]

    return Weighing(position_bias=PositionBias(biases))


def _attend_mpt(layer: Any, attend: Callable[..., Tensor], rows: Tensor, **_: Any) -> Tensor:
    packed = layer.Wqkv(rows)
    if layer.clip_qkv:
        packed = packed.clamp(min=-layer.clip_qkv, max=layer.clip_qkv)
    parts = packed.view(packed.shape[1], 3, layer.n_heads, layer.head_dim)
    out: Tensor = layer.out_proj(attend(*parts.permute(1, 2, 0, 3)))
    return out


def _weigh_mpt(model: Any, _: str) -> Weighing:
    def biases(count: int) -> Tensor:
        table: Tensor = model.build_mpt_alibi_tensor(model.num_heads, count, device=model.device)
        return table[:, 0]

    return Weighing(scaling=model.config.attn_config.softmax_scale, position_bias=PositionBias(biases))


def _attend_falcon(
    layer: Any,
    attend: Callable[..., Tensor],
    rows: Tensor,
    *,
    alibi: Tensor | None,
    position_embeddings: tuple[Tensor, Tensor],
    **_: Any,
) -> Tensor:
    query, keys, values = _split(layer.query_key_value(rows), layer, layer.num_kv_heads)
    if alibi is None:
        query, keys = (each[0] for each in falcon.apply_rotary_pos_emb(query[None], keys[None], *position_embeddings))
    out: Tensor = layer.dense(attend(query, keys, values))
    return out


def _weigh_falcon(model: Any, implementation: str) -> Weighing:
    if not model.use_alibi:
        return Weighing()
    if implementation != "sdpa":
        raise PrefixSharingUnsupported("its eager attention adds linear biases twice")
    scaling = (model.config.hidden_size // model.num_heads) ** -0.5

    def biases(count: int) -> Tensor:
        # The library rounds them to bfloat16. This scales them, as it does, together with the scores.
        mask = torch.ones(1, count, dtype=torch.int64, device=model.device)
        table: Tensor = falcon.build_alibi_tensor(mask, model.num_heads, torch.float32)
        scaled: Tensor = table[:, 0] * scaling
        return scaled

    return Weighing(position_bias=PositionBias(biases))


_FAMILIES: Mapping[type[nn.Module], _Family] = {
    BloomModel: _Family(BloomAttention, _weigh_bloom, _attend_bloom),
    MptModel: _Family(MptAttention, _weigh_mpt, _attend_mpt),
    falcon.FalconModel: _Family(falcon.FalconAttention, _weigh_falcon, _attend_falcon),
}
