"""Generates: prompt into ids, search, replayed trace, final check. The only module that names decoding."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

from tokenizers import Tokenizer

from app.automata import open_decoder
from app.errors import AutomatonMissing, MessageInvalid, RequestOverLimit
from app.handlers.base import Context, Handler
from app.handlers.compile import word_trace
from app.jobs import Choice, GenerateJob, GenerateResult, Job, Progress, Result, TokenStep
from app.keys import automaton_key
from app.model_files import ModelFiles, open_model_files
from app.settings import Settings
from compiler.compiled import Compiled
from compiler.errors import ArtefactInvalid
from compiler.text_automaton import answer_text, check_text, replay
from decoding import trace
from decoding.errors import ReplayRejected
from decoding.model import HuggingFaceModel, LanguageModel
from decoding.search import Hypothesis, SearchOptions, StepEvent, generate
from decoding.trace import TraceStep


def open_handler(settings: Settings) -> Handler:
    """Load the model and its tokenizer; the handler then serves one job at a time."""
    files = open_model_files(settings.model)
    generator = Generator(HuggingFaceModel.load(settings.model, device=settings.device), files, settings)

    def handle(job: Job, context: Context) -> Result:
        if not isinstance(job, GenerateJob):
            raise MessageInvalid(f"the generate queue takes no job of kind {job.kind!r}")
        return generator.run(job, context)

    return handle


class Generator:
    """One model with its tokenizer."""

    def __init__(self, model: LanguageModel[Any], files: ModelFiles, settings: Settings) -> None:
        self._model = model
        self._files = files
        self._tokens = files.vocabulary.tokens
        self._tokenizer = Tokenizer.from_file(str(files.tokenizer_file))
        self._tokenizer.no_truncation()  # a file may ask for either, which would change the prompt unseen
        self._tokenizer.no_padding()
        self._decode = open_decoder(settings, files.vocabulary.fingerprint)
        self._beam_context_tokens_max = settings.beam_context_tokens_max

    def run(self, job: GenerateJob, context: Context) -> GenerateResult:
        """Answer a job.

        Raises what decoding.errors names, AutomatonMissing where the store forgot the constraint, RequestOverLimit
        where prompt and beams are too much together.
        """
        compiled = self._compiled(job.automaton, context)
        prompt_ids = self._prompt_ids(job.prompt)
        self._require_room(len(prompt_ids), job)
        options = _options(job)
        started = time.perf_counter()
        hypotheses = generate(
            self._model, prompt_ids, compiled.tokens, options, on_step=_reporter(job, context),
            cancelled=context.cancelled, text_of=self._answers(compiled),
        )
        choices = tuple(
            self._choice(hypothesis, compiled, self._replay(hypothesis, prompt_ids, compiled, options), job.trace)
            for hypothesis in hypotheses
        )
        decode_ms = (time.perf_counter() - started) * 1000
        return GenerateResult(choices, len(prompt_ids), context.waited_s * 1000, decode_ms)

    def _require_room(self, prompt_tokens: int, job: GenerateJob) -> None:
        """Each beam holds the keys and values of its whole text, the prompt among it."""
        cap = self._beam_context_tokens_max
        if job.beams * (prompt_tokens + job.max_tokens) > cap:
            raise RequestOverLimit("beams * (prompt tokens + max_tokens)", "beam_context_tokens_max", cap)

    def _compiled(self, automaton: str, context: Context) -> Compiled:
        key = automaton_key(automaton)
        data = context.load(key)
        if data is None:
            raise AutomatonMissing("the automaton is no longer stored; send the constraint again")
        try:
            return self._decode(data)
        except ArtefactInvalid as error:
            context.discard(key, data)
            raise AutomatonMissing("the stored automaton was damaged and is gone; send the constraint again") from error

    def _prompt_ids(self, prompt: str) -> list[int]:
        """The prompt's ids, with whatever the tokenizer puts first; never empty, for a model continues something."""
        ids = list(self._tokenizer.encode(prompt).ids)
        bos = self._files.bos_id
        return ids or [bos if bos is not None else self._files.vocabulary.eos_ids[0]]

    def _bytes(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self._tokens[token] or b"" for token in tokens)

    def _answers(self, compiled: Compiled) -> Callable[[tuple[int, ...]], bytes]:
        """What a row's ids say as an answer: rows that differ only in an optional leading space are one answer."""

        @functools.cache  # the search asks again for every finished row at every step
        def answer(tokens: tuple[int, ...]) -> bytes:
            return answer_text(compiled.text, self._bytes(tokens).decode()).encode()

        return answer

    def _replay(
        self, hypothesis: Hypothesis, prompt_ids: list[int], compiled: Compiled, options: SearchOptions
    ) -> tuple[TraceStep, ...]:
        """The search's claims, checked against a fresh pass of the model."""
        rescored = self._model.score(prompt_ids, hypothesis.tokens)
        return trace.replay(compiled.tokens, hypothesis, rescored, options, self._model.tolerance)

    def _choice(
        self, hypothesis: Hypothesis, compiled: Compiled, steps: Sequence[TraceStep], with_trace: bool
    ) -> Choice:
        """An answer with its evidence. Raises ReplayRejected where the finished text does not satisfy: our bug."""
        text = answer_text(compiled.text, self._bytes(hypothesis.tokens).decode())
        check = check_text(compiled.text, text)
        if not check.satisfied:
            raise ReplayRejected("the finished text does not satisfy its constraint")
        return Choice(
            text=text, finish_reason=hypothesis.finish_reason, log_prob=hypothesis.log_prob, score=hypothesis.score,
            satisfied=check.satisfied, words=word_trace(check), tokens=len(hypothesis.tokens),
            trace=self._trace(steps, compiled) if with_trace else None,
        )

    def _trace(self, steps: Sequence[TraceStep], compiled: Compiled) -> tuple[TokenStep, ...]:
        pieces = [self._tokens[step.token] or b"" for step in steps[:-1]]  # the last token is EOS
        shown = replay(compiled.text, pieces)
        return tuple(
            TokenStep(
                token=step.token, text=(self._tokens[step.token] or b"").decode(errors="replace"), state=seen.state,
                distance=step.distance, alpha=step.alpha, log_prob=step.log_prob, score=step.score,
                letters=seen.letters,
            )
            for step, seen in zip(steps, shown, strict=True)
        )


def _options(job: GenerateJob) -> SearchOptions:
    return SearchOptions(
        max_tokens=job.max_tokens, beams=job.beams, algorithm=job.algorithm, alpha_min=job.alpha_min, gamma=job.gamma,
        n=job.n, rank_by=job.rank_by,
    )


def _reporter(job: GenerateJob, context: Context) -> Callable[[StepEvent], None]:
    def report(event: StepEvent) -> None:
        context.progress(Progress("decode", event.step_number, job.max_tokens))

    return report
