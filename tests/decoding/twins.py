"""The step in tensors against its slow twin, one random search at a time: equal to the last bit, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from compiler.token_automaton import TokenAutomaton
from decoding.arrays import count_up, like
from decoding.beams import DEAD_SCORE, Beams, Tables
from decoding.forced import FREE
from decoding.options import SearchOptions
from decoding.plan import Plan
from decoding.step import forced_step, step
from decoding.texts import Texts
from tests.decoding.random_automata import random_factored, random_table, random_wide
from tests.fakes import HashModel
from tests.reference import Row, Settings, beam_search

MODELS = {
    "smooth": {},
    "many ties in a row": {"levels": 3},
    "rows that tie with each other": {"levels": 2, "memory": 0},
    "impossible tokens": {"zeros": 0.7},
    "certain tokens": {"spread": 200.0},
    "ties and impossible tokens": {"levels": 2, "memory": 1, "zeros": 0.5},
}
MAKERS = {"table": random_table, "factored": random_factored, "wide": random_wide}
CPU = torch.device("cpu")


class Case:
    """A random automaton, model and options; with `texts` also bytes for the ids, with `dictated` also dictated ids."""

    def __init__(self, maker: str, kind: str, algorithm: str, seed: int) -> None:
        self.random = random = np.random.default_rng([seed, *f"{maker} {kind} {algorithm}".encode()])
        self.automaton: TokenAutomaton = MAKERS[maker](random)
        size, eos_ids = self.automaton.vocabulary_size, self.automaton.eos_ids
        self.model = HashModel(size, eos_ids, seed=seed, **MODELS[kind])
        self.options = SearchOptions(
            max_tokens=self.automaton.min_tokens + int(random.integers(0, 6)),
            beams=int(random.integers(1, 13)),
            algorithm=algorithm,
            alpha_min=float(random.choice([0.0, 0.25, 0.5, 1.0])),
            gamma=float(random.choice([0.5, 1.0, 2.0, 3.7])),
            length_penalty=float(random.choice([0.0, 0.0, 0.6, 1.0])),
        )
        self.options = replace(self.options, n=int(random.integers(1, self.options.beams + 1)))
        letters = [bytes(random.choice(list(b" ab"), int(random.integers(0, 3))).tolist()) for _ in range(size)]
        self.pieces = [b"" if id in eos_ids else text for id, text in enumerate(letters)] if seed % 2 else None
        estimate = np.where(self.automaton.distance == 0, 0.0, random.exponential(9.0, self.automaton.states))
        self.estimate = estimate if seed % 5 < 2 else None
        self._dictated = self._random_dictation() if seed % 3 == 0 else {}

    def _random_dictation(self) -> dict[int, int]:
        """For some states any one of the ids that do not lead to the dead state."""
        automaton, found = self.automaton, {}
        for state in range(automaton.states):
            alive = automaton.distance[automaton.successors(state)[automaton.token_class]] < automaton.states + 1
            if alive.any() and self.random.random() < 0.4:
                found[state] = int(self.random.choice(np.flatnonzero(alive)))
        return found

    def dictated(self, state: int, budget_after: int) -> int | None:
        """The one token a state may take, unless it would be too late after it."""
        token = self._dictated.get(state)
        if token is None or self.automaton.distance[self.automaton.advance(state, token)] > budget_after:
            return None
        return token

    def slow(self) -> list[list[Row]]:
        options = self.options
        return beam_search(
            lambda ids: self.model.log_probs(ids).tolist(),
            self.automaton,
            Settings(
                options.max_tokens, options.beams, options.algorithm, options.alpha_min, options.gamma, options.n,
                options.length_penalty, self.pieces, None, self.dictated,
                None if self.estimate is None else self.estimate.tolist(),
            ),
        )

    def fast(self, *, like_an_accelerator: bool = False) -> list[list[Row]]:
        """The beams after each step; where all live rows are dictated, by `forced_step` if the dice say so.

        like_an_accelerator  in torch's arrays, in shapes that depend on no data
        """
        options, eos_ids, distance = self.options, self.automaton.eos_ids, self.automaton.distance
        tables = Tables.from_automaton(self.automaton, CPU)
        tables = tables if like_an_accelerator else tables.for_search()
        texts = Texts.of(self.pieces, eos_ids, CPU) if self.pieces else None
        estimate = None if self.estimate is None else torch.from_numpy(self.estimate)
        plan = Plan.prepare(tables, texts, estimate, options)
        beams, ids = Beams.start(self.automaton.start, tables.distance), [()]
        history: list[list[Row]] = []
        sums: list[float] = []  # of what has finished, over length ** length_penalty
        for budget_before in range(options.max_tokens, 0, -1):
            live = np.flatnonzero(distance[np.asarray(beams.state)]).tolist()
            if not live:
                break
            floor = float("-inf")
            if options.algorithm == "banked" and len(sums) >= options.n:
                floor = sorted(sums)[-options.n] * options.max_tokens**options.length_penalty
            beams = self._step(beams, [ids[row] for row in live], live, tables, plan, budget_before, floor)
            kept = beams.score != DEAD_SCORE
            assert kept.tolist() == sorted(kept.tolist(), reverse=True)  # the dead ones are last
            beams = beams.select(count_up(kept, int(kept.sum())))
            columns = (beams.parent, beams.token, beams.state, beams.score, beams.log_prob)
            rows = list(zip(*(column.tolist() for column in columns), strict=True))
            ids = [ids[parent] + ((token,) if parent in live else ()) for parent, token, *_ in rows]
            history.append([Row(tokens, *row[2:]) for tokens, row in zip(ids, rows, strict=True)])
            if options.algorithm == "banked":
                alive = [number for number, row in enumerate(rows) if distance[row[2]] != 0]
                ended = history[-1][len(alive) :]
                sums += [row.log_prob / len(row.ids) ** options.length_penalty for row in ended]
                beams, ids = beams.select(count_up(kept, len(alive))), ids[: len(alive)]
                assert alive == list(range(len(alive))) and len(alive) <= options.beams
        return history

    def _step(
        self, beams: Beams, prefixes: list[tuple[int, ...]], live: list[int], tables: Tables, plan: Plan,
        budget_before: int, floor: float,
    ) -> Beams:
        only = [self.dictated(state, budget_before - 1) for state in beams.state[live].tolist()]
        allowed = torch.tensor([FREE if token is None else token for token in only], dtype=torch.int64)
        allowed = like(tables.distance, allowed)
        log_probs = torch.stack([self.model.log_probs(prefix) for prefix in prefixes])
        if None in only or self.random.random() < 0.3:
            free = None if all(token is None for token in only) else allowed
            return step(beams, log_probs, tables, plan, budget_before, free, floor)
        own = like(tables.distance, log_probs)[count_up(allowed, len(allowed)), allowed]
        peak = like(tables.distance, log_probs.amax(dim=1))
        return forced_step(beams, allowed, own, peak, tables, plan, budget_before, floor)


def differences(case: Case, *, like_an_accelerator: bool = False) -> list[str]:
    """What the fast search does otherwise than the slow one: nothing, by right."""
    eos_ids = case.automaton.eos_ids
    found = []
    slow, fast = case.slow(), case.fast(like_an_accelerator=like_an_accelerator)
    for number, (expected, rows) in enumerate(zip(slow, fast, strict=False), start=1):
        want = [(_cut(row.ids, eos_ids), row.state, row.score, row.log_prob) for row in expected]
        have = [(row.ids, row.state, row.score, row.log_prob) for row in rows]
        if want != have:
            found.append(f"step {number}: {have} for {want}")
    for expected in slow[len(fast) :]:  # the fast one stops when no row is live
        left = [] if case.options.algorithm == "banked" else [row.ids for row in fast[-1]]
        if [_cut(row.ids, eos_ids) for row in expected] != left:
            found.append("the rows changed after all were finished")
    return found


def compare_many(cases: int) -> int:
    """Compares so many random searches of each algorithm; prints how many differ, and returns 1 where any does."""
    torch.set_num_threads(1)
    kinds = [(maker, kind) for maker in MAKERS for kind in MODELS]
    wrong = 0
    for algorithm in ("abs", "banked"):
        for number in range(cases):
            maker, kind = kinds[number % len(kinds)]
            for difference in differences(Case(maker, kind, algorithm, number // len(kinds))):
                print(f"{algorithm}, {maker}, {kind}, seed {number // len(kinds)}: {difference}")
                wrong += 1
        print(f"{algorithm}: {cases} random automata compared")
    return int(wrong > 0)


def _cut(ids: tuple[int, ...], eos_ids: tuple[int, ...]) -> tuple[int, ...]:
    ends = [place for place, token in enumerate(ids) if token in eos_ids]
    return ids[: ends[0] + 1] if ends else ids
