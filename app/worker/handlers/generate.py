"""Generates texts with the model, then replays and checks them.

The handler tokenizes the prompt, and searches or samples.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from app.automaton_cache import open_decoder
from app.errors import PromptViolates, SettingsInvalid, without_message
from app.messages import (
    FORMAT,
    CaptureBody,
    ChoiceBody,
    DecodeJob,
    GenerateJob,
    GenerateJobResult,
    GenerationOptions,
    Progress,
    TokenizeJob,
    UsageBody,
    grammar_warnings,
    named_generation,
)
from app.models import ModelFiles, adapter_folders, checked_model, model_sources, open_model_files, open_scorers
from app.models.tokenizer import PromptEncoder, open_tokenizer
from app.observability import metrics, tracing
from app.requests import budget_beside
from app.settings import Settings
from app.worker.handlers.answers import answer_and_stop, with_parts
from app.worker.handlers.base import (
    Context,
    Handler,
    captured,
    dispatcher,
    sizes_of,
    stall_reason,
    timings_of,
    word_trace,
)
from app.worker.handlers.decode import LabelDecoder
from app.worker.handlers.engine import (
    EngineWatch,
    close_model,
    memory_bytes,
    open_graphs,
    open_model,
    ranks_alive,
    trace_bytes,
)
from app.worker.handlers.preparation import ModelWithPrior, PreparedConstraints
from app.worker.handlers.prompts import PromptTokenizer, prompt_text
from app.worker.handlers.rescoring import prompt_tokens, rescored, with_own_log_probs
from app.worker.handlers.step_events import StepEventBuilder
from app.worker.handlers.token_trace import token_trace
from compiler.artifact import CompiledConstraint
from compiler.errors import VocabularyError
from compiler.products import LazyProduct, ProductStart
from compiler.text import check_text, read_prefix, written_text
from decoding.alternatives import AlternativesRecorder
from decoding.engine import (
    Engine,
    TopTokensRecorder,
    gpu_bytes,
    is_out_of_memory,
    release_memory,
)
from decoding.errors import (
    Cancelled,
    MemoryTaken,
    OutOfMemory,
    ReplayRejected,
    VocabularyMismatch,
)
from decoding.forced_tokens import Speller, TokenBytes
from decoding.generation import BeamStep, Generation, Hypothesis
from decoding.model import LanguageModel
from decoding.options import SearchOptions
from decoding.penalties import Penalties, changes_log_probs
from decoding.prepared_constraint import PreparedConstraint, Start
from decoding.replay import TraceStep, replay
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import rows_of, search_of
from decoding.speculation import SpeculativeSampling
from decoding.token_texts import TokenTexts

log = logging.getLogger(__name__)


def open_handler(settings: Settings) -> Handler:
    """Load the model and its tokenizer. The handler then serves many jobs concurrently."""
    source = model_sources(settings)[0]  # a worker of several models opens a handler for each
    folder = checked_model(source)
    files = open_model_files(folder)
    decode = open_decoder(settings, files.vocabulary.fingerprint)
    labels = LabelDecoder(settings, decode, open_scorers(settings))
    adapters = adapter_folders(settings)
    model = open_model(folder, settings, adapters)
    try:
        by_adapter = {name: model.with_adapter(name) for name in adapters}
        generator = Generator(model, files, settings, by_adapter)
    except BaseException:
        close_model(model)
        raise
    metrics.gpu(tuple(gpu_bytes(model.device)), functools.partial(gpu_bytes, model.device))
    metrics.GROUPS.add(source.name, settings.inference.tensor_parallel, functools.partial(ranks_alive, model))
    metrics.serves(source.name, files.revision, files.vocabulary.fingerprint, FORMAT)

    handle = dispatcher(
        "generate", {GenerateJob: generator.run, DecodeJob: labels.run, TokenizeJob: generator.prompts.tokenize},
        (source.name, *adapters),
    )
    return Handler(handle, settings.inference.batch_requests_max, generator.close, generator.health_problem)


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """A job with its constraint and prompt. `start` is the automaton's state before the answer; None: its own."""

    job: GenerateJob
    model: LanguageModel[Any]
    constraint: CompiledConstraint
    prepared: PreparedConstraint
    prompt_ids: list[int]
    start: Start | None

    @property
    def options(self) -> GenerationOptions:
        return self.job.options

    @property
    def before(self) -> str | None:
        """The part of the constrained text before the answer. None if the answer is the whole text."""
        return prompt_text(self.job) if self.options.scope == "full" else None


