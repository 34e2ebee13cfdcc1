"""Compares constrained search with transformers' unconstrained decoding, for models of real shapes.

    python -m benchmarks.decoding.shapes [--device cuda] [--layers 4] [--shapes llama-3 gpt2] [--beams 1 4 16 64]

The models have random weights and the published configurations, with fewer layers if requested. The constraint has
five keywords with inflections; the vocabulary is the nearest real one, padded to the model's. Ours and transformers'
`generate` take turns: with several beams its beam search, with one its greedy decoding. Neither may end before its
budget does. Writes results/shapes_DEVICE.json and RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from benchmarks.compiler.engines import read_vocabulary
from benchmarks.decoding.gpt2 import SEED, LateEndingModel, constraint_json
from benchmarks.report import write_run
from benchmarks.runs import Row, parser_of, tokenizer_path
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from decoding.heuristic import unigram_prior
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import generate

# By name: the vocabulary, and the configuration as its maker publishes it.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("gpt2", {"model_type": "gpt2"}),
    "llama-3.2-1b": ("cl100k_base", {
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "max_position_embeddings": 131_072, "tie_word_embeddings": True,
    }),
    "llama-3.1-8b": ("cl100k_base", {
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
    }),
    "qwen3-0.6b": ("cl100k_base", {
        "model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40_960, "tie_word_embeddings": True,
    }),
    "gemma-3-1b": ("o200k_base", {
        "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "sliding_window": 512, "max_position_embeddings": 32_768,
    }),
}  # fmt: skip
PROMPTS = (16, 512)
BEAMS = (1, 4, 16, 64)


def build_model(shape: str, layers: int | None, device: str, dtype: str) -> Any:
    """A model with random weights. Its EOS is the vocabulary's."""
    options = dict(SHAPES[shape][1])
    if layers is not None:
        options["num_hidden_layers"] = min(layers, options.get("num_hidden_layers", layers))
    config = AutoConfig.for_model(**options)
    config.bos_token_id = config.pad_token_id = None
    torch.manual_seed(SEED)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval().requires_grad_(False)


def wait_for(device: torch.device) -> None:
    """Return once the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def shape_rows(shape: str, args: argparse.Namespace) -> Iterator[Row]:
    """One row for each prompt length, number of beams and turn."""
    model = build_model(shape, args.layers, args.device, args.dtype)
    path = tokenizer_path(args.shared, SHAPES[shape][0])
    eos = read_vocabulary(path).eos_ids[0]
    model.config.eos_token_id = model.generation_config.eos_token_id = model.generation_config.pad_token_id = eos
    adapter = LateEndingModel(model)
    vocabulary = read_vocabulary(path, adapter.vocab_size)
    automaton = compile_spec(spec_from_json(constraint_json(args.shared)), vocabulary).tokens
    constraint = PreparedConstraint.prepare(automaton, adapter.device, prior=unigram_prior(adapter))
    about = {
        "shape": shape, "layers": model.config.num_hidden_layers, "vocabulary": adapter.vocab_size,
        "dtype": args.dtype, "shared_prefix": not adapter.prefix_sharing_disabled_reason,
    }  # fmt: skip

    def ours(prompt: list[int], beams: int, tokens: int) -> None:
        generate(adapter, prompt, constraint, SearchOptions(tokens, beams=beams))

    def theirs(prompt: list[int], beams: int, tokens: int) -> None:
        ids = torch.tensor([prompt], device=adapter.device)
        model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=beams, do_sample=False, max_new_tokens=tokens,
            min_new_tokens=tokens, pad_token_id=eos,
        )  # fmt: skip

    for prompt_tokens in args.prompts:
        prompt = torch.randint(0, vocabulary.size // 2, (prompt_tokens,)).tolist()
        for beams in args.beams:
            for turn in range(-1, args.turns):
                row: Row = about | {"prompt": prompt_tokens, "beams": beams, "turn": turn}
                for name, run in (("ours", ours), ("transformers", theirs)):
                    wait_for(adapter.device)
                    start = time.perf_counter()
                    run(prompt, beams, args.tokens)
                    wait_for(adapter.device)
                    row[name] = time.perf_counter() - start
                if turn >= 0:  # the first turn warms up
                    print(json.dumps(row), flush=True)
                    yield row


@torch.inference_mode()
def main() -> None:
    parser = parser_of(__doc__, threads=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--layers", type=int, help="the most layers; default: all")
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--prompts", type=int, nargs="*", default=PROMPTS)
    parser.add_argument("--beams", type=int, nargs="*", default=BEAMS)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--keep", action="store_true", help="write no file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    rows = [row for shape in args.shapes for row in shape_rows(shape, args)]
    if not args.keep:
        device = torch.cuda.get_device_name() if args.device.startswith("cuda") else ""
        about = {"threads": args.threads, "device": device, "tokens": args.tokens}
        write_run(f"shapes_{args.device}", about | {"rows": rows})


if __name__ == "__main__":
    main()
