"""The decoders of the fuzz: every algorithm, alone and in batches.

They run from the start or after a prompt, in our loop or in that of transformers.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from compiler.products import EXPANSIONS_MAX, LazyProduct
from compiler.pushdown import MEMBERS_MAX
from compiler.vocab import Vocabulary
from decoding.engine import Engine
from decoding.forced_tokens import TokenBytes
from decoding.generation import BeamStep, Generation, Hypothesis
from decoding.heuristic import Endings
from decoding.logits_processor import ConstraintLogitsProcessor
from decoding.model import LanguageModel
from decoding.options import DEFAULT, Heuristics, SearchOptions
from decoding.prepared_constraint import Automaton, PreparedConstraint, Start, StateLimits, host_states
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of

CPU = torch.device("cpu")
MEMORY_BYTES = 10**9


@dataclass(frozen=True)
class Case:
    """One request. `start` is the state before the answer, None the automaton's own."""

    vocabulary: Vocabulary
    automaton: Automaton
    model: LanguageModel[Any]
    prompt_ids: tuple[int, ...]
    budget: int
    start: Start | None

    @property
    def least(self) -> int:
        states, state = host_states(self.automaton, self.start)
        return states.distance_of(state)


Tokens = tuple[int, ...]
Path = Callable[[Case, random.Random], list[Tokens]]


def search_options(budget: int, draw: random.Random) -> SearchOptions:
    beams = draw.choice((1, 2, 3, 4, 8, 16))
    return SearchOptions(
        max_tokens=budget,
        beams=beams,
        algorithm=draw.choice(("abs", "banked", "banked")),
        alpha_min=draw.choice((0.0, 0.25, 0.5, 1.0)),
        gamma=draw.choice((0.5, 1.0, 3.0)),
        n=draw.randint(1, beams),
        rank_by=draw.choice(("score", "log_prob")),
        length_penalty=draw.choice((0.0, 0.0, 0.7, 1.5)),
    )


def sampling_options(budget: int, draw: random.Random) -> SamplingOptions:
    return SamplingOptions(
        max_tokens=budget, seed=draw.randrange(2**40), n=draw.choice((1, 3, 40)),
        temperature=draw.choice((0.0, 0.3, 1.0, 1.0, 5.0)), top_p=draw.choice((0.1, 0.9, 1.0, 1.0)),
    )  # fmt: skip


def heuristics_of(draw: random.Random) -> Heuristics:
    """Mostly the default; else any, for no answer may depend on them."""
    if draw.random() < 0.7:
        return DEFAULT
    return Heuristics(
        cost_to_go=draw.choice(("unigram", "distance", "none")),
        cost_weight=draw.choice((0.0, 0.1, 0.8, 2.0)),
        group_cost=draw.choice((0.0, 3.0, 50.0)),
        rows_per_beam=draw.choice((0.3, 1.0, 3.0)),
        pool=draw.choice((1, 2, 8)),
        endings=draw.random() < 0.5,
        floor=draw.random() < 0.5,
        forced=draw.random() < 0.5,
    )


def constraint_of(case: Case, draw: random.Random) -> PreparedConstraint:
    """With all that a service gives it, or less."""
    vocabulary = case.vocabulary
    pieces = TokenBytes(vocabulary.tokens, vocabulary.eos_ids, spelling(vocabulary)) if draw.random() < 0.7 else None
    prior = None
    if draw.random() < 0.7:
        costs = [draw.expovariate(0.2) for _ in range(case.automaton.vocabulary_size)]
        prior = -torch.tensor(costs, dtype=torch.float64)
    endings = random_endings(case.automaton, draw) if draw.random() < 0.5 else None
    limits = StateLimits(draw.choice((1, 3, MEMBERS_MAX)))
    if isinstance(case.automaton, LazyProduct):  # the least budget of a product is one of its own readings
        limits = StateLimits(expansions=draw.choice((1, 8, EXPANSIONS_MAX)))
    return PreparedConstraint.prepare(
        case.automaton, CPU, prior=prior, pieces=pieces, endings=endings, limits=limits
    )


def random_endings(automaton: Automaton, draw: random.Random) -> Endings | None:
    """Random tokens that seldom precede an end, with random costs. None if the vocabulary has EOS tokens only."""
    size = automaton.vocabulary_size
    others = [token for token in range(size) if token not in automaton.eos_ids]
    ids = np.array(sorted(draw.sample(others, min(len(others), draw.randint(1, 4)))), dtype=np.int64)
    index = np.zeros(size, dtype=np.int64)
    index[ids] = np.arange(1, len(ids) + 1)
    nats = np.array([[draw.choice((0.0, 3.0, inf)) for _ in ids] for _ in range(len(ids) + 1)])
    return Endings(ids, nats, index) if len(ids) else None


def spelling(vocabulary: Vocabulary) -> Callable[[bytes, bool], Sequence[int]]:
    """Greedy tokenization by the longest token. An open text keeps its last token open."""
    ids = {token: id for id, token in enumerate(vocabulary.tokens) if token and id not in vocabulary.eos_ids}
    longest = max(map(len, ids), default=0)

    def spell(text: bytes, closed: bool) -> Sequence[int]:
        tokens, at = [], 0
        while at < len(text):
            size = next((size for size in range(longest, 0, -1) if text[at : at + size] in ids), 0)
            if not size or at + size > len(text):
                return ()
            tokens.append(ids[text[at : at + size]])
            at += size
        return tokens if closed else tokens[:-1]

    return spell


