"""Forced tokens are those that every satisfying text shares. They are spelled as the tokenizer spells them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

from app.models import ModelFiles
from compiler.artifact import CompiledConstraint
from compiler.lifting import UNREACHABLE, TokenAutomaton
from compiler.limits import Limits
from compiler.pipeline import compile_spec
from compiler.products import LazyProduct, ProductStates
from compiler.pushdown import Configurations, PushdownAutomaton
from compiler.spec import spec_from_json
from compiler.vocab import Vocabulary
from decoding.forced_tokens import NO_FORCED_TOKEN, ForcedTokens, TokenBytes
from decoding.generation import Snapshot
from decoding.model import Scores, StepInput
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.search import BankedSearch, drive, rows_of
from decoding.search.banked_search import jump_forward
from tests.fake_models import HashModel, PrefixSession

TEMPLATE = {"regex": r'\{"name": "(Ann|Bob)", "likes": "(tea|milk) in the afternoon"\}', "leading_space": "forbid"}


def _compiled(files: ModelFiles, constraint: dict[str, object]) -> CompiledConstraint:
    return compile_spec(spec_from_json(constraint), files.vocabulary, Limits())


def _stretch(
    files: ModelFiles, forced: ForcedTokens, state: int, budget_after: int = 1000, tokens_max: int = 100
) -> list[bytes | None]:
    """The forced tokens from a state to the first choice."""
    tokens = []
    states = np.array([state])
    while len(tokens) < tokens_max:
        token = int(forced.tokens(states, budget_after)[0])
        if token == NO_FORCED_TOKEN:
            break
        if token in files.vocabulary.eos_ids:
            return [*tokens, b"<end>"]
        tokens.append(files.vocabulary.tokens[token])
        states = forced.after(states)
    return tokens


def test_forced_tokens_follow_the_tokenizer_and_stop_at_a_branch(files: ModelFiles, pieces: TokenBytes) -> None:
    compiled = _compiled(files, TEMPLATE)
    forced = ForcedTokens(compiled.tokens, pieces)
    prefix = b"".join(piece or b"" for piece in _stretch(files, forced, compiled.tokens.start))
    assert b'{"name": "'.startswith(prefix) and len(prefix) >= len(b'{"name":')
    ids = files.vocabulary.tokens
    prefix_ids = map(ids.index, (b"{", b'"', b"n", b"ame", b'"', b":", b" ", b'"', b"A"))
    state = reduce(compiled.tokens.advance, prefix_ids, compiled.tokens.start)
    suffix = b"".join(piece or b"" for piece in _stretch(files, forced, state))
    assert b'nn", "likes": "'.startswith(suffix) and suffix.startswith(b'nn", "likes":')


def test_forced_tokens_to_the_end_include_eos(files: ModelFiles, tokenizer: Tokenizer, pieces: TokenBytes) -> None:
    compiled = _compiled(files, {"choice": ["the cat sat on the mat"], "leading_space": "forbid"})
    stretch = _stretch(files, ForcedTokens(compiled.tokens, pieces), compiled.tokens.start)
    spelled = tokenizer.encode("the cat sat on the mat", add_special_tokens=False).ids
    assert stretch == [*(files.vocabulary.tokens[token] for token in spelled), b"<end>"]


@pytest.mark.parametrize("ends", [1, 2])
def test_an_end_is_forced_only_where_it_is_alone(ends: int) -> None:
    vocabulary = Vocabulary((b"a", *[None] * ends), tuple(range(1, 1 + ends)))
    tokens = compile_spec(spec_from_json({"regex": "a", "leading_space": "forbid"}), vocabulary, Limits()).tokens
    assert isinstance(tokens, TokenAutomaton)
    pieces = TokenBytes(vocabulary.tokens, vocabulary.eos_ids, lambda text, _: [0] if text == b"a" else [])
    state = np.array([tokens.advance(tokens.start, 0)])
    assert ForcedTokens(tokens, pieces).tokens(state, 9).tolist() == [1 if ends == 1 else NO_FORCED_TOKEN]


def test_no_token_is_forced_beyond_the_budget(files: ModelFiles, pieces: TokenBytes) -> None:
    compiled = _compiled(files, {"choice": ["the cat sat on the mat"], "leading_space": "forbid"})
    least = compiled.tokens.min_tokens
    assert _stretch(files, ForcedTokens(compiled.tokens, pieces), compiled.tokens.start, least - 2) == []


def test_forced_tokens_do_not_depend_on_earlier_queries(files: ModelFiles, pieces: TokenBytes) -> None:
    compiled = _compiled(files, TEMPLATE)
    states = np.flatnonzero(compiled.tokens.distance < 1000)
    forwards, backwards = ForcedTokens(compiled.tokens, pieces), ForcedTokens(compiled.tokens, pieces)
    result = forwards.tokens(states, 1000)
    assert (backwards.tokens(states[::-1], 1000)[::-1] == result).all()
    assert (result != NO_FORCED_TOKEN).any() and (result == NO_FORCED_TOKEN).any()


class SlowForced(ForcedTokens):
    """Follows every stretch from its first byte by vocabulary tokens."""

    def __init__(self, automaton: TokenAutomaton, pieces: TokenBytes, vocabulary: Sequence[bytes | None]) -> None:
        super().__init__(automaton, pieces)
        self._automaton, self._vocabulary = automaton, vocabulary

    def _forced_bytes(self, state: int) -> tuple[bytes, bool]:
        automaton, pieces, text = self._automaton, self._token_bytes, bytearray()
        while len(text) < 512:
            distances = automaton.distance[automaton.successors(state)[automaton.token_class]]
            live = np.flatnonzero(distances != UNREACHABLE).tolist()
            first_bytes = {b"<end>" if id in pieces.eos_ids else (self._vocabulary[id] or b"")[:1] for id in live}
            if first_bytes == {b"<end>"}:
                return bytes(text), True
            byte = first_bytes.pop()
            if first_bytes or byte not in pieces.byte_id:
                break
            if pieces.byte_id[byte] not in live:
                return b"", False
            text += byte
            state = automaton.advance(state, pieces.byte_id[byte])
        return bytes(text), False


LITERAL = "the dog ran over a big hill and saw people play with balls in a park near the water. " * 8


@pytest.mark.parametrize(
    "constraint",
    [
        TEMPLATE, {"choice": [LITERAL[:200], LITERAL[:150] + "it rained"]},
        {"infill": LITERAL + "<|infill_word|> end."}, {"regex": "é😀(naïve|naïf) café"}, {"keywords": ["dog"]},
    ],
    ids=["template", "choice", "longer than a stretch", "bytes of characters", "nothing dictated"],
)  # fmt: skip
def test_forced_tokens_equal_those_of_the_reference(
    files: ModelFiles, pieces: TokenBytes, constraint: dict[str, object]
) -> None:
    automaton = _compiled(files, constraint).tokens
    states = np.flatnonzero(automaton.distance < 1000)[-300:]
    result = ForcedTokens(automaton, pieces).tokens(states, 1000)
    assert (result == SlowForced(automaton, pieces, files.vocabulary.tokens).tokens(states, 1000)).all()


def test_a_long_literal_takes_work_in_proportion_to_its_bytes(
    files: ModelFiles, pieces: TokenBytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    automaton = _compiled(files, {"choice": [LITERAL], "leading_space": "forbid"}).tokens
    forced, successors, states = ForcedTokens(automaton, pieces), TokenAutomaton.successors, list[int]()

    def counted(self: TokenAutomaton, state: int) -> NDArray[np.int64]:
        states.append(state)
        return successors(self, state)

    monkeypatch.setattr(TokenAutomaton, "successors", counted)
    stretch = _stretch(files, forced, automaton.start, tokens_max=1000)
    assert b"".join(piece or b"" for piece in stretch) == LITERAL.encode() + b"<end>"
    assert len(states) <= len(LITERAL) + 2 * len(stretch) + 1  # a byte each; for each token, where it leads to
    _stretch(files, forced, automaton.start, tokens_max=1000)
    assert len(states) <= len(LITERAL) + 2 * len(stretch) + 1


class StepByStep(BankedSearch):
    """Feeds the model one token at a time, forced tokens too."""

    def advance(self, scores: Scores) -> list[Snapshot]:
        live = self._host.live
        assert self._forced is not None
        tokens = self._forced.tokens(self._host.state[live], self._budget_before - 1)
        if not len(self._history) or (tokens == NO_FORCED_TOKEN).any() or self._forced.ends(tokens).any():
            return super().advance(scores)
        log_probs = scores.log_probs[self._on_device(self._fed[live])].numpy()
        token_log_probs, peak = log_probs[np.arange(len(tokens)), tokens], log_probs.max(axis=1)
        beams = jump_forward(
            self._beams, *map(self._array, (tokens, token_log_probs, peak)),
            states=self._states, floor=self._n_best.floor,
        )
        return [self._take(beams, keep_finished=False)]

    def _common_forced_tokens(self) -> list[NDArray[np.int64]]:
        return []


class Counting(HashModel):
    """Counts the most rows and the most tokens of one feed."""

    rows_max, token_max = 0, 0

    def step(self, feeds: Sequence[StepInput[PrefixSession]]) -> list[Scores]:
        scores = super().step(feeds)
        for feed in feeds:
            self.rows_max = max(self.rows_max, len(feed.session.rows))
            self.token_max = max(self.token_max, sum(len(row) - len(feed.session.prompt) for row in feed.session.rows))
        return scores


def test_jump_forward_stays_within_the_declared_rows(files: ModelFiles, pieces: TokenBytes) -> None:
    pattern = r"[a-p] man and a woman and a dog and a cat and a man and a girl in the park and on the beach"
    compiled = _compiled(files, {"regex": pattern, "leading_space": "forbid"})
    constraint = PreparedConstraint.prepare(compiled.tokens, torch.device("cpu"), pieces=pieces)
    options = SearchOptions(max_tokens=compiled.tokens.min_tokens + 1, beams=3)
    model = Counting(files.vocabulary.size, files.vocabulary.eos_ids)
    drive(model, (5,), BankedSearch(constraint, options))
    assert model.rows_max == rows_of(options)
    assert 3 * options.max_tokens < model.token_max <= rows_of(options) * options.max_tokens


@pytest.mark.parametrize("beams", [1, 2, 7])
def test_jump_forward_saves_passes_and_changes_no_beam(files: ModelFiles, pieces: TokenBytes, beams: int) -> None:
    compiled = _compiled(files, TEMPLATE)
    constraint = PreparedConstraint.prepare(compiled.tokens, torch.device("cpu"), pieces=pieces)
    for seed in range(6):
        options = SearchOptions(max_tokens=compiled.tokens.min_tokens + 14, beams=beams, n=min(2, beams))
        ahead, alone = ([], []), ([], [])
        for search, (events, result) in ((BankedSearch, ahead), (StepByStep, alone)):
            model = HashModel(files.vocabulary.size, files.vocabulary.eos_ids, seed=seed, levels=5)
            result += drive(model, (5,), search(constraint, options), on_step=events.append)
            result.append(model.passes)
        assert ahead[0] == alone[0]
        assert ahead[1][:-1] == alone[1][:-1]
        assert ahead[1][-1] < alone[1][-1]


def test_parts_side_by_side_force_what_one_automaton_forces(files: ModelFiles, pieces: TokenBytes) -> None:
    schema = {"type": "object", "properties": {"caption": {"type": "string"}}, "required": ["caption"]}
    spec = {"all": [{"json_schema": schema, "leading_space": "forbid"}, {"keywords": ["dog", "ball"]}]}
    whole = _compiled(files, spec).tokens
    product = compile_spec(spec_from_json(spec), files.vocabulary, Limits(dfa_states_max=400)).tokens
    assert isinstance(whole, PushdownAutomaton) and isinstance(product, LazyProduct)
    stretches = []
    for states in (Configurations(whole), ProductStates(product)):
        stretches.append(_stretch(files, ForcedTokens(states, pieces), states.start))
    assert stretches[0] == stretches[1] and b"".join(piece or b"" for piece in stretches[0]).startswith(b'{"caption":')
