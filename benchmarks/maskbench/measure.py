"""Measures one schema with one engine, in a process of its own.

    python -m benchmarks.maskbench.measure ENGINE TOKENIZER

Three stages: the compile; the instances, token by token; and generation that is cut at multiples of the least budget.
A request without instances ends with the compile. Times are those of the processor, as other work on the machine does
not change them much. The outcome holds verdicts alone: nothing of the schema or of a text.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from benchmarks.compiler.engine_process import MeasureRequest, Outcome, serve
from benchmarks.compiler.engines import ExpressionRefused, MaskEngine, Masks, OurEngine, OurMasks
from compiler.engines import NATIVE
from compiler.errors import CompileCancelled, LimitExceeded, SpecError, SpecUnsupported
from compiler.forms import value_violation
from compiler.json_schema.dialects import ANNOTATIONS, ASSERTIONS
from compiler.limits import DEFAULT_LIMITS, Limits, ResourceGuard
from compiler.spec import JsonSchemaSpec, spec_from_json
from tests.references.json_validator import is_valid

TIMES = (1.0, 1.5, 2.0)  # the budgets, as multiples of the least
CLOSING = frozenset(b'"}]')
_MASKS_MAX = 20  # masks of one schema whose times are kept
_REASON_CHARS = 60
_Details = dict[str, Any]


def compact_text(value: object) -> str:
    """The JSON text of a value without white space. Raises ValueError for a number that JSON cannot write."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    if any("\ud800" <= character <= "\udfff" for character in text):  # half of a pair is only written escaped
        return json.dumps(value, separators=(",", ":"))
    return text


class _Cuts:
    """Generations that are cut at a budget of tokens, EOS included.

    Each step takes the allowed token with the highest score. `random` scores depend on the seed alone; `hurried` ones
    prefer EOS, and then tokens of closing quotes and brackets only, as a model does that wants to end.
    """

    def __init__(self, engine: MaskEngine, masks: Masks, seed: int) -> None:
        self._engine, self._masks, self._seed = engine, masks, seed
        self._bonus = np.zeros(engine.vocabulary.size, dtype=np.float32)
        closing = [bool(text) and CLOSING.issuperset(text or b"") for text in engine.vocabulary.tokens]
        self._bonus[closing], self._bonus[engine.eos] = 1, 2

    def text(self, budget: int, *, hurried: bool) -> str:
        """The text of one generation."""
        random, content, masks = np.random.default_rng(self._seed), b"", self._masks
        masks.restart()
        for tokens_left in range(budget - 1, -1, -1):
            scores = random.random(self._bonus.size, dtype=np.float32) + self._bonus * hurried
            masks.look_up()
            allowed = masks.allowed_within(tokens_left) if isinstance(masks, OurMasks) else masks.allowed()
            allowed = allowed[allowed < scores.size]
            token = int(allowed[scores[allowed].argmax()]) if allowed.size else self._engine.eos
            if token == self._engine.eos:
                break
            content += self._engine.vocabulary.tokens[token] or b""
            masks.advance(token)
        return content.decode(errors="replace")


class _MaskTimer:
    """Reads tokens and times the masks.

    A time is that from a token to the next mask over all ids.
    """

    def __init__(self, masks: Masks, eos: int) -> None:
        self._masks, self._eos = masks, eos
        self._microseconds: list[float] = []

    def sample(self, seed: int) -> list[float]:
        """Some of the times, drawn at random."""
        times = np.random.default_rng(seed).permutation(self._microseconds)[:_MASKS_MAX]
        return [round(float(time), 1) for time in times]

    def reads(self, tokens: list[int]) -> bool:
        """Whether the masks allow each token, and then the end."""
        self._masks.restart()
        self._masks.look_up()
        try:
            for token in tokens:
                if not self._masks.allows(token):
                    return False
                start = time.thread_time_ns()
                self._masks.advance(token)
                self._masks.look_up()
                if isinstance(self._masks, OurMasks):
                    self._masks.expand()
                self._microseconds.append((time.thread_time_ns() - start) / 1e3)
        except ExpressionRefused:  # it was allowed and is refused all the same
            return False
        return self._masks.allows(self._eos)


