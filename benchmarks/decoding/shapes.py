"""Compares steps with and without a constraint for models of real shapes.

    python -m benchmarks.decoding.shapes [--shapes llama-3.2-1b gpt-oss-20b] [--prompts 16 512] [--beams 1 4 16 64]

The models have random weights and published configurations, with their last two layers alone (`--layers`; 0: all). The
vocabulary is the nearest real one, padded to the model's. Search, greedy decoding and sampling take turns with
transformers' own without a constraint, and with the masks of llguidance and XGrammar where these are installed. Writes
results/shapes_DEVICE.json, shape by shape, and RESULTS.md. `--graphs` adds our search with CUDA graphs, on a GPU.
`--profile` prints instead where the steps of a search go.
"""

from __future__ import annotations

import argparse
import copy
import gc
import importlib.util
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import Any, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from benchmarks.compiler.engines import read_vocabulary
from benchmarks.decoding.gpt2 import SEED, constraint_json
from benchmarks.decoding.step_times import (
    PATTERN,
    PEERS,
    Method,
    NewMask,
    Ours,
    StepTimes,
    TimedModel,
    Transformers,
)
from benchmarks.report import write_report
from benchmarks.runs import CLOCKS, RESULTS_DIRECTORY, Row, RowStore, parser_of, tokenizer_path
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.vocab import Vocabulary
from decoding.prepared_constraint import PreparedConstraint
from decoding.tensors import CudaCapture, Graphs


class Shape(NamedTuple):
    """A published configuration, and the nearest vocabulary at hand. `changes` says what differs beside the depth."""

    vocabulary: str
    config: dict[str, Any]
    changes: str = ""


_SLIDING = ("sliding_attention", "full_attention")
SHAPES: dict[str, Shape] = {
    "gpt2": Shape("gpt2", {"model_type": "gpt2"}),
    "llama-3.2-1b": Shape("cl100k_base", {
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64,
        "max_position_embeddings": 131_072, "tie_word_embeddings": True,
    }),
    "llama-3.1-8b": Shape("cl100k_base", {
        "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
    }),
    "qwen2.5-0.5b": Shape("cl100k_base", {
        "model_type": "qwen2", "vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4864,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
        "max_position_embeddings": 32_768, "tie_word_embeddings": True,
    }),
    "qwen3-0.6b": Shape("cl100k_base", {
        "model_type": "qwen3", "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 40_960, "tie_word_embeddings": True,
    }),
    "gemma-3-270m": Shape("o200k_base", {
        "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 640, "intermediate_size": 2048,
        "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "sliding_window": 512, "max_position_embeddings": 32_768,
        "layer_types": [*(_SLIDING[:1] * 5), _SLIDING[1]] * 3,
    }),
    "gemma-3-1b": Shape("o200k_base", {
        "model_type": "gemma3_text", "vocab_size": 262_144, "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
        "sliding_window": 512, "max_position_embeddings": 32_768,
        "layer_types": ([*(_SLIDING[:1] * 5), _SLIDING[1]] * 5)[:26],
    }),
    "gemma-2-2b": Shape("o200k_base", {
        "model_type": "gemma2", "vocab_size": 256_000, "hidden_size": 2304, "intermediate_size": 9216,
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "query_pre_attn_scalar": 256, "sliding_window": 4096, "max_position_embeddings": 8192,
        "layer_types": list(_SLIDING) * 13,
    }),
    "mistral-7b": Shape("mistral_v1_32k", {
        "model_type": "mistral", "vocab_size": 32_000, "hidden_size": 4096, "intermediate_size": 14_336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": 4096,
        "max_position_embeddings": 32_768,
    }),
    "gpt-oss-20b": Shape("o200k_base", {
        "model_type": "gpt_oss", "vocab_size": 201_088, "hidden_size": 2880, "intermediate_size": 2880,
        "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "sliding_window": 128, "num_local_experts": 8, "num_experts_per_tok": 4,
        "layer_types": list(_SLIDING) * 12,
    }, "8 of its 32 experts"),
    "phi-4-mini": Shape("o200k_base", {
        "model_type": "phi3", "vocab_size": 200_064, "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8, "partial_rotary_factor": 0.75,
        "max_position_embeddings": 4096, "tie_word_embeddings": True,
    }, "rotary positions without longrope"),
    "olmo-2-1b": Shape("cl100k_base", {
        "model_type": "olmo2", "vocab_size": 100_352, "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 16, "num_attention_heads": 16, "max_position_embeddings": 4096,
    }),
    "bloom-560m": Shape("o200k_base", {
        "model_type": "bloom", "vocab_size": 250_880, "hidden_size": 1024, "n_layer": 24, "n_head": 16,
    }),
    "lfm2-350m": Shape("cl100k_base", {
        "model_type": "lfm2", "vocab_size": 100_352, "hidden_size": 1024, "intermediate_size": 6656,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 8,
        "layer_types": ["full_attention" if layer in (2, 5, 8, 10, 12, 14) else "conv" for layer in range(16)],
    }, "cl100k's vocabulary in place of 65,536 ids"),
    "mamba-130m": Shape("gpt2", {
        "model_type": "mamba", "vocab_size": 50_280, "hidden_size": 768, "num_hidden_layers": 24,
    }),
}  # fmt: skip
GRAPHS, VARIANT = "graphs", "variant"
"""Our search with CUDA graphs; our greedy decoding without batch invariance."""
PROMPTS = (16, 512)
BEAMS = (1, 4, 16, 64)
SAMPLES = (1, 4, 16, 64)
_PARTS = {  # what an operator of PyTorch's profiler does in a step, by the beginning of its name
    "linear layers": ("aten::mkldnn", "aten::_mkldnn", "mkldnn", "aten::addmm", "aten::mm", "aten::linear"),
    "attention": ("aten::_scaled_dot", "aten::scaled_dot", "aten::bmm", "aten::_flash"),
    "log-softmax": ("aten::_log_softmax", "aten::log_softmax"),
    "maxima of chunks": ("aten::index_select", "aten::amax"),
    "copies": ("aten::copy_", "aten::cat", "aten::clone", "aten::to_dense", "aten::constant_pad_nd"),
}  # fmt: skip


