from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import app.handlers.compile as compile_handler
from app.errors import RequestOverLimit
from app.handlers.generate import Generator
from app.jobs import CheckJob, CheckResult, CompileJob, GenerateJob, Progress, spec_json
from app.keys import automaton_hash, automaton_key
from app.model_files import open_model_files
from app.settings import Settings
from compiler.codec import encode
from compiler.errors import CompileCancelled
from compiler.pipeline import compile_spec
from compiler.spec import KeywordsSpec, RegexSpec, Spec
from compiler.text_automaton import TextAutomaton
from tests.fakes import HashModel

SPEC = KeywordsSpec((("dog",),))
LARGE = RegexSpec("(.*(a|b)){12}")


@dataclass
class Context:
    """Obeys app.handlers.base.Context."""

    called_off: bool = False
    waited_s: float = 0.0
    values: dict[str, bytes] = field(default_factory=dict)

    def progress(self, event: Progress) -> None:
        pass

    def cancelled(self) -> bool:
        return self.called_off

    def load(self, key: str) -> bytes | None:
        return self.values.get(key)

    def save(self, key: str, value: bytes, ttl_s: float) -> None:
        self.values[key] = value

    def discard(self, key: str, value: bytes) -> None:
        self.values.pop(key, None)


@pytest.fixture
def settings(captions_dir: Path) -> Settings:
    return Settings(model=str(captions_dir))


@pytest.fixture
def compiled_texts(monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """The constraints that were compiled for a check."""
    seen: list[Spec] = []
    whole = compile_handler.compile_text

    def counted(spec: Spec, *rest: object) -> TextAutomaton:
        seen.append(spec)
        return whole(spec, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(compile_handler, "compile_text", counted)
    return seen


def check_job(text: str, spec: Spec = SPEC) -> CheckJob:
    return CheckJob(spec_json(spec), text, time.time() + 60)


def generate_job(settings: Settings, context: Context, prompt: str, beams: int = 1) -> GenerateJob:
    """A job whose automaton is in the store."""
    vocabulary = open_model_files(settings.model).vocabulary
    automaton = automaton_hash(SPEC, vocabulary.fingerprint)
    context.save(automaton_key(automaton), encode(compile_spec(SPEC, vocabulary), settings.secret), 60)
    return GenerateJob("abs-1", automaton, prompt, 4, beams, "abs", 0.5, 1.0, 1, "log_prob", False, time.time() + 60)


def generator(settings: Settings) -> Generator:
    files = open_model_files(settings.model)
    return Generator(HashModel(files.vocabulary.size, files.vocabulary.eos_ids), files, settings)


@pytest.mark.parametrize("kind", ["compile", "check"])
def test_a_compilation_that_is_called_off_stops(settings: Settings, kind: str) -> None:
    job = CompileJob("0" * 64, spec_json(LARGE), time.time() + 60) if kind == "compile" else check_job("a", LARGE)
    with pytest.raises(CompileCancelled):
        compile_handler.open_handler(settings)(job, Context(called_off=True))


def test_many_checks_of_one_constraint_compile_it_once(settings: Settings, compiled_texts: list[Spec]) -> None:
    handle = compile_handler.open_handler(settings)
    for text, satisfied in (("a dog", True), ("a cat", False), ("the dog", True)):
        result = handle(check_job(text), Context())
        assert isinstance(result, CheckResult)
        assert (result.satisfied, len(result.words)) == (satisfied, 2)
    assert compiled_texts == [SPEC]


def test_a_check_of_a_stored_constraint_compiles_nothing(settings: Settings, compiled_texts: list[Spec]) -> None:
    context, handle = Context(), compile_handler.open_handler(settings)
    automaton = automaton_hash(SPEC, open_model_files(settings.model).vocabulary.fingerprint)
    handle(CompileJob(automaton, spec_json(SPEC), time.time() + 60), context)
    result = handle(check_job("a cat"), context)
    assert isinstance(result, CheckResult)
    assert (result.satisfied, result.violated_at) == (False, 5)
    assert not compiled_texts


def test_the_prompt_is_read_whole_whatever_the_tokenizer_file_says(tmp_path: Path, settings: Settings) -> None:
    folder = Path(settings.model)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    tokenizer["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
    tokenizer["padding"] = {
        "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text(encoding="utf-8"), encoding="utf-8")
    cut = Settings(model=str(tmp_path), secret=settings.secret)
    context, prompt = Context(), "a dog and a cat " * 10
    counts = [
        generator(one).run(generate_job(one, context, prompt), context).prompt_tokens for one in (settings, cut)
    ]
    assert counts[0] == counts[1] > 8
    assert generator(cut).run(generate_job(cut, context, "a"), context).prompt_tokens < 8


def test_beams_and_prompt_are_bounded_together(captions_dir: Path) -> None:
    settings = Settings(model=str(captions_dir), beam_context_tokens_max=100)
    context = Context()
    assert generator(settings).run(generate_job(settings, context, "a dog", beams=4), context).choices
    with pytest.raises(RequestOverLimit, match="beam_context_tokens_max = 100"):
        generator(settings).run(generate_job(settings, context, "a dog " * 20, beams=4), context)
