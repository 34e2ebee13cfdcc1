"""Constrained sampling is exact, repeatable, and always finished.

Its reference distribution is that of the masked model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor

from app.models import ModelFiles
from compiler.lifting import TokenAutomaton, from_table
from compiler.pipeline import compile_spec
from compiler.spec import LtlfSpec, RegexSpec
from compiler.text import answer_text
from decoding.engine import Engine
from decoding.errors import ModelOutputInvalid, OptionsInvalid
from decoding.generation import BeamStep, Hypothesis
from decoding.heuristic import Endings
from decoding.model import HuggingFaceModel, Scores
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions, draw, nucleus
from decoding.search import drive
from decoding.tensors import LOG_PROB_FLOOR
from tests.decoding.random_automata import random_factored
from tests.fake_models import HashModel, PrefixModel
from tests.references.text import satisfies

CPU = torch.device("cpu")
PROMPT = [1]
Text = tuple[int, ...]
EVERY_OPTION: dict[str, Any] = {
    "top_k": 3, "min_p": 0.1, "top_p": 0.8, "temperature": 1.7, "frequency_penalty": -1.0, "presence_penalty": 0.5,
    "repetition_penalty": 1.3, "logit_bias": {2: -1.0, 0: 1.0},
}  # fmt: skip


class Remembering(HashModel):
    """Thousands of rows ask for the same few prefixes."""

    def __init__(self, seed: int, spread: float) -> None:
        super().__init__(4, (2, 3), seed=seed, spread=spread)
        self._log_probs: dict[Text, Tensor] = {}

    def log_probs(self, prefix: Text) -> Tensor:
        if prefix not in self._log_probs:
            self._log_probs[prefix] = super().log_probs(prefix)
        return self._log_probs[prefix]


def even_number_of_b() -> TokenAutomaton:
    """Texts with an even number of b, at least two.

    Ids 0 and 1 are a and b; 2 and 3 are EOS. The masks bind in such texts.
    """
    return from_table(
        np.array([0, 1, 0, 0]), np.array([[0, 1], [1, 2], [2, 1]]), np.array([0, 0, 1]) > 0, 0, eos_ids=(2, 3)
    )


def sample(
    model: PrefixModel, automaton: TokenAutomaton, options: SamplingOptions, events: list[BeamStep] | None = None
) -> tuple[Hypothesis, ...]:
    run = Sampling(PreparedConstraint.prepare(automaton, CPU), options, prompt_ids=PROMPT)
    return drive(model, PROMPT, run, None if events is None else events.append)


def slow_distribution(
    log_probs: list[float], allowed: list[int], text: Text, options: SamplingOptions
) -> dict[int, float]:
    """The masked model's distribution over one token, in plain Python."""
    changed = {}
    for token in allowed:
        value, count = max(log_probs[token], -1e4), text.count(token)
        value *= options.repetition_penalty if count or token in PROMPT else 1.0
        value -= options.frequency_penalty * count + options.presence_penalty * (count > 0)
        changed[token] = value + options.logit_bias.get(token, 0.0)
    ranked = sorted(allowed, key=lambda token: (-changed[token], token))
    if options.temperature == 0.0:
        return {ranked[0]: 1.0}
    best = changed[ranked[0]]
    weights = {token: math.exp((changed[token] - best) / options.temperature) for token in ranked}
    kept = ranked[: options.top_k] if options.top_k > 0 else ranked
    kept = [token for token in kept if weights[token] >= options.min_p]
    total, nucleus, mass = sum(weights[token] for token in kept), dict[int, float](), 0.0
    for token in kept:
        if mass < options.top_p * total:
            nucleus[token] = weights[token]
        mass += weights[token]
    return {token: weight / sum(nucleus.values()) for token, weight in nucleus.items()}


def texts(
    model: PrefixModel, automaton: TokenAutomaton, options: SamplingOptions, state: int, text: Text = (), p: float = 1.0
) -> Iterator[tuple[Text, float]]:
    """Every text that the masked model can write, with its probability."""
    if automaton.distance[state] == 0:
        yield text, p
        return
    budget_after = options.max_tokens - len(text) - 1
    successors = {token: automaton.advance(state, token) for token in range(automaton.vocabulary_size)}
    allowed = [token for token, target in successors.items() if automaton.distance[target] <= budget_after]
    log_probs = model.log_probs((*PROMPT, *text)).tolist()
    for token, share in slow_distribution(log_probs, allowed, text, options).items():
        yield from texts(model, automaton, options, successors[token], (*text, token), p * share)