def build_model(shape: str, layers: int, device: str, dtype: str) -> Any:
    """A random model with the last layers of a configuration; 0: all."""
    options = dict(SHAPES[shape].config)
    if layers and "num_hidden_layers" in options:
        options["num_hidden_layers"] = min(layers, options["num_hidden_layers"])
    elif layers:
        options["n_layer"] = layers  # GPT-2's name
    if layers and "layer_types" in options:
        options["layer_types"] = options["layer_types"][-layers:]
    config = AutoConfig.for_model(**options)
    config.bos_token_id = config.pad_token_id = None
    torch.manual_seed(SEED)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype)).eval().requires_grad_(False)


def twin_of(model: PreTrainedModel) -> PreTrainedModel:
    """The same model with layers of its own over the same weights."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    twin: PreTrainedModel = copy.deepcopy(model, shared)
    return twin


def _prepared(model: TimedModel, vocabulary: Vocabulary, constraint: dict[str, Any]) -> PreparedConstraint:
    """A constraint with a uniform prior, which random weights come near."""
    automaton = compile_spec(spec_from_json(constraint), vocabulary).tokens
    prior = torch.full((model.vocab_size,), -math.log(model.vocab_size), dtype=torch.float64)
    return PreparedConstraint.prepare(automaton, model.device, prior=prior)


class ShapeRun:
    """All systems around one model."""

    def __init__(self, shape: str, args: argparse.Namespace) -> None:
        model = build_model(shape, args.layers, args.device, args.dtype)
        path = tokenizer_path(args.shared, SHAPES[shape].vocabulary)
        eos = read_vocabulary(path).eos_ids[0]
        model.config.eos_token_id = model.generation_config.eos_token_id = eos
        clock = CLOCKS[args.clock]
        adapter = TimedModel(twin_of(model), clock)
        model.generation_config.eos_token_id = None  # no text of transformers' ends early
        model.generation_config.pad_token_id = eos
        self.size = read_vocabulary(path).size
        vocabulary = read_vocabulary(path, adapter.vocab_size)
        keywords = _prepared(adapter, vocabulary, constraint_json(args.shared))
        pattern = _prepared(adapter, vocabulary, {"regex": PATTERN})
        self.ours = {"ours": Ours(adapter, keywords, pattern)}
        if VARIANT in args.systems:
            variant = TimedModel(twin_of(model), clock, batch_invariant=False)
            self.ours[VARIANT] = Ours(variant, keywords, pattern)
        if GRAPHS in args.systems:
            captured = replace(keywords, graphs=Graphs(CudaCapture(adapter.device)))
            self.ours[GRAPHS] = Ours(adapter, captured, pattern)
        self.transformers = Transformers(model, clock)
        self.masks: dict[str, NewMask] = {name: PEERS[name](path, vocabulary) for name in args.systems if name in PEERS}
        layers = sum(1 for _ in model.get_decoder().layers) if hasattr(model.get_decoder(), "layers") else args.layers
        self.about: Row = {
            "shape": shape, "layers": layers, "vocabulary": adapter.vocab_size, "dtype": args.dtype,
            "tokenizer": SHAPES[shape].vocabulary, "tokens": self.size, "changes": SHAPES[shape].changes,
            "shared_prefix": not adapter.prefix_sharing_disabled_reason,
        }  # fmt: skip
        self._ids = self.size // 2

    def prompt(self, tokens: int) -> list[int]:
        """Random ids."""
        ids: list[int] = torch.randint(0, self._ids, (tokens,)).tolist()
        return ids

    def step_times(self, system: str, method: Method, prompt: list[int], *, rows: int, tokens: int) -> StepTimes:
        """The steps of one system; `transformers.prepare` has read the prompt."""
        if system in self.ours:
            return self.ours[system].step_times(method, prompt, rows, tokens)
        mask = self.masks[system](rows) if system in self.masks else None
        return self.transformers.step_times(method, rows, tokens, mask)


def _points(args: argparse.Namespace) -> Iterator[tuple[Method, int]]:
    yield "greedy", 1
    yield from (("beams", rows) for rows in args.beams)
    yield from (("sample", rows) for rows in args.samples)


def _takes_part(system: str, method: Method) -> bool:
    """Whether a system is measured by a method. The masks of others know no beams, and only beams have graphs."""
    if system == VARIANT:
        return method == "greedy"
    return system not in PEERS if method == "beams" else system != GRAPHS


def shape_rows(run: ShapeRun, args: argparse.Namespace) -> Iterator[Row]:
    """One row for each prompt length, method, number of rows and turn. The systems take turns in beginning."""
    for prompt_tokens in args.prompts:
        prompt = run.prompt(prompt_tokens)
        run.transformers.prepare(prompt)
        for method, rows in _points(args):
            systems = [name for name in args.systems if _takes_part(name, method)]
            for turn in range(args.turns):
                row: Row = run.about | {"prompt": prompt_tokens, "method": method, "k": rows, "turn": turn}
                begin = turn % len(systems)
                for system in systems[begin:] + systems[:begin]:
                    times = run.step_times(system, method, prompt, rows=rows, tokens=args.tokens)
                    row[system] = statistics.median(times.ms)  # the first step of a number of rows warms up
                    if system == "ours":
                        row["model"], row["rows"] = statistics.median(times.model_ms), statistics.median(times.rows)
                print(json.dumps(row), flush=True)
                yield row


def print_profile(run: ShapeRun, args: argparse.Namespace) -> None:
    """Prints the search's share of a step, and those of operators."""
    for prompt_tokens in args.prompts:
        for rows in args.beams:
            prompt = run.prompt(prompt_tokens)
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                times = run.step_times("ours", "beams", prompt, rows=rows, tokens=args.tokens)
            parts = dict.fromkeys(_PARTS, 0.0)
            events = profiler.key_averages()
            for event in events:
                part = next((part for part, names in _PARTS.items() if event.key.startswith(names)), None)
                if part is not None:
                    parts[part] += event.self_cpu_time_total
            total = sum(event.self_cpu_time_total for event in events)
            shares = {part: round(time_us / total, 3) for part, time_us in parts.items()}
            figures = {"prompt": prompt_tokens, "k": rows, "rows": statistics.median(times.rows),
                       "ms": round(statistics.median(times.ms), 2),
                       "search": round(1 - sum(times.model_ms) / sum(times.ms), 3)}  # fmt: skip
            print(json.dumps({"shape": run.about["shape"]} | figures | shares), flush=True)


