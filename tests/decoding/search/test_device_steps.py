"""Steps as on a GPU, with tensors on the CPU.

How often the host waits, and searches with graphs beside searches without.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from decoding.engine import Engine
from decoding.generation import BeamStep, Hypothesis
from decoding.model import Scores, StepInput
from decoding.options import Algorithm, SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of
from decoding.tensors import ExplicitStates, Graphs
from tests.decoding.differential import ALGORITHMS, MODELS, Case
from tests.decoding.tensors.recorded_graphs import HostWaits, RecordedCapture

SEEDS = {"table": (0, 3, 4), "factored": (0, 3, 4), "wide": (0,)}
Result = tuple[tuple[Hypothesis, ...], list[BeamStep]]


@pytest.fixture(autouse=True)
def tensors_for_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches take torch's arrays on the CPU, too."""
    monkeypatch.setattr(ExplicitStates, "for_search", lambda tables: tables)


def searched(case: Case, constraint: PreparedConstraint) -> Result:
    events: list[BeamStep] = []
    return drive(case.model, (), search_of(constraint, case.options, heuristics=case.heuristics), events.append), events


@pytest.mark.parametrize("maker", SEEDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.sample(4)
def test_the_host_waits_once_in_each_step(algorithm: Algorithm, maker: str) -> None:
    steps = 0
    for kind in MODELS:
        for seed in SEEDS[maker]:
            case = Case(maker, kind, algorithm, seed)
            with torch.inference_mode():
                search = search_of(case.constraint, case.options, heuristics=case.heuristics)
                session, first = case.model.prefill(())
                scores = Scores.of_prompt(first)
                while True:
                    with HostWaits() as waits:
                        made = search.advance(scores)
                        feed = None if search.done else search.feed()
                    assert waits.calls == ["cpu", "numpy"] * len(made)  # the second call finds a copy on the host
                    steps += len(made)
                    if feed is None:
                        break
                    (scores,) = case.model.step([StepInput(session, *feed)])
    assert steps > 20


@pytest.mark.parametrize(("options", "waits_a_step"), [({}, 1), ({"top_k": 3, "min_p": 0.1}, 1), ({"top_p": 0.9}, 2)])
def test_the_host_waits_once_in_each_step_of_sampling(options: dict[str, Any], waits_a_step: int) -> None:
    steps = 0
    for seed in range(8):
        case = Case("factored", "smooth", "banked", seed)
        with torch.inference_mode():
            least = case.automaton.min_tokens
            sampling = Sampling(case.constraint, SamplingOptions(least + 4, seed=seed, n=3, **options))
            sampling._allowed_ids = lambda classes: None  # type: ignore[method-assign]  # as on an accelerator
            session, first = case.model.prefill(())
            scores = Scores.of_prompt(first)
            while not sampling.done:
                with HostWaits() as waits:
                    sampling.advance(scores)
                    feed = sampling.feed()
                assert waits.calls == ["__bool__"] * (waits_a_step - 1) + ["cpu", "numpy"]
                steps += 1
                if not sampling.done:
                    (scores,) = case.model.step([StepInput(session, *feed)])
    assert steps > 15


@pytest.mark.parametrize("maker", SEEDS)
def test_graphs_give_the_same_beams_and_answers(maker: str) -> None:
    replays = forced = 0
    for kind in MODELS:
        for seed in SEEDS[maker]:
            case = Case(maker, kind, "banked", seed)
            graphs = Graphs(RecordedCapture())
            captured = replace(case.constraint, graphs=graphs)
            expected = searched(case, case.constraint)
            for _ in range(3):  # in the third run even the first step is a replay
                assert searched(case, captured) == expected
            replays += graphs.replays
            forced += graphs.replays if case.forced is not None else 0
    assert replays > 25 and forced > 10


def test_requests_with_other_options_have_graphs_of_their_own() -> None:
    case = Case("factored", "many ties in a row", "banked", 6)
    graphs = Graphs(RecordedCapture())
    captured = replace(case.constraint, graphs=graphs)
    for turn in range(30):
        case.options = SearchOptions(case.automaton.min_tokens + 2 + turn % 2, beams=1 + turn % 3)
        case.heuristics = replace(case.heuristics, group_cost=float(turn % 2))
        assert searched(case, captured) == searched(case, case.constraint)
    assert graphs.replays > 10


def test_constraints_share_graphs_of_one_model_in_an_engine() -> None:
    case, graphs = Case("factored", "smooth", "banked", 7), Graphs(RecordedCapture(), shapes_max=12)
    options = SearchOptions(case.automaton.min_tokens + 6, beams=3, n=3)
    # Steps of one shape with other costs to go, and other scores.
    constraints = [case.constraint, replace(case.constraint, cost_to_go=None)]
    expected = [drive(case.model, (), search_of(constraint, options)) for constraint in constraints] * 8
    assert expected[0] != expected[1]
    captured = [replace(constraint, graphs=graphs) for constraint in constraints] * 8
    with Engine(case.model, 2**30) as engine, ThreadPoolExecutor(16) as callers:
        answers = callers.map(lambda constraint: engine.generate(lambda: search_of(constraint, options), ()), captured)
        assert list(answers) == expected
    assert graphs.replays > 40


def test_algorithm_1_takes_no_graphs() -> None:
    case = Case("table", "smooth", "abs", 1)
    graphs = Graphs(RecordedCapture())
    assert searched(case, replace(case.constraint, graphs=graphs)) == searched(case, case.constraint)
    assert graphs.replays == 0
