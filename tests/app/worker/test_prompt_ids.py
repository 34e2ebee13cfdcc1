"""Prompts with token ids outside the model, and the context length."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from app.models import open_model_files
from app.models.tokenizer import PromptEncoder
from app.settings import Settings
from app.worker.handlers.prompts import PromptTokenizer
from compiler.spec import RegexSpec
from decoding.errors import OptionsInvalid
from tests.app.changed_model import changed_model
from tests.app.worker.fake_context import FakeContext
from tests.app.worker.generators import a_job, open_generator, run


def with_added_token(settings: Settings, folder: Path, token_id: int) -> Settings:
    """The model's files with an added token of this id.

    The vocabulary of the built-in model has 4,096 tokens.
    """
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    with changed_model(folder) as (tokenizer, _):
        tokenizer["added_tokens"].append({"id": token_id, "content": "<pad>", "special": True, **flags})
    return Settings.of(model=str(folder), secret=settings.auth.secret)


def test_a_token_outside_the_model_is_plain_text(tmp_path: Path, settings: Settings) -> None:
    files = open_model_files(settings.inference.model[0])
    extended_settings = with_added_token(settings, tmp_path, files.vocabulary.size)
    answer = run(extended_settings, RegexSpec("say <pad>a(b|c)"), prompt="a <pad> b", max_tokens=32)
    assert re.fullmatch("say <pad>a(b|c)", answer.choices[0].text)
    assert answer.usage.prompt_tokens == run(settings, prompt="a <pad> b").usage.prompt_tokens > 3


def test_a_prompt_with_an_id_outside_the_model_is_refused(
    settings: Settings, context: FakeContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open_generator(settings) as generator:
        tokenizer = Tokenizer(WordLevel({"dog": 10**6, "?": 0}, unk_token="?"))
        encode = PromptEncoder(tokenizer, tmp_path, (), 4_096)
        monkeypatch.setattr(generator, "prompts", PromptTokenizer(tokenizer, encode, 4_096, None))
        with pytest.raises(OptionsInvalid, match="prompt"):
            generator.run(a_job(settings, context, prompt="dog"), context)


def test_a_clamped_budget_uses_the_models_context_length(settings: Settings, context: FakeContext) -> None:
    with open_generator(settings, context_length=8) as generator:  # the model files allow 256
        job = dataclasses.replace(a_job(settings, context, max_tokens=50, beams=1), clamp_to_context=True)
        assert generator.run(job, context).choices[0].satisfied
