"""The benchmark of predictions under rules of Declare."""

from __future__ import annotations

import functools
import itertools
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.declare.__main__ import lengths_of, measure_log, tasks_of
from benchmarks.declare.logs import EventLog, Rules, Trace, read_log, state_after
from benchmarks.declare.models import CachedScorer, LstmScorer, NgramScorer
from benchmarks.declare.prediction import SYSTEMS, MaskedGreedy, edit_distance, free_automaton, similarity, systems_of
from benchmarks.report.declare import declare_section
from benchmarks.report.results_page import stored_runs
from compiler.lifting import UNREACHABLE
from decoding.label_scoring import ScorerModel
from decoding.model import StepInput

A, B, C = range(3)
ACTIVITIES = ("Open case", "B", "C")
RULES = ('existence("Open case")', 'response("Open case", "B")', 'not_chain_succession("B", "C")')
TRACES: tuple[Trace, ...] = ((A, B), (A, C, B), (C, A, B), (A, B, A, B)) * 5


def fixed_model(*probs: float) -> ScorerModel:
    """A model with the same log-probs after each prefix."""
    row = np.log(probs)
    return ScorerModel(lambda prefixes: np.tile(row, (len(prefixes), 1)), len(probs) - 1)


def xes(*traces: str, namespace: str = "") -> str:
    def event(name: str) -> str:
        return f'<event><string key="org:group" value="x"/><string key="concept:name" value="{name}"/></event>'

    bodies = (f'<trace><string key="concept:name" value="T"/>{"".join(map(event, trace))}</trace>' for trace in traces)
    return f"<log{namespace}>{''.join(bodies)}</log>"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("sepsis", "BPIC_2020_travel"):
        folder = tmp_path / "data" / name
        (folder / "log").mkdir(parents=True)
        (folder / "model").mkdir()
        (folder / "log" / "test_20_all.xes").write_text(xes("ab", "abc", "b", "a", "c"), encoding="utf-8")
        decl = "activity a\nbind a: org:group\norg:group: x\nExistence[a] | |\nChain Response[a, b] | | |\n"
        (folder / "model" / "test_all_85-100.decl").write_text(decl, encoding="utf-8")
    namespace = ' xmlns="http://www.xes-standard.org/"'
    (tmp_path / "data" / "sepsis" / "log" / "train_80_all_01n.xes").write_text(
        xes("d", "aab", namespace=namespace), encoding="utf-8"
    )
    return tmp_path


def test_logs_and_rules_are_read(checkout: Path) -> None:
    log = read_log(checkout, "sepsis", "01n")
    assert log.activities == ("a", "b", "c", "d") and log.rules == ('existence("a")', 'chain_response("a", "b")')
    assert log.training == ((3,), (0, 0, 1)) and log.test[:2] == ((0, 1), (0, 1, 2)) and log.usual_length == 3
    rules = Rules(log.rules, log.activities)
    assert [rules.holds(trace) for trace in log.test] == [True, True, False, False, False]


def test_a_log_without_a_training_part_is_divided(checkout: Path) -> None:
    log = read_log(checkout, "BPIC_2020_travel", "01n")
    assert log.divided and len(log.training) == 4 and len(log.test) == 1


@pytest.mark.parametrize(
    "rules",
    [
        RULES,
        ('chain_precedence("Open case", "B")', 'alternate_response("B", "C")'),
        ('not_co_existence("B", "C")', 'alternate_precedence("Open case", "B")', 'exactly("Open case", 2)'),
    ],
)
def test_automaton_and_formulas_agree_on_all_traces(rules: tuple[str, ...]) -> None:
    found = Rules(rules, ACTIVITIES)
    for length in range(1, 6):
        for trace in itertools.product(range(3), repeat=length):
            assert (found.distance(trace) == 1) is found.holds(trace), trace


