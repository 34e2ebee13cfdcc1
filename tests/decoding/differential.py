"""Compares the fast search steps with the slow reference on random searches.

All beams must be equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from compiler.lifting import UNREACHABLE, TokenAutomaton
from decoding.forced_tokens import NO_FORCED_TOKEN, ForcedTokens
from decoding.generation import Hypothesis
from decoding.heuristic import Endings, cost_to_go
from decoding.options import DEFAULT, Algorithm, Heuristics, SearchOptions
from decoding.prepared_constraint import Automaton, PreparedConstraint
from decoding.search import abs_search
from decoding.search.banked_search import Ranking, jump_forward, step
from decoding.search.beam_search import NBest
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.tensors import ExplicitStates, TokenStates, arange, like
from tests.decoding.random_automata import random_factored, random_table, random_wide
from tests.fake_models import HashModel
from tests.references.search import Beam, Problem, Row, beam_search, forced_ahead

MODELS: dict[str, dict[str, Any]] = {
    "smooth": {},
    "many ties in a row": {"levels": 3},
    "rows that tie with each other": {"levels": 2, "memory": 0},
    "impossible tokens": {"zeros": 0.7},
    "certain tokens": {"spread": 200.0},
    "ties and impossible tokens": {"levels": 2, "memory": 1, "zeros": 0.5},
}
MAKERS = {"table": random_table, "factored": random_factored, "wide": random_wide}
ALGORITHMS: tuple[Algorithm, ...] = ("abs", "banked")
CPU = torch.device("cpu")
Wholes = NDArray[np.int64]
Step = Callable[[Beams, Tensor, int, float], tuple[Beams, float]]
"""The next beam and the bound `lost`: from a beam, the log-probs after its live rows, the budget before, the floor."""


def random_options(random: np.random.Generator, automaton: TokenAutomaton, algorithm: Algorithm) -> SearchOptions:
    """Options of a search that is possible."""
    beams = int(random.integers(1, 9))
    return SearchOptions(
        max_tokens=automaton.min_tokens + int(random.integers(0, 6)),
        beams=beams,
        algorithm=algorithm,
        alpha_min=float(random.choice([0.0, 0.25, 0.5, 1.0])),
        gamma=float(random.choice([0.5, 1.0, 2.0, 3.7])),
        n=int(random.integers(1, beams + 1)),
        rank_by="score" if random.random() < 0.5 else "log_prob",
        length_penalty=float(random.choice([0.0, 0.0, 0.6, 1.0])),
    )


def random_heuristics(random: np.random.Generator) -> Heuristics:
    """Other heuristics than the default ones."""
    return Heuristics(
        cost_weight=float(random.choice([0.5, 0.8, 1.0])),
        group_cost=float(random.choice([0.0, 1.0, 3.0])),
        rows_per_beam=float(random.choice([0.5, 1.0, 3.0])),
        pool=int(random.choice([1, 2, 8])),
    )


class RandomForced:
    """A forced token for some states, in place of `decoding.forced_tokens.ForcedTokens`."""

    def __init__(self, automaton: TokenAutomaton, random: np.random.Generator) -> None:
        self._automaton, self._token = automaton, np.full(automaton.states, NO_FORCED_TOKEN)
        for state in range(automaton.states):
            live = automaton.distance[automaton.successors(state)[automaton.token_class]] != UNREACHABLE
            if live.any() and random.random() < 0.4:
                self._token[state] = int(random.choice(np.flatnonzero(live)))

    def tokens(self, states: Wholes, budget_after: int) -> Wholes:
        is_late = self._automaton.distance[self.after(states)] > budget_after
        return np.where(is_late, NO_FORCED_TOKEN, self._token[states])

    def ends(self, tokens: Wholes) -> NDArray[np.bool_]:
        return np.isin(tokens, self._automaton.eos_ids)

    def after(self, states: Wholes) -> Wholes:
        pairs = zip(states.tolist(), self._token[states].tolist(), strict=True)
        return np.array(
            [state if token == NO_FORCED_TOKEN else self._automaton.advance(state, token) for state, token in pairs]
        )


def random_endings(automaton: Automaton, random: np.random.Generator) -> Endings:
    """Random endings: some ids other than EOS, and nats after each pair."""
    other_ids = np.setdiff1d(np.arange(automaton.vocabulary_size), automaton.eos_ids)
    ids = np.sort(random.choice(other_ids, min(len(other_ids), int(random.integers(1, 7))), replace=False))
    nats = random.exponential(3.0, (len(ids) + 1, len(ids)))
    nats[random.random(nats.shape) < 0.4] = np.inf
    index = np.zeros(automaton.vocabulary_size, dtype=np.int64)
    index[ids] = np.arange(1, len(ids) + 1)
    return Endings(ids, nats, index)


class Case:
    """A random automaton, model and options. A "banked" case also has costs to go, forced tokens and endings."""

    def __init__(self, maker: str, kind: str, algorithm: Algorithm, seed: int) -> None:
        self.random = random = np.random.default_rng([seed, *f"{maker} {kind} {algorithm}".encode()])
        self.automaton: TokenAutomaton = MAKERS[maker](random)
        size = self.automaton.vocabulary_size
        self.model = HashModel(size, self.automaton.eos_ids, seed=seed, **MODELS[kind])
        self.options = random_options(random, self.automaton, algorithm)
        self.heuristics = DEFAULT if seed % 4 else random_heuristics(random)
        self.cost: Tensor | None = None
        if seed % 5 < 4:
            self.cost = cost_to_go(self.automaton, torch.from_numpy(random.normal(-4.0, 3.0, size)).clamp(max=0.0))
            assert self.cost is not None
        if seed % 5 < 2:
            assert self.cost is not None
            self.cost *= torch.from_numpy(random.exponential(2.0, len(self.cost)))  # the search takes any costs
        banked = algorithm == "banked"
        self.forced = RandomForced(self.automaton, random) if banked and seed % 3 == 0 else None
        self.endings = random_endings(self.automaton, random) if banked and seed % 2 == 0 else None

    @property
    def constraint(self) -> PreparedConstraint:
        """The constraint of the fast search."""
        ids = np.zeros(0, dtype=np.int64) if self.endings is None else self.endings.ids
        tables = ExplicitStates.from_automaton(self.automaton.with_own_classes(ids), CPU)
        return PreparedConstraint(
            automaton=self.automaton, tables=tables, cost_to_go=self.cost,
            forced=cast(ForcedTokens | None, self.forced), endings=self.endings,
        )

    def forced_token(self, state: int, budget_after: int) -> int | None:
        """The forced token of a state, unless acceptance would be too far."""
        token = NO_FORCED_TOKEN if self.forced is None else int(self.forced.tokens(np.array([state]), budget_after)[0])
        return None if token == NO_FORCED_TOKEN else token

    @property
    def problem(self) -> Problem:
        """The same search for the slow reference."""
        endings: dict[tuple[int | None, int], float] = {}
        if self.endings is not None:
            ids = self.endings.ids.tolist()
            for before, row in zip([None, *ids], self.endings.cost.tolist(), strict=True):
                endings |= {(before, token): nats for token, nats in zip(ids, row, strict=True)}
        cost = None if self.cost is None else self.cost.tolist()
        return Problem(
            lambda ids: self.model.log_probs(ids).tolist(), self.automaton, self.options, cost, self.forced_token,
            endings, heuristics=self.heuristics,
        )

    def slow(self) -> list[Beam]:
        """The beams of the slow reference."""
        return beam_search(self.problem)

    def fast(self, *, like_an_accelerator: bool = False) -> list[Beam]:
        """The same by the fast steps.

        like_an_accelerator  in torch's arrays, in shapes that do not depend on data
        """
        states = self.constraint.begin_states(heuristics=self.heuristics, tensors=like_an_accelerator)
        advance = self._abs_step(states) if self.options.algorithm == "abs" else self._banked_step(states)
        distance, options, result = self.automaton.distance, self.options, NBest(self.options, None)
        beams, history = Beams.start(states.start, states.tokens.token_class), list[Beam]()
        ids: list[tuple[int, ...]] = [()]
        for budget_before in range(options.max_tokens, 0, -1):
            live = np.flatnonzero(distance[np.asarray(beams.state)]).tolist()
            if not live:
                break
            log_probs = torch.stack([self.model.log_probs(ids[row]) for row in live])
            successor, lost_score = advance(beams, log_probs, budget_before, result.floor)
            history.append(Beam(_rows(successor, ids, live), lost_score))
            rows = history[-1].rows
            if options.algorithm == "banked":
                rows = [row for row in rows if distance[row.state]]
                assert rows == history[-1].rows[: len(rows)]  # the finished rows are last
                for row in history[-1].rows[len(rows) :]:
                    result.add(Hypothesis(tokens=row.ids, score=row.score, log_prob=row.log_prob))
            beams, ids = successor.select(arange(successor.state, len(rows))), [row.ids for row in rows]
        return history

    def _abs_step(self, states: TokenStates) -> Step:
        def advance(beams: Beams, log_probs: Tensor, budget_before: int, floor: float) -> tuple[Beams, float]:
            return abs_search.step(
                beams, log_probs, states, self.options, budget_before=budget_before, count=self.options.beams
            ), DEAD_SCORE

        return advance

    def _banked_step(self, states: TokenStates) -> Step:
        """Takes `jump_forward` for the stretches that are forced in all rows."""
        ranking = Ranking.of(states.tokens, self.options.beams, self.heuristics, endings=self.endings)
        library = states.tokens.token_class
        problem, stretch = self.problem, 0

        def advance(beams: Beams, log_probs: Tensor, budget_before: int, floor: float) -> tuple[Beams, float]:
            nonlocal stretch
            forced = [self.forced_token(state, budget_before - 1) for state in beams.state.tolist()]
            tokens = like(library, torch.tensor([NO_FORCED_TOKEN if token is None else token for token in forced]))
            if stretch:
                stretch -= 1
                token_log_probs = like(library, log_probs)[arange(tokens, len(tokens)), tokens]
                peak = like(library, log_probs.amax(dim=1))
                return jump_forward(beams, tokens, token_log_probs, peak, states=states, floor=floor), DEAD_SCORE
            forced_tokens = tokens if any(token is not None for token in forced) else None
            successor, lost = step(
                beams, log_probs, states, ranking, budget_before=budget_before, forced=forced_tokens, floor=floor
            )
            reached = successor.state[successor.score != DEAD_SCORE].tolist()
            stretch = forced_ahead([Row((), state) for state in reached], budget_before - 1, problem)
            return successor, float(lost[0])

        return advance


def _rows(beams: Beams, ids: Sequence[tuple[int, ...]], live: Sequence[int]) -> list[Row]:
    """The rows of a beam without padding.

    ids   of the previous beam
    live  the rows of the previous beam that were extended
    """
    padding = (beams.score == DEAD_SCORE).tolist()
    assert padding == sorted(padding)  # padding is last
    columns = (beams.token, beams.state, beams.score, beams.log_prob, beams.parent)
    rows = zip(*(column[: padding.count(False)].tolist() for column in columns), strict=True)
    return [Row((*ids[row[-1]], token) if row[-1] in live else ids[row[-1]], *row) for token, *row in rows]


def differences(case: Case, *, like_an_accelerator: bool = False) -> list[str]:
    """One line per step whose beams differ; empty if none do."""
    pairs = zip_longest(case.slow(), case.fast(like_an_accelerator=like_an_accelerator))
    return [f"step {t}: {fast} instead of {slow}" for t, (slow, fast) in enumerate(pairs, start=1) if slow != fast]


def compare_many(cases: int) -> int:
    """Compares random searches of each algorithm and prints the differences. Returns 1 if there are any."""
    torch.set_num_threads(1)
    kinds = [(maker, kind) for maker in MAKERS for kind in MODELS]
    wrong = 0
    for algorithm in ALGORITHMS:
        for number in range(cases):
            maker, kind = kinds[number % len(kinds)]
            for difference in differences(Case(maker, kind, algorithm, number // len(kinds))):
                print(f"{algorithm}, {maker}, {kind}, seed {number // len(kinds)}: {difference}")
                wrong += 1
        print(f"{algorithm}: {cases} random automata compared")
    return int(wrong > 0)
