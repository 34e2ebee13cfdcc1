"""The part of an unfinished answer that a stream may send."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from app.formats import remove_stop
from app.messages import GenerationOptions, StepMessage, StepRowBody
from app.openai.stable_prefix import AnswerNormalizer, StablePrefixTracker
from compiler.artifact import CompiledConstraint
from compiler.pipeline import compile_spec
from compiler.spec import spec_from_json
from compiler.text import answer_text
from compiler.vocab import byte_vocabulary
from decoding.generation import BeamStep
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, generate
from tests.fake_models import HashModel

VOCABULARY = byte_vocabulary()
EOS = VOCABULARY.eos_ids[0]
PATTERNS = ["[ab]{0,6}", "a?b?é{0,3}c", " ?[ab ]{1,5}", "(ab|ac)+", "aab|aac|b", " [ab]+|c", "(é|è|e){1,4}"]


def compiled_of(constraint: dict[str, Any]) -> CompiledConstraint:
    return compile_spec(spec_from_json(constraint), VOCABULARY)


def raw_text(tokens: Sequence[int]) -> bytes:
    return bytes(token for token in tokens if token != EOS)


def message_of(event: BeamStep) -> StepMessage:
    rows = tuple(
        StepRowBody(
            raw_text(row.tokens).decode(errors="replace"), row.parent, 0, row.distance, row.alpha, row.score,
            row.log_prob, row.finished,
        )
        for row in event.rows
    )
    return StepMessage(event.step_number, event.budget_after, rows)


def run(
    options: GenerationOptions, compilation: CompiledConstraint, model: HashModel
) -> tuple[list[StepMessage], list[str]]:
    """The steps of a real generation over bytes, and its answers."""
    steps: list[StepMessage] = []

    def record_step(event: BeamStep) -> None:
        steps.append(message_of(event))

    def text_of(tokens: tuple[int, ...]) -> bytes:
        return answer_text(compilation.text, raw_text(tokens).decode()).encode()

    if options.algorithm == "sample":
        draws = SamplingOptions(options.max_tokens, n=options.n, seed=options.seed or 0)
        prepared_constraint = PreparedConstraint.prepare(compilation.tokens, model.device)
        result = drive(model, [1], Sampling(prepared_constraint, draws), record_step)
    else:
        search_options = SearchOptions(
            options.max_tokens, beams=options.beams, algorithm=options.algorithm, alpha_min=options.alpha_min,
            gamma=options.gamma, n=options.n, rank_by=options.rank_by, length_penalty=options.length_penalty,
        )
        result = generate(model, [1], compilation.tokens, search_options, on_step=record_step, text_of=text_of)
    return steps, [text_of(answer.tokens).decode() for answer in result]


def options_of(chance: random.Random, algorithm: Any, least: int) -> GenerationOptions:
    beams = chance.randint(1, 6)
    n = chance.randint(1, beams)
    return GenerationOptions(
        max_tokens=least + chance.randint(0, 6), n=n, algorithm=algorithm, beams=beams, seed=chance.randint(0, 99),
        length_penalty=chance.choice([0.0, 0.5, 1.0]), rank_by=chance.choice(["score", "log_prob"]),
    )


@pytest.mark.parametrize("stops", [(), ("b", "ca"), ("aé",)], ids=str)
@pytest.mark.parametrize("algorithm", ["banked", "abs", "sample"])
@pytest.mark.sample(4)
def test_the_stable_prefix_is_a_growing_prefix_of_the_answer(algorithm: str, stops: tuple[str, ...]) -> None:
    chance, early_prefixes = random.Random(algorithm), 0
    for number in range(50):
        constraint = {"regex": chance.choice(PATTERNS)}
        compilation = compiled_of(constraint)
        model = HashModel(VOCABULARY.size, VOCABULARY.eos_ids, seed=number, spread=chance.choice([1.0, 6.0]))
        options = options_of(chance, algorithm, compilation.tokens.min_tokens)
        steps, answers = run(options, compilation, model)
        normalizer = AnswerNormalizer(stops)
        normalizer.constraint = compilation
        tracker, prefixes = StablePrefixTracker(options, normalizer), [""] * options.rows
        for step in steps:
            if chance.random() < 0.1:
                continue  # a reader who lags misses some
            tracker.take(step)
            for index in range(len(answers) if algorithm == "sample" else 1):
                certain = tracker.text(index)
                final = remove_stop(answers[index], stops)
                assert certain.startswith(prefixes[index]), (constraint, options)
                assert final.startswith(certain), (constraint, options, step.step)
                prefixes[index] = certain
        early_prefixes += bool(prefixes[0])
    assert early_prefixes > 5  # it does say something before the end


def test_a_missed_step_freezes_the_stable_prefix() -> None:
    def step(number: int, *texts: str) -> StepMessage:
        return StepMessage(number, 9, tuple(StepRowBody(text, 0, 0, 1, 0.0, 0.0, -1.0, False) for text in texts))

    tracker = StablePrefixTracker(GenerationOptions(max_tokens=9), AnswerNormalizer())
    tracker.take(step(1, "a", "a"))
    tracker.take(step(3, "abc", "abc"))  # in the second, "a" may have been finished
    tracker.take(step(4, "abcd", "abcd"))
    assert tracker.text(0) == "a"


def test_a_finished_row_limits_the_prefix_until_it_is_beaten() -> None:
    def row(text: str, log_prob: float, finished: bool) -> StepRowBody:
        return StepRowBody(text, 0, 0, 0 if finished else 1, 0.0, 0.0, log_prob, finished)

    tracker = StablePrefixTracker(GenerationOptions(max_tokens=9, length_penalty=0.0), AnswerNormalizer())
    tracker.take(StepMessage(1, 8, (row("a", -3.0, False),)))
    tracker.take(StepMessage(2, 7, (row("a", -4.0, True), row("ab", -3.1, False))))
    tracker.take(StepMessage(3, 6, (row("abc", -3.2, False),)))
    assert tracker.text(0) == "a"
    tracker.take(StepMessage(4, 5, (row("abc", -3.3, True), row("abcd", -3.25, False))))
    assert tracker.text(0) == "abc"


def test_incomplete_characters_and_possible_stop_strings_are_held_back() -> None:
    tracker = StablePrefixTracker(
        GenerationOptions(max_tokens=9, algorithm="sample"), AnswerNormalizer(["\n\n", "END"])
    )
    for number, (text, certain) in enumerate(
        [("a\ufffd", "a"), ("aé", "aé"), ("aé\n", "aé"), ("aé\nE", "aé\n"), ("aé\nEN", "aé\n"), ("aé\nENd", "aé\nENd")]
    ):
        tracker.take(StepMessage(number + 1, 9, (StepRowBody(text, 0, 0, 1, 0.0, 0.0, -1.0, False),)))
        assert tracker.text(0) == certain


def test_an_ambiguous_leading_space_is_held_back() -> None:
    for pattern, message_of in [("[a-z]+", "a"), (" [a-z]+|[a-z]", ""), ("[ab ]+", "")]:
        normalizer = AnswerNormalizer()
        assert normalizer(" a") == ""  # the constraint is not known yet
        normalizer.constraint = compiled_of({"regex": pattern})
        assert normalizer(" a") == message_of
    normalizer.constraint = compiled_of({"regex": " ?[a-z]+", "leading_space": "forbid"})
    assert normalizer(" a") == " a" and AnswerNormalizer(raw=True)(" a") == " a"