class Generator:
    """One model with its tokenizer. Any number of threads may call `run` at once.

    by_adapter  the model as each adapter changes it, by the adapter's name
    """

    def __init__(
        self, model: LanguageModel[Any], files: ModelFiles, settings: Settings,
        by_adapter: Mapping[str, LanguageModel[Any]] | None = None,
    ) -> None:
        if model.vocab_size != files.vocabulary.size:
            raise VocabularyMismatch(files.vocabulary.size, model.vocab_size)
        self._model = model
        self._files = files
        self._settings = settings
        self._tokens = files.vocabulary.written
        self._ids_of_names = files.vocabulary.names
        tokenizer = open_tokenizer(files.tokenizer_file, model.vocab_size)
        encode = PromptEncoder(tokenizer, files.tokenizer_file, files.markers, model.vocab_size)
        try:
            self._texts = TokenTexts(tokenizer, self._tokens)
        except VocabularyError as error:
            raise SettingsInvalid(f"ABS_MODEL: {error}") from error
        self.prompts = PromptTokenizer(tokenizer, encode, model.vocab_size, files.bos_id)
        texts = files.vocabulary.tokens
        pieces = TokenBytes(texts, files.vocabulary.eos_ids, Speller(tokenizer, texts))
        self._prepared = PreparedConstraints(files, settings, pieces, open_graphs(model, settings))
        # Before the engine starts, whose thread alone may use the model then.
        self._unadapted = ModelWithPrior.measure("", model)
        self._by_adapter = {name: ModelWithPrior.measure(name, each) for name, each in (by_adapter or {}).items()}
        self._engine = Engine(model, memory_bytes(model, settings), EngineWatch())

    def close(self) -> None:
        """End the engine's thread, and the other processes of its model."""
        self._engine.close()
        close_model(self._model)

    def health_problem(self) -> str:
        """Why the engine makes no progress, empty if it does."""
        return stall_reason("the model takes no step", self._engine.stalled_s, self._settings.process.stall_timeout_s)

    def run(self, job: GenerateJob, context: Context) -> GenerateJobResult:
        """Answer a job.

        Raises what decoding.errors names, AutomatonMissing where the store forgot the constraint, PromptViolates where
        no continuation of the prompt satisfies.
        """
        try:
            return self._generate(job, context)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            log.error("memory ran out over a request: %s", without_message(error))
        release_memory(self._model.device)  # not before: the error held what was made with it
        needed = self._model.bytes_for(len(job.prompt) + 1, _rows(job.options), job.options.max_tokens)
        raise MemoryTaken() if self._engine.generations else OutOfMemory(needed)

    def _generate(self, job: GenerateJob, context: Context) -> GenerateJobResult:
        source = self._by_adapter.get(job.model, self._unadapted)
        constraint, prepared = self._prepared.open(job.automaton, source, context)
        sizes = sizes_of(job.automaton, constraint, context)
        if job.progress == "steps":
            context.publish(sizes)
        prompt_ids = self.prompts.ids(job)
        job = _fit_budget(job, len(prompt_ids), self._model.context_length)
        start = self._start(job, constraint, context.cancelled)
        task = _Task(job, source.model, constraint, prepared, prompt_ids, start)
        prepared.refuse_early(self._model, len(prompt_ids), task.options.max_tokens, task.start)
        rows, max_tokens = _rows(task.options), task.options.max_tokens
        self._engine.require_memory(len(prompt_ids), rows, max_tokens)
        started = time.perf_counter()
        with tracing.span("decode", rows=rows, max_tokens=max_tokens):
            hypotheses = self._engine.generate(
                lambda: self._generation(task), prompt_ids, extra_bytes=trace_bytes(task.options),
                on_step=self._listener(task, context), cancelled=context.cancelled, model=task.model,
            )
        choices = tuple(self._choice(hypothesis, task, context.cancelled) for hypothesis in hypotheses)
        timings = timings_of(job, sizes, context.waited_s, time.perf_counter() - started)
        counts = tuple(len(hypothesis.tokens) for hypothesis in hypotheses)
        usage = UsageBody(len(prompt_ids), sum(counts), task.options.rows)
        result = GenerateJobResult(
            job.automaton, choices, task.options.seed, usage, timings, counts,
            not_enforced=constraint.not_enforced, approximate=constraint.approximate,
            warnings=(*grammar_warnings(constraint.warnings), *job.warnings),
            prompt_tokens=prompt_tokens(
                self._engine, prompt_ids, job.prompt_log_probs, context.cancelled, model=task.model
            ),
            model=job.model,
        )
        token_sizes = [[len(self._tokens[token] or b"") for token in each.tokens[:-1]] for each in hypotheses]
        return named_generation(with_parts(result, job, token_sizes), job.names)

    def _start(self, job: GenerateJob, constraint: CompiledConstraint, cancelled: Callable[[], bool]) -> Start | None:
        """The state before the answer.

        Raises PromptViolates where the prompt counts and cannot be continued, and Cancelled.
        """
        # What counts of the prompt is its text, not how the tokenizer splits it: states are of texts. So a prompt whose
        # ids would come out as other bytes (an unknown character, a space put in front) is no different.
        if job.options.scope == "answer":
            return None
        text = prompt_text(job)
        prefix = read_prefix(constraint.text, constraint.tokens, text)
        if prefix.chars < len(text):
            raise PromptViolates(prefix.chars)
        if not isinstance(prefix.start, ProductStart):
            return prefix.start

        def check() -> None:
            if cancelled():
                raise Cancelled("the generation was cancelled")

        assert isinstance(constraint.tokens, LazyProduct)
        return constraint.tokens.started_at(prefix.start.parts, self._settings.limits.budget_expansions_max, check)

    def _generation(self, task: _Task) -> Generation:
        """The generation for the task's algorithm."""
        options = _decoding_options(task.options)
        run: Generation
        if isinstance(options, SamplingOptions):
            sampling = Sampling(task.prepared, options, start=task.start, prompt_ids=task.prompt_ids)
            run = sampling
            if options.n == 1 and self._model.supports_batching and not task.options.rejected_top_k:
                run = SpeculativeSampling(sampling, task.prepared, task.prompt_ids, metrics.drafts)
        else:
            run = search_of(
                task.prepared, options, start=task.start, text_of=self._answers(task), prompt_ids=task.prompt_ids
            )
        return TopTokensRecorder(run, task.options.rejected_top_k) if task.options.rejected_top_k else run

    def _answers(self, task: _Task) -> Callable[[tuple[int, ...]], bytes]:
        """A function from a row's ids to its answer. Rows that differ only in white space around it are one answer."""
        if task.job.keep_white_space or task.job.stops:
            return lambda tokens: _answer(self._texts.text(tokens), task)[0].encode()
        strip = str.strip if task.before is None else str.rstrip
        return lambda tokens: strip(self._texts.text(tokens)).encode()

    def _choice(self, hypothesis: Hypothesis, task: _Task, cancelled: Callable[[], bool]) -> ChoiceBody:
        """An answer with its evidence. Raises ReplayRejected if its text violates the constraint, which is a bug."""
        recorder = self._recorder(hypothesis, task)
        steps = self._replay(hypothesis, task, cancelled, recorder)
        log_prob = hypothesis.log_prob
        if task.options.algorithm != "sample" and changes_log_probs(task.options):  # the search's is of another model
            log_prob = sum(step.log_prob for step in steps)
        raw = self._texts.compared(hypothesis.tokens)
        text, stop = _answer(raw, task)
        check = check_text(task.constraint.text, (task.before or "") + text)
        if not check.satisfied:
            raise ReplayRejected("the finished text does not satisfy its constraint")
        trace = None
        if task.options.trace:
            trace = token_trace(steps, recorder, task.constraint, vocabulary=self._tokens, before=task.before)
        return ChoiceBody(
            text=text, finish_reason=hypothesis.finish_reason, log_prob=log_prob, score=hypothesis.score,
            satisfied=check.satisfied, words=word_trace(check), proven_gap=hypothesis.proven_gap,
            trace=trace,
            captures=self._captures(hypothesis, task, (task.before or "") + text),
            raw_text=None if task.job.keep_white_space or raw == text else raw,
            stop=stop or None,
        )

    def _captures(self, hypothesis: Hypothesis, task: _Task, text: str) -> tuple[CaptureBody, ...] | None:
        """The captures in a finished text."""
        if not task.constraint.captures:
            return None
        names = {self._ids_of_names[name]: name for name in task.constraint.named_tokens}
        pieces = [(self._tokens[token] or b"", names.get(token)) for token in hypothesis.tokens[:-1]]
        return captured(task.constraint, text, written_text(text, pieces, task.before or ""))

    def _recorder(self, hypothesis: Hypothesis, task: _Task) -> AlternativesRecorder | None:
        """What records the alternatives to the tokens of an answer."""
        options = task.options
        if not options.top_log_probs:
            return None
        return AlternativesRecorder(
            task.constraint.tokens, hypothesis.tokens, options.max_tokens, options.top_log_probs, start=task.start,
            limits=task.prepared.limits,
        )

    def _replay(
        self, hypothesis: Hypothesis, task: _Task, cancelled: Callable[[], bool], recorder: AlternativesRecorder | None
    ) -> tuple[TraceStep, ...]:
        """The search's trace, checked against a second pass of the model. Its log-probs are the model's own."""
        tokens, options = task.constraint.tokens, _decoding_options(task.options)
        penalties = None
        if isinstance(options, SearchOptions):
            penalties = Penalties.of_options(options, task.prompt_ids, self._model.vocab_size, self._model.device)
        own, scored = rescored(
            self._engine, task.prompt_ids, hypothesis.tokens, recorder=recorder, penalties=penalties,
            cancelled=cancelled, model=task.model,
        )  # fmt: skip
        steps = replay(
            tokens, hypothesis, scored, options, tolerance=self._model.tolerance, start=task.start,
            limits=task.prepared.limits,
        )
        return steps if own is scored else with_own_log_probs(steps, own)

    def _listener(self, task: _Task, context: Context) -> Callable[[BeamStep], None] | None:
        """The function that publishes each step. None if the job publishes no events."""
        match task.job.progress:
            case "steps":
                return StepEventBuilder(self._texts, task.constraint, task.start, context, task.prepared.limits)
            case "progress":
                return lambda event: context.progress(Progress("decode", event.step_number, task.options.max_tokens))
            case _:
                return None


