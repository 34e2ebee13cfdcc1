"""Jobs of the generate worker, with deterministic fake models."""

from __future__ import annotations

import dataclasses
import itertools
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.errors import AutomatonMissing, PromptViolates
from app.messages import ALGORITHM_DEFAULT, GenerateJob, GenerationOptions
from app.models import open_model_files
from app.settings import Settings
from app.worker.handlers.engine import open_model
from app.worker.handlers.generate import Generator
from compiler.errors import BudgetTooSmall, LimitExceeded
from compiler.spec import ChoiceSpec, GrammarSpec, KeywordsSpec, LtlfSpec, NotSpec, RegexSpec, Spec
from decoding.engine import Engine
from decoding.errors import Cancelled, PromptEmpty, PromptTooLong, VocabularyMismatch
from decoding.generation import BeamStep
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import SamplingOptions
from tests.app.changed_model import changed_model
from tests.app.worker.fake_context import FakeContext
from tests.app.worker.generators import DOG, a_job, open_generator, run, shared_generators
from tests.fake_models import HashModel


def test_the_default_algorithm_is_defined_once() -> None:
    assert SearchOptions(1).algorithm == GenerationOptions(max_tokens=1).algorithm == ALGORITHM_DEFAULT


def test_default_options_are_those_of_decoding() -> None:
    for options in (SearchOptions(1), SamplingOptions(1, seed=0)):
        for field in dataclasses.fields(options):
            if field.name != "seed":
                assert getattr(options, field.name) == getattr(GenerationOptions(max_tokens=1), field.name), field.name


@pytest.mark.parametrize("algorithm", ["abs", "banked", "sample"])
def test_every_algorithm_satisfies_and_its_figures_add_up(settings: Settings, algorithm: str) -> None:
    result = run(settings, algorithm=algorithm, n=2, trace=True, seed=7 if algorithm == "sample" else None)
    assert result.usage.completion_tokens == sum(result.token_counts)
    for choice, tokens in zip(result.choices, result.token_counts, strict=True):
        assert choice.satisfied and re.search(r"\bdog\b", choice.text, re.IGNORECASE)
        assert choice.trace is not None and choice.trace[-1].distance == 0
        assert abs(sum(step.log_prob for step in choice.trace) - choice.log_prob) < 0.01
        assert tokens == len(choice.trace) <= 6


def test_a_grammar_is_satisfied_by_every_algorithm(settings: Settings) -> None:
    spec = GrammarSpec('root ::= "(" root* ")" | "a" | root "b"', "gbnf")
    for algorithm in ("abs", "banked", "sample"):
        seed = 7 if algorithm == "sample" else None
        result = run(settings, spec, algorithm=algorithm, n=2, trace=True, seed=seed, max_tokens=9)
        for choice in result.choices:
            shorter = choice.text
            while (reduced := re.sub(r"\(a*\)|ab", "a", shorter)) != shorter:
                shorter = reduced
            assert shorter == "a" and choice.trace is not None and choice.trace[-1].stack == ()


def test_an_answer_that_takes_too_many_steps_is_refused() -> None:
    settings, spec = Settings.of(check_steps_max=9), GrammarSpec('root ::= "a" root | "aaaa"', "gbnf")
    with pytest.raises(LimitExceeded, match="check_steps_max"):
        run(settings, spec)


def test_a_seed_determines_the_samples(settings: Settings) -> None:
    def texts(seed: int) -> list[str]:
        return [choice.text for choice in run(settings, algorithm="sample", n=3, seed=seed).choices]

    assert texts(1) == texts(1) != texts(2)


