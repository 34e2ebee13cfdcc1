"""Other systems run in processes of their own and survive faults. The HMM look-ahead is checked too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import pytest
import torch

from app.settings import BUILT_IN_MODEL
from benchmarks.systems import catalogue, environments, process
from benchmarks.systems.base import ConstraintNotSupported, TextConstraint
from benchmarks.systems.catalogue import SYSTEMS, Entry
from benchmarks.systems.hmm import ROOT, HmmBeam, HmmSearch, SpellingAutomaton
from benchmarks.systems.hmm_model import (
    HiddenMarkovModel,
    batches_by_length,
    baum_welch_round,
    estimate,
    initial_model,
    k_means,
)
from benchmarks.systems.ours import OurSearch
from benchmarks.systems.process import SystemProcess, SystemUnavailable, run_system

SECONDS_MAX = 5.0


@pytest.fixture
def fake() -> Iterator[SystemProcess]:
    entry = Entry("tests.benchmarks.fake_system:Fake", options={"mark": ">"})
    system = SystemProcess(entry, "somewhere", 1, seconds_max=SECONDS_MAX)
    yield system
    system.close()


def ask(system: SystemProcess, pattern: str) -> tuple[str, str]:
    answer = system.ask(TextConstraint(pattern), "p", 7)
    assert answer.ms == answer.prepare_ms + answer.answer_ms >= 0
    return answer.text, answer.error


def test_a_system_prepares_once_for_answers_under_one_constraint(fake: SystemProcess) -> None:
    assert ask(fake, "a") == (">p a 7 1", "")
    assert ask(fake, "a") == (">p a 7 1", "")
    assert ask(fake, "b") == (">p b 7 2", "")


def test_an_inexpressible_constraint_is_reported_and_work_continues(fake: SystemProcess) -> None:
    assert ask(fake, "unsayable") == ("", "ConstraintNotSupported: not this")
    assert ask(fake, "a") == (">p a 7 2", "")


def test_a_dead_or_late_process_is_restarted(fake: SystemProcess) -> None:
    assert ask(fake, "die") == ("", "its process died")
    assert ask(fake, "slow") == ("", f"no answer within {SECONDS_MAX:g} s")
    assert ask(fake, "a") == (">p a 7 1", "")


def test_processor_time_counts_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "WALL_TIMES_MAX", 2)
    entry = Entry("tests.benchmarks.fake_system:Fake")
    with run_system(entry, "somewhere", 1, seconds_max=1.0, clock="process") as system:
        brief = system.ask(TextConstraint("brief"), "p", 7)
        assert not brief.error and brief.answer_ms < 500
        assert ask(system, "busy") == ("", "no answer within 1 s")
        assert ask(system, "slow") == ("", "no answer within 1 s")


def test_a_repeatedly_late_system_is_skipped(fake: SystemProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "TIMEOUTS_MAX", 1)
    ask(fake, "slow")
    assert "skipped" in ask(fake, "a")[1]


def test_a_system_that_fails_to_start_reports_why() -> None:
    answer = run_system(Entry("tests.benchmarks.fake_system:Fake"), "nowhere", 1)
    with answer as system, pytest.raises(SystemUnavailable, match="there is no model here"):
        system.ask(TextConstraint("a"), "p", 1)
    entry = Entry("tests.benchmarks.fake_system:Fake", "an-environment-of-unknown")
    with pytest.raises(SystemUnavailable, match="make reference"):
        SystemProcess(entry, "somewhere", 1, seconds_max=SECONDS_MAX)


def test_every_environment_has_its_file_and_every_file_its_system() -> None:
    used = {entry.environment for entry in SYSTEMS.values() if entry.environment}
    assert used == set(environments.names())
    for name in used:
        lines = (catalogue.REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        assert all(re.fullmatch(r"#.*|[\w.-]+==[\w.]+", line) for line in lines), f"{name} pins not all it asks for"


@pytest.mark.long
def test_our_system_satisfies_patterns_and_concepts() -> None:
    ours = OurSearch(beams=2)
    ours.open(BUILT_IN_MODEL)
    ours.constrain(TextConstraint(r"A [a-z ]*dog[a-z ]*\."))
    assert re.fullmatch(r"A [a-z ]*dog[a-z ]*\.", ours.answer("sentence:", 10).removeprefix(" "))
    ours.constrain(TextConstraint("unread", (), (("dogs", "dog"), ("ball",)), ordered=True))
    assert re.search(r"\bdogs?\b.*\bball\b", ours.answer("sentence:", 10), re.IGNORECASE)
    with pytest.raises(ConstraintNotSupported):
        ours.constrain(TextConstraint())


SPELLINGS = [[(1, 2), (3,)], [(2, 3)]]


def test_spellings_are_found_wherever_they_end() -> None:
    automaton = SpellingAutomaton(SPELLINGS)
    for text in itertools.product(range(5), repeat=5):
        node = ROOT
        for at, token in enumerate(text):
            node = automaton.transitions[node].get(token, ROOT)
            ends = {
                concept
                for concept, forms in enumerate(SPELLINGS)
                for ids in forms if text[: at + 1][-len(ids):] == ids
            }  # fmt: skip
            assert automaton.output[node] == ends, text


def small_hmm() -> HiddenMarkovModel:
    torch.manual_seed(3)
    return HiddenMarkovModel(*(torch.rand(shape).softmax(-1) for shape in ((3,), (3, 3), (3, 5))))


def looking_ahead(ordered: bool) -> HmmSearch:
    """An HMM decoder over the tokens 0 to 4; 4 is EOS."""
    decoder, hmm = HmmSearch(beams=2, states=3), small_hmm()
    decoder._hmm, decoder._eos, decoder._spellings = hmm, 4, SpellingAutomaton(SPELLINGS)
    decoder._emission_by_token = hmm.emission.T.contiguous()
    decoder._concepts, decoder._ordered, decoder._acceptance = len(SPELLINGS), ordered, []
    return decoder


def accepted(text: tuple[int, ...], ordered: bool) -> bool:
    """Whether an unfinished text is accepted, by the definition of the constraint."""
    if 4 not in text:
        return False
    text = text[: text.index(4)]
    ends = [
        {at + len(ids) for ids in forms for at in range(len(text)) if text[at : at + len(ids)] == ids}
        for forms in SPELLINGS
    ]
    if not ordered:
        return all(ends)
    return any(first <= second - 1 for first in ends[0] for second in ends[1])


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("tokens_left", range(1, 6))
def test_the_acceptance_probability_sums_over_all_texts(ordered: bool, tokens_left: int) -> None:
    decoder, hmm = looking_ahead(ordered), small_hmm()
    result = decoder._acceptance_prob(tokens_left)[0, ROOT]
    expected = torch.zeros(3)
    for text in itertools.product(range(5), repeat=tokens_left):
        if accepted(text, ordered):
            backward = torch.ones(3)
            for token in reversed(text):
                backward = hmm.transition @ (hmm.emission[:, token] * backward)
            expected += backward
    assert torch.allclose(result, expected, atol=1e-5)


def test_means_are_found_where_points_lie_close_together() -> None:
    torch.manual_seed(1)
    centres = torch.tensor([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    points = centres.repeat(50, 1) + torch.rand(150, 2)
    result = k_means(points, 3)
    assert torch.cdist(centres + 0.5, result).min(1).values.max() < 0.3


def test_batches_hold_each_text_once_without_its_padding() -> None:
    texts = torch.tensor([[1, 0, 0], [1, 2, 3], [0, 0, 0], [2, 2, 0], [3, 0, 0]])
    batches = [batch.tolist() for batch in batches_by_length(texts, 0)]
    assert batches == [[[0]], [[1, 0], [3, 0]], [[1, 2, 3], [2, 2, 0]]]


def test_guidance_equals_the_acceptance_of_each_next_token() -> None:
    decoder, hmm = looking_ahead(ordered=False), small_hmm()
    beams = [HmmBeam((), 0.0, 0, ROOT, False, hmm.initial)]
    beams += [decoder._extend(beams[0], token, 0.0) for token in (1, 3)]
    result = decoder._log_acceptance(beams, 3).exp()
    for beam, row in zip(beams, result, strict=True):
        for token in range(5):
            after = decoder._extend(beam, token, 0.0)
            kind = decoder._spellings.kind[after.node]
            posterior = beam.hidden * hmm.emission[:, token] / (beam.hidden @ hmm.emission[:, token])
            expected = posterior @ decoder._acceptance_prob(3)[after.progress, kind]
            assert torch.isclose(row[token], expected if token != 4 else torch.tensor(0.0), atol=1e-6)


def test_estimation_ends_when_other_texts_become_less_likely() -> None:
    torch.manual_seed(2)
    texts, others = (torch.randint(0, 6, (12, 8)) for _ in range(2))
    start = initial_model([texts], [torch.randint(0, 40, texts.shape)], vocab_size=6, states=40)
    result = estimate(start, [texts], [others], rounds=30)
    assert 1 <= result.rounds < 30
    by_round, model = [], start
    for _ in range(result.rounds + 1):
        model, _ = baum_welch_round(model, [texts])
        by_round.append(baum_welch_round(model, [others])[1])
    assert result.held_out == pytest.approx(by_round[-2], abs=1e-3) == pytest.approx(max(by_round), abs=1e-3)


def test_a_round_of_estimation_makes_texts_likelier() -> None:
    torch.manual_seed(0)
    texts = torch.randint(0, 4, (64, 32)).cumsum(1) % 7
    batches = list(texts.split(32))
    hidden = [torch.randint(0, 14, batch.shape) for batch in batches]
    model = initial_model(batches, hidden, vocab_size=7, states=14)
    likelihoods = []
    for _ in range(12):
        model, likelihood = baum_welch_round(model, batches)
        likelihoods.append(likelihood)
    assert all(after >= before - 1e-2 for before, after in itertools.pairwise(likelihoods))
    assert likelihoods[-1] > likelihoods[0] + 0.2
    for rows in (model.initial[None], model.transition, model.emission):
        assert torch.allclose(rows.sum(1), torch.ones(len(rows)), atol=1e-4)
