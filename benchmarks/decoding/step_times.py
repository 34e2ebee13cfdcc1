"""Times each decoding step of several systems with one model.

A system reads a prompt, writes some tokens and returns the milliseconds of each step: from the log-probs of one token
to those of the next, which is its choice of tokens and one forward pass. The prompt's own pass is not among them, and
transformers gets the prompt's cache ready-made. No text ends before its budget does.
"""

from __future__ import annotations

import copy
import gzip
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import DynamicCache, LogitsProcessor, PreTrainedModel

from benchmarks.decoding.gpt2 import LateEndingModel
from benchmarks.runs import Clock
from compiler.vocab import Vocabulary
from decoding.model import Scores, StepInput, cache_name
from decoding.options import SearchOptions
from decoding.prepared_constraint import PreparedConstraint
from decoding.sampling import Sampling, SamplingOptions
from decoding.search import drive, generate

Method = Literal["greedy", "beams", "sample"]
PATTERN = "[A-Za-z ,.]+"
"""The constraint of greedy decoding and sampling, which every system can express. Half of the tokens satisfy it."""


def wait_for(device: torch.device) -> None:
    """Return once the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass
class StepTimes:
    """The milliseconds of each step.

    model_ms  of the forward passes within them; empty: not measured
    rows      read in each pass; empty: not counted
    """

    ms: list[float] = field(default_factory=list)
    model_ms: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


class TimedModel(LateEndingModel):
    """Our adapter with a clock."""

    def __init__(
        self, model: PreTrainedModel, clock: Clock = time.perf_counter, *, batch_invariant: bool = True
    ) -> None:
        self._clock, self._times, self._last = clock, StepTimes(), 0.0
        super().__init__(model, batch_invariant=batch_invariant)

    def restart(self) -> StepTimes:
        """The record that the next steps fill."""
        self._times = StepTimes()
        return self._times

    def prefill(self, prompt_ids: Sequence[int]) -> tuple[Any, Tensor]:
        session, log_probs = super().prefill(prompt_ids)
        wait_for(self.device)
        self._last = self._clock()
        return session, log_probs

    def step(self, feeds: Sequence[StepInput[Any]]) -> list[Scores]:
        start = self._clock()
        batch = super().step(feeds)
        wait_for(self.device)
        end = self._clock()
        self._times.ms.append(1e3 * (end - self._last))
        self._times.model_ms.append(1e3 * (end - start))
        self._times.rows.append(sum(feed.tokens.numel() for feed in feeds))
        self._last = end
        return batch


class _Stamps(LogitsProcessor):
    """Notes when each step's scores are there. It changes none."""

    def __init__(self, clock: Clock) -> None:
        self.times, self._clock = StepTimes(), clock
        self._last: float | None = None

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        wait_for(scores.device)
        now = self._clock()
        if self._last is not None:
            self.times.ms.append(1e3 * (now - self._last))
        self._last = now
        return scores


class TokenMask(LogitsProcessor):
    """Masks the scores of each row by a matcher of its own.

    new_matcher  a matcher at the beginning of a text
    consume      tells a matcher its row's token
    fill         writes a matcher's mask into a row of the masks
    apply        masks scores in place
    masks        int32 [rows, words]
    """

    def __init__(
        self, *, rows: int, eos: int, new_matcher: Callable[[], Any], consume: Callable[[Any, int], bool],
        fill: Callable[[Any, Tensor, int], Any], apply: Callable[[Tensor, Tensor], Any], masks: Tensor,
    ) -> None:
        self._matchers, self._eos = [new_matcher() for _ in range(rows)], eos
        self._consume, self._fill, self._apply, self._masks = consume, fill, apply, masks
        self._started = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        for row, matcher in enumerate(self._matchers):
            if self._started and not self._consume(matcher, int(input_ids[row, -1])):
                raise ValueError("a token was allowed and then not accepted")
            self._fill(matcher, self._masks, row)
        self._started = True
        masked = scores.clone()
        self._apply(masked, self._masks)
        masked[:, self._eos] = float("-inf")
        return masked


NewMask = Callable[[int], TokenMask]


