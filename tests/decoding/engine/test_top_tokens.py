"""The top tokens are recorded with a run without changing it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from app.models import ModelFiles
from compiler.pipeline import compile_spec
from compiler.spec import InfillSpec, KeywordsSpec, Spec
from decoding.engine import TopTokensRecorder
from decoding.engine.top_tokens import ROWS_RECORDED
from decoding.forced_tokens import TokenBytes
from decoding.generation import BeamStep, Generation, Hypothesis
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, search_of
from tests.fake_models import HashModel

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
            parents = [
                tokens[: len(live_rows[0])] for tokens in rows
            ]  # within a stretch some may have been dropped since
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
    assert (
        choice_count == len(result[1])
        if spec is not TEMPLATE or kind != "banked"
        else 0 < choice_count < len(result[1])
    )
