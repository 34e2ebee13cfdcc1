"""Step events list the model's preferred but refused tokens, with the reason."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from app.messages import StepMessage
from app.settings import Settings
from compiler.spec import KeywordsSpec, LtlfSpec, RegexSpec, Spec
from compiler.text import answer_text, check_text
from tests.app.worker.fake_context import FakeContext
from tests.app.worker.generators import a_job, compiled, shared_generators

COUNT = 9


def steps_of(settings: Settings, spec: Spec, rejected_top_k: int, **options: Any) -> list[StepMessage]:
    context = FakeContext()
    job = a_job(settings, context, spec, rejected_top_k=rejected_top_k, **options)
    shared_generators.of(settings, spread=3.0).run(dataclasses.replace(job, progress="steps"), context)
    return context.published


@pytest.mark.parametrize("algorithm", ["banked", "abs", "sample"])
@pytest.mark.parametrize(
    ("spec", "max_tokens"),
    [
        (KeywordsSpec((("dog",), ("park",))), 7),
        (RegexSpec("[a-e ]{3,12}!"), 12),
        (LtlfSpec("G(!dog) & F(cat | é)"), 6),
    ],
    ids=["keywords", "regex", "ltlf"],
)
@pytest.mark.sample(4)
def test_each_rejected_token_is_disallowed_for_its_row(
    settings: Settings, spec: Spec, max_tokens: int, algorithm: str
) -> None:
    text = compiled(spec, settings.inference.model[0]).text
    seed = 5 if algorithm == "sample" else None
    steps = steps_of(settings, spec, COUNT, max_tokens=max_tokens, algorithm=algorithm, beams=4, n=2, seed=seed)
    reasons: Counter[str] = Counter()
    row_texts = [""]
    for step in steps:
        for token in step.rejected_tokens:
            reasons[token.reason] += 1
            prefix = row_texts[token.parent]
            assert token.log_prob <= 0 and "\ufffd" not in prefix
            answer = answer_text(text, prefix + token.text)
            check = check_text(text, answer)
            match token.reason:
                case "incomplete":
                    assert token.text == "" and not check.satisfied and check.violated_at == len(answer)
                case "violates":
                    is_violated = check.violated_at is not None and check.violated_at < len(answer)
                    assert is_violated or "\ufffd" in token.text
                    assert token.distance is None
                case "over_budget":
                    assert token.distance is not None and token.distance > step.budget_after
                case "no_bytes":
                    assert token.text == ""
        row_texts = [row.text for row in step.rows]
    assert reasons, "no token was rejected"
    of_rows = Counter((step.step, token.parent) for step in steps for token in step.rejected_tokens)
    assert max(of_rows.values()) <= COUNT


def test_no_rejected_tokens_are_recorded_without_a_request(settings: Settings) -> None:
    steps = steps_of(settings, RegexSpec("[a-e ]{3,12}!"), 0, max_tokens=12)
    assert steps and not any(step.rejected_tokens for step in steps)


def test_a_permissive_constraint_rejects_few_tokens(settings: Settings) -> None:
    row_texts = [""]
    for step in steps_of(settings, RegexSpec("(?s:.*)"), COUNT, max_tokens=12, beams=16):
        for token in step.rejected_tokens:
            is_partial = "\ufffd" in row_texts[token.parent] + token.text  # a partial character
            assert (
                token.reason == "no_bytes" or is_partial or (token.reason == "over_budget" and step.budget_after == 0)
            )
        row_texts = [row.text for row in step.rows]