def chi_square_deviation(result: Counter[Text], expected: dict[Text, float]) -> float:
    """Chi-square of the counts, in standard deviations above its mean.

    Texts with fewer than 5 expected counts form one class.
    """
    rows = sum(result.values())
    rare = {text for text, p in expected.items() if p * rows < 5}
    cells = [(result[text], p * rows) for text, p in expected.items() if text not in rare]
    cells.append((sum(result[text] for text in rare), sum(expected[text] for text in rare) * rows))
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells if mean > 0)
    degrees_of_freedom = sum(mean > 0 for _, mean in cells) - 1
    return (statistic - degrees_of_freedom) / math.sqrt(2 * max(1, degrees_of_freedom))


@pytest.mark.parametrize(
    "choice",
    [{}, {"temperature": 0.6}, {"temperature": 2.0, "top_p": 0.8}, {"temperature": 5.0, "top_p": 0.7}, EVERY_OPTION],
    ids=str,
)
def test_sample_frequencies_match_the_masked_model(choice: dict[str, Any]) -> None:
    automaton, model = even_number_of_b(), Remembering(seed=3, spread=1.0)
    options = SamplingOptions(6, seed=7, n=6000, **choice)
    expected = dict(texts(model, automaton, options, automaton.start))
    result = Counter(answer.tokens for answer in sample(model, automaton, options))
    assert sum(expected.values()) == pytest.approx(1.0)
    assert set(result) <= set(expected) and len(result) > 5
    assert chi_square_deviation(result, expected) < 4.0


def test_the_frequency_test_distinguishes_the_conditioned_model() -> None:
    automaton, model = even_number_of_b(), Remembering(seed=3, spread=1.0)
    options = SamplingOptions(6, seed=7, n=6000)
    result = Counter(answer.tokens for answer in sample(model, automaton, options))
    conditioned = {
        text: math.exp(sum(float(model.log_probs((*PROMPT, *text[:i]))[text[i]]) for i in range(len(text))))
        for text, _ in texts(model, automaton, options, automaton.start)
    }
    assert chi_square_deviation(result, {text: p / sum(conditioned.values()) for text, p in conditioned.items()}) > 20.0


def test_temperature_zero_takes_the_best_of_the_tokens_allowed() -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=9, levels=2)
    options = SamplingOptions(7, seed=0, n=2, temperature=0.0)
    ((text, _),) = texts(model, automaton, options, automaton.start)
    answers = sample(model, automaton, options)
    assert [answer.tokens for answer in answers] == [text, text]
    assert [answer.score for answer in answers] == [0.0, 0.0]


def test_every_bit_of_a_seed_changes_the_samples() -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=1)
    drawn = {
        sample(model, automaton, SamplingOptions(9, seed=seed, n=40))
        for seed in (1, *(1 + 2**bit for bit in range(63)))
    }
    assert len(drawn) == 64


