"""Compares the search's time per step with the model's forward pass.

    python -m benchmarks.decoding.step [--repeats 3] [--threads 1] [--tokens 32] [--clock process]

A model of GPT-2's shape with random weights on the CPU, with five keywords over its 50,257 tokens. Steps with at least
k live beams are timed: the forward pass up to the log-probs, and the search's part right after it, which is masking,
scoring, selection, cost updates, and the transfer to the host. Writes results/step.json and RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.compiler.engines import read_vocabulary
from benchmarks.decoding.gpt2 import EOS_PENALTY, SEED, constraint_json
from benchmarks.report import write_run
from benchmarks.runs import CLOCKS, parser_of, tokenizer_path
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from decoding.heuristic import unigram_prior
from decoding.model import HuggingFaceModel, Scores, StepInput
from decoding.options import Algorithm, SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import search_of

ALGORITHMS: tuple[Algorithm, ...] = ("abs", "banked")
BEAMS = (4, 16, 64)
PROMPT_TOKENS = 16


def steps(
    model: HuggingFaceModel, constraint: PreparedConstraint, prompt: list[int], options: SearchOptions, *,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[dict[str, float]]:
    """The milliseconds of forward pass and search for each full step.

    A full step has at least as many rows as beams.
    """
    search = search_of(constraint, options)
    session, first = model.prefill(prompt)
    first[list(model.eos_ids)] -= EOS_PENALTY
    search.advance(Scores.of_prompt(first))
    while not search.done:
        parents, tokens = search.feed()
        forward_start = clock()
        (scores,) = model.step([StepInput(session, parents, tokens)])
        forward_end = clock()
        scores.log_probs[:, list(model.eos_ids)] -= EOS_PENALTY
        search_start = clock()
        search.advance(scores)
        if not search.done:
            search.feed()  # the loop calls it again, which changes nothing
        search_end = clock()
        if len(parents) >= options.beams:
            forward_ms, search_ms = (forward_end - forward_start) * 1e3, (search_end - search_start) * 1e3
            yield {"forward_ms": forward_ms, "search_ms": search_ms}


def summary(algorithm: str, beams: int, timings: list[dict[str, float]]) -> dict[str, Any]:
    """A row: medians over the steps."""
    shares = [timing["search_ms"] / timing["forward_ms"] for timing in timings]
    quarters = statistics.quantiles(shares, n=4)
    return {
        "algorithm": algorithm, "beams": beams, "steps": len(timings),
        **{name: statistics.median(timing[name] for timing in timings) for name in ("forward_ms", "search_ms")},
        "share": statistics.median(shares),
        "share_quarters": [quarters[0], quarters[2]],
    }  # fmt: skip


@torch.inference_mode()
def step_rows(args: argparse.Namespace) -> list[dict[str, Any]]:
    """One row for each number of beams and algorithm."""
    torch.manual_seed(SEED)
    model = HuggingFaceModel(GPT2LMHeadModel(GPT2Config()))
    vocabulary = read_vocabulary(tokenizer_path(args.shared, "gpt2"))
    automaton = compile_spec(spec_from_json(constraint_json(args.shared)), vocabulary).tokens
    constraint = PreparedConstraint.prepare(automaton, model.device, prior=unigram_prior(model))
    prompt = torch.randint(0, model.eos_ids[0], (PROMPT_TOKENS,)).tolist()
    rows = []
    for beams in BEAMS:
        timings: dict[str, list[dict[str, float]]] = {algorithm: [] for algorithm in ALGORITHMS}
        for _ in range(args.repeats):
            for algorithm in ALGORITHMS:
                options = SearchOptions(args.tokens, beams=beams, algorithm=algorithm)
                timings[algorithm] += steps(model, constraint, prompt, options, clock=CLOCKS[args.clock])
        for algorithm in ALGORITHMS:
            rows.append(summary(algorithm, beams, timings[algorithm]))
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = parser_of(__doc__, threads=1, clock=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=32)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    write_run("step", {"threads": args.threads, "clock": args.clock, "tokens": args.tokens, "rows": step_rows(args)})


if __name__ == "__main__":
    main()
