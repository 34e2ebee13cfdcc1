"""One generation with a model of GPT-2's shape in this process, ours or transformers': its time and its peak memory.

    python -m benchmarks.decode_point WHO PROMPT_TOKENS BEAMS TOKENS      (started by benchmarks.decode)

Prints one JSON object (`Point`). Weights are random, of one seed; what the texts say means nothing. Neither ends before
its budget does: transformers by `min_new_tokens`, which rules EOS out until then, ours by a penalty on EOS.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel
from transformers.utils import logging

from benchmarks.compile import add_shared_argument, tokenizer_path
from benchmarks.engine import read_vocabulary
from benchmarks.keyword_cases import keyword_sets
from benchmarks.measure import PeakMemory, resident_bytes
from benchmarks.our_decoder import OurDecoder
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from decoding.model import HuggingFaceModel, Scores, StepInput
from decoding.options import SearchOptions
from decoding.search import generate

WHO = ("ours", "transformers")
KEYWORDS = 5
_EOS_PENALTY = 1e3  # nats
_SEED = 0
_WARM_UP_TOKENS, _WARM_UP_BEAMS = 3, 2


@dataclass(frozen=True, slots=True)
class Point:
    """What one generation took.

    seconds       of wall time, from the prompt's ids to the answer's; for ours, the constraint's tables are made in it
    peak_bytes    growth of the resident set, from the loaded model to the highest since
    model_bytes   resident set of the process with the model loaded
    compile_s     from the constraint to the automaton, not part of `seconds`: it is made once and stored
    steps         forward passes, the prompt's among them
    rows_read     by the model after the prompt, over all steps
    """

    seconds: float
    peak_bytes: int
    model_bytes: int
    compile_s: float
    steps: int
    rows_read: int


class _Restless(HuggingFaceModel):
    """Ends a text only where it must, and counts the rows that a search feeds."""

    steps = 0
    rows_read = 0

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[Any, Tensor]:
        self.steps += 1
        session, log_probs = super().prefill(prompt_ids)
        log_probs[list(self.eos_ids)] -= _EOS_PENALTY
        return session, log_probs

    def step(self, feeds: Sequence[StepInput[Any]]) -> list[Scores]:
        self.steps += 1
        self.rows_read += sum(feed.tokens.numel() for feed in feeds)
        found = super().step(feeds)
        for scores in found:
            scores.log_probs[:, list(self.eos_ids)] -= _EOS_PENALTY
        return found


def constraint_json(shared: Path) -> dict[str, Any]:
    concepts = keyword_sets(shared / "data" / "commongen" / "dev.jsonl", KEYWORDS, 1)[0]
    return {"keywords": [list(forms) for forms in concepts]}


@torch.inference_mode()
def ours(model: PreTrainedModel, prompt: list[int], beams: int, tokens: int, shared: Path) -> Point:
    adapter = _Restless(model)
    path = tokenizer_path(shared, "gpt2")
    vocabulary = read_vocabulary(path)
    decoder = OurDecoder(adapter, vocabulary, Tokenizer.from_str(gzip.decompress(path.read_bytes()).decode()))
    started = time.perf_counter()
    automaton = compile_spec(spec_from_json(constraint_json(shared)), vocabulary).tokens
    compile_s = time.perf_counter() - started
    short = compile_spec(spec_from_json({"max_words": 1}), vocabulary).tokens
    generate(adapter, prompt, decoder.constraint(short), SearchOptions(_WARM_UP_TOKENS, _WARM_UP_BEAMS))
    adapter.steps = adapter.rows_read = 0
    memory = PeakMemory()
    model_bytes = resident_bytes()
    started = time.perf_counter()
    generate(adapter, prompt, decoder.constraint(automaton), SearchOptions(tokens, beams))
    seconds = time.perf_counter() - started
    return Point(seconds, memory.growth(), model_bytes, compile_s, adapter.steps, adapter.rows_read)


@torch.inference_mode()
def library(model: Any, prompt: list[int], beams: int, tokens: int) -> Point:
    ids = torch.tensor([prompt])

    def beam_search(count: int, width: int) -> torch.Tensor:
        found: torch.Tensor = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=width,
            do_sample=False,
            max_new_tokens=count,
            min_new_tokens=count,
            pad_token_id=model.config.eos_token_id,
        )
        return found

    beam_search(_WARM_UP_TOKENS, _WARM_UP_BEAMS)
    memory = PeakMemory()
    model_bytes = resident_bytes()
    started = time.perf_counter()
    written = beam_search(tokens, beams).shape[1] - len(prompt)
    seconds = time.perf_counter() - started
    return Point(seconds, memory.growth(), model_bytes, 0.0, written, beams * (written - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("who", choices=WHO)
    parser.add_argument("prompt_tokens", type=int)
    parser.add_argument("beams", type=int)
    parser.add_argument("tokens", type=int)
    parser.add_argument("--threads", type=int, default=2)
    add_shared_argument(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    torch.manual_seed(_SEED)
    model = GPT2LMHeadModel(GPT2Config()).eval().requires_grad_(False)
    prompt = torch.randint(0, model.config.eos_token_id, (args.prompt_tokens,)).tolist()
    if args.who == "ours":
        point = ours(model, prompt, args.beams, args.tokens, args.shared)
    else:
        point = library(model, prompt, args.beams, args.tokens)
    print(json.dumps(asdict(point)))


if __name__ == "__main__":
    main()
