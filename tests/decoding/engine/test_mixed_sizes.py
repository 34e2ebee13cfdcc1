"""Small and large requests in one engine, and recorded top tokens.

A long prompt keeps no other request waiting.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from app.models import ModelFiles
from compiler.pipeline import compile_spec
from compiler.spec import InfillSpec, KeywordsSpec, Spec
from decoding.engine import Engine, TopTokensRecorder
from decoding.engine.top_tokens import ROWS_RECORDED
from decoding.errors import Cancelled
from decoding.forced_tokens import TokenBytes
from decoding.generation import BeamStep, Generation, Hypothesis
from decoding.model import Scores, StepInput
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of
from tests.decoding.engine.test_engine import (
    PLENTY,
    VOCABULARY,
    Order,
    _begin_together,
    _generate,
    _long,
    _wait_for,
)
from tests.fake_models import HashModel, PrefixSession

CHUNK = 4


class ChunkedModel(HashModel):
    """Reads prompts in chunks. `log` has the prompt of each chunk, and the prompts of each step's sessions."""

    chunk_tokens = CHUNK

    def __init__(self) -> None:
        super().__init__(VOCABULARY, (VOCABULARY - 1,))
        self.log: list[tuple[str, list[tuple[int, ...]]]] = []
        self.may_step = threading.Event()

    def prefill_chunks(self, prompt_ids: Sequence[int]) -> Iterator[tuple[PrefixSession, Tensor] | None]:
        for end in range(CHUNK, len(prompt_ids) + CHUNK, CHUNK):
            self.log.append(("chunk", [tuple(prompt_ids)]))
            yield None if end < len(prompt_ids) else self.prefill(prompt_ids)

    def step(self, feeds: Sequence[StepInput[PrefixSession]]) -> list[Scores]:
        assert self.may_step.wait(30.0)
        self.log.append(("step", [feed.session.prompt for feed in feeds]))
        return super().step(feeds)


def _with_prompt(order: Order, tokens: int) -> Order:
    return replace(order, prompt=tuple(number % (VOCABULARY - 1) for number in range(tokens)))


def test_steps_go_on_between_the_chunks_of_a_prompt() -> None:
    model, running, large = ChunkedModel(), _long(max_tokens=60), _with_prompt(_long(), 10 * CHUNK)
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(2) as callers:
        first = callers.submit(_generate, engine, running)
        _wait_for(lambda: len(model.log) == 1)
        second = callers.submit(_generate, engine, large)
        _wait_for(lambda: engine.generations == 2)
        model.may_step.set()
        assert first.result() == running.alone() and second.result() == large.alone()
    kinds = [kind for kind, _ in model.log]
    chunks = [number for number, (kind, prompts) in enumerate(model.log) if kind == "chunk" and large.prompt in prompts]
    assert len(chunks) == 10 and all(kinds[number + 1] == "step" for number in chunks)


def test_a_prompt_cancelled_between_its_chunks_is_read_no_further() -> None:
    model, running, large = ChunkedModel(), _long(max_tokens=60), _with_prompt(_long(), 10 * CHUNK)

    def chunks() -> int:
        return sum(large.prompt in prompts for _, prompts in model.log)

    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(2) as callers:
        answers = [
            callers.submit(_generate, engine, running),
            callers.submit(_generate, engine, large, cancelled=lambda: chunks() >= 2),
        ]
        _wait_for(lambda: engine.generations == 2)
        model.may_step.set()
        with pytest.raises(Cancelled):
            answers[1].result()
        assert answers[0].result() == running.alone()
    assert chunks() == 2


def test_a_short_prompt_begins_between_the_chunks_of_long_ones() -> None:
    model = ChunkedModel()
    larges = [_with_prompt(_long(), tokens * CHUNK) for tokens in (20, 30)]
    running, small = _long(max_tokens=60), _with_prompt(_long(max_tokens=9), 2)
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(4) as callers:
        first = callers.submit(_generate, engine, running)
        _wait_for(lambda: len(model.log) == 1)
        others = [callers.submit(_generate, engine, order) for order in (*larges, small)]
        _wait_for(lambda: engine.generations == 4)
        model.may_step.set()
        assert first.result() == running.alone()
        for answer, order in zip(others, (*larges, small), strict=True):
            assert answer.result() == order.alone()
    chunks = [prompts[0] for kind, prompts in model.log if kind == "chunk"]
    assert chunks.index(small.prompt) <= 4  # behind a chunk of each prompt before it
    steps = [prompts for kind, prompts in model.log if kind == "step"]
    ended = max(number for number, prompts in enumerate(steps) if small.prompt in prompts)
    assert ended < min(number for number, prompts in enumerate(steps) if larges[0].prompt in prompts)


