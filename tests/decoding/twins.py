"""The step in tensors against its slow twin, one random search at a time: equal to the last bit, row by row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from compiler.token_automaton import TokenAutomaton
from decoding.arrays import Array, count_up, like
from decoding.beams import DEAD_SCORE, Beams
from decoding.endings import LONGEST, Endings
from decoding.estimate import class_costs, cost_to_go
from decoding.forced import FREE
from decoding.lessons import Lessons
from decoding.options import SearchOptions
from decoding.plan import Plan
from decoding.step import forced_step, step
from decoding.tables import Tables
from decoding.texts import Texts
from decoding.widths import rows_after, tightness
from tests.decoding.random_automata import random_factored, random_table, random_wide
from tests.fakes import HashModel
from tests.reference import Row, Settings, Ways, beam_search

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
        prior = torch.from_numpy(random.normal(scale=3.0, size=size)).log_softmax(dim=0)
        estimate = cost_to_go(self.automaton, prior)
        assert estimate is not None
        self.class_cost = class_costs(self.automaton, prior) if seed % 5 < 3 else None  # it learns on its way
        if self.class_cost is None:
            estimate = torch.from_numpy(np.where(estimate == 0.0, 0.0, random.exponential(9.0, len(estimate))))
        self.estimate = estimate if seed % 5 < 4 else None
        ends = torch.from_numpy(np.where(random.random(size) < 0.5, random.exponential(3.0, size), np.inf))
        self.end_cost = ends if seed % 7 < 4 else None
        self.ways = self._random_ways(size) if seed % 7 in (1, 3) else None
        self._dictated = self._random_dictation() if seed % 3 == 0 else {}

    @property
    def tight(self) -> int:
        """How tight the budget is, as the search reckons it to keep more rows."""
        return tightness(self.automaton.min_tokens, self.options.max_tokens)

    def _random_ways(self, size: int) -> Ways:
        """From ids, and from pairs of ids, to EOS: as cheap as what is owed, now and then, or unknown."""
        random = self.random

        def way() -> list[tuple[float, int]]:
            nats = np.where(random.random(LONGEST + 1) < 0.7, random.exponential(4.0, LONGEST + 1), np.inf)
            return list(zip(nats.tolist(), random.integers(-1, size, LONGEST + 1).tolist(), strict=True))

        ids = [list(column) for column in zip(*(way() for _ in range(size)), strict=True)]
        pairs = {tuple(random.integers(0, size, 2).tolist()): way() for _ in range(int(random.integers(0, 3 * size)))}
        others = [token for token in range(size) if token not in self.automaton.eos_ids and random.random() < 0.5]
        return Ways(ids, pairs, others)

    @property
    def endings(self) -> Endings | None:
        """The same as the fast search has them."""
        if self.ways is None:
            return None
        size, keys = self.automaton.vocabulary_size, sorted(self.ways.pairs)
        ids = np.array(self.ways.ids)  # [M+1, V, 2]
        pairs = np.array([self.ways.pairs[key] for key in keys]).reshape(len(keys), LONGEST + 1, 2).transpose(1, 0, 2)
        pair = np.array([before * size + token for before, token in keys], dtype=np.int64)
        parts = (
            ids[..., 0], ids[..., 1].astype(np.int64), pair,
            pairs[..., 0], pairs[..., 1].astype(np.int64), np.array(self.ways.first, dtype=np.int64),
        )  # fmt: skip
        return Endings(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))

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
        """The beams after each step."""
        options = self.options
        return beam_search(
            lambda ids: self.model.log_probs(ids).tolist(),
            self.automaton,
            Settings(
                options.max_tokens, options.beams, options.algorithm, options.alpha_min, options.gamma, options.n,
                options.length_penalty, self.pieces, None, self.dictated,
                None if self.estimate is None else self.estimate.tolist(),
                None if self.class_cost is None else self.class_cost.tolist(),
                None if self.end_cost is None else self.end_cost.tolist(),
                self.ways,
            ),
        )

    def fast(self, *, like_an_accelerator: bool = False) -> list[list[Row]]:
        """The same by the fast search; where all live rows are dictated, by `forced_step` if the dice say so.

        like_an_accelerator  in torch's arrays, in shapes that depend on no data
        """
        options = self.options
        tables = Tables.from_automaton(self.automaton, CPU)
        tables = tables if like_an_accelerator else tables.for_search()
        texts = Texts.of(self.pieces, self.automaton.eos_ids, CPU) if self.pieces else None
        plan = Plan.prepare(tables, texts, self.estimate, options, self.end_cost, self.tight, self.endings)
        lessons = None
        if self.class_cost is not None and options.algorithm == "banked":
            lessons = Lessons(self.automaton, tables, self.class_cost, plan.estimates())
        return self._search(tables, plan, lessons)

    def _search(self, tables: Tables, plan: Plan, lessons: Lessons | None) -> list[list[Row]]:
        eos_ids, distance, options = self.automaton.eos_ids, self.automaton.distance, self.options
        beams, ids = Beams.start(self.automaton.start, tables.distance), [()]
        history: list[list[Row]] = []
        finished: list[Row] = []
        for budget_before in range(options.max_tokens, 0, -1):
            live = np.flatnonzero(distance[np.asarray(beams.state)]).tolist()
            if not live:
                break
            number = options.max_tokens - budget_before + 1
            only, log_probs, leader = self._read(beams, [ids[row] for row in live], live, tables, budget_before)
            if lessons is not None:
                lessons.learn(np.asarray(beams.state)[live], leader, only)
                learned = lessons.estimate(number)
                plan = plan if learned is None else plan.with_learned(learned)
            kept_rows = rows_after(number, options.beams, options.max_tokens, self.tight)
            step_plan = plan.keeping(kept_rows) if options.algorithm == "banked" else plan
            floor = self._floor(finished)
            beams = self._step(beams, only, log_probs, leader, tables, step_plan, budget_before, floor)
            kept = beams.score != DEAD_SCORE
            assert kept.tolist() == sorted(kept.tolist(), reverse=True)  # the dead ones are last
            beams = beams.select(count_up(kept, int(kept.sum())))
            columns = (beams.parent, beams.token, beams.state, beams.score, beams.log_prob)
            rows = list(zip(*(column.tolist() for column in columns), strict=True))
            ids = [ids[parent] + ((token,) if parent in live else ()) for parent, token, *_ in rows]
            history.append([Row(tokens, *row[2:]) for tokens, row in zip(ids, rows, strict=True)])
            if options.algorithm == "banked":
                alive = [number for number, row in enumerate(rows) if distance[row[2]] != 0]
                finished += history[-1][len(alive) :]
                beams, ids = beams.select(count_up(kept, len(alive))), ids[: len(alive)]
                assert alive == list(range(len(alive))) and len(alive) <= kept_rows
        assert all(row.ids[-1] in eos_ids for row in finished)
        return history

    def _floor(self, finished: list[Row]) -> float:
        """What a row must be above; answers are distinct as ids."""
        options = self.options
        power, best = options.length_penalty, dict[tuple[int, ...], float]()
        for row in finished:
            ids = _cut(row.ids, self.automaton.eos_ids)[:-1]
            best[ids] = max(row.log_prob / (len(ids) + 1) ** power, best.get(ids, float("-inf")))
        if options.algorithm == "abs" or len(best) < options.n:
            return float("-inf")
        return sorted(best.values())[-options.n] * options.max_tokens**power

    def _read(
        self, beams: Beams, prefixes: list[tuple[int, ...]], live: list[int], tables: Tables, budget_before: int
    ) -> tuple[Array, Tensor, Array]:
        """What each live row may only take, or FREE, the log-probs after it, and the best of each chunk."""
        only = [self.dictated(state, budget_before - 1) for state in beams.state[live].tolist()]
        allowed = torch.tensor([FREE if token is None else token for token in only], dtype=torch.int64)
        log_probs = torch.stack([self.model.log_probs(prefix) for prefix in prefixes])
        return like(tables.distance, allowed), log_probs, tables.best_of_chunks(log_probs)

    def _step(
        self, beams: Beams, only: Array, log_probs: Tensor, leader: Array, tables: Tables, plan: Plan,
        budget_before: int, floor: float,
    ) -> Beams:
        dictated = (only != FREE).tolist()
        if not all(dictated) or self.random.random() < 0.3:
            allowed = only if any(dictated) else None
            return step(beams, log_probs, tables, plan, budget_before, allowed, floor, leader)
        own = like(tables.distance, log_probs)[count_up(only, len(only)), only]
        peak = like(tables.distance, log_probs.amax(dim=1))
        return forced_step(beams, only, own, peak, tables, plan, budget_before, floor)


def differences(case: Case, *, like_an_accelerator: bool = False) -> list[str]:
    """What the fast search does otherwise than the slow one: nothing, by right."""
    eos_ids, found = case.automaton.eos_ids, []
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