@given(*[st.lists(st.integers(0, 2), max_size=5)] * 2)
def test_the_edit_distance_is_that_of_the_recursion(first: list[int], second: list[int]) -> None:
    @functools.cache
    def slow(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        best = min(slow(i - 1, j) + 1, slow(i, j - 1) + 1, slow(i - 1, j - 1) + (first[i - 1] != second[j - 1]))
        if i > 1 and j > 1 and first[i - 2 : i] == second[j - 2 : j][::-1]:
            best = min(best, slow(i - 2, j - 2) + 1)
        return best

    assert edit_distance(tuple(first), tuple(second)) == slow(len(first), len(second))


def test_similarity_lies_between_nothing_and_everything() -> None:
    assert similarity((), ()) == similarity((A, B), (A, B)) == 1.0
    assert similarity((A, B), (B, A)) == 0.5 and similarity((A,), (B,)) == 0.0


@pytest.mark.parametrize("kind", [NgramScorer, functools.partial(LstmScorer, seed=1)])
def test_models_learn_and_obey_the_protocol(kind: Any) -> None:
    model = ScorerModel(CachedScorer(kind(TRACES, 3)), 3)
    rows = model.log_probs([[], [A, C], [C]])
    assert torch.allclose(rows.exp().sum(dim=1), torch.ones(3), atol=1e-5)
    assert int(rows[1].argmax()) == B  # in all traces
    session, first = model.prefill((A,))
    scores = model.step([StepInput(session, torch.tensor([0, 0]), torch.tensor([[C, B], [B, A]]))])[0]
    scored = model.score((A,), (C, B, A))
    assert torch.allclose(scores.token_log_probs[0], torch.tensor(scored.log_probs[1:2]), atol=1e-5)
    assert torch.allclose(scores.log_probs[0], model.log_probs([[A, C, B]])[0], atol=1e-5)
    assert abs(float(first[C]) - scored.log_probs[0]) < 1e-5


def test_ours_satisfy_where_others_cannot() -> None:
    rules = Rules(RULES, ACTIVITIES)
    model = fixed_model(0.3, 0.05, 0.55, 0.1)  # it never ends by itself
    systems = systems_of(model, rules, ACTIVITIES)
    assert tuple(systems) == SYSTEMS
    for budget, seed in itertools.product((3, 4, 6), range(5)):
        for name, complete in systems.items():
            trace = complete((C,), budget, seed)
            assert len(trace) < budget
            if name.startswith("ours"):
                assert rules.holds((C, *trace)), (name, trace)
    assert systems["greedy"]((C,), 4, 0) == systems["masks, greedy"]((C,), 4, 0) == (C, C, C)
    assert systems["ours, greedy"]((C,), 4, 0) == (C, A, B)
    assert not rules.holds((C, C, C, C))


def test_masks_end_where_the_model_ends() -> None:
    rules = Rules(('existence("B")',), ACTIVITIES)
    masked = MaskedGreedy(fixed_model(0.1, 0.3, 0.2, 0.4), rules.automaton)
    assert masked((A,), 9, 0) == (B,)  # the end is more probable, but not before B
    assert state_after(free_automaton(ACTIVITIES), (A, B)) == free_automaton(ACTIVITIES).start


def test_a_log_is_measured_and_reported() -> None:
    log = EventLog(
        "log", activities=ACTIVITIES, training=TRACES, test=((A, C, B), (A, B), (B, C)), rules=RULES, divided=True
    )
    rules = Rules(log.rules, log.activities)
    assert rules.distance((B, C)) == UNREACHABLE
    assert lengths_of(log) == {"first activity": (1,), "half": (1, 2, 3)}
    assert tasks_of(log, rules, (1, 2, 3)) == [((A,), (C, B)), ((A,), (B,)), ((B,), (C,)), ((A, C), (B,))]
    row = measure_log(log, Namespace(traces=None, seed=1))
    assert row["test_satisfied"] == 2 and row["training_satisfied"] == 20 and row["states"] > 1
    for model in row["models"]:
        suffixes = {each["system"]: each for each in model["suffixes"] if each["from"] == "half"}
        assert len(model["suffixes"]) == 2 * len(suffixes)
        assert all(suffixes[f"ours, {kind}"]["satisfied"] == 4 for kind in ("greedy", "sampling", "beams"))
        assert model["next"]["events"] == 10 and model["next"]["right_ours"] >= 5
    text = declare_section(stored_runs()["declare"] | {"rows": [row]})
    assert "| log | LSTM | half | ours, beams | 4 of 4 (100.0 %) |" in text and "four fifths of it" in text