@pytest.mark.parametrize("chunk_rows", [1, 3, 39, 40])
def test_samples_do_not_depend_on_the_chunk_size(chunk_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=1)
    options = SamplingOptions(9, seed=123, n=40, temperature=1.3, top_p=0.9)
    at_once = sample(model, automaton, options)
    monkeypatch.setattr("decoding.sampling.rows_at_a_time", lambda vocab_size, device: chunk_rows)
    assert sample(model, automaton, options) == at_once


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(
    "changes", [{}, {"top_p": 0.6}, {"top_k": 2}, {"min_p": 0.2}, {"repetition_penalty": 1.7}], ids=str
)
@pytest.mark.sample(8)
def test_reading_only_allowed_ids_changes_no_sample(
    changes: dict[str, float], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(6):
        random = np.random.default_rng(seed)
        automaton = random_factored(random)
        model = HashModel(automaton.vocabulary_size, automaton.eos_ids, seed=seed)
        options = SamplingOptions(automaton.min_tokens + 4, seed=seed, n=7, temperature=temperature, **changes)
        monkeypatch.setattr("decoding.sampling._NARROW", 10**6)
        expected = sample(model, automaton, options)
        monkeypatch.setattr("decoding.sampling._NARROW", 0)
        assert sample(model, automaton, options) == expected


def test_step_events_keep_the_order_of_the_samples() -> None:
    automaton, model, events = even_number_of_b(), HashModel(4, (2, 3), seed=2), list[BeamStep]()
    answers = sample(model, automaton, SamplingOptions(8, seed=5, n=6), events)
    assert [event.step_number for event in events] == list(range(1, len(events) + 1))
    for event in events:
        assert event.budget_after == 8 - event.step_number
        for number, (row, answer) in enumerate(zip(event.rows, answers, strict=True)):
            assert row.tokens == answer.tokens[: event.step_number] and row.parent == number
            assert row.finished == (len(answer.tokens) <= event.step_number)
    assert [row.score for row in events[-1].rows] == [answer.score for answer in answers]


def test_tokens_of_probability_zero_are_sampled_only_as_last_resort() -> None:
    class NeverB(PrefixModel):
        def log_probs(self, prefix: Text) -> Tensor:
            return torch.tensor([0.5, 0.0, 0.5, 0.0]).log()

    answers = sample(NeverB(4, (2, 3)), even_number_of_b(), SamplingOptions(6, seed=3, n=30, temperature=5.0))
    for answer in answers:
        assert answer.tokens[3:] == (1, 1, 2)  # b as late as it may be, and the one end that is probable
        assert answer.log_prob == pytest.approx(2 * LOG_PROB_FLOOR + 4 * math.log(0.5))


@pytest.mark.parametrize("fault", [math.nan, -math.inf])
def test_a_model_with_invalid_log_probs_is_refused(fault: float) -> None:
    run = Sampling(PreparedConstraint.prepare(even_number_of_b(), CPU), SamplingOptions(6, seed=0))
    log_probs = torch.zeros(4) if math.isnan(fault) else torch.full((4,), fault)
    log_probs[2] = fault
    with pytest.raises(ModelOutputInvalid):
        run.advance(Scores.of_prompt(log_probs))


def test_a_draw_inverts_the_cumulative_distribution() -> None:
    probabilities = [0.125, 0.25, 0.5, 0.125]
    uniform = torch.tensor([0.0, 0.124, 0.126, 0.374, 0.376, 0.874, 0.876, 0.9999999], dtype=torch.float64)
    log_probs = torch.tensor([probabilities]).log().expand(len(uniform), -1)
    token, share = draw(log_probs, torch.ones_like(log_probs) > 0, uniform, 1.0, top_p=1.0)
    assert token.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert share.exp().tolist() == pytest.approx([probabilities[number] for number in token.tolist()], rel=1e-6)


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 100.0])
@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0, 1e5])
def test_a_draw_has_the_weights_of_exact_masks(temperature: float, spread: float) -> None:
    random = torch.Generator().manual_seed(7)
    log_probs = (torch.randn(64, 999, generator=random) * spread).log_softmax(dim=1)
    log_probs[::3, ::5] = -math.inf
    allowed = torch.rand(64, 999, generator=random) < torch.rand(64, 1, generator=random)
    allowed[:, 998] = True
    uniform = torch.rand(64, generator=random, dtype=torch.float64)
    token, score = draw(log_probs, allowed, uniform, temperature, top_p=1.0)
    masked = log_probs.clamp(min=LOG_PROB_FLOOR).masked_fill(~allowed, -math.inf).double()
    gap = (masked - masked.amax(dim=1, keepdim=True)) / temperature
    weight = (gap.exp() * 2**42).round().long()
    cumulative, total = weight.cumsum(dim=1), weight.sum(dim=1)
    target = torch.minimum((uniform * total).long(), total - 1)
    assert torch.equal(token, (cumulative > target[:, None]).int().argmax(dim=1))
    assert torch.equal(score, gap.gather(1, token[:, None])[:, 0] - (total.double() / 2**42).log())


def test_the_nucleus_is_the_smallest_sufficient_set() -> None:
    log_probs = torch.tensor([[0.1, 0.2, 0.4, 0.2, 0.1]]).log()
    allowed = torch.tensor([[True, True, False, True, True]])  # 1/6, 1/3, -, 1/3, 1/6
    results = {}
    for top_p in (0.01, 0.33, 0.34, 0.66, 0.67, 1.0):
        uniform = torch.linspace(0.0, 0.999, 50, dtype=torch.float64)
        token, _ = draw(log_probs.expand(50, -1), allowed.expand(50, -1), uniform, 1.0, top_p=top_p)
        results[top_p] = sorted(set(token.tolist()))
    assert results == {0.01: [1], 0.33: [1], 0.34: [1, 3], 0.66: [1, 3], 0.67: [0, 1, 3], 1.0: [0, 1, 3, 4]}


