"""The guarantee inside the transformers library's own loops, on the built-in model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM

from app.models import ModelFiles
from compiler.errors import BudgetTooSmall
from compiler.lifting import TokenAutomaton, from_table
from compiler.limits import DEFAULT_LIMITS, ResourceGuard
from compiler.pipeline import compile_spec
from compiler.pushdown import build_machine, lift_to_tokens
from compiler.spec import KeywordsSpec, LtlfSpec, RegexSpec, Spec
from compiler.text import answer_text
from compiler.vocab import Vocabulary
from decoding.errors import ModelOutputInvalid, OptionsInvalid, VocabularyMismatch
from decoding.logits_processor import ConstraintLogitsProcessor
from decoding.prepared_constraint import Automaton
from tests.compiler.pushdown.grammars import GRAMMARS
from tests.compiler.pushdown.test_tokens import explicit_automaton
from tests.decoding.random_automata import random_factored
from tests.references.context_free import derives, grammar_of
from tests.references.text import satisfies
from tests.test_guards import overridden_private_methods

PROMPTS = ["sentence:", "concepts: dog park ball | sentence:", "a"]
PAD = 3  # an id that also occurs in texts: padding must be distinguished from text
SPECS: list[Spec] = [
    KeywordsSpec((("dog",), ("park",), ("ball",)), ordered=True),
    RegexSpec(r"[A-Z][a-z]+( [a-z]+){3,9}\."),
    LtlfSpec("G(!the & !a) & F ball & F dot"),
    RegexSpec("a dog"),
    RegexSpec("😀日?é"),
]
WAYS: list[dict[str, Any]] = [
    {"do_sample": False}, {"do_sample": True}, {"do_sample": True, "temperature": 3.0, "top_k": 5, "top_p": 0.6},
    {"num_beams": 4, "do_sample": False}, {"num_beams": 4, "do_sample": True}, {"num_beams": 5, "early_stopping": True},
    {"do_sample": True, "num_return_sequences": 3}, {"do_sample": True, "renormalize_logits": True},
]  # fmt: skip


@pytest.fixture(scope="module")
def model(captions_dir: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(str(captions_dir), dtype=torch.float32).eval()


def batch(tokenizer: Tokenizer, prompts: Sequence[str]) -> dict[str, Tensor]:
    """The prompts, padded on the left."""
    rows = [tokenizer.encode(prompt).ids for prompt in prompts]
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(row)) + row for row in rows])
    return {
        "input_ids": ids,
        "attention_mask": torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows]),
    }


def generated(
    automaton: Automaton, extra: int, mode: dict[str, Any], model: Any, inputs: dict[str, Tensor],
    vocabulary: Vocabulary,
) -> Iterator[str]:
    """The texts before EOS, within the least budget and some tokens."""
    budget = automaton.min_tokens + extra
    processor = ConstraintLogitsProcessor(automaton, budget)
    output = model.generate(**inputs, max_new_tokens=budget, pad_token_id=PAD, logits_processor=[processor], **mode)
    assert len(output) == len(PROMPTS) * mode.get("num_return_sequences", 1)
    for row in output[:, inputs["input_ids"].shape[1] :].tolist():
        assert len(row) <= budget
        end = row.index(*vocabulary.eos_ids)
        yield b"".join(vocabulary.tokens[token] or b"" for token in row[:end]).decode()


@pytest.mark.parametrize("mode", WAYS, ids=str)
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.sample(4)
def test_every_answer_satisfies_its_constraint_within_the_budget(
    spec: Spec, mode: dict[str, Any], model: Any, tokenizer: Tokenizer, files: ModelFiles
) -> None:
    compiled = compile_spec(spec, files.vocabulary)
    torch.manual_seed(5)
    for extra in (0, 7):
        for text in generated(compiled.tokens, extra, mode, model, batch(tokenizer, PROMPTS), files.vocabulary):
            assert satisfies(spec, answer_text(compiled.text, text)), text


@pytest.mark.parametrize("mode", WAYS, ids=str)
@pytest.mark.sample(1)
def test_texts_of_grammars_are_finished_within_the_budget(
    mode: dict[str, Any], model: Any, tokenizer: Tokenizer, files: ModelFiles
) -> None:
    torch.manual_seed(6)
    for name, extra in (("json", 0), ("json", 12), ("dangling else", 12), ("palindromes", 9)):
        case = GRAMMARS[name]
        machine = build_machine(case.grammar, ResourceGuard(DEFAULT_LIMITS))
        automaton = lift_to_tokens(machine, files.vocabulary, ResourceGuard(DEFAULT_LIMITS))
        for text in generated(automaton, extra, mode, model, batch(tokenizer, PROMPTS), files.vocabulary):
            assert derives(case.grammar, text) and machine.accepts(text.encode()), text
            if name == "json":
                json.loads(text)


def test_both_kinds_of_automata_allow_the_same_tokens(files: ModelFiles) -> None:
    pattern, size = "[a-z]+(?: [a-z]+){2,5}", files.vocabulary.size
    machine = build_machine(grammar_of(s=pattern), ResourceGuard(DEFAULT_LIMITS))
    automata = (
        explicit_automaton(pattern, files.vocabulary),
        lift_to_tokens(machine, files.vocabulary, ResourceGuard(DEFAULT_LIMITS)),
    )
    explicit, pushdown = (ConstraintLogitsProcessor(automaton, 14) for automaton in automata)
    ids = torch.ones((5, 1), dtype=torch.int64)
    for _ in range(14):
        allowed = explicit(ids, torch.zeros(5, size)).isfinite()
        assert torch.equal(allowed, pushdown(ids, torch.zeros(5, size)).isfinite())
        ids = torch.cat([ids, torch.multinomial(allowed.float(), 1)], dim=1)[torch.randint(0, 5, (5,))]


def test_greedy_is_unchanged_if_all_is_allowed(model: Any, tokenizer: Tokenizer, files: ModelFiles) -> None:
    all_texts = compile_spec(RegexSpec(r"[\s\S]*"), files.vocabulary).tokens
    inputs = batch(tokenizer, ["sentence:"])
    expected, result = (
        model.generate(**inputs, max_new_tokens=40, pad_token_id=PAD, do_sample=False, logits_processor=processors)
        for processors in ([], [ConstraintLogitsProcessor(all_texts, 40)])
    )
    assert len(expected[0]) > 8 and torch.equal(expected, result)


def test_a_reordered_row_keeps_its_state() -> None:
    random = np.random.default_rng(0)
    for _ in range(15):
        automaton = random_factored(random)
        budget = automaton.min_tokens + 5
        processor = ConstraintLogitsProcessor(automaton, budget)
        ids = torch.randint(0, 24, (2, 3)).repeat_interleave(3, dim=0)
        for step in range(budget):
            allowed = processor(ids, torch.zeros(6, 24)).isfinite()
            assert torch.equal(allowed, alone(automaton, budget, ids, step))
            token = torch.multinomial(allowed.float(), 1)
            order = torch.randint(0, 6, (6,))
            ids = torch.cat([ids, token], dim=1)[order]


def alone(automaton: TokenAutomaton, budget: int, ids: Tensor, step: int) -> Tensor:
    """The allowed tokens of each row, by stepping the automaton."""
    allowed = torch.zeros(len(ids), automaton.vocabulary_size, dtype=torch.bool)
    for number, row in enumerate(ids[:, ids.shape[1] - step :].tolist()):
        state = automaton.start
        for token in row:
            state = automaton.advance(state, token) if automaton.distance[state] else state
        for token in range(automaton.vocabulary_size):
            in_time = automaton.distance[automaton.advance(state, token)] <= budget - step - 1
            allowed[number, token] = bool(in_time and automaton.distance[state] > 0)
        if not allowed[number].any():
            allowed[number, list(automaton.eos_ids)] = True
    return allowed


def a_then_b() -> TokenAutomaton:
    """(ab)+ over ids 0 and 1; 2 ends."""
    table = np.array([[1, 3], [3, 2], [1, 3], [3, 3]])
    return from_table(np.array([0, 1, 0]), table, np.array([False, False, True, False]), 0, eos_ids=(2,))


def allowed_ids(processor: ConstraintLogitsProcessor, *text_of_ids: int, ids: int = 3) -> list[int]:
    """The ids allowed after a prompt of one id and `text_of_ids`."""
    scores = processor(torch.tensor([[1, *text_of_ids]]), torch.zeros(1, ids))
    return [int(token) for token in scores[0].isfinite().nonzero()[:, 0]]


def test_shortened_sequences_are_followed() -> None:
    processor = ConstraintLogitsProcessor(a_then_b(), 7)
    steps: list[tuple[list[int], list[int]]] = [
        ([], [0]), ([0], [1]), ([0, 1], [0, 2]), ([0], [1]), ([0, 1, 0, 1], [0, 2]), ([0, 1, 0, 1, 0, 1], [2]),
        ([0, 1, 0, 1], [0, 2]), ([0, 1, 2, 2, 0], [2]), ([0, 1, 2], [2]), ([0, 1, 2, 1, 1], [2]),
    ]  # fmt: skip
    for text_of_ids, expected in steps:
        assert allowed_ids(processor, *text_of_ids) == expected, text_of_ids


def test_a_processor_accepts_the_prompt_length_alone() -> None:
    processor = ConstraintLogitsProcessor(a_then_b(), 7, prompt_length=1)
    assert allowed_ids(processor, 0, 1) == [0, 2]


def test_a_processor_restarts_with_its_prompt_and_refuses_others() -> None:
    processor = ConstraintLogitsProcessor(a_then_b(), 7)
    for _ in range(2):
        assert [allowed_ids(processor), allowed_ids(processor, 0)] == [[0], [1]]
    for other in (torch.tensor([[0, 0, 1]]), torch.empty((1, 0), dtype=torch.int64)):
        with pytest.raises(OptionsInvalid, match="input_ids"):
            processor(other, torch.zeros(1, 3))


def test_the_only_allowed_token_survives_a_probability_of_zero() -> None:
    processor = ConstraintLogitsProcessor(a_then_b(), 7)
    scores = processor(torch.tensor([[1], [1]]), torch.tensor([[-torch.inf, 0.0, 0.0], [-3.0, 0.0, -torch.inf]]))
    assert scores.softmax(dim=1).tolist() == [[1.0, 0.0, 0.0]] * 2


def test_padding_ids_must_be_declared_and_are_never_generated() -> None:
    processor = ConstraintLogitsProcessor(a_then_b(), 7, extra_ids=2)
    assert allowed_ids(processor, ids=5) == [0]
    assert allowed_ids(processor, 0, 1, ids=5) == [0, 2]
    assert allowed_ids(processor, 0, 1, 2, 4, ids=5) == [2]  # padded with such an id
    for ids in (2, 3, 4, 6):
        with pytest.raises(VocabularyMismatch, match=f"compiled for 3 token ids, the model has {ids}"):
            allowed_ids(processor, ids=ids)


def test_impossible_budgets_and_options_are_refused_at_construction() -> None:
    with pytest.raises(BudgetTooSmall, match="needs at least 3 tokens, max_tokens is 2"):
        ConstraintLogitsProcessor(a_then_b(), 2)
    empty_language = from_table(np.array([0, 0]), np.array([[0]]), np.array([False]), 0, eos_ids=(1,))
    with pytest.raises(BudgetTooSmall, match="any number"):
        ConstraintLogitsProcessor(empty_language, 100)
    for field in ("max_new_tokens", "prompt_length", "extra_ids"):
        with pytest.raises(OptionsInvalid, match=field):
            ConstraintLogitsProcessor(a_then_b(), **{"max_new_tokens": 5, field: -1})


def test_nan_scores_are_refused() -> None:
    with pytest.raises(ModelOutputInvalid):
        ConstraintLogitsProcessor(a_then_b(), 7)(torch.tensor([[1]]), torch.tensor([[0.0, torch.nan, 0.0]]))


def test_no_private_method_of_another_package_is_overridden() -> None:
    assert not overridden_private_methods("decoding")