def llguidance_masks(tokenizer: Path, vocabulary: Vocabulary) -> NewMask:
    """llguidance's masks of the pattern, for a number of rows."""
    import llguidance
    from llguidance import torch as llg

    eos = vocabulary.eos_ids[0]
    with tempfile.TemporaryDirectory() as folder:
        unzipped = Path(folder) / "tokenizer.json"
        unzipped.write_bytes(gzip.decompress(tokenizer.read_bytes()))
        ids = llguidance.LLTokenizer(str(unzipped), n_vocab=vocabulary.size, eos_token=eos)
    grammar = llguidance.LLMatcher.grammar_from_regex(PATTERN)

    def new_mask(rows: int) -> TokenMask:
        return TokenMask(
            rows=rows, eos=eos, new_matcher=lambda: llguidance.LLMatcher(ids, grammar),
            consume=lambda matcher, token: matcher.consume_token(token), fill=llg.fill_next_token_bitmask,
            apply=llg.apply_token_bitmask_inplace, masks=llg.allocate_token_bitmask(rows, vocabulary.size),
        )  # fmt: skip

    return new_mask


def xgrammar_masks(_: Path, vocabulary: Vocabulary) -> NewMask:
    """XGrammar's masks of the pattern, for a number of rows."""
    import xgrammar

    eos = vocabulary.eos_ids[0]
    info = xgrammar.TokenizerInfo(
        [text or b"" for text in vocabulary.tokens], xgrammar.VocabType.RAW, vocab_size=vocabulary.size,
        stop_token_ids=[eos],
    )  # fmt: skip
    grammar = xgrammar.GrammarCompiler(info, max_threads=1).compile_regex(PATTERN)

    def new_mask(rows: int) -> TokenMask:
        return TokenMask(
            rows=rows, eos=eos, new_matcher=lambda: xgrammar.GrammarMatcher(grammar),
            consume=lambda matcher, token: matcher.accept_token(token),
            fill=lambda matcher, masks, row: matcher.fill_next_token_bitmask(masks, row),
            apply=xgrammar.apply_token_bitmask_inplace, masks=xgrammar.allocate_token_bitmask(rows, vocabulary.size),
        )  # fmt: skip

    return new_mask


PEERS: dict[str, Callable[[Path, Vocabulary], NewMask]] = {"llguidance": llguidance_masks, "xgrammar": xgrammar_masks}


class Transformers:
    """transformers' `generate`, with or without a mask. `prepare` reads the prompt once for all runs."""

    def __init__(self, model: Any, clock: Clock = time.perf_counter) -> None:
        self._model, self._clock, self._prompt, self._cache = model, clock, list[int](), DynamicCache()
        self._cache_name = cache_name(model)

    def prepare(self, prompt: list[int]) -> None:
        """Reads all of the prompt but its last token."""
        self._prompt = prompt
        ids = torch.tensor([prompt[:-1]], device=self._model.device)
        output = self._model(input_ids=ids, use_cache=True, logits_to_keep=1)
        self._cache = getattr(output, self._cache_name)

    def step_times(self, method: Method, rows: int, tokens: int, mask: TokenMask | None = None) -> StepTimes:
        """The steps of one generation of `rows` beams or samples."""
        stamps, cache = _Stamps(self._clock), copy.deepcopy(self._cache)
        if rows > 1:
            first: Any = torch.zeros(rows, dtype=torch.int64, device=self._model.device)
            cache.reorder_cache(first)  # repeats its row
        ids = torch.tensor([self._prompt], device=self._model.device)
        if method == "sample":
            how: dict[str, Any] = {"do_sample": True, "num_return_sequences": rows, "top_k": 0}
        else:
            how = {"do_sample": False, "num_beams": rows}
        self._model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens,
            logits_processor=[stamps, *([] if mask is None else [mask])], **{self._cache_name: cache}, **how,
        )  # fmt: skip
        return stamps.times


class Ours:
    """Our search, sampling and greedy decoding.

    keywords  the constraint of the search
    pattern   that of the others
    """

    def __init__(self, model: TimedModel, keywords: PreparedConstraint, pattern: PreparedConstraint) -> None:
        self._model, self._keywords, self._pattern = model, keywords, pattern

    def step_times(self, method: Method, prompt: list[int], rows: int, tokens: int) -> StepTimes:
        """The steps of one generation of `rows` beams or samples."""
        times = self._model.restart()
        if method == "beams":
            generate(self._model, prompt, self._keywords, SearchOptions(tokens, beams=rows))
        else:
            options = SamplingOptions(tokens, seed=1, n=rows, temperature=0.0 if method == "greedy" else 1.0)
            drive(self._model, prompt, Sampling(self._pattern, options))
        return times