def _search(case: Case, constraint: PreparedConstraint, draw: random.Random) -> Generation:
    options, heuristics = search_options(case.budget, draw), heuristics_of(draw)
    text_of = functools.partial(text_bytes, case.vocabulary)
    return search_of(constraint, options, start=case.start, text_of=text_of, heuristics=heuristics)


def _search_or_sampling(case: Case, draw: random.Random) -> Generation:
    constraint = constraint_of(case, draw)
    if draw.random() < 0.3:
        sampling = sampling_options(case.budget, draw)
        return Sampling(constraint, sampling, start=case.start)
    return _search(case, constraint, draw)


def confirm_gaps(answers: Sequence[Hypothesis]) -> None:
    """Checks that gaps are complete, non-negative, and smallest for the first answer.

    All answers have a proven gap, or none has.
    """
    gaps = [answer.proven_gap for answer in answers if answer.proven_gap is not None]
    if len(gaps) not in (0, len(answers)) or any(not 0.0 <= gap < inf for gap in gaps) or gaps != sorted(gaps):
        raise AssertionError(f"the proven gaps are {[answer.proven_gap for answer in answers]}")


def by_search(case: Case, draw: random.Random) -> list[Tokens]:
    constraint = constraint_of(case, draw)
    constraint.refuse_early(case.model, len(case.prompt_ids), case.budget, case.start)
    run = _search(case, constraint, draw)
    events: list[BeamStep] = []
    answers = drive(case.model, case.prompt_ids, run, events.append)
    confirm_gaps(answers)
    widest = max(sum(not row.finished for row in event.rows) for event in events)
    if widest > run.size.rows:
        raise AssertionError(f"{widest} rows were read side by side, more than {run.size.rows}")
    token_lists = [answer.tokens for answer in answers]
    if len({text_bytes(case.vocabulary, tokens[:-1]) for tokens in token_lists}) != len(token_lists):
        raise AssertionError("two answers have the same text")
    return token_lists


def by_sampling(case: Case, draw: random.Random) -> list[Tokens]:
    constraint = constraint_of(case, draw)
    constraint.refuse_early(case.model, len(case.prompt_ids), case.budget, case.start)
    run = Sampling(constraint, sampling_options(case.budget, draw), start=case.start)
    return [answer.tokens for answer in drive(case.model, case.prompt_ids, run)]


def in_a_batch(case: Case, draw: random.Random) -> list[Tokens]:
    """Several generations in one engine, each the same as alone."""
    PreparedConstraint.prepare(case.automaton, CPU).refuse_early(
        case.model, len(case.prompt_ids), case.budget, case.start
    )
    seeds = [draw.randrange(2**30) for _ in range(3)]

    def new_run(seed: int) -> Generation:
        return _search_or_sampling(case, random.Random(seed))

    with Engine(case.model, MEMORY_BYTES) as engine, ThreadPoolExecutor(len(seeds)) as callers:

        def ask(seed: int) -> tuple[Hypothesis, ...]:
            return engine.generate(lambda: new_run(seed), case.prompt_ids)

        batch_answers = list(callers.map(ask, seeds))
    alone = [drive(case.model, case.prompt_ids, new_run(seed)) for seed in seeds]
    if batch_answers != alone:
        raise AssertionError(f"in a batch {batch_answers}, alone {alone}")
    for answers in batch_answers:
        confirm_gaps(answers)
    return [answer.tokens for answers in batch_answers for answer in answers]


def by_the_library(case: Case, draw: random.Random) -> list[Tokens]:
    """Answers of transformers' loop over a small random model, with our processor.

    The mode is greedy, sampling or beams.
    """
    if case.start is not None and case.start != getattr(case.automaton, "start", None):
        return by_search(case, draw)
    model = _library_model(case.vocabulary.size, draw.randrange(3))
    processor = ConstraintLogitsProcessor(case.automaton, case.budget)
    torch.manual_seed(draw.randrange(2**30))
    mode = draw.choice(({"do_sample": False}, {"do_sample": True}, {"do_sample": False, "num_beams": 4}))
    prompt = torch.tensor([[token % case.vocabulary.size for token in case.prompt_ids]])
    eos_ids = list(case.vocabulary.eos_ids)
    settings = GenerationConfig(max_new_tokens=case.budget, eos_token_id=eos_ids, pad_token_id=eos_ids[0], **mode)
    with torch.inference_mode():
        (row,) = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), generation_config=settings, logits_processor=[processor]
        )
    tokens = row[prompt.shape[1] :].tolist()
    ends = [index for index, token in enumerate(tokens) if token in case.vocabulary.eos_ids]
    return [tuple(tokens[: ends[0] + 1]) if ends else tuple(tokens)]


@functools.lru_cache(maxsize=64)
def _library_model(vocabulary_size: int, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary_size, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=1024, initializer_range=1.0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def text_bytes(vocabulary: Vocabulary, ids: Sequence[int]) -> bytes:
    return b"".join(vocabulary.tokens[token] or b"\xff" for token in ids)


PATHS: dict[str, tuple[Path, float]] = {  # with how often each is taken
    "search": (by_search, 0.6),
    "sampling": (by_sampling, 0.17),
    "crowd": (in_a_batch, 0.15),
    "library": (by_the_library, 0.08),
}