def _answer(raw: str, task: _Task) -> tuple[str, str]:
    """The answer in a raw text, and the stop string behind it."""
    return answer_and_stop(raw, task.job, task.constraint.text, task.before)


def _fit_budget(job: GenerateJob, prompt_tokens: int, context_tokens: int | None) -> GenerateJob:
    """The job with a budget that fits the context. Only a job with `clamp_to_context` changes."""
    if not job.clamp_to_context:
        return job
    budget = budget_beside(job.options.max_tokens, prompt_tokens, context_tokens)
    return replace(job, options=job.options.model_copy(update={"max_tokens": budget}))


def _rows(options: GenerationOptions) -> int:
    """The most rows that the model reads at once."""
    decoding_options = _decoding_options(options)
    return options.n if isinstance(decoding_options, SamplingOptions) else rows_of(decoding_options)


def _decoding_options(options: GenerationOptions) -> SearchOptions | SamplingOptions:
    """The options of the search or sampling.

    Raises OptionsInvalid; the API refuses the same values earlier, by field name.
    """
    if options.algorithm == "sample":
        assert options.seed is not None
        return SamplingOptions(**_fields(options, SamplingOptions))
    return SearchOptions(**_fields(options, SearchOptions))


def _fields(options: GenerationOptions, kind: type[SearchOptions | SamplingOptions]) -> dict[str, Any]:
    """The options that decoding has under the same names."""
    return {field.name: getattr(options, field.name) for field in fields(kind) if hasattr(options, field.name)}
