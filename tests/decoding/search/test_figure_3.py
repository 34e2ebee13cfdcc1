"""Replays the paper's figures 1 and 3 with their logits.

Errors of the figures, which this test does not expect:
- Figure 1 prints d(q4) = 2. Its own table leads from q4 by eos to the accepting q5, so d(q4) = 1, which the other
  distances (2, 3, 4) and the alphas of figure 3 (.625 for "cat toy" with two tokens left) need.
- Figure 3 breaks off in the middle and shows t = 5 twice.
- It labels every dropped word with q1, also those dropped for want of budget: "floor" at t = 7 would stay in q2, and
  "." and "and" at t = 9 in q4.
- At t = 8 it leaves "favorite" (16.2) standing; q3 is two tokens from acceptance, with one left, so it is dropped.
- Progress words are often printed without their push ("coffee" 14.2 at t = 2 is pushed to 15.8).

What the figure does not print is chosen so that the run comes out: words not listed get 5.0. After "... spilled on
the cat" the push of "toy" from 14.0 to 17.1 needs a peak of 18.1 among the words not shown; as the row goes on with
"'s" at 17.8, that word must be a dropped one, and eos is the only one that q3 drops. After "... was spilled on the"
the model must be unsure (16.5 for tokens that are not listed), or the forced "cat" at full push would win a place.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
import torch

from compiler.lifting import UNREACHABLE, TokenAutomaton, from_table
from decoding.generation import BeamStep
from decoding.options import SearchOptions, push_up
from decoding.search import generate
from decoding.search.abs_search import step
from decoding.search.beams import DEAD_SCORE, Beams
from decoding.tensors import ExplicitStates
from tests.fake_models import ScriptedModel
from tests.tables import table

VOCABULARY = "The A coffee lazy spilled was on over the a cat toy toys 's and owner floor favorite by . , eos"
WORDS = VOCABULARY.split()
ID = {word: number for number, word in enumerate(WORDS)}
EOS = ID["eos"]
T = 9
Q = {"q0": 1, "q1": 2, "q2": 3, "q3": 4, "q4": 5, "q5": 6}  # our numbers; 0 is dead, and q5 is "after eos"

FIGURE = table("figure_3")
LOGITS, STEPS = FIGURE["logits"], FIGURE["step"]


def _automaton() -> TokenAutomaton:
    """Figure 1's automaton. As in the figure, "toys" counts as the concept toy."""
    column = {"coffee": 0, "cat": 1, "toy": 2, "toys": 2}
    return from_table(
        np.array([column.get(word, 3) for word in WORDS]),
        np.array([[2, 1, 1, 0], [1, 1, 1, 1], [2, 3, 1, 2], [3, 3, 4, 3], [4, 4, 4, 4]]),
        np.array([False, False, False, False, True]),
        0,
        eos_ids=(EOS,),
    )


def _ids(text: str) -> tuple[int, ...]:
    return tuple(ID[word] for word in text.split())


def _model() -> ScriptedModel:
    script = {_ids(text): {ID[word]: logit for word, logit in row.items()} for text, row in LOGITS.items()}
    fill = {_ids("The coffee was spilled on the"): 16.5}
    return ScriptedModel(len(WORDS), (EOS,), script, floor=5.0, fill=fill, prompt_length=1)


def _run(rank_by: str) -> tuple[list[BeamStep], str]:
    events: list[BeamStep] = []
    options = SearchOptions(max_tokens=T, beams=2, algorithm="abs", alpha_min=0.25, gamma=1.0, rank_by=rank_by)
    (answer,) = generate(_model(), (0,), _automaton(), options, on_step=events.append)
    return events, " ".join(WORDS[token] for token in answer.tokens)


def _pushed_logits(text: str) -> dict[str, float]:
    """The logits of all kept words after `text`, with the step's push."""
    automaton, log_probs, device = _automaton(), _model().log_probs((0, *_ids(text))), torch.device("cpu")
    state = reduce(automaton.advance, _ids(text), automaton.start)
    states = ExplicitStates.from_automaton(automaton, device)
    options = SearchOptions(max_tokens=T, algorithm="abs", alpha_min=0.25)
    successor = step(
        Beams.start(state, states.distance), log_probs[None], states, options, budget_before=T - len(_ids(text)),
        count=99,
    )
    word, logit = next(iter(LOGITS[text].items()))
    normaliser = logit - float(log_probs[ID[word]])
    rows = zip(successor.token.tolist(), successor.score.tolist(), strict=True)
    return {WORDS[token]: score + normaliser for token, score in rows if score != DEAD_SCORE}


def test_table_and_distances_are_those_of_figure_1() -> None:
    automaton = _automaton()
    figure = table("figure_1")
    for state, row in figure["states"].items():
        for word, target in zip(figure["columns"][:-1], row, strict=False):
            state_after = automaton.advance(Q[state], ID[word])
            if state == "q5" and word == "eos":
                continue  # padding: after EOS only EOS, at no cost
            if target == "q1":
                assert automaton.distance[state_after] == UNREACHABLE
            else:
                assert state_after == Q[target]
    assert [int(automaton.distance[Q[state]]) for state in figure["states"]] == [4, UNREACHABLE, 3, 2, 1, 0]


@pytest.mark.parametrize("rank_by", ["score", "log_prob"])
def test_two_beams_find_the_figures_sentence(rank_by: str) -> None:
    events, answer = _run(rank_by)
    for event, printed in zip(events, STEPS, strict=True):
        assert [" ".join(WORDS[token] for token in row.tokens) for row in event.rows] == printed["beam"]
        assert [row.state for row in event.rows] == [Q[name] for name in printed["states"]]
    assert answer == "The coffee spilled on the cat 's toy eos"


def test_the_alphas_are_the_twelve_of_the_figure() -> None:
    events, _ = _run("score")
    alphas = [{push_up(4, T, 0.25, 1.0)}]
    for event in events[:-1]:
        alphas.append({push_up(row.distance, event.budget_after, 0.25, 1.0) for row in event.rows})
    for alpha, printed, event in zip(alphas, STEPS, events, strict=True):
        assert sorted(alpha) == pytest.approx(sorted(printed["alphas"]), abs=5e-4)
        assert {row.alpha for row in event.rows} <= alpha


@pytest.mark.parametrize("text", LOGITS)
def test_exactly_the_words_pruned_in_the_figure_are_pruned(text: str) -> None:
    logits = _pushed_logits(text)
    assert [word for word in LOGITS[text] if word not in logits] == FIGURE["dropped"].get(text, [])


@pytest.mark.parametrize(
    ("text", "word", "logit"),
    [
        ("The coffee spilled on the cat", "toy", 17.1),
        ("The coffee spilled on the cat 's", "toys", 20.2),
        ("The coffee spilled on the cat 's", "toy", 20.2),
        ("The coffee spilled on the", "cat", 17.8),
        ("The coffee spilled on", "the", 22.6),
    ],
)
def test_the_logits_after_the_push_are_those_printed(text: str, word: str, logit: float) -> None:
    assert _pushed_logits(text)[word] == pytest.approx(logit, abs=0.05)


def test_log_prob_decides_between_toy_and_toys_at_full_push() -> None:
    events, _ = _run("score")
    first, second = events[7].rows
    assert first.score == second.score
    assert first.log_prob > second.log_prob