@pytest.mark.parametrize(
    ("spec", "prompt", "pattern"),
    [
        (RegexSpec("say [a-c]{2}!"), "say a", "say [a-c]{2}!"),
        (KeywordsSpec((("dogs",),)), "the dog", r".*\bdogs\b.*"),
        (NotSpec(KeywordsSpec((("dog",),))), "a hot dog", r"a hot dog\w.*"),
        (ChoiceSpec(("🐕🐈", "🐕🐎")), "🐕", "🐕(🐈|🐎)"),
        (RegexSpec(" yes!"), " ye", " yes!"),
        (RegexSpec("yes!"), "yes!", "yes!"),
        (RegexSpec("yes!"), "", "yes!"),
    ],
)
@pytest.mark.parametrize("algorithm", ["abs", "banked", "sample"])
def test_with_full_scope_prompt_and_answer_satisfy_together(
    settings: Settings, algorithm: str, spec: Spec, prompt: str, pattern: str
) -> None:
    seed = 3 if algorithm == "sample" else None
    result = run(settings, spec, prompt, True, scope="full", algorithm=algorithm, max_tokens=12, seed=seed)
    choice = result.choices[0]
    assert re.fullmatch(pattern, prompt + choice.text, re.IGNORECASE | re.DOTALL)
    assert choice.satisfied and choice.trace is not None
    assert "".join(word.text for word in choice.words) == "".join(re.findall(r"\w+|[^\w\s]", prompt + choice.text))
    assert (choice.trace[-1].distance, choice.trace[-1].state) == (0, choice.words[-1].state)
    assert len(choice.trace) == result.token_counts[0]


@pytest.mark.parametrize("name", ["stories260k", "tinystories-656k"])
def test_full_scope_applies_to_the_text_of_the_prompt(shared: Path, name: str) -> None:
    """One tokenizer adds a leading space, and both lack characters."""
    settings = Settings.of(model=str(shared / "models" / name))
    for prompt, pattern in (
        ("Once upon", "Once upon a time, .*"),
        ("Once upon ", "Once upon a (time|place)[.]"),
        ("雪 O", ".{3}nce[.!]"),
    ):
        choice = run(settings, RegexSpec(pattern), prompt, scope="full", max_tokens=20).choices[0]
        assert re.fullmatch(pattern, prompt + choice.text)


def test_a_full_scope_trace_lists_letters_the_answer_completes(settings: Settings) -> None:
    choice = run(settings, LtlfSpec("F(cats & X(F dog))"), "big cat", True, scope="full").choices[0]
    assert choice.trace is not None
    completed = [letter for step in choice.trace for letter in step.propositions]
    words = [word.propositions for word in choice.words]
    assert completed == words[1:]  # "big" was complete, "cat" was not


@pytest.mark.parametrize(
    ("spec", "prompt", "position"),
    [
        (RegexSpec("say [a-c]{2}!"), "say what", 4),
        (RegexSpec("abc"), "abcd", 3),
        (NotSpec(DOG), "a dog ran", 5),
        (NotSpec(DOG), "a dog, ran", 5),
        (RegexSpec("[^🐕]*"), "é🐕", 1),
        (RegexSpec("yes"), " yes", 0),
    ],
)
def test_a_prompt_violation_is_located_at_its_first_character(
    settings: Settings, spec: Spec, prompt: str, position: int
) -> None:
    with pytest.raises(PromptViolates) as refusal:
        run(settings, spec, prompt, scope="full", max_tokens=40)
    assert refusal.value.position == position


def test_min_tokens_count_from_the_end_of_the_prompt(settings: Settings) -> None:
    spec = LtlfSpec("F(coffee & X(F(cat & X(F(toy)))))")
    assert run(settings, spec, "coffee, ", scope="full", max_tokens=3).token_counts == (3,)
    with pytest.raises(BudgetTooSmall) as refusal:
        run(settings, spec, "coffee, ", scope="full", max_tokens=2)
    assert refusal.value.min_tokens == 3


def test_concurrent_generations_give_the_same_answers_as_single_ones(settings: Settings, context: FakeContext) -> None:
    specs = [DOG, RegexSpec("[a-z ]{5,9}!"), KeywordsSpec((("a",), ("b",)), ordered=True), NotSpec(DOG)]
    jobs: list[GenerateJob] = []
    for spec, algorithm, scope in itertools.product(specs, ("abs", "banked", "sample"), ("answer", "full")):
        if scope == "answer" or spec in (DOG, specs[3]):
            number = len(jobs)
            options: dict[str, Any] = {"max_tokens": 6 + number % 7, "beams": 1 + number % 5, "scope": scope}
            seed = number if algorithm == "sample" else None
            jobs.append(a_job(settings, context, spec, f"prompt {number}", seed=seed, algorithm=algorithm, **options))
    with open_generator(settings) as generator:
        single_answers = [generator.run(job, context).choices for job in jobs]
    with open_generator(settings) as generator, ThreadPoolExecutor(len(jobs)) as threads:
        batch_answers = [result.choices for result in threads.map(lambda job: generator.run(job, context), jobs)]
    assert batch_answers == single_answers