class SchemaMeasurement:
    """The measurement of a schema with its instances.

    A request's case has `schema`, `tests` (None: the compile alone), `seed` and `min_tokens`, which is None for our
    engine: it finds the number.
    """

    def __init__(self, tokenizer: Path) -> None:
        self._tokenizer = Tokenizer.from_str(gzip.decompress(tokenizer.read_bytes()).decode())
        self._tokenizer.encode_special_tokens = True  # in an instance they are text

    def __call__(self, engine: MaskEngine, request: MeasureRequest) -> Iterator[Outcome]:
        schema, seed, min_tokens = (request.case[name] for name in ("schema", "seed", "min_tokens"))
        compiled = timed_compile(engine, request)
        if isinstance(compiled, Outcome):
            yield compiled
            return
        masks, milliseconds = compiled
        figures = {"ms": milliseconds}
        if isinstance(masks, OurMasks):
            figures["min_tokens"] = min_tokens = masks.tokens.min_tokens
            figures["states"] = engine.figures(masks)["states"]
        details: _Details = {}
        yield Outcome("ok", figures=figures, details=details)
        if request.case["tests"] is None:
            return
        timer = _MaskTimer(masks, engine.eos)
        details["tests"] = [self._verdicts(test, request, timer) for test in request.case["tests"]]
        details["mask_us"] = timer.sample(seed)
        yield Outcome("ok", figures=figures, details=details)
        cuts, details["cuts"] = _Cuts(engine, masks, seed), {"random": [], "hurried": []}
        for times in TIMES if min_tokens else ():
            for name, verdicts in details["cuts"].items():
                text = cuts.text(int(times * min_tokens), hurried=name == "hurried")
                verdicts.append(is_valid(schema, text))
            yield Outcome("ok", figures=figures, details=details)

    def _verdicts(self, test: _Details, request: MeasureRequest, timer: _MaskTimer) -> list[bool | None]:
        """Three verdicts on an instance; None where nothing is decided.

        The right one; that of the engine, which is for ours that of the check; and that of the masks on the instance
        as its author wrote it, without white space.
        """
        try:
            text = compact_text(test["data"])
        except ValueError:
            return [test["valid"], None, None]
        by_masks = timer.reads(self._tokenizer.encode(text, add_special_tokens=False).ids)
        is_ours = request.expression.kind == "constraint"
        accepted = passes_check(json.loads(request.expression.text), text) if is_ours else by_masks
        return [test["valid"], accepted, by_masks]


def passes_check(constraint: object, text: str) -> bool | None:
    """Whether the value of a text fits our schema. None where the check outgrows a limit."""
    spec = spec_from_json(constraint)
    assert isinstance(spec, JsonSchemaSpec)
    try:
        return value_violation(spec, text, NATIVE, ResourceGuard(Limits())) is None
    except LimitExceeded:
        return None


def timed_compile(engine: MaskEngine, request: MeasureRequest) -> tuple[Masks, float] | Outcome:
    """The masks of a request, or why it has none.

    The number is milliseconds of the processor. Ours keep the service's limits, but `compile_s_max` in processor time:
    the service limits wall time, which other work on the machine would change.
    """
    start = time.process_time()
    is_ours = isinstance(engine, OurEngine)
    if isinstance(engine, OurEngine):
        engine.limits = replace(DEFAULT_LIMITS, compile_s_max=request.seconds_max)
        engine.cancelled = lambda: time.process_time() - start > DEFAULT_LIMITS.compile_s_max
    try:
        masks = engine.compile(request.expression)
    except MemoryError:
        raise
    except Exception as error:  # a library raises errors of its own
        return refusal(error, is_ours=is_ours)
    milliseconds = (time.process_time() - start) * 1e3
    if is_ours and milliseconds > DEFAULT_LIMITS.compile_s_max * 1e3:
        return refusal(CompileCancelled("over the service's limit"), is_ours=True)
    return masks, milliseconds


def refusal(error: Exception, *, is_ours: bool) -> Outcome:
    """The outcome of a compile that failed. Errors that are defects of ours are raised.

    Its reason is our name for it, or what is general in the other engine's message.
    """
    match error:
        case LimitExceeded():
            return Outcome("limit", details={"reason": error.limit})
        case CompileCancelled():
            return Outcome("limit", details={"reason": "compile_s_max"})
        case SpecUnsupported():
            return Outcome("refused", details={"reason": _general(error.construct)})
        case SpecError():
            return Outcome("refused", details={"reason": error.facts.code})
        case _ if is_ours:
            raise error
    return Outcome("refused", details={"reason": _general(str(error))})


def _general(message: str) -> str:
    """A message without its quotations, except keywords of JSON Schema."""
    start = re.split(r"[:\"'`\[({/\n]", message)[0].strip()[:_REASON_CHARS]
    keywords = (word for word in re.findall(r"\$?\w+", message[len(start) :]) if word in ASSERTIONS | ANNOTATIONS)
    return " ".join([start, *sorted(set(keywords))[:3]])


if __name__ == "__main__":
    serve(SchemaMeasurement(Path(sys.argv[2])))