@pytest.mark.parametrize("levels", [3, 40, 10**9], ids=str)
def test_a_nucleus_equals_that_of_the_sorted_row(levels: int) -> None:
    random = np.random.default_rng(levels)
    weight = torch.tensor(random.integers(0, levels, (20, 2000)) * (random.random((20, 2000)) < 0.9))
    for top_p in (0.001, 0.2, 0.6, 0.95, 0.9999):
        nuclei = nucleus(weight, top_p)
        for row, result in zip(weight.tolist(), nuclei.tolist(), strict=True):
            threshold, total, expected = math.ceil(sum(row) * top_p), 0, [0] * len(row)
            for token in sorted(range(len(row)), key=lambda token: (-row[token], token)):
                if total < threshold:
                    expected[token] = row[token]
                total += row[token]
            assert result == expected


@pytest.mark.parametrize("top_p", [1 - 1e-7, 1 - 1e-8, 1 - 1e-12, 1 - 2**-53])
def test_a_nucleus_of_nearly_everything_is_not_rounded_to_nothing(top_p: float) -> None:
    weight = torch.tensor(np.random.default_rng(4).integers(2**30, 2**42, (200, 30)))
    nucleus_size = nucleus(weight, top_p).sum(dim=1).double()
    assert bool((nucleus_size >= weight.sum(dim=1).double() * (top_p - 1e-15)).all())


def test_a_request_gives_the_same_tokens_in_any_batch() -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=6)
    constraint = PreparedConstraint.prepare(automaton, CPU)
    orders = [
        SamplingOptions(5 + seed % 7, seed=seed, n=1 + seed % 5, temperature=0.5 + seed % 3, top_p=1.0 - seed % 2 / 4)
        for seed in range(12)
    ]
    alone = [sample(model, automaton, options) for options in orders]
    with Engine(model, 10**9) as engine, ThreadPoolExecutor(len(orders)) as threads:
        runs = [partial(Sampling, constraint, options) for options in orders]
        batch = [threads.submit(engine.generate, run, PROMPT) for run in runs]
        assert [answer.result(60) for answer in batch] == alone


def test_eos_paths_do_not_change_the_samples() -> None:
    automaton, model = even_number_of_b(), HashModel(4, (2, 3), seed=1)
    endings = Endings(np.array([0, 1]), np.zeros((3, 2)), np.array([1, 2, 0, 0]))
    options = SamplingOptions(9, seed=123, n=40)
    run = Sampling(PreparedConstraint.prepare(automaton, CPU, endings=endings), options)
    assert drive(model, PROMPT, run) == sample(model, automaton, options)


def test_samples_of_a_trained_model_satisfy_the_constraint(
    captions: HuggingFaceModel, files: ModelFiles, tokenizer: Tokenizer
) -> None:
    model, prompt, vocabulary = captions, tokenizer.encode("sentence:").ids, files.vocabulary
    for spec in (RegexSpec("é😀{1,3}!?"), LtlfSpec("G(!the) & F park & F ball")):
        compiled = compile_spec(spec, vocabulary)
        constraint = PreparedConstraint.prepare(compiled.tokens, model.device)
        for extra, temperature in ((0, 1.0), (9, 0.0), (9, 8.0)):
            options = SamplingOptions(
                compiled.tokens.min_tokens + extra, seed=3, n=4, temperature=temperature, top_p=0.95
            )
            for answer in drive(model, prompt, Sampling(constraint, options)):
                text = b"".join(vocabulary.tokens[token] or b"" for token in answer.tokens).decode()
                assert satisfies(spec, answer_text(compiled.text, text)), text
                model_scores = model.score(prompt, answer.tokens)
                assert sum(model_scores.log_probs) == pytest.approx(answer.log_prob, abs=1e-2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0), ("seed", -1), ("seed", 2**63), ("n", 0), ("temperature", -0.1), ("temperature", math.nan),
        ("temperature", 101.0), ("top_p", 0.0), ("top_p", 1.1), ("top_p", math.nan),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(OptionsInvalid, check=lambda error: error.field == field):
        SamplingOptions(**{"max_tokens": 8, "seed": 0, field: value})  # type: ignore[arg-type]
