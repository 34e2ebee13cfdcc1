"""Measures one generation with a model of GPT-2's shape. Our search or transformers' runs in this process.

    python -m benchmarks.decoding.gpt2 {ours,transformers} PROMPT_TOKENS BEAMS TOKENS

Started by `benchmarks.decoding.decode`; prints one JSON object (`GenerationCost`). The weights are random with a fixed
seed, so the texts are meaningless. No text ends before its budget does: transformers forbids EOS by `min_new_tokens`,
our search by a penalty on EOS.
"""

from __future__ import annotations

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

from benchmarks.compiler.engines import read_vocabulary
from benchmarks.keyword_patterns import keyword_sets
from benchmarks.memory import PeakMemory, resident_bytes
from benchmarks.runs import CLOCKS, Clock, concept_sets_path, parser_of, tokenizer_path
from benchmarks.systems.ours import ConstraintPreparer
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from decoding.model import HuggingFaceModel, Scores, StepInput
from decoding.options import SearchOptions
from decoding.search import generate

LIBRARIES = ("ours", "transformers")
KEYWORDS = 5
EOS_PENALTY = 1e3  # nats
SEED = 0
_WARM_UP_TOKENS, _WARM_UP_BEAMS = 3, 2


@dataclass(frozen=True, slots=True)
class GenerationCost:
    """The cost of one generation.

    seconds       from the ids of the prompt to those of the answer, by the clock; ours with the constraint's tables
    peak_bytes    growth of the resident set from the loaded model to the peak
    model_bytes   resident set of the process with the model loaded
    compile_s     from the constraint to the automaton; not part of `seconds`, as the service stores automata
    steps         forward passes, including the prompt's
    rows_read     rows that the model read after the prompt, over all steps
    """

    seconds: float
    peak_bytes: int
    model_bytes: int
    compile_s: float
    steps: int
    rows_read: int


class LateEndingModel(HuggingFaceModel):
    """Delays EOS until no other token is allowed, and counts rows."""

    steps = 0
    rows_read = 0

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[Any, Tensor]:
        self.steps += 1
        session, log_probs = super().prefill(prompt_ids)
        log_probs[list(self.eos_ids)] -= EOS_PENALTY
        return session, log_probs

    def step(self, feeds: Sequence[StepInput[Any]]) -> list[Scores]:
        self.steps += 1
        self.rows_read += sum(feed.tokens.numel() for feed in feeds)
        batch = super().step(feeds)
        for scores in batch:
            scores.log_probs[:, list(self.eos_ids)] -= EOS_PENALTY
        return batch


def constraint_json(shared: Path) -> dict[str, Any]:
    """Five keywords of CommonGen with their inflections."""
    concepts = keyword_sets(concept_sets_path(shared), KEYWORDS, 1)[0]
    return {"keywords": [list(forms) for forms in concepts]}


@torch.inference_mode()
def our_cost(
    model: PreTrainedModel, prompt: list[int], beams: int, tokens: int, *, shared: Path, clock: Clock
) -> GenerationCost:
    """The cost of our search under the keywords."""
    adapter = LateEndingModel(model)
    path = tokenizer_path(shared, "gpt2")
    vocabulary = read_vocabulary(path)
    tokenizer = Tokenizer.from_str(gzip.decompress(path.read_bytes()).decode())
    preparer = ConstraintPreparer(adapter, vocabulary, tokenizer)
    start = time.perf_counter()
    automaton = compile_spec(spec_from_json(constraint_json(shared)), vocabulary).tokens
    compile_s = time.perf_counter() - start
    small_automaton = compile_spec(spec_from_json({"max_words": 1}), vocabulary).tokens
    generate(adapter, prompt, preparer.prepare(small_automaton), SearchOptions(_WARM_UP_TOKENS, beams=_WARM_UP_BEAMS))
    adapter.steps = adapter.rows_read = 0
    memory = PeakMemory()
    model_bytes = resident_bytes()
    start = clock()
    generate(adapter, prompt, preparer.prepare(automaton), SearchOptions(tokens, beams=beams))
    seconds = clock() - start
    return GenerationCost(seconds, memory.growth(), model_bytes, compile_s, adapter.steps, adapter.rows_read)


@torch.inference_mode()
def transformers_cost(model: Any, prompt: list[int], beams: int, tokens: int, *, clock: Clock) -> GenerationCost:
    """The cost of transformers' beam search without a constraint."""
    ids = torch.tensor([prompt])

    def beam_search(count: int, width: int) -> Tensor:
        output: Tensor = model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=width, do_sample=False, max_new_tokens=count,
            min_new_tokens=count, pad_token_id=model.config.eos_token_id,
        )  # fmt: skip
        return output

    beam_search(_WARM_UP_TOKENS, _WARM_UP_BEAMS)
    memory = PeakMemory()
    model_bytes = resident_bytes()
    start = clock()
    length = beam_search(tokens, beams).shape[1] - len(prompt)
    seconds = clock() - start
    return GenerationCost(seconds, memory.growth(), model_bytes, 0.0, length, beams * (length - 1))


def main() -> None:
    parser = parser_of(__doc__, threads=2, clock=True)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("prompt_tokens", type=int)
    parser.add_argument("beams", type=int)
    parser.add_argument("tokens", type=int)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    logging.set_verbosity_error()
    clock = CLOCKS[args.clock]
    torch.manual_seed(SEED)
    model = GPT2LMHeadModel(GPT2Config()).eval().requires_grad_(False)
    prompt = torch.randint(0, model.config.eos_token_id, (args.prompt_tokens,)).tolist()
    if args.library == "ours":
        cost = our_cost(model, prompt, args.beams, args.tokens, shared=args.shared, clock=clock)
    else:
        cost = transformers_cost(model, prompt, args.beams, args.tokens, clock=clock)
    print(json.dumps(asdict(cost)))


if __name__ == "__main__":
    main()
