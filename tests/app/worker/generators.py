"""Generators with hash-based models, and jobs for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from app.automaton_cache import automaton_secret
from app.messages import GenerateJob, GenerateJobResult, GenerationOptions, automaton_hash, automaton_key
from app.models import open_model_files
from app.settings import Settings
from app.worker.handlers.generate import Generator
from compiler.artifact import CompiledConstraint
from compiler.codec import encode
from compiler.pipeline import compile_spec
from compiler.spec import KeywordsSpec, Spec
from tests.app.worker.fake_context import FakeContext
from tests.fake_models import HashModel
from tests.servers import quick_start  # noqa: F401  equal models are measured once

DOG = KeywordsSpec((("dog",),))


@contextmanager
def open_generator(settings: Settings, **options: Any) -> Iterator[Generator]:
    """A generator with a hash-based model."""
    files = open_model_files(settings.inference.model[0])
    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, **options)
    generator = Generator(model, files, settings)
    try:
        yield generator
    finally:
        generator.close()


@cache
def compiled(spec: Spec, model: str) -> CompiledConstraint:
    """A constraint for the vocabulary of a model."""
    return compile_spec(spec, open_model_files(model).vocabulary)


def a_job(
    settings: Settings, context: FakeContext, spec: Spec = DOG, prompt: str = "a", trace: bool = False, **options: Any
) -> GenerateJob:
    """A job whose automaton is in the store."""
    vocabulary = open_model_files(settings.inference.model[0]).vocabulary
    automaton = automaton_hash(spec, vocabulary.fingerprint)
    secret = automaton_secret(settings.auth.secret, automaton)
    context.save(automaton_key(automaton), encode(compiled(spec, settings.inference.model[0]), secret), 60)
    chosen = GenerationOptions(**{"max_tokens": 6, "beams": 2, "trace": trace, **options})
    return GenerateJob("abs-1", automaton, prompt, chosen, time.time() + 60)


class SharedGenerators(ExitStack):
    """The generators of `run`, one for equal settings and options."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: dict[tuple[object, ...], Generator] = {}

    def of(self, settings: Settings, **options: Any) -> Generator:
        key = (settings, *options.items())
        if key not in self._opened:
            self._opened[key] = self.enter_context(open_generator(settings, **options))
        return self._opened[key]

    def close(self) -> None:
        self._opened.clear()
        super().close()


shared_generators = SharedGenerators()  # conftest.py closes them after each module


def run(
    settings: Settings, spec: Spec = DOG, prompt: str = "a", trace: bool = False, **options: Any
) -> GenerateJobResult:
    context = FakeContext()
    return shared_generators.of(settings).run(a_job(settings, context, spec, prompt, trace, **options), context)
