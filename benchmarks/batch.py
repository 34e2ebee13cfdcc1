"""Many requests at once against the same requests one after another, on the built-in model.

python -m benchmarks.batch

Thirty-two requests that differ in prompt, constraint, beams and budget, through one engine each time; pairs, in turns.
Every answer of the crowd must be the one that its request gets alone, token for token. Writes results/batch.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer

from app.models import open_model_files
from app.models.tokenizer import Speller
from app.settings import BUILT_IN_MODEL
from benchmarks.compile import machine
from benchmarks.places import RESULTS_DIRECTORY
from benchmarks.report import write_report
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from decoding.engine import Engine
from decoding.forced_tokens import TokenBytes
from decoding.generation import Hypothesis
from decoding.heuristic import unigram_prior
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
SLACK = (8, 14, 24)  # tokens over the least that the constraint needs


@dataclass(frozen=True, slots=True)
class BatchOrder:
    prompt_ids: tuple[int, ...]
    constraint: PreparedConstraint
    options: SearchOptions


def orders(model: HuggingFaceModel, count: int) -> list[BatchOrder]:
    """So many requests, no two alike in everything."""
    files = open_model_files(BUILT_IN_MODEL)
    vocabulary = files.vocabulary
    tokenizer = Tokenizer.from_file(str(files.tokenizer_file))
    prior = unigram_prior(model)
    pieces = TokenBytes(vocabulary.tokens, vocabulary.eos_ids, Speller(tokenizer, vocabulary.tokens))
    compiled = [compile_spec(spec_from_json(one), vocabulary, Limits()).tokens for one in CONSTRAINTS]
    constraints = [PreparedConstraint.prepare(one, model.device, prior=prior, pieces=pieces) for one in compiled]
    found = []
    for number in range(count):
        constraint = constraints[number % len(constraints)]
        beams = BEAMS[number // len(constraints) % len(BEAMS)]
        budget = constraint.automaton.min_tokens + SLACK[number % len(SLACK)]
        prompt = tuple(tokenizer.encode(PROMPTS[number % len(PROMPTS)]).ids)
        found.append(BatchOrder(prompt, constraint, SearchOptions(max_tokens=budget, beams=beams)))
    return found


def ask(engine: Engine, order: BatchOrder) -> tuple[Hypothesis, ...]:
    return engine.generate(lambda: search_of(order.constraint, order.options), order.prompt_ids)


def one_after_another(engine: Engine, wanted: Sequence[BatchOrder]) -> tuple[float, list[tuple[Hypothesis, ...]]]:
    started = time.perf_counter()
    found = [ask(engine, order) for order in wanted]
    return time.perf_counter() - started, found


def at_once(engine: Engine, wanted: Sequence[BatchOrder]) -> tuple[float, list[tuple[Hypothesis, ...]]]:
    with ThreadPoolExecutor(len(wanted)) as callers:
        started = time.perf_counter()
        found = list(callers.map(lambda order: ask(engine, order), wanted))
        return time.perf_counter() - started, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = HuggingFaceModel.load(BUILT_IN_MODEL, device="cpu")
    wanted = orders(model, args.requests)
    pairs = []
    with Engine(model, MEMORY_BYTES) as engine:
        one_after_another(engine, wanted)
        for _ in range(args.repeats):
            alone_s, alone = one_after_another(engine, wanted)
            crowd_s, crowd = at_once(engine, wanted)
            if alone != crowd:
                raise SystemExit("a request in a crowd got another answer than alone")
            pairs.append({"alone_s": alone_s, "crowd_s": crowd_s, "ratio": crowd_s / alone_s})
            print(f"one after another {alone_s:.2f} s, at once {crowd_s:.2f} s: {crowd_s / alone_s:.2f}", flush=True)
    run = {
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "command": "python -m benchmarks.batch",
        "threads": args.threads,
        "requests": args.requests,
        "tokens": sum(len(one[0].tokens) for one in alone),
        "pairs": pairs,
    }
    (RESULTS_DIRECTORY / "batch.json").write_text(json.dumps(run, indent=1) + "\n", encoding="utf-8")
    write_report()
    print(f"median ratio {statistics.median(pair['ratio'] for pair in pairs):.2f}")


if __name__ == "__main__":
    main()
