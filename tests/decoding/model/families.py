"""Model families of transformers, each as a tiny random model.

    python -m tests.decoding.model.families

writes their table into `docs/models.md`.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from decoding.model import HuggingFaceModel
from tests.decoding.random_models import ENDS, GROUPED

PAGE = Path(__file__).parents[3] / "docs/models.md"
BEGIN, END = "<!-- families: written by python -m tests.decoding.model.families -->", "<!-- end of families -->"
_HEADS = {**GROUPED, "pad_token_id": 0, "head_dim": 8}
_WINDOWS = {**_HEADS, "sliding_window": 4, "layer_types": ["full_attention", "sliding_attention"]}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
_ROUTED = {**_EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
_LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 6}
_DEEPSEEK = {**GROUPED, **_ROUTED, **_LATENT, "num_key_value_heads": 4}
_STATES = {"mamba_n_heads": 6, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 1}
_RECURRENT = {**ENDS, "hidden_size": 24, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 4}
_LINEAR = {f"linear_{name}": 2 for name in ("num_key_heads", "num_value_heads")}
_LINEAR |= {f"linear_{name}_head_dim": 8 for name in ("key", "value")}
_GPT = {**ENDS, "n_positions": 48, "n_embd": 24, "n_layer": 2, "n_head": 2}

FAMILIES: dict[str, dict[str, Any]] = {
    "apertus": GROUPED,
    "arcee": _HEADS,
    "biogpt": GROUPED,
    "bloom": {**ENDS, "hidden_size": 24, "n_layer": 2, "n_head": 2},
    "codegen": {**_GPT, "n_embd": 32, "n_head": 4, "rotary_dim": 4},
    "cohere": GROUPED,
    "cohere2": {**_HEADS, "sliding_window": 4},
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "ernie4_5": _HEADS,
    "exaone4": _WINDOWS,
    "falcon": {**GROUPED, "alibi": False, "new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon_mamba": _RECURRENT,
    "gemma": _HEADS,
    "gemma2": {**_HEADS, "sliding_window": 5, "query_pre_attn_scalar": 8},
    "gemma3_text": _WINDOWS,
    "glm": _HEADS,
    "glm4": _HEADS,
    "glm4_moe": {**_HEADS, **_ROUTED},
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gpt_neo": {
        **ENDS, "max_position_embeddings": 48, "hidden_size": 24, "num_layers": 2, "num_heads": 2,
        "attention_types": [[["global", "local"], 1]], "window_size": 4,
    },
    "gpt_neox": GROUPED,
    "gpt_oss": {**_WINDOWS, "num_local_experts": 3, "num_experts_per_tok": 2},
    "gptj": {**_GPT, "rotary_dim": 4},
    "granite": GROUPED,
    "granitemoe": {**GROUPED, "num_local_experts": 3},
    "granitemoehybrid": {
        **GROUPED, **_STATES, "num_local_experts": 2, "layer_types": ["mamba", "attention"],
        "shared_intermediate_size": 16,
    },
    "hunyuan_v1_dense": _HEADS,
    "jamba": {
        **GROUPED, "pad_token_id": 0, "attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 1,
        "mamba_dt_rank": 4,
    },
    "lfm2": {**GROUPED, "layer_types": ["conv", "full_attention"]},
    "llama": GROUPED,
    "mamba": _RECURRENT,
    "mamba2": {**_RECURRENT, "num_heads": 6, "head_dim": 8, "n_groups": 1},
    "ministral": {**_HEADS, "sliding_window": 5},
    "mistral": {**GROUPED, "sliding_window": 5},
    "mixtral": {**GROUPED, "num_local_experts": 3},
    "mpt": {**ENDS, "d_model": 24, "n_heads": 2, "n_layers": 2, "max_seq_len": 64},
    "nemotron": GROUPED,
    "olmo": {**GROUPED, "pad_token_id": 0},
    "olmo2": {**GROUPED, "pad_token_id": 0},
    "olmo3": {**_WINDOWS},
    "opt": {**GROUPED, "ffn_dim": 32, "word_embed_proj_dim": 24},
    "phi3": {**GROUPED, "pad_token_id": 0},
    "qwen2": GROUPED,
    "qwen2_moe": {**GROUPED, **_EXPERTS, "num_experts": 3, "shared_expert_intermediate_size": 16},
    "qwen3": _HEADS,
    "qwen3_moe": {**_HEADS, **_EXPERTS, "num_experts": 3},
    "qwen3_next": {
        **_HEADS, **_EXPERTS, **_LINEAR, "num_experts": 3, "shared_expert_intermediate_size": 16,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "seed_oss": _HEADS,
    "smollm3": {**GROUPED, "pad_token_id": 0, "no_rope_layers": [1, 0]},
    "stablelm": GROUPED,
    "starcoder2": GROUPED,
    "xglm": {
        **ENDS, "d_model": 24, "ffn_dim": 32, "num_layers": 2, "attention_heads": 2, "max_position_embeddings": 64,
    },
}  # fmt: skip


def family(name: str) -> PreTrainedModel:
    """A tiny model of a family. The same weights on every call."""
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **FAMILIES[name])).eval()


def reading(model: HuggingFaceModel) -> str:
    """How the model is read, as the table says it."""
    if model.prefix_sharing_disabled_reason:
        return "copies: " + model.prefix_sharing_disabled_reason.partition(": ")[2]
    return "shared" if model.rows_independent else "shared, last bits depend on the batch"


def header(release: str) -> str:
    """The first line of the table. It names a release of transformers by two numbers."""
    return f"| family | its beams are read with transformers {'.'.join(release.split('.')[:2])} |"


def table(readings: dict[str, str]) -> str:
    """The table between the marks."""
    rows = [f"| `{name}` | {readings[name]} |" for name in FAMILIES]
    return "\n".join([BEGIN, "", header(version("transformers")), "|---|---|", *rows, "", END])


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    written = table({name: reading(HuggingFaceModel(family(name))) for name in FAMILIES})
    PAGE.write_text(re.sub(f"{BEGIN}.*?{END}", lambda _: written, text, flags=re.DOTALL), encoding="utf-8")
