"""Step events list the model's preferred but refused tokens, with the reason."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from app.messages import RejectedTokenBody, StepMessage
from app.models import open_model_files
from app.settings import Settings
from compiler.pipeline import compile_spec
from compiler.spec import KeywordsSpec, LtlfSpec, RegexSpec, Spec
from compiler.text import answer_text, check_text
from tests.app.worker.test_generate import a_job, open_generator
from tests.app.worker.test_handlers import Context

COUNT = 9


@pytest.fixture
def settings(captions_dir: Path) -> Settings:
    return Settings(model=str(captions_dir))


def steps_of(settings: Settings, spec: Spec, rejected_top_k: int, **options: object) -> list[StepMessage]:
    context = Context()
    job = a_job(settings, context, spec, **options)  # type: ignore[arg-type]
    with open_generator(settings, spread=3.0) as generator:
        generator.run(dataclasses.replace(
            job, progress="steps", options=job.options.model_copy(update={"rejected_top_k": rejected_top_k})
        ), context)
    return [news for news in context.published if isinstance(news, StepMessage)]


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
def test_each_rejected_token_is_disallowed_for_its_row(
    settings: Settings, spec: Spec, max_tokens: int, algorithm: str
) -> None:
    text = compile_spec(spec, open_model_files(settings.model).vocabulary).text
    seed = 5 if algorithm == "sample" else None
    steps = steps_of(settings, spec, COUNT, max_tokens=max_tokens, algorithm=algorithm, beams=4, n=2, seed=seed)
    reasons: Counter[str] = Counter()
    before = [""]
    for step in steps:
        for one in step.rejected_tokens:
            reasons[one.reason] += 1
            written = before[one.parent]
            assert one.log_prob <= 0 and "\ufffd" not in written
            whole = answer_text(text, written + one.text)
            check = check_text(text, whole)
            match one.reason:
                case "incomplete":
                    assert one.text == "" and not check.satisfied and check.violated_at == len(whole)
                case "violates":
                    broken = check.violated_at is not None and check.violated_at < len(whole)
                    assert broken or "\ufffd" in one.text
                    assert one.distance is None
                case "over_budget":
                    assert one.distance is not None and one.distance > step.budget_after
                case "no_bytes":
                    assert one.text == ""
        before = [row.text for row in step.rows]
    assert reasons, "nothing was refused"
    assert all(len(of_a_row) <= COUNT for of_a_row in _by_row(steps))


def _by_row(steps: list[StepMessage]) -> list[list[RejectedTokenBody]]:
    rows: dict[tuple[int, int], list[RejectedTokenBody]] = {}
    for step in steps:
        for one in step.rejected_tokens:
            rows.setdefault((step.step, one.parent), []).append(one)
    return list(rows.values())


def test_no_rejected_tokens_are_recorded_without_a_request(settings: Settings) -> None:
    steps = steps_of(settings, RegexSpec("[a-e ]{3,12}!"), 0, max_tokens=12)
    assert steps and not any(step.rejected_tokens for step in steps)


def test_a_permissive_constraint_rejects_few_tokens(settings: Settings) -> None:
    before = [""]
    for step in steps_of(settings, RegexSpec("(?s:.*)"), COUNT, max_tokens=12, beams=16):
        for one in step.rejected_tokens:
            half = "\ufffd" in before[one.parent] + one.text  # a character
            assert one.reason == "no_bytes" or half or (one.reason == "over_budget" and step.budget_after == 0)
        before = [row.text for row in step.rows]
