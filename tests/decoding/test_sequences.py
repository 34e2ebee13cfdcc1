"""Answers to sequences with tokens and budgets, from the least budget up."""

from __future__ import annotations

import random

import pytest

from compiler.errors import BudgetTooSmall, SpecUnsatisfiable, SpecUnspellable
from compiler.pipeline import compile_spec
from compiler.products import LazyProduct
from tests.compiler.forms.test_sequences import EOS, VOCABULARY, is_text, random_sequence
from tests.fake_models import HashModel
from tests.long.fuzz_paths import PATHS, Case


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sample(16)
def test_answers_are_texts_of_the_sequence(seed: int) -> None:
    draw = random.Random(1_000 + seed)
    spec = random_sequence(draw)
    try:
        tokens = compile_spec(spec, VOCABULARY).tokens
    except (SpecUnsatisfiable, SpecUnspellable):
        return
    assert not isinstance(tokens, LazyProduct)
    least = tokens.min_tokens
    for budget in range(max(1, least - 1), least + 4):
        case = Case(VOCABULARY, tokens, HashModel(VOCABULARY.size, (EOS,), seed=seed), (EOS,), budget, None)
        path, _ = PATHS[draw.choice(list(PATHS))]
        if budget < least:
            with pytest.raises(BudgetTooSmall):
                path(case, draw)
            continue
        answers = path(case, draw)
        assert answers
        for answer in answers:
            assert len(answer) <= budget and answer[-1] == EOS and is_text(spec, answer[:-1])
