"""Small random models of the library's architectures, with and without prefix sharing."""

from __future__ import annotations

from collections.abc import Callable

import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    CohereConfig,
    FalconConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GptOssConfig,
    JambaConfig,
    Lfm2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    MptConfig,
    OPTConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    StableLmConfig,
)

V = 61
GROUPED = {
    "vocab_size": V,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "eos_token_id": 60,
    "bos_token_id": 0,
}
ENDS = {"vocab_size": V, "bos_token_id": 0, "eos_token_id": 60}


def make_model(config: PreTrainedConfig) -> PreTrainedModel:
    """The same weights on every call."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def gpt2_of(**changes: object) -> PreTrainedModel:
    sizes = {"n_positions": 48, "n_embd": 24, "n_layer": 2, "n_head": 2}
    return make_model(GPT2Config(**{**sizes, **ENDS, **changes}))


def llama_of(**changes: object) -> PreTrainedModel:
    return make_model(LlamaConfig(**{**GROUPED, **changes}))


def neox_of(width: int, inner: int, heads: int = 4) -> PreTrainedModel:
    sizes = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": 2, "num_attention_heads": heads}
    return make_model(GPTNeoXConfig(**ENDS, **sizes))


def mistral_of(length: int | None) -> PreTrainedModel:
    return make_model(MistralConfig(**GROUPED, sliding_window=length))


def bloom_of() -> PreTrainedModel:
    return make_model(BloomConfig(**ENDS, hidden_size=24, n_layer=2, n_head=2))


def falcon_of(**changes: object) -> PreTrainedModel:
    """With linear biases in place of rotary positions."""
    return make_model(FalconConfig(**{**GROUPED, "alibi": True, "new_decoder_architecture": False, **changes}))


def stablelm_of(**changes: object) -> PreTrainedModel:
    """Its attention cannot be exchanged."""
    return make_model(StableLmConfig(**{**GROUPED, **changes}))


def gemma2_of(**changes: object) -> PreTrainedModel:
    """With eager attention: the fused one of some releases ignores the cap."""
    sizes = {**GROUPED, "head_dim": 8, "sliding_window": 5, "query_pre_attn_scalar": 8, "pad_token_id": 0}
    own = {"attn_logit_softcapping": 0.02, "attn_implementation": "eager"}
    return make_model(Gemma2Config(**{**sizes, **own, **changes}))


def gpt_oss_of(**changes: object) -> PreTrainedModel:
    """Sinks are near 0, as other weights, and change every row."""
    layers = ["full_attention", "sliding_attention"]
    sizes = {**GROUPED, "head_dim": 8, "sliding_window": 4, "layer_types": layers, "pad_token_id": 0}
    return make_model(GptOssConfig(**{**sizes, "num_local_experts": 3, "num_experts_per_tok": 2, **changes}))


SHARED: dict[str, Callable[[], PreTrainedModel]] = {
    "gpt2": gpt2_of,
    "gpt2 with eager attention": lambda: gpt2_of(attn_implementation="eager"),
    "gpt2, scaled by layer": lambda: gpt2_of(scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False),
    "llama, grouped keys": llama_of,
    "llama, one key for all": lambda: llama_of(num_key_value_heads=1),
    "llama, large": lambda: llama_of(hidden_size=256),
    "mistral, no window": lambda: mistral_of(None),
    "mistral, a window of 5": lambda: mistral_of(5),
    "mistral, a long window": lambda: mistral_of(4096),
    "gemma3, windows in some layers": lambda: make_model(
        Gemma3TextConfig(
            **GROUPED, head_dim=8, sliding_window=4, layer_types=["full_attention", "sliding_attention"], pad_token_id=0
        )
    ),
    "gemma2, capped scores": gemma2_of,
    "gpt-oss, sinks": gpt_oss_of,
    "bloom, biases by distance": bloom_of,
    "mpt, biases by distance, clipped": lambda: make_model(
        MptConfig(
            **ENDS, d_model=24, n_heads=6, n_layers=2, max_seq_len=1200,
            attn_config={"clip_qkv": 0.05, "softmax_scale": 0.7},
        )
    ),
    "falcon, biases, one key for all": lambda: falcon_of(multi_query=True),
    "falcon, biases, a key for each head": lambda: falcon_of(multi_query=False),
    "falcon, rotary, grouped keys": lambda: falcon_of(alibi=False, new_decoder_architecture=True, num_kv_heads=2),
    "qwen3, normed keys": lambda: make_model(Qwen3Config(**GROUPED, head_dim=10)),
    "cohere, scaled logits": lambda: make_model(CohereConfig(**GROUPED)),
    "neox": lambda: neox_of(24, 32, heads=2),
    "opt": lambda: make_model(
        OPTConfig(
            **ENDS, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, ffn_dim=32, word_embed_proj_dim=24
        )
    ),
    "mixtral, experts": lambda: make_model(MixtralConfig(**GROUPED, num_local_experts=3)),
}
ROPE_BY_LENGTH = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
PLAIN: dict[str, tuple[Callable[[], PreTrainedModel], str]] = {
    "llama, positions by length": (
        lambda: llama_of(rope_parameters=ROPE_BY_LENGTH),
        "longest row",
    ),
    "lfm2, convolutions": (
        lambda: make_model(Lfm2Config(**GROUPED, layer_types=["conv", "full_attention"])),
        "more than keys",
    ),
    "jamba, states": (
        lambda: make_model(
            JambaConfig(
                **GROUPED,
                pad_token_id=0,
                attn_layer_period=2,
                attn_layer_offset=1,
                num_experts=1,
                mamba_dt_rank=4,
                initializer_range=0.3,
            )
        ),
        "cannot be exchanged",
    ),
    "stablelm, options lost on the way": (
        stablelm_of,
        "cannot be exchanged",
    ),
}
ODD: dict[str, Callable[[], PreTrainedModel]] = {  # what the processor takes at a time does not divide their rows
    "llama, 37": lambda: llama_of(intermediate_size=37),
    "neox, 530": lambda: neox_of(200, 530),
}
