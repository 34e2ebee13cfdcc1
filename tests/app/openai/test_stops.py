"""Stop strings and constraints together."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch

from app.formats import chat_format, remove_partial_stop, remove_stop
from app.openai.requests import ChatRequest, CompletionRequest
from app.openai.translate import translate_chat, translate_completion
from compiler.pipeline import compile_spec, compile_text
from compiler.spec import spec_from_json
from compiler.text import answer_text, check_text
from compiler.vocab import byte_vocabulary
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive
from tests.app.openai.chat_models import call_begin, reply_of, small_family
from tests.fake_models import PrefixModel

VOCABULARY = byte_vocabulary()
ENDS = [  # a constraint, stop strings, and whether the model may write them as its end
    (None, ["\n"], True),
    (None, ["b", "ab", "aba"], True),
    ({"ltlf": "F(ab)"}, ["\n", "\n\n"], True),
    ({"all": [{"keywords": ["a"]}, {"not": {"keywords": ["b"]}}, {"max_words": 3}]}, ["\n"], True),
    ({"ltlf": "F(ab)"}, ["b "], False),
    ({"ltlf": "F(ab)"}, ["\n", "a a"], False),
    ({"max_chars": 4}, ["\n"], False),
    ({"regex": "[ab\n ]{2,5}"}, ["\n", "ba"], False),
    ({"regex": "a+b", "leading_space": "forbid"}, ["aab"], False),
    ({"choice": ["ab", "ab\n", "ba"]}, ["\n"], False),
]


class Letters(PrefixModel):
    """Writes a, b, spaces and line breaks, and ends now and then."""

    def __init__(self) -> None:
        super().__init__(VOCABULARY.size, VOCABULARY.eos_ids)
        self._scores = torch.full((VOCABULARY.size,), -9.0)
        self._scores[[ord(character) for character in "ab \n"] + [VOCABULARY.eos_ids[0]]] = 4.0

    def log_probs(self, prefix: tuple[int, ...]) -> torch.Tensor:
        return self._scores.log_softmax(dim=0)


@pytest.mark.parametrize(("constraint", "stops", "is_written"), ENDS, ids=str)
def test_an_answer_satisfies_and_holds_no_stop_string(
    constraint: dict[str, Any] | None, stops: list[str], is_written: bool
) -> None:
    translation = translate_completion(CompletionRequest(prompt="x", constraint=constraint, stop=stops, seed=1), 64)  # type: ignore[arg-type]
    assert translation.stops == (tuple(stops) if is_written else ())
    assert translation.params.spec is not None
    compilation = compile_spec(translation.params.spec, VOCABULARY)
    constraint_text = None if constraint is None else compile_text(spec_from_json(constraint))
    sampling_options = SamplingOptions(compilation.tokens.min_tokens + 8, n=200, seed=3)
    model = Letters()
    result = drive(model, [1], Sampling(PreparedConstraint.prepare(compilation.tokens, model.device), sampling_options))
    stop_count = 0
    for answer in result:
        raw = bytes(token for token in answer.tokens if token != VOCABULARY.eos_ids[0]).decode()
        model_s = answer_text(compilation.text, raw)
        text = remove_stop(model_s, translation.stops)
        stop_count += text != model_s
        assert not any(stop in text for stop in stops), text
        assert constraint_text is None or check_text(constraint_text, text).satisfied, text
    assert bool(stop_count) == is_written


@pytest.mark.parametrize("constraint", [constraint for constraint, _, _ in ENDS if constraint], ids=str)
def test_a_stop_string_excludes_only_texts_that_contain_it(constraint: dict[str, Any]) -> None:
    """Every satisfying text without a stop string is still an answer."""
    translation = translate_completion(CompletionRequest(prompt="x", constraint=constraint, stop="bb", seed=1), 64)  # type: ignore[arg-type]
    assert translation.params.spec is not None
    compilation = compile_text(translation.params.spec)
    constraint_text = compile_text(spec_from_json(constraint))
    for length in range(6):
        for letters in itertools.product("ab \n", repeat=length):
            text = "".join(letters)
            is_valid = "bb" not in text and check_text(constraint_text, text).satisfied
            assert check_text(compilation, text).satisfied == is_valid, text


def test_a_possible_stop_string_is_held_back() -> None:
    chance = random.Random(5)
    for _ in range(3_000):
        stops = ["".join(chance.choices("ab", k=chance.randint(1, 4))) for _ in range(chance.randint(0, 3))]
        text = "".join(chance.choices("abc", k=chance.randint(0, 8)))
        longer = text + "".join(chance.choices("abc", k=chance.randint(0, 4)))
        if any(stop in longer[:-1] for stop in stops):
            continue  # a stop string stands at the end alone
        assert remove_stop(longer, stops).startswith(remove_partial_stop(text, stops))
        if not stops:
            assert remove_partial_stop(text, stops) == text


@pytest.mark.parametrize("name", ["hermes", "mistral-v7", "deepseek-v3.1", "command"])
def test_a_stop_string_ends_an_answer_and_never_precedes_calls(name: str) -> None:
    files = small_family(name)
    request = ChatRequest.model_validate({
        "messages": [{"role": "user", "content": "a"}], "stop": ["END", "}"],
        "tools": [{"type": "function", "function": {"name": "refund"}}],
    })  # fmt: skip
    translation = translate_chat(request, files, 64)
    assert translation.params.spec is not None and translation.answer is not None
    text = compile_text(translation.params.spec)
    form = translation.answer.calls
    assert form is not None
    call, family = call_begin(form, "refund") + "{}" + form.tail + form.end, chat_format(files.chat_template)
    for reply, is_reply, may_call in (("hi", True, True), ("hi END", True, False), ("hi END.", False, False)):
        assert check_text(text, reply_of(family, reply)).satisfied == is_reply
        assert check_text(text, reply + call).satisfied == (may_call and not family.reply)
    reader, stops = translation.answer.reader, translation.stops
    kept = remove_stop(reply_of(family, "hi END"), stops, reader)
    assert kept == remove_stop(family.reply + "hi END", stops, reader) == family.reply + "hi "
    assert check_text(text, kept).satisfied
    before = "" if family.reply else "hi"
    assert remove_stop(before + call, stops, reader) == before + call