def test_a_constraint_is_copied_to_the_device_once(
    settings: Settings, context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original_prepare = PreparedConstraint.prepare.__func__  # type: ignore[attr-defined]

    def recording_prepare(cls: type[PreparedConstraint], *arguments: Any, **options: Any) -> PreparedConstraint:
        calls.append(arguments)
        prepared: PreparedConstraint = original_prepare(cls, *arguments, **options)
        return prepared

    monkeypatch.setattr(PreparedConstraint, "prepare", classmethod(recording_prepare))
    with open_generator(settings) as generator:
        for spec in (DOG, DOG, NotSpec(DOG), DOG):
            generator.run(a_job(settings, context, spec), context)
    assert len(calls) == 2
    calls.clear()
    with open_generator(settings.changed(device_table_cache_bytes=1)) as generator:
        for _ in range(2):
            generator.run(a_job(settings, context), context)
    assert len(calls) == 2


def test_a_cached_automaton_is_used_without_the_store(settings: Settings, context: FakeContext) -> None:
    job = a_job(settings, context)
    with open_generator(settings) as generator:
        first = generator.run(job, context)
        context.values.clear()
        assert generator.run(job, context).choices == first.choices
    with open_generator(settings) as generator, pytest.raises(AutomatonMissing):
        generator.run(job, context)


def test_damaged_automaton_bytes_are_discarded_as_missing(settings: Settings, context: FakeContext) -> None:
    job = a_job(settings, context)
    context.values = dict.fromkeys(context.values, b"junk")
    with open_generator(settings) as generator, pytest.raises(AutomatonMissing):
        generator.run(job, context)
    assert context.values == {}


def test_a_cancelled_generation_does_not_affect_others(settings: Settings) -> None:
    context, cancelled_context = FakeContext(), FakeContext()
    job = a_job(settings, context, max_tokens=40)
    cancelled_job = dataclasses.replace(a_job(settings, cancelled_context, max_tokens=400, beams=8), progress="steps")
    with open_generator(settings) as generator, ThreadPoolExecutor(2) as threads:
        choices = generator.run(job, context).choices
        cancelled_future = threads.submit(generator.run, cancelled_job, cancelled_context)
        while not cancelled_context.published:
            time.sleep(0.001)
        future = threads.submit(generator.run, job, context)
        cancelled_context.is_cancelled = True
        with pytest.raises(Cancelled):
            cancelled_future.result(30)
        assert future.result(30).choices == choices
    assert len(cancelled_context.published) < 400


def test_step_events_are_published_if_the_job_requests_them(settings: Settings, context: FakeContext) -> None:
    job, generator = a_job(settings, context, RegexSpec("é{2,5}🐕"), max_tokens=24), shared_generators.of(settings)
    generator.run(job, context)
    assert context.published == context.published_sizes == []
    result = generator.run(dataclasses.replace(job, progress="steps"), context)
    assert [sizes.automaton for sizes in context.published_sizes] == [result.automaton]
    assert [step.step for step in context.published] == list(range(1, len(context.published) + 1))
    assert all(step.step + step.budget_after == 24 for step in context.published)
    assert result.choices[0].text in [row.text for step in context.published for row in step.rows if row.finished]
    incomplete_rows = [row for step in context.published for row in step.rows if row.text.endswith("\ufffd")]
    assert incomplete_rows  # an incomplete character is shown as U+FFFD


def test_step_texts_are_correct_after_skipped_steps(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    original_generate = Engine.generate

    def sparse_generate(engine: Engine, *arguments: Any, on_step: Callable[[BeamStep], None], **options: Any) -> Any:
        def every_third(event: BeamStep) -> None:
            if event.step_number % 3 == 0:
                on_step(event)

        return original_generate(engine, *arguments, on_step=every_third, **options)

    full_context, sparse_context = FakeContext(), FakeContext()
    for context in (full_context, sparse_context):
        job = a_job(settings, context, RegexSpec("[é🐕]{3,6}[a-c]+"), max_tokens=16)
        shared_generators.of(settings).run(dataclasses.replace(job, progress="steps"), context)
        monkeypatch.setattr(Engine, "generate", sparse_generate)
    assert sparse_context.published
    assert sparse_context.published == [step for step in full_context.published if step.step % 3 == 0]


def test_step_events_have_the_states_of_the_trace(settings: Settings) -> None:
    for spec in (LtlfSpec("F(dog & X(F cat))"), RegexSpec("[ab]{3}[c-e]+é")):
        context = FakeContext()
        job = dataclasses.replace(a_job(settings, context, spec, trace=True, max_tokens=9), progress="steps")
        choice = shared_generators.of(settings).run(job, context).choices[0]
        assert choice.trace is not None
        final_position = next(
            (step_index, row_index)
            for step_index, step in enumerate(context.published)
            for row_index, row in enumerate(step.rows)
            if row.finished and row.log_prob == choice.log_prob
        )
        states, (step_index, row_index) = [], final_position
        for step in reversed(context.published[: step_index + 1]):
            states.append(step.rows[row_index].state)
            row_index = step.rows[row_index].parent
        assert states[::-1] == [step.state for step in choice.trace]


def test_the_prompt_is_never_truncated_by_the_tokenizer(tmp_path: Path, settings: Settings) -> None:
    with changed_model(tmp_path) as (tokenizer, _):
        tokenizer["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
        padding = {"strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None}
        tokenizer["padding"] = padding | {"pad_id": 0, "pad_type_id": 0, "pad_token": "<|endoftext|>"}
    short_settings = Settings.of(model=str(tmp_path), secret=settings.auth.secret)
    prompt = "a dog and a cat " * 10
    counts = [run(settings, prompt=prompt).usage.prompt_tokens, run(short_settings, prompt=prompt).usage.prompt_tokens]
    assert counts[0] == counts[1] > 8
    assert run(short_settings).usage.prompt_tokens < 8


def test_an_empty_prompt_needs_a_token_that_begins_a_text(tmp_path: Path, settings: Settings) -> None:
    assert run(settings, prompt="").usage.prompt_tokens == 1
    with changed_model(tmp_path) as (tokenizer, config):
        del config["bos_token_id"]
        del tokenizer["post_processor"]  # it puts the bos token first
    with pytest.raises(PromptEmpty):
        run(Settings.of(model=str(tmp_path)), prompt="")


def test_prompt_and_budget_must_fit_the_models_context(settings: Settings, context: FakeContext) -> None:
    with open_generator(settings, context_length=20) as generator:
        assert generator.run(a_job(settings, context, max_tokens=19), context).choices  # the prompt is bos and "a"
        with pytest.raises(PromptTooLong) as refusal:
            generator.run(a_job(settings, context, prompt="a dog " * 10, max_tokens=11), context)
    assert (refusal.value.max_tokens, refusal.value.context_length) == (11, 20)


def test_a_model_that_mismatches_its_tokenizer_is_refused(settings: Settings) -> None:
    files = open_model_files(settings.inference.model[0])
    with pytest.raises(VocabularyMismatch):
        Generator(HashModel(files.vocabulary.size + 1, files.vocabulary.eos_ids), files, settings)


def test_memory_is_measured_by_default(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"), open_generator(settings.changed(generation_memory_bytes=2**20)):
        assert "MiB" not in caplog.text
    with caplog.at_level("INFO"), open_generator(settings):
        assert "ABS_GENERATION_MEMORY_BYTES" in caplog.text


@pytest.mark.parametrize("cuda_graphs", [False, True])
def test_graphs_on_a_cpu_are_warned_about(
    cuda_graphs: bool, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with open_generator(settings.changed(cuda_graphs=cuda_graphs)):
        assert ("ABS_CUDA_GRAPHS has no effect: the model is on the device cpu" in caplog.text) == cuda_graphs


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_the_setting_decides_on_batch_invariance(batch_invariant: bool, settings: Settings) -> None:
    model = open_model(settings.inference.model[0], settings.changed(batch_invariant=batch_invariant), {})
    assert model.rows_independent == batch_invariant


def test_a_generator_that_is_closed_leaves_no_thread(settings: Settings, context: FakeContext) -> None:
    threads_before = set(threading.enumerate())
    with open_generator(settings) as generator:
        generator.run(a_job(settings, context), context)
    assert set(threading.enumerate()) <= threads_before