def test_narrow_generations_step_while_a_wide_one_waits() -> None:
    model, wide = ChunkedModel(), _with_prompt(_long(beams=8, max_tokens=20), 1)
    narrow = [_with_prompt(_long(beams=1, max_tokens=30), tokens) for tokens in (2, 3)]
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(3) as callers:
        answers = _begin_together(callers, engine, model.may_step, [wide, *narrow])
        assert [answer.result() for answer in answers] == [order.alone() for order in (wide, *narrow)]
    steps = [prompts for kind, prompts in model.log if kind == "step"]
    together = [prompts for prompts in steps if narrow[0].prompt in prompts]
    assert all(narrow[1].prompt in prompts for prompts in together[1:-1])
    taken = sum(wide.prompt in prompts for prompts in together)
    assert len(together) // 8 <= taken <= len(together) // 2  # a feed has 8 to 24 rows, and a step gives it 4


def test_generations_of_one_width_share_every_step() -> None:
    model, wide = ChunkedModel(), [_with_prompt(_long(beams=8, max_tokens=20), tokens) for tokens in (2, 3)]
    with Engine(model, PLENTY) as engine, ThreadPoolExecutor(2) as callers:
        answers = _begin_together(callers, engine, model.may_step, wide)
        assert [answer.result() for answer in answers] == [order.alone() for order in wide]
    steps = [prompts for kind, prompts in model.log if kind == "step"]
    assert sum(len(prompts) == 2 for prompts in steps) >= 0.7 * len(steps)


PROMPT = (5, 9)
COUNT = 4


def drive_run(run: Generation, model: HashModel) -> tuple[tuple[Hypothesis, ...], list[BeamStep]]:
    step_events: list[BeamStep] = []
    return drive(model, PROMPT, run, step_events.append), step_events


TEMPLATE = InfillSpec("A man on the beach saw <|infill_word|> in the park and went home.")


@pytest.mark.parametrize("spec", [KeywordsSpec((("dog",), ("park",))), TEMPLATE], ids=["keywords", "template"])
@pytest.mark.parametrize("kind", ["banked", "abs", "sample"])
def test_recording_top_tokens_changes_no_other_result(
    files: ModelFiles, pieces: TokenBytes, spec: Spec, kind: str
) -> None:
    compiled = compile_spec(spec, files.vocabulary)
    constraint = PreparedConstraint.prepare(compiled.tokens, torch.device("cpu"), pieces=pieces)
    budget = compiled.tokens.min_tokens + 8

    def new_run() -> Generation:
        if kind == "sample":
            return Sampling(constraint, SamplingOptions(budget, seed=3, n=3))
        return search_of(constraint, SearchOptions(budget, beams=8, algorithm=kind))  # type: ignore[arg-type]

    model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=1)
    plain, result = drive_run(new_run(), model), drive_run(TopTokensRecorder(new_run(), COUNT), model)
    assert plain[0] == result[0]
    assert plain[1] == [dataclasses.replace(event, top_tokens=()) for event in result[1]]
    live_rows: list[tuple[int, ...]] = [()]  # the live rows, best first, of the last event with noted tokens
    choice_count = 0
    for event in result[1]:
        if event.top_tokens:
            choice_count += 1
            rows = list(dict.fromkeys(expected.tokens for expected in event.top_tokens))
            # Within a stretch some rows may have been dropped since.
            parents = [tokens[: len(live_rows[0])] for tokens in rows]
            assert list(dict.fromkeys(parents)) == list(dict.fromkeys(live_rows[:ROWS_RECORDED]))
            for tokens in rows:
                best = model.log_probs(PROMPT + tokens).topk(COUNT)
                step_events = [
                    (top_token.token, top_token.log_prob)
                    for top_token in event.top_tokens
                    if top_token.tokens == tokens
                ][:COUNT]
                assert step_events == list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
            live_rows = [row.tokens for row in event.rows if not row.finished]
    if spec is TEMPLATE and kind == "banked":
        assert 0 < choice_count < len(result[1])
    else:
        assert choice_count == len(result[1])
