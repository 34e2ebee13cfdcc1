"""Measures one grammar with one engine, in a process of its own.

    python -m benchmarks.grammars.measure ENGINE TOKENIZER

The compile, and then texts of the language, token by token; a text over the time limit leaves those before. Times are
those of the processor, as other work on the machine changes them less.
"""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from benchmarks.compiler.cases import Expression
from benchmarks.compiler.engine_process import MeasureRequest, Outcome, serve
from benchmarks.compiler.engines import GRAMMAR_LIMITS, ExpressionRefused, MaskEngine, Masks, OurEngine, OurMasks
from compiler.errors import LimitExceeded, SpecError

_MESSAGE_CHARS = 200
_WARM_UP = Expression("lark", 'start: "(" start? ")" | /[a-z]+/')


class GrammarMeasurement:
    """The measurement of a grammar. A request's case has `accepted` and `rejected`, lists of texts."""

    def __init__(self, tokenizer: Path) -> None:
        self._tokenizer = Tokenizer.from_str(gzip.decompress(tokenizer.read_bytes()).decode())
        self._tokenizer.encode_special_tokens = True

    def __call__(self, engine: MaskEngine, request: MeasureRequest) -> Iterator[Outcome]:
        if isinstance(engine, OurEngine):
            engine.limits = GRAMMAR_LIMITS
        if request.expression.kind in ("lark", "constraint"):
            engine.compile(_WARM_UP)
        start = time.process_time()
        try:
            masks = engine.compile(request.expression)
        except LimitExceeded as error:
            yield Outcome("limit", error.limit, {"ms": (time.process_time() - start) * 1e3})
            return
        except (SpecError, ExpressionRefused, ValueError, RuntimeError) as error:
            yield Outcome("refused", str(error)[:_MESSAGE_CHARS])
            return
        figures: dict[str, float] = {"ms": (time.process_time() - start) * 1e3}
        figures |= engine.figures(masks)
        details: dict[str, Any] = {"wrong": 0, "texts": 0, "mask_us": []}
        for kind in ("accepted", "rejected"):
            for text in request.case[kind]:
                yield Outcome("ok", figures=figures, details=details)
                verdict = self._reads(masks, engine.eos, text, details["mask_us"])
                details["wrong"] += verdict != (kind == "accepted")
                details["texts"] += 1
        yield Outcome("ok", figures=figures, details=details)

    def _reads(self, masks: Masks, eos: int, text: str, microseconds: list[float]) -> bool:
        """Whether the masks allow each token, and then the end.

        A time is that from a token to the next mask over all ids.
        """
        masks.restart()
        masks.look_up()
        try:
            for token in self._tokenizer.encode(text, add_special_tokens=False).ids:
                if not masks.allows(token):
                    return False
                start = time.thread_time_ns()
                masks.advance(token)
                masks.look_up()
                if isinstance(masks, OurMasks):
                    masks.expand()
                microseconds.append(round((time.thread_time_ns() - start) / 1e3, 1))
        except ExpressionRefused:  # it was allowed and is refused all the same
            return False
        return masks.allows(eos)


if __name__ == "__main__":
    serve(GrammarMeasurement(Path(sys.argv[2])))
