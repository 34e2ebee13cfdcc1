"""Compares concurrent requests with the same requests run sequentially. The model is the built-in one.

    python -m benchmarks.decoding.batch

Thirty-two requests with different prompts, constraints, beams and budgets pass through one engine, sequentially and
concurrently in turns. Every concurrent answer must equal the sequential one token for token. Writes results/batch.json
and RESULTS.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from app.models import open_model_files
from app.settings import BUILT_IN_MODEL
from benchmarks.report import write_run
from benchmarks.runs import parser_of
from benchmarks.systems.ours import ConstraintPreparer
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from decoding.engine import Engine
from decoding.generation import Hypothesis
from decoding.model import HuggingFaceModel
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import search_of

MEMORY_BYTES = 2**32
PROMPTS = ("", "A man", "Two dogs are", "The children in the park", "concepts: dog, ball, park. sentence:")
SCENE = {
    "type": "object",
    "properties": {"scene": {"type": "string", "maxLength": 30}, "people": {"type": "integer"}},
    "required": ["scene", "people"],
    "additionalProperties": False,
}
CONSTRAINTS = (
    {"keywords": ["dog", "ball", "park"], "inflect": True},
    {"keywords": ["man", "guitar"], "ordered": True},
    {"keywords": ["girl", "snow", "hill", "sled"]},
    {"ltlf": "F(cat & X F(tree)) & G !dog"},
    {"regex": r"[A-Z][a-z ,]{10,60}\."},
    {"json_schema": SCENE},
    {"infill": "On Monday <|infill_word|> went to the <|infill_word|> with <|infill_ngram|>."},
    {"all": [{"keywords": ["beach"]}, {"max_words": 9}, {"regex": r".*\."}]},
)
BEAMS = (1, 4, 8, 16)
SLACK = (8, 14, 24)  # tokens beyond the shortest text of the constraint


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """One generation for the engine."""

    prompt_ids: tuple[int, ...]
    constraint: PreparedConstraint
    options: SearchOptions


def batch_requests(model: HuggingFaceModel, count: int) -> list[BatchRequest]:
    """`count` requests that mix prompts, constraints, beams and budgets. Each of these cycles at a different rate."""
    files = open_model_files(BUILT_IN_MODEL)
    tokenizer = Tokenizer.from_file(str(files.tokenizer_file))
    preparer = ConstraintPreparer(model, files.vocabulary, tokenizer)
    specs = map(spec_from_json, CONSTRAINTS)
    constraints = [preparer.prepare(compile_spec(spec, files.vocabulary).tokens) for spec in specs]
    requests = []
    for number in range(count):
        constraint = constraints[number % len(constraints)]
        beams = BEAMS[number // len(constraints) % len(BEAMS)]
        budget = constraint.automaton.min_tokens + SLACK[number % len(SLACK)]
        prompt = tuple(tokenizer.encode(PROMPTS[number % len(PROMPTS)]).ids)
        requests.append(BatchRequest(prompt, constraint, SearchOptions(max_tokens=budget, beams=beams)))
    return requests


def submit(engine: Engine, request: BatchRequest) -> tuple[Hypothesis, ...]:
    """The answers to a request."""
    return engine.generate(lambda: search_of(request.constraint, request.options), request.prompt_ids)


def run_sequentially(engine: Engine, requests: Sequence[BatchRequest]) -> tuple[float, list[tuple[Hypothesis, ...]]]:
    """Seconds, and the answers."""
    start = time.perf_counter()
    answers = [submit(engine, request) for request in requests]
    return time.perf_counter() - start, answers


def run_concurrently(engine: Engine, requests: Sequence[BatchRequest]) -> tuple[float, list[tuple[Hypothesis, ...]]]:
    """Seconds, and the answers."""
    with ThreadPoolExecutor(len(requests)) as callers:
        start = time.perf_counter()
        answers = list(callers.map(lambda request: submit(engine, request), requests))
        return time.perf_counter() - start, answers


def main() -> None:
    parser = parser_of(__doc__, shared=False, threads=2)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = HuggingFaceModel.load(BUILT_IN_MODEL, device="cpu")
    requests = batch_requests(model, args.requests)
    pairs = []
    with Engine(model, MEMORY_BYTES) as engine:
        run_sequentially(engine, requests)
        for _ in range(args.repeats):
            sequential_s, sequential = run_sequentially(engine, requests)
            concurrent_s, concurrent = run_concurrently(engine, requests)
            if sequential != concurrent:
                raise SystemExit("a concurrent request got another answer than the same request alone")
            ratio = concurrent_s / sequential_s
            pairs.append({"sequential_s": sequential_s, "concurrent_s": concurrent_s, "ratio": ratio})
            print(f"sequential {sequential_s:.2f} s, concurrent {concurrent_s:.2f} s: {ratio:.2f}", flush=True)
    tokens = sum(len(answers[0].tokens) for answers in sequential)
    write_run("batch", {"threads": args.threads, "requests": args.requests, "tokens": tokens, "pairs": pairs})
    print(f"median ratio {statistics.median(pair['ratio'] for pair in pairs):.2f}")


if __name__ == "__main__":
    main()
