"""Measures one request with one engine, in a process of its own.

    python -m benchmarks.bfcl.measure ENGINE TOKENIZER

The compile, then calls that are written under the engine's masks. Times are those of the processor, as other work on
the machine does not change them much. The outcome holds verdicts alone: nothing of a tool or of a call.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.bfcl.forms import calls_are_valid
from benchmarks.compiler.engine_process import MeasureRequest, Outcome, serve
from benchmarks.compiler.engines import ExpressionRefused, MaskEngine, Masks, OurMasks
from benchmarks.maskbench.measure import CLOSING, timed_compile

CUT, WHOLE = "cut", "whole"
CUT_TIMES = 2  # the budget of a text that may be cut, as a multiple of the least
WHOLE_TOKENS = 192  # the budget of the others
_MASKS_MAX = 5  # masks of one request whose times are kept


@dataclass(frozen=True, slots=True)
class _Written:
    """A text that was written under masks.

    ended    whether EOS ended it, not the budget
    mask_us  of each token, from the token before to the mask over all ids
    """

    text: str
    ended: bool
    mask_us: tuple[float, ...]


class CallWriter:
    """Writes texts with random tokens under an engine's masks.

    At a share of the steps, drawn at random, EOS is preferred, then closing quotes and brackets.
    """

    def __init__(self, engine: MaskEngine, masks: Masks) -> None:
        self._engine, self._masks, self._tokens = engine, masks, engine.vocabulary.tokens
        self._bonus = np.zeros(engine.vocabulary.size)
        closing = [bool(text) and CLOSING.issuperset(text or b"") for text in self._tokens]
        self._bonus[closing], self._bonus[engine.eos] = 1, 2

    def text(self, seed: int, budget: int, hurry: float) -> _Written:
        """A text of at most `budget` tokens, EOS included. `hurry` is the share of steps that prefer to end."""
        rng, content, times = np.random.default_rng(seed), b"", list[float]()
        token: int | None = None
        try:
            for tokens_left in range(budget - 1, -1, -1):
                times.append(self._look_up(token))
                allowed = self._allowed(tokens_left)
                if not allowed.size:
                    break
                scores = rng.random(allowed.size) + self._bonus[allowed] * (rng.random() < hurry)
                token = int(allowed[scores.argmax()])
                if token == self._engine.eos:
                    return _Written(content.decode(errors="replace"), True, tuple(times))
                content += self._tokens[token] or b""
        except ExpressionRefused:  # a token was allowed and is refused all the same
            pass
        return _Written(content.decode(errors="replace"), False, tuple(times))

    def _look_up(self, token: int | None) -> float:
        """Read a token, or begin, and compute the mask. Its time is in microseconds."""
        start = time.thread_time_ns()
        if token is None:
            self._masks.restart()
        else:
            self._masks.advance(token)
        self._masks.look_up()
        if isinstance(self._masks, OurMasks):
            self._masks.expand()
        return (time.thread_time_ns() - start) / 1e3

    def _allowed(self, tokens_left: int) -> np.ndarray:
        masks = self._masks
        allowed = masks.allowed_within(tokens_left) if isinstance(masks, OurMasks) else masks.allowed()
        return allowed[allowed < self._bonus.size]


def measure_request(engine: MaskEngine, request: MeasureRequest) -> Iterator[Outcome]:
    """The measurement of one request.

    The request's case has `schemas` by name, `seed`, `calls` (0: the compile alone) and `min_tokens`. That is None for
    our engine, which finds the number, and where ours does not compile.
    """
    compiled = timed_compile(engine, request)
    if isinstance(compiled, Outcome):
        yield compiled
        return
    masks, milliseconds = compiled
    figures = {"ms": milliseconds}
    min_tokens = request.case["min_tokens"]
    if isinstance(masks, OurMasks):
        min_tokens = masks.tokens.min_tokens
        figures |= {name: engine.figures(masks)[name] for name in ("min_tokens", "states", "table_bytes")}
    details: dict[str, Any] = {}
    yield Outcome("ok", figures=figures, details=details)
    if request.case["calls"]:
        details |= _written_calls(CallWriter(engine, masks), request.case, min_tokens)
        yield Outcome("ok", figures=figures, details=details)


def _written_calls(writer: CallWriter, case: dict[str, Any], min_tokens: int | None) -> dict[str, Any]:
    """The verdicts on texts by kind, and the times of masks.

    A verdict is [whether the text ended, whether it is valid]. Without a least budget no text is cut.
    """
    kinds = [(WHOLE, max(WHOLE_TOKENS, min_tokens or 0), 0.5)]
    kinds += [] if min_tokens is None else [(CUT, CUT_TIMES * min_tokens, 0.0)]
    found: dict[str, Any] = {CUT: [], WHOLE: []}
    mask_us, text_us = list[float](), list[float]()
    for number in range(case["calls"]):
        seed = case["seed"] + number
        for kind, budget, hurry in kinds:
            written = writer.text(seed, budget, hurry)
            found[kind].append([written.ended, calls_are_valid(written.text, case["schemas"])])
            mask_us += written.mask_us
            if kind == WHOLE:
                text_us.append(sum(written.mask_us))
    sample = np.random.default_rng(case["seed"]).permutation(mask_us)[:_MASKS_MAX]
    return found | {
        "mask_us": [round(float(each), 1) for each in sample],
        "text_ms": [round(each / 1e3, 2) for each in text_us],
    }


if __name__ == "__main__":
    serve(measure_request)
