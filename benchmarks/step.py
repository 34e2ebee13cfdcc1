"""What the search costs beside the model: for each step of a generation, its time and that of the forward pass.

    python -m benchmarks.step [--repeats 3] [--threads 1] [--tokens 32]

A model of GPT-2's shape with random weights on the CPU, five keywords over its 50,257 tokens, searched as the service
does: with what it asks a model at load. Timed are steps with k rows alive or more, each forward pass (up to the
log-probs) with the search's own part right after it: masks, push, choice, what it learns, the transfer to the host and
what is kept there. Writes results/step.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.compile import add_shared_argument, machine, tokenizer_path
from benchmarks.decode_point import constraint_json
from benchmarks.engine import read_vocabulary
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
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
_EOS_PENALTY = 1e3  # nats: no text ends before it must
_SEED = 0


def steps(
    model: HuggingFaceModel, constraint: PreparedConstraint, prompt: list[int], options: SearchOptions
) -> Iterator[dict[str, float]]:
    """The milliseconds of the forward pass and of the search, for each step with as many rows alive as beams."""
    run = search_of(constraint, options)
    session, first = model.prefill(prompt)
    first[list(model.eos_ids)] -= _EOS_PENALTY
    run.advance(Scores.of_prompt(first))
    while not run.done:
        parents, tokens = run.feed()
        begun = time.perf_counter()
        (scores,) = model.step([StepInput(session, parents, tokens)])
        read = time.perf_counter()
        scores.log_probs[:, list(model.eos_ids)] -= _EOS_PENALTY
        ready = time.perf_counter()
        run.advance(scores)
        if not run.done:
            run.feed()  # asking twice changes nothing
        chosen = time.perf_counter()
        if len(parents) >= options.beams:
            yield {"forward_ms": (read - begun) * 1e3, "search_ms": (chosen - ready) * 1e3}


def row(algorithm: str, beams: int, timed: list[dict[str, float]]) -> dict[str, Any]:
    shares = [one["search_ms"] / one["forward_ms"] for one in timed]
    quarters = statistics.quantiles(shares, n=4)
    return {
        "algorithm": algorithm,
        "beams": beams,
        "steps": len(timed),
        "forward_ms": statistics.median(one["forward_ms"] for one in timed),
        "search_ms": statistics.median(one["search_ms"] for one in timed),
        "share": statistics.median(shares),
        "share_quarters": [quarters[0], quarters[2]],
    }


@torch.inference_mode()
def measure(args: argparse.Namespace) -> list[dict[str, Any]]:
    torch.manual_seed(_SEED)
    model = HuggingFaceModel(GPT2LMHeadModel(GPT2Config()))
    vocabulary = read_vocabulary(tokenizer_path(args.shared, "gpt2"))
    automaton = compile_spec(spec_from_json(constraint_json(args.shared)), vocabulary).tokens
    constraint = PreparedConstraint.prepare(automaton, model.device, prior=unigram_prior(model))
    prompt = torch.randint(0, model.eos_ids[0], (PROMPT_TOKENS,)).tolist()
    found = []
    for beams in BEAMS:
        timed: dict[str, list[dict[str, float]]] = {algorithm: [] for algorithm in ALGORITHMS}
        for _ in range(args.repeats):
            for algorithm in ALGORITHMS:
                timed[algorithm] += steps(
                    model, constraint, prompt, SearchOptions(args.tokens, beams, algorithm=algorithm)
                )
        for algorithm in ALGORITHMS:
            found.append(row(algorithm, beams, timed[algorithm]))
            print(json.dumps(found[-1]), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=32)
    add_shared_argument(parser)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    run = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "command": f"python -m benchmarks.step --threads {args.threads}",
        "threads": args.threads,
        "tokens": args.tokens,
        "rows": measure(args),
    }
    (RESULTS_DIRECTORY / "step.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    write_report()


if __name__ == "__main__":
    main()