def _key(row: Row) -> Row:
    return {name: row[name] for name in ("shape", "layers", "dtype", "prompt", "method", "k", "turn")}


@torch.inference_mode()
def main() -> None:
    installed = [name for name in PEERS if importlib.util.find_spec(name)]
    parser = parser_of(__doc__, threads=2, clock=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--prompts", type=int, nargs="*", default=PROMPTS)
    parser.add_argument("--beams", type=int, nargs="*", default=BEAMS)
    parser.add_argument("--samples", type=int, nargs="*", default=SAMPLES)
    parser.add_argument("--systems", nargs="*", default=["ours", VARIANT, "transformers", *installed])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=12, help="at least 6: the keywords take as many")
    parser.add_argument("--note", help="about the state of the machine, for RESULTS.md")
    parser.add_argument("--profile", action="store_true", help="write no file")
    parser.add_argument("--keep", action="store_true", help="write no file")
    parser.add_argument("--graphs", action="store_true", help="also our beams with CUDA graphs, on a GPU")
    args = parser.parse_args()
    if args.graphs:
        if not args.device.startswith("cuda"):
            parser.error("--graphs needs --device cuda")
        args.systems.append(GRAPHS)
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    store = RowStore(RESULTS_DIRECTORY / f"shapes_{args.device}.json", lambda row: (list(SHAPES).index(row["shape"]),))
    device = torch.cuda.get_device_name() if args.device.startswith("cuda") else ""
    facts = {"threads": args.threads, "clock": args.clock, "device": device, "notes": [args.note] if args.note else [],
             "versions": {name: version(name) for name in ("torch", "transformers", *installed)}}  # fmt: skip
    for shape in args.shapes:
        run = ShapeRun(shape, args)
        if args.profile:
            print_profile(run, args)
            continue
        for row in shape_rows(run, args):
            if not args.keep:
                store.store(row, _key(row), **facts)
        del run
        gc.collect()
    if not (args.keep or args.profile):
        write_report()


if __name__ == "__main__":
    main()
