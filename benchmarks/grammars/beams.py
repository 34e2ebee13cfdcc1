"""Compares beam search under grammars and under regular constraints.

The regular constraint is the grammar with its nesting unrolled a few times, so that both have similar token classes.
The model has GPT-2's shape and random weights.
"""

from __future__ import annotations

import json
import statistics
import time
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engines import OurEngine
from benchmarks.decoding.gpt2 import SEED
from benchmarks.decoding.step import PROMPT_TOKENS, steps
from benchmarks.grammars.suite import cases
from benchmarks.runs import Row, tokenizer_path
from decoding.heuristic import unigram_prior
from decoding.model import HuggingFaceModel
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint

BEAMS = 16
_WS = r"[ \t\n\r]*"
_STRING = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
_NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"


def unrolled_json(nesting: int) -> str:
    """A pattern for JSON with so much nesting."""
    value = f"(?:{_STRING}|{_NUMBER}|true|false|null)"
    for _ in range(nesting):
        member = f"{_STRING}{_WS}:{_WS}{value}{_WS}"
        rows = [f"(?:{item}(?:,{_WS}{item})*)?" for item in (member, f"{value}{_WS}")]
        value = rf"(?:{_STRING}|{_NUMBER}|true|false|null|\{{{_WS}{rows[0]}\}}|\[{_WS}{rows[1]}\])"
    return f"{_WS}{value}{_WS}"


def unrolled_arithmetic(nesting: int) -> str:
    """A pattern for arithmetic with so much nesting."""
    atom = r"(?:[0-9]+(?:\.[0-9]+)?|[a-z][a-z0-9_]*)"
    for _ in range(nesting + 1):
        power = rf"-*{atom}(?: *\^ *-*{atom})*"
        total = f"{power}(?: *[-+*/] *{power})*"
        atom = rf"(?:[0-9]+(?:\.[0-9]+)?|[a-z][a-z0-9_]*(?:\( *{total}(?: *, *{total})* *\))?|\( *{total} *\))"
    return total


PATTERNS = {"json": unrolled_json(2), "arithmetic": unrolled_arithmetic(1)}


@torch.inference_mode()
def beam_rows(args: Namespace) -> Iterator[Row]:
    """One row for each grammar, with medians and ratios."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = HuggingFaceModel(GPT2LMHeadModel(GPT2Config()))
    engine = OurEngine(tokenizer_path(args.shared, "gpt2"))
    prompt = torch.randint(0, model.eos_ids[0], (PROMPT_TOKENS,)).tolist()
    grammars = {case.name: case.grammar for case in cases()}

    for name, pattern in PATTERNS.items():
        if args.only and name not in args.only:
            continue
        pair = prepared(grammars[name], pattern, engine, model)
        options = SearchOptions(args.tokens, beams=BEAMS)
        runs = [[list(steps(model, constraint, prompt, options, clock=time.thread_time)) for constraint in pair]
                for _ in range(args.repeats)]  # fmt: skip
        yield row_of(name, pair, runs)


def prepared(
    grammar: str, pattern: str, engine: OurEngine, model: HuggingFaceModel
) -> tuple[PreparedConstraint, PreparedConstraint]:
    """A grammar and a pattern, as the search takes them."""
    prior = unigram_prior(model)
    regular = json.dumps({"regex": pattern})
    automata = (engine.compile(Expression(*pair)).tokens for pair in (("lark", grammar), ("constraint", regular)))
    first, second = (PreparedConstraint.prepare(automaton, model.device, prior=prior) for automaton in automata)
    return first, second


def row_of(name: str, pair: tuple[PreparedConstraint, ...], runs: list[list[list[dict[str, float]]]]) -> Row:
    """Medians over the steps; `ratio` and `search_ratio` have one value a repeat."""
    def median(run: list[dict[str, float]], *parts: str) -> float:
        return statistics.median(sum(step[part] for part in parts) for step in run)

    row: dict[str, Any] = {"case": name, "steps": len(runs[0][0])}
    for place, kind in enumerate(("grammar", "regular")):
        row[f"{kind}_classes"] = pair[place].automaton.classes
        for part in ("forward_ms", "search_ms"):
            row[f"{kind}_{part}"] = statistics.median(median(both[place], part) for both in runs)
    for ratio, parts in (("ratio", ("forward_ms", "search_ms")), ("search_ratio", ("search_ms",))):
        row[ratio] = [round(median(both[0], *parts) / median(both[1], *parts), 3) for both in runs]
    return row
