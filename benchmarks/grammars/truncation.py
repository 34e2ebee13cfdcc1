"""Cuts generations under masks at multiples of the least budget.

Each generation gets the beginning of a text of the language; a small model samples the rest under each engine's masks.
Least is the fewest tokens behind that beginning, EOS included. A text that is cut is judged as it stands, by Lark's
Earley parser, or by Python's reader of JSON.
"""

from __future__ import annotations

import gzip
import json
import math
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from tokenizers import Tokenizer

from app.settings import BUILT_IN_MODEL
from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engines import MaskEngine, Masks, PushdownMasks, load_engine
from benchmarks.grammars.suite import GrammarCase, cases
from benchmarks.report.grammars import TIMES
from benchmarks.runs import Row
from decoding.model import HuggingFaceModel
from tests.references.grammar_suites import earley_parser

ENGINES = ("ours", "xgrammar", "llguidance")
_CUTS = (0.0, 0.35, 0.7)  # of a text, where its beginning ends
_PROMPT = "sentence:"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first ids of a text.

    least  the fewest further tokens, EOS included
    """

    ids: list[int]
    least: int


def beginnings(case: GrammarCase, tokenizer: Tokenizer, masks: PushdownMasks) -> Iterator[Beginning]:
    """The beginnings of the texts of a grammar."""
    for text in case.accepted:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for share in _CUTS:
            start = ids[: int(share * len(ids))]
            masks.restart()
            for token in start:
                masks.advance(token)
            yield Beginning(start, masks.distance)


def sampled(
    engine: MaskEngine, masks: Masks, model: HuggingFaceModel, prompt: list[int], *, start: list[int], budget: int,
    seed: int,
) -> list[int]:
    """The ids of one text. Ours also keeps the tokens that are left within the budget."""
    masks.restart()
    for token in start:
        masks.advance(token)
    ids, draw = list(start), np.random.default_rng(seed)
    for tokens_left in range(budget - 1, -1, -1):
        masks.look_up()
        allowed = masks.allowed_within(tokens_left) if isinstance(masks, PushdownMasks) else masks.allowed()
        if not allowed.size:
            break
        scores = model.prefill([*prompt, *ids])[1].numpy()[allowed]
        token = int(allowed[(scores + draw.gumbel(size=scores.size)).argmax()])
        if token == engine.eos:
            break
        ids.append(token)
        masks.advance(token)
    return ids


class Judge:
    """Decides by a parser that no engine uses."""

    def __init__(self, case: GrammarCase) -> None:
        self._parses = None if case.name == "json" else earley_parser(case.grammar)

    def accepts(self, text: str) -> bool:
        if self._parses is not None:
            return self._parses(text)
        try:
            json.loads(text)
        except ValueError:
            return False
        return True


@torch.inference_mode()
def truncation_rows(args: Namespace) -> Iterator[Row]:
    """The texts in the language at each budget, by grammar and engine."""
    torch.set_num_threads(1)
    model = HuggingFaceModel.load(BUILT_IN_MODEL, device="cpu")
    source = Path(BUILT_IN_MODEL, "tokenizer.json").read_bytes()
    tokenizer = Tokenizer.from_str(source.decode())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json.gz"
        path.write_bytes(gzip.compress(source))
        engines = {name: load_engine(name, path) for name in ENGINES}
    prompt = tokenizer.encode(_PROMPT).ids
    for case in (case for case in cases() if not args.only or case.name in args.only):
        masks = {name: engine.compile(_expression(case, name)) for name, engine in engines.items()}
        ours, judge = masks["ours"], Judge(case)
        assert isinstance(ours, PushdownMasks)
        starts = list(beginnings(case, tokenizer, ours))
        for name, engine in engines.items():
            counts = [0] * len(TIMES)
            for number, start in enumerate(starts * args.seeds):
                seed = crc32(f"{case.name} {number}".encode())
                for place, times in enumerate(TIMES):
                    budget = math.ceil(times * start.least)
                    ids = sampled(engine, masks[name], model, prompt, start=start.ids, budget=budget, seed=seed)
                    text = b"".join(engine.vocabulary.tokens[token] or b"" for token in ids).decode(errors="replace")
                    counts[place] += judge.accepts(text)
            yield {"case": case.name, "engine": name, "texts": len(starts) * args.seeds, "in_language": counts,
                   "least": [min(start.least for start in starts), max(start.least for start in starts)]}  # fmt: skip


def _expression(case: GrammarCase, engine: str) -> Expression:
    expression = case.expression(engine)
    assert expression is not None
    return expression
